/* Does what real programs do (threads, fork, exec, pipes, signals, dlopen, much malloc), then ends as its argument says.
 * Compiled in many ways by programs.py; prints nothing that differs from run to run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counted;
static volatile sig_atomic_t caught;

static void *work(void *argument)
{
    (void)argument;
    for (int i = 0; i < 2000; i++) {
        char *memory = malloc((size_t)(i % 300) + 1);
        memory[0] = (char)i;
        pthread_mutex_lock(&lock);
        counted += memory[0] == (char)i;
        pthread_mutex_unlock(&lock);
        free(memory);
    }
    return NULL;
}

static void catch_signal(int number)
{
    caught = number;
}

static void threads(void)
{
    pthread_t ids[8];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    for (int i = 0; i < 8; i++)
        if (pthread_create(&ids[i], &attributes, work, NULL))
            abort();
    for (int i = 0; i < 8; i++)
        pthread_join(ids[i], NULL);
    printf("counted %d\n", counted);
}

static void children(void)
{
    int ends[2], status;
    char text[64];
    if (pipe(ends))
        abort();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (write(ends[1], "hello", 5) != 5)
            _exit(2);
        _exit(7);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], text, sizeof text);
    close(ends[0]);
    waitpid(child, &status, 0);
    printf("child said %.*s and ended with %d\n", (int)got, text, WEXITSTATUS(status));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execlp("echo", "echo", "echo of a child", (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    FILE *pipe_of = popen("echo $((6 * 7)); exit 5", "r");
    if (!pipe_of || !fgets(text, sizeof text, pipe_of))
        abort();
    status = pclose(pipe_of);
    printf("popen %d %s", WEXITSTATUS(status), text);
    printf("system %d\n", WEXITSTATUS(system("exit 9")));
    fflush(stdout);
    child = vfork();
    if (child == 0)
        _exit(11);
    waitpid(child, &status, 0);
    printf("vfork %d\n", WEXITSTATUS(status));
}

static void libraries(void)
{
#ifndef NO_DLOPEN
    void *library = dlopen("libm.so.6", RTLD_NOW);
    printf("dlopen %s\n", library ? "works" : "fails");
    if (library)
        dlclose(library);
    printf("no such library: %s\n", dlopen("no_such_library.so", RTLD_NOW) ? "found" : "not found");
#endif
}

static void say_bye(void)
{
    printf("atexit\n");
}

#ifdef BUG
__attribute__((noinline)) static void lose_memory(void)
{
    for (int i = 0; i < 20; i++) {
        volatile char *memory = malloc(1234);
        memory[0] = 1;
    }
}

/* A leak is not one while its address stands on the stack or in a register: the last one may. */
__attribute__((noinline)) static void forget_stack(void)
{
    volatile char stack[32768];
    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = 0;
}

static int racing;
static void *race(void *argument)
{
    (void)argument;
    for (int i = 0; i < 1000; i++)
        racing++;
    return NULL;
}
#endif

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "0";
    struct sigaction action = {.sa_handler = catch_signal};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("caught %d\n", caught == SIGUSR1);
    threads();
    children();
    libraries();
    atexit(say_bye);
    fprintf(stderr, "to stderr\n");
    errno = 0;
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "segv"))
        raise(SIGSEGV);
    if (!strcmp(how, "term"))
        raise(SIGTERM);
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "_exit"))
        _exit(13);
    if (!strcmp(how, "thread_exit")) {
        pthread_exit(NULL);
    }
#ifdef BUG
    if (!strcmp(how, "use_after_free")) {
        volatile char *memory = malloc(10);
        free((void *)memory);
        return memory[3];
    }
    if (!strcmp(how, "leak")) {
        lose_memory();
        forget_stack();
        return 0;
    }
    if (!strcmp(how, "overflow")) {
        volatile int large = 2147483647;
        large = large + count;
        printf("%d\n", large);
        return 0;
    }
    if (!strcmp(how, "race")) {
        pthread_t ids[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&ids[i], NULL, race, NULL);
        for (int i = 0; i < 2; i++)
            pthread_join(ids[i], NULL);
        return 0;
    }
#endif
    return atoi(how);
}
