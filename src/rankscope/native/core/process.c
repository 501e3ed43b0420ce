/* Load, fork, exit, death: the life of one process, as far as it can be watched without disturbing it. No signal handler
 * is installed, and no thread is started but in processes that use CUDA. Everything begins in `loaded`, at the end of this
 * file; whether there is a rank file is for recording.c to say, exec is in exec.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls_layer.h"
#include "cuda_layer.h"
#include "nccl_layer.h"
#include "oneccl_layer.h"
#include "opencl_layer.h"
#include "process.h"
#include "recorder.h"
#include "rocm_layer.h"
#include "ze_layer.h"

#define CLOSED (-1)
#define LONGEST_CLOSE_MS 600    /* the GPU's last buffers may take 400 */

static atomic_int closing RS_FORKED_DATA;      /* the thread that closes the file, or CLOSED */
static const char *last_words RS_FORKED_DATA;   /* of the first image alone: RANKSCOPE_END */
static char last_words_kept[512];               /* programs write their title over their environment */
extern void *__dso_handle __attribute__((visibility("hidden")));

/* --- fork --- */

static void parent_forked(void)
{
    if (rs.file)
        rs_count(&rs.file->forks_seen, 1);
}

RS_FORK_PATH static void child_forked(void)
{
    last_words = NULL;
    if (!rs_recording())
        return;
    const struct rs_calls_thread *calls = &rankscope_calls_thread;
    int inside = calls->own || calls->counting || (rs_self && rs_self->depth);
    rs_own_enter();
    atomic_store(&closing, 0);
    rs_recording_fork(inside);
    rs_own_leave();
}

/* --- the end --- */

static void mark_ended(struct rs_header *file, int status)
{
    file->ended_ticks = rs_ticks();
    file->exit_code = status & 0xFF;
    __atomic_store_n(&file->state, RS_EXITED, __ATOMIC_RELEASE);
}

static void close_file(struct rs_header *file, int status, uint32_t flags)
{
    rs_nccl_flush(NULL);
    rs_oneccl_flush();
    rs_set_flag(flags);
    if (!(flags & RS_FAST_EXIT))
        rs_ze_note_unseen();
    rs_ze_finish();
    rs_cuda_finish();
    rs_opencl_finish();
    rs_rocm_finish();
    rs_gpu_finish();
    rs_refresh_facts();
    mark_ended(file, status);
    const char *run_folder = getenv("RANKSCOPE_COLLECT");
    if (run_folder && run_folder[0])
        rs_file_collect(run_folder);
}

/* Where a handler of the program ends it while we are at it, there is only time to say so; where another thread does,
 * it lets us finish. */
static void close_file_once(struct rs_header *file, int status, uint32_t flags)
{
    int tid = (int)syscall(SYS_gettid), before = 0;
    if (atomic_compare_exchange_strong(&closing, &before, tid)) {
        close_file(file, status, flags);
        atomic_store(&closing, CLOSED);
        return;
    }
    for (int wait = 0; before != tid && atomic_load(&closing) != CLOSED && wait < LONGEST_CLOSE_MS; wait++)
        rs_pause(1000);
    mark_ended(file, status);
}

static void close_if_open(int status, uint32_t flags)
{
    int cancel = rs_cancel_off();
    rs_cuda_ending();
    rs_recording_end(status, 1);
    if (rs.file && rs.file->state == RS_RUNNING)
        close_file_once(rs.file, status, flags);
    rs_cancel_back(cancel);
}

/* A child of vfork shares our memory but is not us. A forked one with nothing to tell makes no call that could block or
 * be cancelled, and touches few pages: each is a fault, and thousands of children may come. */
RS_FORK_PATH static void leave(int status, uint32_t flags)
{
    if (!rs_recording() || rs.pid != (int32_t)rs_direct(SYS_getpid, 0, 0))
        return;
    int saved = errno;
    rs_own_enter();
    rs_recording_end(status, 0);
    if (rs_recording())
        close_if_open(status, flags);
    rs_own_leave();
    errno = saved;
}

/* On a terminal, what `rankscope run` has become says where to look: one write, allowed in any handler. */
RS_FORK_PATH static void say_end(void)
{
    const char *text = last_words;
    if (!text || rs.pid != (int32_t)rs_direct(SYS_getpid, 0, 0))
        return;
    last_words = NULL;
    int saved = errno;
    rs_own_enter();
    if (isatty(STDERR_FILENO)) {
        struct iovec line[] = {{(void *)text, strlen(text)}, {(void *)"\n", 1}};
        if (writev(STDERR_FILENO, line, 2) < 0)
            errno = 0;      /* the job does not need it */
    }
    rs_own_leave();
    errno = saved;
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    leave(status, 0);
    say_end();
}

RS_FORK_PATH RS_EXPORT void _exit(int status)
{
    leave(status, RS_FAST_EXIT);
    say_end();
    for (;;)
        rs_direct(SYS_exit_group, status, 0);
}

RS_EXPORT void _Exit(int status) __attribute__((alias("_exit"), noreturn));

/* Of these handlers none is told the exit code, and libc ends by an _exit of its own. */
RS_EXPORT void quick_exit(int status)
{
    void (*real)(int) = (void (*)(int))dlsym(RTLD_NEXT, "quick_exit");
    leave(status, RS_FAST_EXIT);
    if (real)
        real(status);
    _exit(status);
}

/* --- how children end, from the calls by which their parent learns it --- */

/* Who was killed could not count itself. again: it is still there to be waited for. */
static void child_ended(pid_t pid, int status, int again)
{
    if (pid <= 0 || !(WIFSIGNALED(status) || WIFEXITED(status)) || !rs_recording() || rs.pid != getpid() || rankscope_calls_thread.own)
        return;
    int saved = errno, cancel = rs_cancel_off();
    rs_own_enter();
    rs_child_ended(pid, WIFSIGNALED(status) ? WTERMSIG(status) : 0, again);
    rs_own_leave();
    rs_cancel_back(cancel);
    errno = saved;
}

static pid_t (*real_wait4)(pid_t, int *, int, struct rusage *);
static pid_t (*real_waitpid)(pid_t, int *, int);
static int (*real_waitid)(idtype_t, id_t, siginfo_t *, int);

static void find_waits(void)
{
    real_wait4 = (pid_t(*)(pid_t, int *, int, struct rusage *))rs_next("wait4");
    real_waitid = (int (*)(idtype_t, id_t, siginfo_t *, int))rs_next("waitid");
    real_waitpid = (pid_t(*)(pid_t, int *, int))rs_next("waitpid");
}

RS_EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    int own = 0, *to = status ? status : &own;
    if (!real_waitpid)
        find_waits();
    pid_t ended = real_waitpid(pid, to, options);
    child_ended(ended, ended > 0 ? *to : 0, 0);
    return ended;
}

RS_EXPORT pid_t wait(int *status) { return waitpid(-1, status, 0); }

RS_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    int own = 0, *to = status ? status : &own;
    if (!real_wait4)
        find_waits();
    pid_t ended = real_wait4(pid, to, options, usage);
    child_ended(ended, ended > 0 ? *to : 0, 0);
    return ended;
}

RS_EXPORT pid_t wait3(int *status, int options, struct rusage *usage) { return wait4(-1, status, options, usage); }

RS_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (!real_waitid)
        find_waits();
    int failed = real_waitid(type, id, info, options);
    if (!failed && info && (info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED))
        child_ended(info->si_pid, info->si_status & 0x7F, options & WNOWAIT);
    else if (!failed && info && info->si_code == CLD_EXITED)
        child_ended(info->si_pid, 0, options & WNOWAIT);
    return failed;
}

/* --- load --- */

/* Whether this libc has all that oldest_libc.h asks for weakly: musl has not, nor has a glibc before 2.34 in a program
 * without threads and plug-ins. */
static int libc_suffices(void)
{
    return gnu_get_libc_version && __register_atfork && on_exit && dladdr && dlclose && dlopen && dlsym
        && pthread_condattr_setclock && pthread_create && pthread_getcpuclockid && pthread_key_create
        && pthread_mutex_timedlock && pthread_once
        && pthread_setspecific && pthread_sigmask;
}

__attribute__((constructor)) static void loaded(void)
{
    const char *folder = getenv("RANKSCOPE_DIR");
    if (!folder || !folder[0] || !gnu_get_libc_version)
        return;
    rs_exec_prepare();
    if (!libc_suffices())
        return;
    int saved = errno;
    rs_own_enter();
    find_waits();
    rs_clock_choose();
    rs_recording_load(folder);
    if (rs_recording()) {
        __register_atfork(NULL, parent_forked, child_forked, &__dso_handle);
        on_exit(at_exit, NULL);
        const char *text = rs_is_first_image() ? getenv("RANKSCOPE_END") : NULL;
        if (text && text[0] && strlen(text) < sizeof last_words_kept)
            last_words = strcpy(last_words_kept, text);
    }
    rs_own_leave();
    errno = saved;
}
