/* Start, fork, exec, exit, death: the life of one process, as far as it can be watched without disturbing it.
 * No signal handler is installed, and no thread is started but in processes that use CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls_layer.h"
#include "cuda_layer.h"
#include "imports.h"
#include "mpi_layer.h"
#include "nccl_layer.h"
#include "process.h"
#include "recorder.h"
#include "steps.h"
#include "trace.h"

#define DEFAULT_FILE_BYTES (4u << 20)
#define LEAST_FILE_BYTES (64u << 10)
#define DEFAULT_LOG_RECORDS 4096u   /* 192 KiB: with more, the ring and what the MPI needs do not fit one core's cache */
#define LEAST_LOG_RECORDS 16u

static struct rs_header identity;

struct rs_process_stat rs_process_stat(void)
{
    struct rs_process_stat stat = {0, 0};
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return stat;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return stat;
    text[got] = 0;
    char *field = strrchr(text, ')');  /* the command before it may hold spaces */
    for (int number = 3; field && *field; number++) {
        field = strchr(field, ' ');
        if (!field)
            break;
        field++;
        if (number == 20)
            stat.threads = (uint32_t)strtoul(field, NULL, 10);
        if (number == 22)
            stat.start_jiffies = strtoull(field, NULL, 10);
    }
    return stat;
}

static uint64_t started_realtime_ns(uint64_t start_jiffies)
{
    uint64_t per_second = (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t age_ns = rs_clock_ns(CLOCK_BOOTTIME) - start_jiffies * (1000000000u / per_second);
    return rs_clock_ns(CLOCK_REALTIME) - age_ns;
}

static void read_command(void)
{
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, identity.command, sizeof identity.command);
        close(fd);
        if (got == (ssize_t)sizeof identity.command && identity.command[got - 1]) {
            identity.command[got - 1] = 0;
            identity.flags |= RS_COMMAND_CUT;
        }
    }
    ssize_t length = readlink("/proc/self/exe", identity.executable, sizeof identity.executable - 1);
    if (length < 0)
        identity.executable[0] = 0;
}

static void read_host(void)
{
    gethostname(identity.host, sizeof identity.host - 1);
    for (char *c = identity.host; *c; c++)
        if (*c == '/')
            *c = '_';
    if (!identity.host[0] || identity.host[0] == '.')
        strcpy(identity.host, "host");
}

static uint64_t number_or(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    if (!text || !text[0])
        return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    return *end ? otherwise : value;
}

static void identify(uint32_t flags)
{
    cpu_set_t cpus;
    struct rs_process_stat stat = rs_process_stat();
    memset(&identity, 0, sizeof identity);
    identity.version = RS_VERSION;
    identity.byte_order = RS_BYTE_ORDER;
    identity.header_bytes = sizeof identity;
    identity.page_bytes = RS_PAGE;
    identity.state = RS_RUNNING;
    identity.flags = flags;
    identity.pid = getpid();
    identity.parent_pid = getppid();
    identity.tick_source = rs_tick_source;
    identity.start_jiffies = stat.start_jiffies;
    identity.started_realtime_ns = started_realtime_ns(stat.start_jiffies);
    identity.cpus_allowed = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 0;
    strcpy(identity.rankscope_version, RANKSCOPE_VERSION);
    rs_rank_from_environment(&identity);
    read_host();
    read_command();
}

int rs_is_first_image(void) { return (int32_t)number_or("RANKSCOPE_PID", 0) == identity.pid; }

/* One line, from one process of a node: the one that `rankscope run` became. */
static void warn(void)
{
    char line[512];
    if (!rs_is_first_image() || identity.local_rank > 0)
        return;
    int length = snprintf(line, sizeof line, "rankscope: not recording: %s\n", rs_file_problem());
    if (length > 0 && write(2, line, length < (int)sizeof line ? (size_t)length : sizeof line - 1) < 0)
        errno = 0;
}

/* A power of two, so that a place in the ring is a mask away. */
static uint64_t log_records(uint64_t bound_bytes)
{
    uint64_t asked = number_or("RANKSCOPE_LOG_RECORDS", DEFAULT_LOG_RECORDS);
    uint64_t most = bound_bytes / 2 / sizeof(struct rs_collective);
    uint64_t records = LEAST_LOG_RECORDS;
    if (!asked)
        return 0;
    while (records < asked && 2 * records <= most)
        records *= 2;
    return records;
}

static void set_refresh(const struct rs_anchor *from, const struct rs_anchor *to)
{
    uint64_t ns = to->monotonic_ns - from->monotonic_ns, ticks = to->ticks - from->ticks;
    rs.refresh_ticks = ns ? (uint64_t)((double)ticks / (double)ns * 1e9) : 1000000000u;
}

static void record(uint32_t flags)
{
    struct rs_anchor loaded = rs_anchor_now();
    const char *folder = getenv("RANKSCOPE_DIR");
    uint64_t bound_bytes = number_or("RANKSCOPE_FILE_BYTES", DEFAULT_FILE_BYTES + rs_imports_bytes());
    if (!folder || !folder[0])
        return;
    if (bound_bytes < LEAST_FILE_BYTES)
        bound_bytes = LEAST_FILE_BYTES;
    bound_bytes = bound_bytes / RS_PAGE * RS_PAGE;
    identify(flags);
    identity.loaded = loaded;
    rs.pid = identity.pid;
    rs_solo_prepare();
    rs.matrix = number_or("RANKSCOPE_MATRIX", 0) != 0;
    if (rs.matrix)
        identity.flags |= RS_MATRIX;
    uint64_t trace_bytes = rs_trace_asked_bytes();
    struct rs_header *file = rs_file_create(folder, bound_bytes + trace_bytes, &identity);
    if (!file) {
        warn();
        return;
    }
    uint64_t set_aside = file->bound_bytes > bound_bytes ? file->bound_bytes - bound_bytes : 0;
    rs_file_set_aside(set_aside);
    rs.log_capacity = log_records(file->bound_bytes - set_aside);
    rs.file = file;
    if (trace_bytes)
        rs_trace_begin(set_aside);
    rs_refresh_facts();
    set_refresh(&loaded, &file->facts.anchor);
    file->setup_ticks = rs_ticks() - loaded.ticks;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(file->magic, RS_MAGIC, sizeof file->magic);
    atomic_store(&rs.enabled, 1);
    rs_calls_begin(flags & RS_FORKED);
}

static void parent_forked(void)
{
    if (rs.file)
        rs_count(&rs.file->forks_seen, 1);
}

/* The child gets a file of its own. Where fork was called inside an intercepted call the stack still points into
 * the parent's pages: private memory takes their place. */
static void new_file_of_child(struct rs_header *parents)
{
    uint64_t bytes = parents->bound_bytes;
    int inside = rs_self && rs_self->depth;
    atomic_store(&rs.enabled, 0);
    rs.file = NULL;
    rs_mpi_forget();
    rs_nccl_forget();
    rs_cuda_forget();
    rs_steps_forget();
    rs_ranges_forget();
    rs_process_groups_forget();
    rs_marks_forget();
    rs_imports_forget();
    rs_trace_forget();
    rs_recorder_forget(inside);
    rs_file_forget();
    if (!inside)
        munmap(parents, bytes);
    else if (mmap(parents, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return;
    record(RS_FORKED);
}

static void child_forked(void)
{
    struct rs_header *parents = rs.file;
    if (!parents)
        return;
    rs_own_enter();
    rs_calls_forget();
    new_file_of_child(parents);
    rs_own_leave();
}

static void close_file(struct rs_header *file, int status, uint32_t flags)
{
    rs_nccl_flush(NULL);
    rs_set_flag(flags);
    rs_cuda_finish();
    rs_refresh_facts();
    file->ended_ticks = rs_ticks();
    file->exit_code = status & 0xFF;
    __atomic_store_n(&file->state, RS_EXITED, __ATOMIC_RELEASE);
    const char *run_folder = getenv("RANKSCOPE_COLLECT");
    if (run_folder && run_folder[0])
        rs_file_collect(run_folder);
}

/* A child of vfork shares our memory but is not us. */
static void leave(int status, uint32_t flags)
{
    struct rs_header *file = rs.file;
    int saved = errno;
    rs_own_enter();
    if (file && rs.pid == getpid() && file->state == RS_RUNNING)
        close_file(file, status, flags);
    rs_own_leave();
    errno = saved;
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    leave(status, 0);
}

RS_EXPORT void _exit(int status)
{
    leave(status, RS_FAST_EXIT);
    for (;;)
        syscall(SYS_exit_group, status);
}

RS_EXPORT void _Exit(int status) __attribute__((alias("_exit"), noreturn));

/* --- how children end, from the calls by which their parent learns it --- */

static void child_ended(pid_t pid, int status)
{
    int saved = errno;
    rs_own_enter();
    if (pid > 0 && WIFSIGNALED(status) && rs.file && rs.pid == getpid())
        rs_file_child_signalled(pid, WTERMSIG(status));
    rs_own_leave();
    errno = saved;
}

static pid_t (*real_wait4)(pid_t, int *, int, struct rusage *);
static pid_t (*real_waitpid)(pid_t, int *, int);
static int (*real_waitid)(idtype_t, id_t, siginfo_t *, int);

static void find_waits(void)
{
    real_wait4 = (pid_t(*)(pid_t, int *, int, struct rusage *))dlsym(RTLD_NEXT, "wait4");
    real_waitid = (int (*)(idtype_t, id_t, siginfo_t *, int))dlsym(RTLD_NEXT, "waitid");
    real_waitpid = (pid_t(*)(pid_t, int *, int))dlsym(RTLD_NEXT, "waitpid");
}

RS_EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    int own = 0, *to = status ? status : &own;
    if (!real_waitpid)
        find_waits();
    pid_t ended = real_waitpid(pid, to, options);
    child_ended(ended, ended > 0 ? *to : 0);
    return ended;
}

RS_EXPORT pid_t wait(int *status) { return waitpid(-1, status, 0); }

RS_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    int own = 0, *to = status ? status : &own;
    if (!real_wait4)
        find_waits();
    pid_t ended = real_wait4(pid, to, options, usage);
    child_ended(ended, ended > 0 ? *to : 0);
    return ended;
}

RS_EXPORT pid_t wait3(int *status, int options, struct rusage *usage) { return wait4(-1, status, options, usage); }

RS_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (!real_waitid)
        find_waits();
    int failed = real_waitid(type, id, info, options);
    if (!failed && info && (info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED))
        child_ended(info->si_pid, info->si_status & 0x7F);
    return failed;
}

__attribute__((constructor)) static void loaded(void)
{
    const char *folder = getenv("RANKSCOPE_DIR");
    if (!folder || !folder[0])
        return;
    int saved = errno;
    rs_own_enter();
    find_waits();
    rs_clock_choose();
    record(0);
    if (rs.file) {
        pthread_atfork(NULL, parent_forked, child_forked);
        on_exit(at_exit, NULL);
    }
    rs_own_leave();
    errno = saved;
}
