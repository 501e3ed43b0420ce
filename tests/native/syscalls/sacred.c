/* What system calls can do that a program might miss if they were trapped: each case prints what it sees. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;
static const char *static_program;
static volatile int seen;

static void calls_in_handler(int signal)
{
    struct stat status;
    (void)signal;
    stat("/", &status);
    seen += getppid() > 0;
}

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigfillset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

static void tick(long every_us)
{
    struct itimerval timer = {{0, every_us}, {0, every_us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int interrupted(void)
{
    int ends[2];
    char letter;
    handle(SIGALRM, calls_in_handler, 0);
    if (pipe(ends))
        return 1;
    tick(20000);
    ssize_t got = read(ends[0], &letter, 1);
    printf("read %zd %s\n", got, got < 0 ? strerror(errno) : "");
    got = syscall(SYS_read, ends[0], &letter, 1);
    printf("read %zd %s\n", got, got < 0 ? strerror(errno) : "");
    printf("poll %d %s\n", poll(NULL, 0, 1000), strerror(errno));
    printf("pause %d %s\n", pause(), strerror(errno));
    tick(0);
    printf("seen %d\n", seen >= 4);
    return 0;
}

static int restarted(void)
{
    int ends[2];
    char letter = 0;
    handle(SIGALRM, calls_in_handler, SA_RESTART);
    if (pipe(ends))
        return 1;
    if (fork() == 0) {
        usleep(200000);
        if (write(ends[1], "x", 1) != 1)
            _exit(1);
        _exit(0);
    }
    tick(10000);
    printf("read %zd %c\n", syscall(SYS_read, ends[0], &letter, 1), letter);
    tick(0);
    wait(NULL);
    printf("seen %d\n", seen >= 4);
    return 0;
}

static int masks(void)
{
    sigset_t all, old, now;
    struct timespec moment = {0, 100000000};
    handle(SIGALRM, calls_in_handler, 0);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    sigprocmask(SIG_SETMASK, NULL, &now);
    printf("blocked %d %d %d\n", sigismember(&now, SIGSYS), sigismember(&now, SIGALRM), sigismember(&old, SIGSYS));
    tick(20000);
    sigdelset(&all, SIGALRM);
    printf("sigsuspend %d %s\n", sigsuspend(&all), strerror(errno));
    printf("ppoll %d %s\n", ppoll(NULL, 0, &moment, &all), strerror(errno));
    printf("pselect %d %s\n", pselect(0, NULL, NULL, NULL, &moment, &all), strerror(errno));
    tick(0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("seen %d\n", seen >= 3);
    printf("wrong %d %s\n", sigprocmask(99, &old, NULL), strerror(errno));
    return 0;
}

static sigjmp_buf back;
static void jump(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static int jumps(void)
{
    struct stat status;
    volatile int turns = 0, ends[2];
    handle(SIGALRM, jump, 0);
    if (pipe((int *)ends))
        return 1;
    while (turns < 20) {
        if (sigsetjmp(back, 1)) {
            turns++;
            continue;
        }
        tick(3000);
        char letter;
        if (turns % 2)
            (void)!read(ends[0], &letter, 1);
        else
            for (;;)
                stat("/", &status), getppid();
    }
    tick(0);
    printf("jumped %d\n", turns);
    return 0;
}

static int vforks(void)
{
    volatile int told = 0;
    for (int turn = 0; turn < 20; turn++) {
        pid_t pid = vfork();
        if (pid == 0) {
            told++;     /* memory is shared */
            char *arguments[] = {"true", NULL};
            execve(turn % 2 ? "/bin/true" : "/no/such/program", arguments, environ);
            _exit(errno == ENOENT ? 9 : 8);
        }
        int status;
        waitpid(pid, &status, 0);
        printf("%d ", WEXITSTATUS(status));
    }
    printf("told %d\n", told);
    return 0;
}

static int spawns(void)
{
    pid_t pid;
    int status;
    char *hello[] = {"echo", "hello", NULL};
    posix_spawnattr_t attributes;
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    printf("missing %d\n", posix_spawn(&pid, "/no/such/program", NULL, NULL, hello, environ));
    fflush(stdout);
    printf("there %d ", posix_spawn(&pid, "/bin/echo", NULL, &attributes, hello, environ));
    waitpid(pid, &status, 0);
    printf("%d\n", status);
    fflush(stdout);
    printf("system %d\n", system("exit 4") >> 8);
    FILE *pipe = popen("echo piped", "r");
    char line[32] = "";
    printf("%s", fgets(line, sizeof line, pipe));
    printf("closed %d\n", pclose(pipe));
    return 0;
}

static int executes_static(void)
{
    char *arguments[] = {"static", NULL};
    if (access(static_program, X_OK) != 0)
        return 0;
    execve(static_program, arguments, environ);
    return 1;
}

static void *small(void *argument)
{
    char room[2000];
    struct stat status;
    memset(room, (int)(long)argument, sizeof room);
    stat("/", &status);
    getppid();
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return (void *)(long)room[17];
}

static int small_stacks(void)
{
    pthread_attr_t attributes;
    long sum = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    for (int turn = 0; turn < 50; turn++) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++)
            if (pthread_create(&threads[i], &attributes, small, (void *)i))
                return 1;
        for (int i = 0; i < 4; i++) {
            void *got;
            pthread_join(threads[i], &got);
            sum += (long)got;
        }
    }
    printf("sum %ld\n", sum);
    return 0;
}

/* Uses all of its stack but what the calls themselves need. */
static void *fills(void *unused)
{
    pthread_attr_t attributes;
    void *bottom;
    size_t bytes;
    char here;
    struct stat status;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
    size_t room = (size_t)(&here - (char *)bottom) - 1500;
    volatile char *filled = alloca(room);
    for (size_t i = 0; i < room; i += 64)
        filled[i] = 1;
    long sum = stat("/", &status) + stat("here", &status) + open("/no/such/file", O_RDONLY) + close(-1);
    sum += syscall(SYS_newfstatat, AT_FDCWD, "here", &status, 0) + syscall(SYS_getpgid, -1) + read(-1, &here, 1);
    return sum == -6 ? unused : &here;
}

static int smallest_stacks(void)
{
    pthread_attr_t attributes;
    int good = 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    for (int turn = 0; turn < 50; turn++) {
        pthread_t thread;
        void *got;
        if (pthread_create(&thread, &attributes, fills, NULL))
            return 1;
        pthread_join(thread, &got);
        good += got == NULL;
    }
    printf("good %d\n", good);
    return 0;
}

static void *waits(void *pipe)
{
    char letter;
    for (;;)
        (void)!read(*(int *)pipe, &letter, 1);
    return NULL;
}

static int cancels(void)
{
    int ends[2];
    void *got;
    pthread_t thread;
    if (pipe(ends) || pthread_create(&thread, NULL, waits, ends))
        return 1;
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, &got);
    printf("cancelled %d\n", got == PTHREAD_CANCELED);
    return 0;
}

static void on_stack(int signal, siginfo_t *info, void *context)
{
    stack_t now;
    (void)signal, (void)info, (void)context;
    sigaltstack(NULL, &now);
    printf("on the other stack %d\n", (now.ss_flags & SS_ONSTACK) != 0);
    fflush(stdout);
    _exit(6);
}

static int endless(int depth)
{
    volatile char room[512];
    memset((void *)room, depth, sizeof room);
    return endless(depth + 1) + room[5];
}

static int overflows(void)
{
    static char other[65536];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_sigaction = on_stack, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    printf("set %d\n", sigaltstack(&stack, NULL));
    sigaction(SIGSEGV, &action, NULL);
    return endless(0);
}

static int own_handler_calls;
static void own_handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    own_handler_calls++;
    if (info->si_code == 1) {   /* a filter's */
        ucontext_t *at = context;
#if defined(__x86_64__)
        at->uc_mcontext.gregs[REG_RAX] = 4242;
#endif
    }
}

static void own(void)
{
    struct sigaction action = {.sa_sigaction = own_handler, .sa_flags = SA_SIGINFO}, old;
    sigaction(SIGSYS, &action, &old);
    printf("before %d\n", old.sa_handler == SIG_DFL);
    sigaction(SIGSYS, NULL, &old);
    printf("now %d\n", old.sa_sigaction == own_handler);
}

static int own_sigsys(void)
{
    struct stat status;
    own();
    kill(getpid(), SIGSYS);
    raise(SIGSYS);
    printf("handled %d, stat %d\n", own_handler_calls, stat("/", &status));
    return 0;
}

static int own_filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    struct stat status;
    own();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 1;
    printf("trapped %ld, refused %ld %s, stat %d\n", syscall(SYS_getpgid, 0), syscall(SYS_getppid), strerror(errno),
           stat("/", &status));
    printf("handled %d\n", own_handler_calls);
    return 0;
}

static int own_dispatch(void)
{
    char selector = 0;
    int failed = prctl(59, 1, 0, 0, &selector);
    int off = prctl(59, 0, 0, 0, 0);
    struct stat status;
    printf("dispatch %d %d, stat %d\n", failed, off, stat("/", &status));
    return 0;
}

static int ignored(void)
{
    signal(SIGSYS, SIG_IGN);
    raise(SIGSYS);
    printf("lives %d\n", getppid() > 0);
    signal(SIGSYS, SIG_DFL);
    fflush(stdout);
    raise(SIGSYS);
    return 0;
}

static int filtered_to_death(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    printf("now\n");
    fflush(stdout);
    syscall(SYS_getpgid, 0);
    return 0;
}

static int wrong_arguments(void)
{
    printf("open %d", open((char *)1, O_RDONLY));
    printf(" %s\n", strerror(errno));
    printf("stat %ld", syscall(SYS_newfstatat, AT_FDCWD, 1, 1, 0));
    printf(" %s\n", strerror(errno));
    printf("none %ld", syscall(9999));
    printf(" %s\n", strerror(errno));
    printf("read %zd", read(-1, NULL, 1));
    printf(" %s\n", strerror(errno));
    printf("exec %d", execve("/", NULL, NULL));
    printf(" %s\n", strerror(errno));
    return 0;
}

static int thread_child(void *memory)
{
    *(int *)memory = 17;
    return 3;
}

static int clones(void)
{
    static char stack[65536];
    int told = 0, status;
    pid_t pid = clone(thread_child, stack + sizeof stack, CLONE_VM | SIGCHLD, &told);
    waitpid(pid, &status, 0);
    printf("shared %d %d\n", told, WEXITSTATUS(status));
    told = 0;
    pid = clone(thread_child, stack + sizeof stack, SIGCHLD, &told);
    waitpid(pid, &status, 0);
    printf("copied %d %d\n", told, WEXITSTATUS(status));
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        syscall(SYS_exit, 5);
    waitpid(pid, &status, 0);
    printf("raw %d\n", WEXITSTATUS(status));
    return 0;
}

static void *forks_in_thread(void *unused)
{
    (void)unused;
    for (int turn = 0; turn < 10; turn++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(getppid() > 0 ? turn : 99);
        int status;
        waitpid(pid, &status, 0);
        if (WEXITSTATUS(status) != turn)
            printf("wrong %d\n", status);
    }
    return NULL;
}

static int threads_fork(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, forks_in_thread, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}

static int hello(void)
{
    printf("hello\n");
    return 2;
}

static struct { const char *name; int (*run)(void); } cases[] = {
    {"hello", hello},
#ifndef ONLY_HELLO
    {"interrupted", interrupted},
    {"restarted", restarted},
    {"masks", masks},
    {"jumps", jumps},
    {"vforks", vforks},
    {"spawns", spawns},
    {"executes_static", executes_static},
    {"small_stacks", small_stacks},
    {"smallest_stacks", smallest_stacks},
    {"cancels", cancels},
    {"overflows", overflows},
    {"own_sigsys", own_sigsys},
    {"own_filter", own_filter},
    {"own_dispatch", own_dispatch},
    {"ignored", ignored},
    {"filtered_to_death", filtered_to_death},
    {"wrong_arguments", wrong_arguments},
    {"clones", clones},
    {"threads_fork", threads_fork},
#endif
};

int main(int count, char **arguments)
{
    static_program = count > 2 ? arguments[2] : "";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (!strcmp(cases[i].name, count > 1 ? arguments[1] : "hello"))
            return cases[i].run();
    return 77;
}
