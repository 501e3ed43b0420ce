/* Start, fork, exec, exit, death: the life of one process, as far as it can be watched without disturbing it.
 * No signal handler is installed, and no thread is started but in processes that use CUDA.
 *
 * Most processes of a job are short and have nothing to tell: compilers, shells, children that fork and leave. They make
 * no file; at their end they add themselves to the counters of the nearest ancestor that has one. A file is made
 * - at once: for what `rankscope run` became, for the first process of a rank (a rank that is killed before it does
 *   anything must be seen), for a program that took the place of one with a file, and where system calls are counted;
 * - when a layer has something to tell: rs_telling, rs_enter;
 * - at the end: for processes that have lived or worked long enough. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
#define DEFAULT_LOG_RECORDS 8192u   /* 384 KiB: the ring and what the MPI needs fit the cache of one core */
#define LEAST_LOG_RECORDS 16u
#define CLOSED (-1)
#define LONGEST_CLOSE_MS 600    /* the GPU's last buffers may take 400 */
#define LONG_NS 1000000000u             /* who lived so long, */
#define MUCH_CPU_NS 100000000u          /* or worked so long, has a file at the end */
#define RANK_LETTERS 8
#define NAME_LETTERS 12                 /* PID-n */
#define PARENT_LETTERS (RANK_LETTERS + 1 + NAME_LETTERS)

static struct rs_header identity;
static atomic_int closing RS_FORKED_DATA;      /* the thread that closes the file, or CLOSED */
extern void *__dso_handle __attribute__((visibility("hidden")));

/* What the environment said at load: the program may have changed it before there is something to tell. */
static struct {
    char folder[512];
    uint64_t bound_bytes, trace_bytes, log_records;
    uint32_t matrix, imports_mode;
} asked;

static struct {
    struct rs_anchor began;     /* loaded or forked; of a forked one with a file above it the ticks alone */
    uint64_t load_ticks;        /* what that cost */
    uint32_t flags;
    int32_t parent_pid;
    uint32_t holds_parents;     /* forked: the layers still hold what was the parent's */
} life RS_FORKED_DATA;

/* The nearest ancestor that has a file. A forked child still has its mapping; after exec the environment names it, in a
 * variable of fixed width, so that it can be written in place: RRRRRRRR:PID-n..., R: hash of the rank that it is. */
static struct { struct rs_header *mapped; char name[NAME_LETTERS + 1]; } ancestor RS_FORKED_DATA;
static char own_name[NAME_LETTERS + 1] RS_FORKED_DATA;     /* of our file: what children will have as their ancestor's */
static char *handed_down;       /* the value of RANKSCOPE_PARENT; NULL: not ours to write */

/* A system call without libc, whose functions lie on pages that a forked child has not touched yet. */
static inline long direct(long number, long a, long b)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b);
#endif
}

static rs_lock begin_lock RS_FORKED_DATA;
static __thread uint8_t beginning __attribute__((tls_model("initial-exec")));

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

static void read_host(char *host, size_t size)
{
    memset(host, 0, size);
    gethostname(host, size - 1);
    for (char *c = host; *c; c++)
        if (*c == '/')
            *c = '_';
    if (!host[0] || host[0] == '.')
        strcpy(host, "host");
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

/* --- who this is --- */

static uint64_t boot_id(void)
{
    char text[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    uint64_t id = 0;
    for (int i = 0, digits = 0; i < got && digits < 16; i++) {
        int digit = text[i] >= 'a' ? text[i] - 'a' + 10 : text[i] - '0';
        if (text[i] == '-')
            continue;
        id = id << 4 | (uint64_t)(digit & 15);
        digits++;
    }
    return id;
}

static uint64_t pid_namespace(void)
{
    struct stat found;
    return rs_stat("/proc/self/ns/pid", &found) == 0 ? (uint64_t)found.st_ino : 0;
}

static void identify(void)
{
    cpu_set_t cpus;
    struct rs_process_stat stat = rs_process_stat();
    int32_t rank[] = {identity.rank, identity.local_rank, identity.world_size};
    uint32_t launcher[] = {identity.rank_source, identity.launcher_world_size};
    memset(&identity, 0, sizeof identity);
    identity.version = RS_VERSION;
    identity.byte_order = RS_BYTE_ORDER;
    identity.header_bytes = sizeof identity;
    identity.page_bytes = RS_PAGE;
    identity.state = RS_RUNNING;
    identity.flags = life.flags | (asked.matrix ? RS_MATRIX : 0);
    identity.pid = rs.pid;
    identity.parent_pid = life.parent_pid;
    identity.ancestor_pid = ancestor.mapped ? ancestor.mapped->pid : (int32_t)strtol(ancestor.name, NULL, 10);
    identity.tick_source = rs_tick_source;
    identity.loaded = life.began;
    identity.start_jiffies = stat.start_jiffies;
    identity.started_realtime_ns = started_realtime_ns(stat.start_jiffies);
    identity.boot_id = boot_id();
    identity.pid_namespace = pid_namespace();
    identity.cpus_allowed = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 0;
    strcpy(identity.rankscope_version, RANKSCOPE_VERSION);
    identity.rank = rank[0], identity.local_rank = rank[1], identity.world_size = rank[2];
    identity.rank_source = launcher[0], identity.launcher_world_size = launcher[1];
    if (life.flags & RS_FORKED)     /* it may have been given a rank since */
        rs_rank_from_environment(&identity);
    read_host(identity.host, sizeof identity.host);
    read_command();
}

int rs_is_first_image(void) { return (int32_t)number_or("RANKSCOPE_PID", 0) == rs.pid; }

/* --- what children are told --- */

static uint32_t rank_hash(void)
{
    char text[64];
    snprintf(text, sizeof text, "%u %d %d %d", identity.rank_source, identity.rank, identity.world_size,
             identity.local_rank);
    return rs_hash(text);
}

static void read_handed_down(void)
{
    handed_down = getenv("RANKSCOPE_PARENT");
    if (handed_down && (strlen(handed_down) != PARENT_LETTERS || handed_down[RANK_LETTERS] != ':'))
        handed_down = NULL;
    if (!handed_down)
        return;
    memcpy(ancestor.name, handed_down + RANK_LETTERS + 1, NAME_LETTERS);
    ancestor.name[strspn(ancestor.name, "0123456789-")] = 0;
}

static int is_first_of_rank(void)
{
    char hash[RANK_LETTERS + 1];
    snprintf(hash, sizeof hash, "%08x", rank_hash());
    return identity.rank_source != RS_RANK_NONE && (!handed_down || memcmp(handed_down, hash, RANK_LETTERS));
}

static void hand_down(void)
{
    char hash[RANK_LETTERS + 2];
    const char *slash = strrchr(rs.path, '/');
    int letters = slash ? (int)strcspn(slash + 1, ".") : 0;
    snprintf(own_name, sizeof own_name, "%.*s", letters, slash ? slash + 1 : "");
    if (!handed_down || getenv("RANKSCOPE_PARENT") != handed_down)  /* the program has put something else there */
        return;
    snprintf(hash, sizeof hash, "%08x:", rank_hash());
    memcpy(handed_down, hash, RANK_LETTERS + 1);
    memset(handed_down + RANK_LETTERS + 1, '.', NAME_LETTERS);
    memcpy(handed_down + RANK_LETTERS + 1, own_name, strlen(own_name));
}

/* --- the file --- */

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
    uint64_t most = bound_bytes / 2 / sizeof(struct rs_collective);
    uint64_t records = LEAST_LOG_RECORDS;
    if (!asked.log_records)
        return 0;
    while (records < asked.log_records && 2 * records <= most)
        records *= 2;
    return records;
}

static void set_refresh(const struct rs_anchor *from, const struct rs_anchor *to)
{
    uint64_t ns = to->monotonic_ns - from->monotonic_ns, ticks = to->ticks - from->ticks;
    rs.refresh_ticks = ns ? (uint64_t)((double)ticks / (double)ns * 1e9) : 1000000000u;
}

static void read_settings(const char *folder)
{
    uint64_t bound_bytes = number_or("RANKSCOPE_FILE_BYTES", DEFAULT_FILE_BYTES + rs_imports_bytes());
    snprintf(asked.folder, sizeof asked.folder, "%s", folder);
    asked.bound_bytes = (bound_bytes < LEAST_FILE_BYTES ? LEAST_FILE_BYTES : bound_bytes) / RS_PAGE * RS_PAGE;
    asked.trace_bytes = rs_trace_asked_bytes();
    asked.log_records = number_or("RANKSCOPE_LOG_RECORDS", DEFAULT_LOG_RECORDS);
    asked.matrix = number_or("RANKSCOPE_MATRIX", 0) != 0;
    asked.imports_mode = rs_imports_mode();
    rs.matrix = (uint8_t)asked.matrix;
}

static void drop_ancestor(void)
{
    if (ancestor.mapped)
        munmap(ancestor.mapped, ancestor.mapped->bound_bytes);
    ancestor.mapped = NULL;
}

/* In the child of a fork. keep_threads: the stack still uses them. */
static void forget_parents(int keep_threads)
{
    life.holds_parents = 0;
    rs_mpi_forget();
    rs_nccl_forget();
    rs_steps_forget();
    rs_ranges_forget();
    rs_process_groups_forget();
    rs_marks_forget();
    rs_trace_forget();
    rs_recorder_forget(keep_threads);
    rs_file_forget();
}

/* A forked child noted its ticks only: the clocks are worked out where they are needed. */
static void complete_beginning(void)
{
    struct rs_anchor now = rs_anchor_now();
    if (life.began.monotonic_ns || !rs.refresh_ticks)
        return;
    uint64_t age_ns = (uint64_t)((double)(now.ticks - life.began.ticks) * 1e9 / (double)rs.refresh_ticks);
    life.began.monotonic_ns = now.monotonic_ns - age_ns;
    life.began.realtime_ns = now.realtime_ns - age_ns;
}

static void make_file(void)
{
    uint64_t begin = rs_ticks();
    complete_beginning();
    if (life.holds_parents)
        forget_parents(0);
    if (rs_clock_rejected()) {
        life.began.ticks = life.began.monotonic_ns;
        begin = rs_ticks();
    }
    identify();
    rs_solo_prepare();
    struct rs_header *file = rs_file_create(asked.folder, asked.bound_bytes + asked.trace_bytes, &identity);
    if (!file) {
        warn();
        return;
    }
    drop_ancestor();
    uint64_t set_aside = file->bound_bytes > asked.bound_bytes ? file->bound_bytes - asked.bound_bytes : 0;
    rs_file_set_aside(set_aside);
    rs.log_capacity = log_records(file->bound_bytes - set_aside);
    rs.file = file;
    if (asked.trace_bytes)
        rs_trace_begin(set_aside);
    file->imports_mode = asked.imports_mode;
    rs_refresh_facts();
    set_refresh(&life.began, &file->facts.anchor);
    hand_down();
    file->setup_ticks = rs_ticks() - begin + life.load_ticks;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(file->magic, RS_MAGIC, sizeof file->magic);
}

/* Other threads may be about to record: those that see `enabled` must see all of the above, without a fence of theirs. */
static void enable(void)
{
    if (rs.file) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
        atomic_store(&rs.enabled, 1);
    }
    __atomic_store_n(&rs.untold, 0, __ATOMIC_RELEASE);
}

/* While nothing else runs: at load, and in a forked child. */
static void make_file_at_once(void)
{
    life.load_ticks = rs_ticks() - life.began.ticks;
    make_file();
    enable();
    if (rs.file)
        rs_calls_begin(life.flags & RS_FORKED);
}

/* A handler of the program's could leave by longjmp, fork or exit in the middle of it, and so could a cancellation. */
static void make_file_undisturbed(void)
{
    sigset_t all, before;
    int cancellable;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    beginning = 1;
    while (!rs_lock_take(&begin_lock)) {}   /* its holder cannot be interrupted either */
    if (rs.untold) {
        make_file();
        enable();
    }
    rs_lock_give(&begin_lock);
    beginning = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancellable, &cancellable);
}

/* A child of vfork shares our memory but is not us. */
RS_COLD struct rs_header *rs_file_now(void)
{
    if (!rs.untold || beginning || rs.pid != getpid())
        return rs.file;
    int saved = errno;
    rs_own_enter();
    make_file_undisturbed();
    rs_own_leave();
    errno = saved;
    return rs.file;
}

RS_COLD int rs_begin(void) { return rs.untold && rs_file_now() && atomic_load(&rs.enabled); }

/* --- fork --- */

static void parent_forked(void)
{
    if (rs.file)
        rs_count(&rs.file->forks_seen, 1);
}

/* The child goes on without the parent's file, of which it only keeps the counters in reach. Most children tell nothing:
 * what the layers hold of the parent's is cleared by those that do. Until then no layer looks at it, because there is no
 * file; what is looked at without asking for one is cleared here: what belongs to the thread, and CUDA's callbacks. */
RS_FORK_PATH static void leave_parents_file(struct rs_header *parents)
{
    atomic_store(&rs.enabled, 0);
    rs.file = NULL;
    life.holds_parents = 1;
    ancestor.mapped = parents;
    memcpy(ancestor.name, own_name, sizeof ancestor.name);
    if (rs.imported)
        rs_imports_forget();
    if (rs.cuda)
        rs_cuda_forget();
    if (rs_step_open)
        rs_step_open = 0;
}

/* Forked inside an intercepted call, or by a signal handler that had interrupted us: the stack still points into the
 * parent's pages. Private memory takes their place. */
static int replace_parents_pages(struct rs_header *parents)
{
    uint64_t bytes = parents->bound_bytes;
    forget_parents(1);
    ancestor.mapped = NULL;
    return mmap(parents, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

RS_FORK_PATH static void child_forked(void)
{
    struct rs_header *parents = rs.file;
    if (!rs_recording())
        return;
    const struct rs_calls_thread *calls = &rankscope_calls_thread;
    int inside = calls->own || calls->counting || (rs_self && rs_self->depth);
    rs_own_enter();
    life.began = rs.refresh_ticks ? (struct rs_anchor){.ticks = rs_ticks()} : rs_anchor_now();
    life.load_ticks = 0;
    life.flags = RS_FORKED;
    life.parent_pid = rs.pid;
    rs.pid = (int32_t)direct(SYS_getpid, 0, 0);
    rs.forks++;
    atomic_store(&closing, 0);
    memset(&begin_lock, 0, sizeof begin_lock);
    beginning = 0;
    if (asked.imports_mode >= RS_IMPORTS_CALLS)
        rs_calls_forget();
    if (parents)
        leave_parents_file(parents);
    rs.untold = !inside || !parents || replace_parents_pages(parents);
    if (rs_self)
        rs_thread_forget();
    if (rs.untold && asked.imports_mode >= RS_IMPORTS_CALLS) {
        int cancel = rs_cancel_off();
        make_file_at_once();
        rs_cancel_back(cancel);
    }
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
    rs_set_flag(flags);
    rs_cuda_finish();
    rs_refresh_facts();
    mark_ended(file, status);
    const char *run_folder = getenv("RANKSCOPE_COLLECT");
    if (run_folder && run_folder[0])
        rs_file_collect(run_folder);
}

static struct rs_header *map_ancestor(void)
{
    char host[sizeof identity.host];
    if (!ancestor.name[0])
        return NULL;
    read_host(host, sizeof host);
    return rs_file_map_head(asked.folder, host, ancestor.name);
}

/* One more process of which there is nothing but the number. */
RS_FORK_PATH static void count_short(struct rs_header *file, int failed, uint64_t cpu_ns)
{
    struct rs_header *head = file ? file : map_ancestor();
    if (!head)
        return;
    rs_count(&head->short_processes, 1);
    if (failed)
        rs_count(&head->short_failed, 1);
    rs_count(&head->short_cpu_ns, cpu_ns);
    if (!file)
        munmap(head, RS_PAGE);
}

/* The program before us in this process has a file that says it is running, although our environment does not tell. */
static int took_the_place_of_another(void)
{
    char path[sizeof rs.path], host[sizeof identity.host];
    read_host(host, sizeof host);
    return snprintf(path, sizeof path, "%s/ranks/%s/%d.rank", asked.folder, host, rs.pid) < (int)sizeof path
        && access(path, F_OK) == 0;
}

RS_FORK_PATH static int lived_long(void)
{
    return life.began.monotonic_ns ? rs_clock_ns(CLOCK_MONOTONIC) - life.began.monotonic_ns >= LONG_NS
                                   : rs_ticks() - life.began.ticks >= rs.refresh_ticks * (LONG_NS / 1000000000u);
}

RS_FORK_PATH static void end_untold(int status)
{
    struct timespec cpu = {0, 0};
    direct(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, (long)&cpu);
    uint64_t cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
    if (cpu_ns >= MUCH_CPU_NS || lived_long() || (!(life.flags & RS_FORKED) && took_the_place_of_another())) {
        rs_file_now();
        return;
    }
    if (beginning || !rs_lock_take(&begin_lock))   /* a handler that interrupted us ends the program */
        return;
    beginning = 1;
    if (rs.untold) {
        __atomic_store_n(&rs.untold, 0, __ATOMIC_RELEASE);
        count_short(ancestor.mapped, (status & 0xFF) != 0, cpu_ns);
    }
    beginning = 0;
    rs_lock_give(&begin_lock);
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
    if (rs.untold)
        end_untold(status);
    if (rs.file && rs.file->state == RS_RUNNING)
        close_file_once(rs.file, status, flags);
    rs_cancel_back(cancel);
}

/* A child of vfork shares our memory but is not us. A forked one with nothing to tell makes no call that could block or
 * be cancelled, and touches few pages: each is a fault, and thousands of children may come. */
RS_FORK_PATH static void leave(int status, uint32_t flags)
{
    if (!rs_recording() || rs.pid != (int32_t)direct(SYS_getpid, 0, 0))
        return;
    int saved = errno;
    rs_own_enter();
    if (rs.untold && ancestor.mapped)
        end_untold(status);
    if (rs_recording())
        close_if_open(status, flags);
    rs_own_leave();
    errno = saved;
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    leave(status, 0);
}

RS_FORK_PATH RS_EXPORT void _exit(int status)
{
    leave(status, RS_FAST_EXIT);
    for (;;)
        direct(SYS_exit_group, status, 0);
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

static int say_signalled(pid_t pid, int signal)
{
    char host[sizeof identity.host];
    read_host(host, sizeof host);
    return rs_file_child_signalled(asked.folder, host, pid, signal, boot_id(), pid_namespace());
}

/* Who was killed could not count itself. again: it is still there to be waited for. */
static void child_ended(pid_t pid, int status, int again)
{
    if (pid <= 0 || !WIFSIGNALED(status) || !rs_recording() || rs.pid != getpid() || rankscope_calls_thread.own)
        return;
    int saved = errno, cancel = rs_cancel_off();
    rs_own_enter();
    if (!say_signalled(pid, WTERMSIG(status)) && !again)
        count_short(rs.file ? rs.file : ancestor.mapped, 1, 0);
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
    return failed;
}

static int needs_a_file_at_once(void)
{
    return rs_is_first_image() || is_first_of_rank() || (int32_t)strtol(ancestor.name, NULL, 10) == rs.pid
        || asked.imports_mode >= RS_IMPORTS_CALLS;
}

/* Whether this libc has all that oldest_libc.h asks for weakly: musl has not, nor has a glibc before 2.34 in a program
 * without threads and plug-ins. */
static int libc_suffices(void)
{
    return gnu_get_libc_version && __register_atfork && on_exit && dladdr && dlclose && dlopen && dlsym
        && pthread_condattr_setclock && pthread_create && pthread_getcpuclockid && pthread_key_create && pthread_once
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
    life.began = rs_anchor_now();
    life.parent_pid = getppid();
    rs.pid = getpid();
    read_settings(folder);
    rs_rank_from_environment(&identity);
    read_handed_down();
    rs.untold = 1;
    if (needs_a_file_at_once())
        make_file_at_once();
    if (rs_recording()) {
        __register_atfork(NULL, parent_forked, child_forked, &__dso_handle);
        on_exit(at_exit, NULL);
    }
    if (rs.untold)
        life.load_ticks = rs_ticks() - life.began.ticks;
    rs_own_leave();
    errno = saved;
}
