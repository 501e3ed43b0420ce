/* life CASE: what programs do with threads, forks, signals and their own end. Prints only what must be the same with
 * and without the recorder, whose functions are called where they are there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t (*range_begin)(const char *);
static void (*range_end)(const char *, uint64_t);
static int (*inject)(void);

static void find_recorder(void)
{
    range_begin = (uint64_t(*)(const char *))dlsym(RTLD_DEFAULT, "rankscope_range_begin");
    range_end = (void (*)(const char *, uint64_t))dlsym(RTLD_DEFAULT, "rankscope_range_end");
    inject = (int (*)(void))dlsym(RTLD_DEFAULT, "InitializeInjection");
}

/* Rows, strings, chunks and index tables of the calling thread. */
static void record(int turns)
{
    char name[32];
    for (int i = 0; i < turns && range_begin; i++) {
        strcpy(name, "range 000");
        name[6] = (char)('0' + i / 100 % 10);
        name[7] = (char)('0' + i / 10 % 10);
        name[8] = (char)('0' + i % 10);
        range_end(name, range_begin(name));
    }
}

static int ended(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* The layers of GPUs have rows of threads that the recorder has not met: its own key may not exist yet. */
static int key_of_others(void)
{
    pthread_key_t first;
    static int mine;
    pthread_key_create(&first, NULL);
    pthread_setspecific(first, &mine);
    if (inject)
        inject();
    pid_t pid = fork();
    if (pid == 0)
        _exit(pthread_getspecific(first) == &mine ? 0 : 1);
    printf("key %u, child %d\n", first, ended(pid));
    return 0;
}

/* The recorder cannot have a key at all. */
static int no_key_left(void)
{
    pthread_key_t keys[PTHREAD_KEYS_MAX];
    int made = 0, kept = 0;
    while (made < PTHREAD_KEYS_MAX && pthread_key_create(&keys[made], NULL) == 0)
        made++;
    for (int i = 0; i < made; i++)
        pthread_setspecific(keys[i], &keys[i]);
    record(50);
    pid_t pid = fork();
    for (int i = 0; i < made; i++)
        kept += pthread_getspecific(keys[i]) == &keys[i];
    if (pid == 0)
        _exit(kept == made ? 0 : 1);
    printf("kept %d, child %d\n", kept == made, ended(pid));
    return 0;
}

static void *records_once(void *unused)
{
    record(3);
    return unused;
}

static int threads_without_key(void)
{
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0)
        continue;
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, records_once, NULL))
            return 1;
        pthread_join(thread, NULL);
    }
    printf("done\n");
    return 0;
}

static volatile int stop;

static void *records(void *unused)
{
    while (!stop)
        record(1000);
    return unused;
}

static void *comes_and_goes(void *unused)
{
    while (!stop) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, records_once, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return unused;
}

static void *forks(void *bad)
{
    for (int turn = 0; turn < 30; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            record(turn * 20);
            if (turn % 7 == 0) {    /* and its own child */
                pid_t inner = fork();
                if (inner == 0) {
                    record(10);
                    _exit(5);
                }
                _exit(ended(inner) == 5 ? turn : 99);
            }
            _exit(turn);
        }
        if (ended(pid) != turn)
            __atomic_fetch_add((int *)bad, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int forks_while_recording(void)
{
    pthread_t recording[4], forking[2];
    int bad = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&recording[i], NULL, i < 3 ? records : comes_and_goes, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&forking[i], NULL, forks, &bad);
    for (int i = 0; i < 2; i++)
        pthread_join(forking[i], NULL);
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(recording[i], NULL);
    printf("bad %d\n", bad);
    return 0;
}

static volatile sig_atomic_t is_child, is_recording, beats;
static int children[150];

/* Half of the children return into whatever was interrupted: system calls, which may be counted just then. */
static void fork_in_handler(int signal)
{
    int saved = errno;
    (void)signal;
    if (is_child || beats >= 150)
        return;
    pid_t pid = fork();
    if (pid == 0 && (beats % 2 || is_recording))
        _exit(7);
    if (pid == 0)
        is_child = 1;
    else
        children[beats++] = pid;
    errno = saved;
}

static void make_calls(void)
{
    struct stat status;
    for (int i = 0; i < 50; i++) {
        stat("/", &status);
        (void)!read(-1, &status, 1);
        syscall(SYS_getpgid, 0);
    }
}

static int fork_often(void (*work)(void))
{
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    int bad = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    while (beats < 150 && !is_child)
        work();
    if (is_child) {
        work();
        _exit(7);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    for (int i = 0; i < beats; i++)
        bad += ended(children[i]) != 7;
    printf("bad %d, enough %d\n", bad, beats == 150);
    return 0;
}

static int forks_in_handlers(void) { return fork_often(make_calls); }

static void record_or_wait(void)
{
    struct timespec moment = {0, 100000};
    range_begin ? record(1000) : (void)nanosleep(&moment, NULL);
}

static int forks_in_handlers_while_recording(void)
{
    is_recording = 1;
    return fork_often(record_or_wait);
}

static void exit_in_handler(int signal) { exit(signal == SIGALRM ? 5 : 6); }
static void fast_exit_in_handler(int signal) { _exit(signal == SIGALRM ? 5 : 6); }

static void record_until_alarm(void (*handler)(int), int us)
{
    struct itimerval once = {{0, 0}, {0, us}};
    signal(SIGALRM, handler);
    setitimer(ITIMER_REAL, &once, NULL);
    for (;;)
        record(1000);
}

static int exits_in_handlers(void)
{
    int bad = 0;
    for (int turn = 0; turn < 30; turn++) {
        pid_t pid = fork();
        if (pid == 0)
            record_until_alarm(turn % 2 ? exit_in_handler : fast_exit_in_handler, 100 + turn * 37);
        bad += ended(pid) != 5;
    }
    printf("bad %d\n", bad);
    return 0;
}

static pthread_barrier_t both;

/* Cancelled already, and cancellation points are all that could act on it: none of these calls is one. */
static void *forks_when_cancelled(void *told)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(17);
    record(1000);
    *(pid_t *)told = pid;
    pthread_testcancel();
    return NULL;
}

static int cancelled(void)
{
    pthread_t thread;
    pid_t pid = 0;
    void *result;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, forks_when_cancelled, &pid);
    pthread_barrier_wait(&both);
    pthread_cancel(thread);
    pthread_barrier_wait(&both);
    pthread_join(thread, &result);
    printf("reached %d, child %d, cancelled %d\n", pid > 0, pid > 0 ? ended(pid) : -1, result == PTHREAD_CANCELED);
    return 0;
}

static void *exit_of_cancelled(void *unused)
{
    (void)unused;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    _exit(12);
}

static int cancelled_exit(void)
{
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, exit_of_cancelled, NULL);
    pthread_barrier_wait(&both);
    pthread_cancel(thread);
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    return 1;
}

static void says_bye(void) { (void)!write(1, "bye\n", 4); }

static int quick_exits(void)
{
    record(10);
    at_quick_exit(says_bye);
    quick_exit(9);
}

static void *stays(void *unused)
{
    struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
    record(10);
    return unused;
}

static int main_leaves(void)
{
    pthread_t thread;
    record(10);
    pthread_create(&thread, NULL, stays, NULL);
    pthread_exit(NULL);
}

static int vforks_and_exec_fails(void)
{
    char *arguments[] = {"none", NULL};
    pid_t pid = vfork();
    if (pid == 0)
        _exit(4);
    printf("vfork %d\n", ended(pid));
    pid = vfork();
    if (pid == 0) {
        execv("/no/such/program", arguments);
        _exit(6);
    }
    printf("exec in vfork %d\n", ended(pid));
    int failed = execv("/no/such/program", arguments);
    printf("exec %d %s\n", failed, strerror(errno));
    record(10);
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(execv("/no/such/program", arguments) == -1 ? 8 : 9);
    printf("exec in fork %d\n", ended(pid));
    return 3;
}

static pthread_key_t late;

static void records_late(void *rounds)
{
    record(3);
    if ((uintptr_t)rounds > 1)
        pthread_setspecific(late, (void *)((uintptr_t)rounds - 1));
}

static void *ends_late(void *unused)
{
    pthread_setspecific(late, (void *)3);
    record(3);
    return unused;
}

/* Destructors of the program may run before and after ours, and record. */
static int destructors(void)
{
    pthread_key_create(&late, records_late);
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, ends_late, NULL);
        pthread_join(thread, NULL);
    }
    printf("done\n");
    return 0;
}

static int closes_recorder(void)
{
    Dl_info info;
    if (range_begin && dladdr((void *)range_begin, &info)) {
        void *again = dlopen(info.dli_fname, RTLD_NOW);
        dlclose(again);
        dlclose(again);
    }
    record(10);
    pid_t pid = fork();
    if (pid == 0) {
        record(10);
        exit(11);
    }
    printf("child %d\n", ended(pid));
    return 0;
}

static struct { const char *name; int (*run)(void); } cases[] = {
    {"key_of_others", key_of_others},
    {"no_key_left", no_key_left},
    {"threads_without_key", threads_without_key},
    {"forks_while_recording", forks_while_recording},
    {"forks_in_handlers", forks_in_handlers},
    {"forks_in_handlers_while_recording", forks_in_handlers_while_recording},
    {"exits_in_handlers", exits_in_handlers},
    {"cancelled", cancelled},
    {"cancelled_exit", cancelled_exit},
    {"quick_exits", quick_exits},
    {"main_leaves", main_leaves},
    {"vforks_and_exec_fails", vforks_and_exec_fails},
    {"destructors", destructors},
    {"closes_recorder", closes_recorder},
};

int main(int count, char **arguments)
{
    find_recorder();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (count > 1 && !strcmp(cases[i].name, arguments[1]))
            return cases[i].run();
    return 77;
}
