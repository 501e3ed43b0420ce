// Exceptions through threads, thread-local destructors, static destructors, std::async: what C++ runtimes do at the ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

struct Says {
    const char *what;
    ~Says() { std::printf("end of %s\n", what); }
};
static Says of_program{"program"};
static thread_local int initialised = 0;

static int thrower(int depth)
{
    Says local{"frame"};
    (void)local;
    if (!depth)
        throw std::runtime_error("thrown");
    return thrower(depth - 1) + 1;
}

int main(int count, char **arguments)
{
    try {
        thrower(3);
    } catch (const std::exception &error) {
        std::printf("caught %s\n", error.what());
    }
    auto later = std::async(std::launch::async, [] { return thrower(1); });
    try {
        later.get();
    } catch (const std::exception &error) {
        std::printf("from a thread: %s\n", error.what());
    }
    std::thread([] {
        static thread_local Says of_thread{"thread"};
        (void)of_thread;
        initialised = 1;
    }).join();
    std::vector<std::thread> many;
    for (int i = 0; i < 50; i++)
        many.emplace_back([] { initialised++; });
    for (auto &thread : many)
        thread.join();
    std::printf("initialised %d\n", initialised);
    if (count > 1 && !std::strcmp(arguments[1], "uncaught"))
        thrower(0);
    if (count > 1 && !std::strcmp(arguments[1], "quick"))
        std::quick_exit(4);
    return 0;
}
