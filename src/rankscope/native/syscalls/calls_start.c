/* What the dynamic loader did before we were loaded: its start of this program is repeated in a child, without our
 * libraries, watched by ptrace, and ended before anything but the loader has made a system call. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls_layer.h"
#include "process.h"
#include "recorder.h"

#if defined(__x86_64__)

#define MOST_STOPS 200000
#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
#define STACK_BYTES (64u << 10)
#define SYSCALL_STOP (SIGTRAP | 0x80)

static int child(void *environment)
{
    static char name[] = "rankscope-loader";
    char *arguments[] = {name, NULL};
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
        execve("/proc/self/exe", arguments, environment);
    syscall(SYS_exit, 127);
    return 0;
}

/* The path that a call of the child names, brought here. */
static void fetch_path(pid_t pid, struct rs_call *call, char *path, size_t size)
{
    enum rs_about about = rs_call_about(call);
    if (about != RS_ABOUT_PATH && about != RS_ABOUT_PATH_AT)
        return;
    long *pointer = &call->arguments[about == RS_ABOUT_PATH_AT];
    struct iovec here = {path, size - 1}, there = {(void *)*pointer, size - 1};
    path[0] = 0;
    size_t page_left = 4096 - ((size_t)*pointer & 4095);     /* the next page may not be there */
    for (size_t want = size - 1; want; want = want > page_left ? page_left : 0) {
        here.iov_len = there.iov_len = want;
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got > 0) {
            path[got] = 0;
            break;
        }
    }
    *pointer = (long)path;
}

/* The loader's code lies around its first call. libc looks at the limit of the stack before the loader is done. */
static int by_loader(uint64_t at, uint64_t number, uint64_t *first)
{
    if (!*first)
        *first = at;
    return number == SYS_prlimit64 || (at > *first - (1u << 20) && at < *first + (1u << 20));
}

static void count(pid_t pid, struct rs_call *call)
{
    char path[1024];
    fetch_path(pid, call, path, sizeof path);
    call->in_loader = 1;
    rs_calls_count(&rankscope_calls_thread, call);
    rs.file->loader_calls++;
}

/* 1: it was told to go on; 0: it cannot or should not. */
static int next_stop(pid_t pid, int status, int first_stop, struct rs_call *call, uint64_t *loader)
{
    struct __ptrace_syscall_info info;
    if (first_stop)
        ptrace(PTRACE_SETOPTIONS, pid, NULL, OPTIONS);
    else if (WSTOPSIG(status) == SYSCALL_STOP && ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) > 0) {
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
            if (!by_loader(info.instruction_pointer, info.entry.nr, loader))
                return 0;
            *call = (struct rs_call){.number = (long)info.entry.nr};
            for (int i = 0; i < 6; i++)
                call->arguments[i] = (long)info.entry.args[i];
        } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
            call->result = (long)info.exit.rval;
            if (call->number != SYS_execve)
                count(pid, call);
        }
    }
    return ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0;
}

/* Its end included: afterwards nothing has its number. */
static void follow(pid_t pid)
{
    struct rs_call call = {.number = SYS_execve};
    uint64_t loader = 0;
    int status, going = 1;
    for (int stop = 0; going && stop < MOST_STOPS; stop++) {
        if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
            return;
        going = next_stop(pid, status, stop == 0, &call, &loader);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, pid, NULL, NULL);
}

/* The stops of the child are told by SIGCHLD: none of them may be left over where the program has it blocked. */
static int child_signal_waits(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCHLD);
}

static void drop_child_signal(void)
{
    const struct timespec now = {0, 0};
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, SIGCHLD);
    if (child_signal_waits())
        sigtimedwait(&only, NULL, &now);
}

/* No signal tells its end, and memory is shared until it has become the loader: as posix_spawn does it. */
void rs_loader_replay(void)
{
    size_t bytes = rs_bare_environment_bytes(environ);
    void *memory = rs_memory(bytes);
    char **environment = memory ? rs_bare_environment(environ, memory) : NULL;
    char *stack = rs_memory(STACK_BYTES);
    int waited = child_signal_waits();
    if (!environment || !stack)
        return;
    if (rs_is_first_image())
        rs_calls_count(&rankscope_calls_thread, &(struct rs_call){.number = SYS_execve});
    pid_t pid = clone(child, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, environment);
    if (pid > 0)
        follow(pid);
    if (!waited)
        drop_child_signal();
    rs_memory_free(stack, STACK_BYTES);
    rs_memory_free(memory, bytes);
}

#else

void rs_loader_replay(void) {}

#endif
