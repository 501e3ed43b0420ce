// cancel: cancels threads inside calls that wait, each with an object whose destructor must run, and ends others inside
// a handler. Prints the same whatever counts the calls.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

int ends[2];
sem_t never, about_to;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
int destroyed;

struct Object {
    ~Object() { destroyed++; }
};

timespec long_time() { return {1000, 0}; }
void unlock(void *) { pthread_mutex_unlock(&mutex); }

void reads() { char letter; (void)!read(ends[0], &letter, 1); }
void reads_vector() { char letter; iovec one{&letter, 1}; (void)!readv(ends[0], &one, 1); }
void sleeps() { timespec time = long_time(); nanosleep(&time, nullptr); }
void polls() { pollfd one{ends[0], POLLIN, 0}; poll(&one, 1, -1); }
void polls_with_mask()
{
    pollfd one{ends[0], POLLIN, 0};
    sigset_t mask;
    sigfillset(&mask);
    ppoll(&one, 1, nullptr, &mask);
}
void selects()
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    select(ends[0] + 1, &set, nullptr, nullptr, nullptr);
}
void pauses() { pause(); }
void waits_for_semaphore() { sem_wait(&never); }
void waits_for_condition()
{
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, nullptr);
    for (;;)
        pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(1);
}
void waits_for_child() { waitpid(-1, nullptr, 0); }
void receives()
{
    int pair[2];
    char letter;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)
        recv(pair[0], &letter, 1, 0);
}
void accepts_nothing() { sigset_t none; sigemptyset(&none); int got; sigaddset(&none, SIGUSR2); sigwait(&none, &got); }

struct { const char *name; void (*wait)(); } const waits[] = {
    {"read", reads}, {"readv", reads_vector}, {"nanosleep", sleeps}, {"poll", polls}, {"ppoll", polls_with_mask},
    {"select", selects}, {"pause", pauses}, {"sem_wait", waits_for_semaphore}, {"cond_wait", waits_for_condition},
    {"waitpid", waits_for_child}, {"recv", receives}, {"sigwait", accepts_nothing},
};

void *runs(void *wait)
{
    Object object;
    sem_post(&about_to);
    for (;;)
        reinterpret_cast<void (*)()>(wait)();
    return nullptr;
}

// Cancelled at once and a little later: before, at and in the call.
void cancel(const char *name, void (*wait)())
{
    const int turns = 40;
    int cancelled = 0;
    destroyed = 0;
    for (int turn = 0; turn < turns; turn++) {
        pthread_t thread;
        void *result = nullptr;
        pthread_create(&thread, nullptr, runs, reinterpret_cast<void *>(wait));
        while (sem_wait(&about_to) != 0)
            continue;
        timespec moment{0, turn % 4 == 3 ? 2000000 : turn * 1000};
        if (turn % 4)
            nanosleep(&moment, nullptr);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        cancelled += result == PTHREAD_CANCELED;
    }
    std::printf("%s: %d cancelled, %d destroyed\n", name, cancelled, destroyed);
    std::fflush(stdout);
}

void ends_thread(int) { pthread_exit(reinterpret_cast<void *>(7)); }

void end_in_handler()
{
    pthread_t thread;
    void *result = nullptr;
    destroyed = 0;
    std::signal(SIGUSR1, ends_thread);
    pthread_create(&thread, nullptr, runs, reinterpret_cast<void *>(pauses));
    sem_wait(&about_to);
    timespec moment{0, 20000000};
    nanosleep(&moment, nullptr);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, &result);
    std::printf("handler: %ld, %d destroyed\n", reinterpret_cast<long>(result), destroyed);
}

// What is no cancellation point goes on as if nothing had happened.
void *reads_itself(void *)
{
    char letter = 0;
    sem_post(&about_to);
    long got = syscall(SYS_read, ends[0], &letter, 1);
    int error = errno;
    std::printf("own call: %ld %c %d\n", got, letter, got < 0 ? error : 0);
    std::fflush(stdout);
    pthread_testcancel();
    return nullptr;
}

void cancel_outside()
{
    pthread_t thread;
    void *result = nullptr;
    pthread_create(&thread, nullptr, reads_itself, nullptr);
    sem_wait(&about_to);
    timespec moment{0, 20000000};
    nanosleep(&moment, nullptr);
    pthread_cancel(thread);
    nanosleep(&moment, nullptr);
    (void)!write(ends[1], "x", 1);
    pthread_join(thread, &result);
    std::printf("own call: cancelled %d\n", result == PTHREAD_CANCELED);
}

}  // namespace

int main()
{
    if (pipe(ends) != 0 || sem_init(&never, 0, 0) != 0 || sem_init(&about_to, 0, 0) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0)     // so that there is something to wait for
        for (;;)
            pause();
    for (const auto &one : waits)
        cancel(one.name, one.wait);
    end_in_handler();
    cancel_outside();
    kill(child, SIGKILL);
    return 0;
}
