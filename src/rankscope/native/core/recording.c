/* When a process has a rank file, and what is counted of those that have none.
 *
 * Most processes of a job are short and have nothing to tell: compilers, shells, children that fork and leave. They make
 * no file; at their end they add themselves to the counters of the nearest ancestor that has one. A file is made
 * - at once: for what `rankscope run` became, for the first process of a rank (a rank that is killed before it does
 *   anything must be seen), for a program that took the place of one with a file, and where system calls are counted;
 * - when a layer has something to tell: rs_telling, rs_enter, which come to rs_file_now;
 * - at the end: for processes that have lived or worked long enough.
 *
 * process.c asks, at the turns of the process's life: rs_recording_load, rs_recording_fork, rs_recording_end and
 * rs_child_ended, at the end of this file. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls_layer.h"
#include "cuda_layer.h"
#include "horovod_layer.h"
#include "imports.h"
#include "mpi_layer.h"
#include "nccl_layer.h"
#include "oneccl_layer.h"
#include "opencl_layer.h"
#include "process.h"
#include "recorder.h"
#include "rocm_layer.h"
#include "steps.h"
#include "trace.h"
#include "xla.h"
#include "ze_layer.h"

#define DEFAULT_FILE_BYTES (4u << 20)
#define LEAST_FILE_BYTES (64u << 10)
#define DEFAULT_LOG_RECORDS 8192u   /* 384 KiB: the ring and what the MPI needs fit the cache of one core */
#define LEAST_LOG_RECORDS 16u
#define LOG_SHARE 2u                    /* collectives take no more than this part of the file, */
#define MESSAGES_SHARE 8u               /* and a ring of messages no more than this */
#define LONG_NS 1000000000u             /* who lived so long, */
#define MUCH_CPU_NS 100000000u          /* or worked so long, has a file at the end */
#define RANK_LETTERS 8
#define NAME_LETTERS 12                 /* PID-n */
#define PARENT_LETTERS (RANK_LETTERS + 1 + NAME_LETTERS)

static struct rs_header identity;

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

static rs_lock begin_lock RS_FORKED_DATA;
static __thread uint8_t beginning __attribute__((tls_model("initial-exec")));

static uint64_t number_or(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    if (!text || !text[0])
        return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    return *end ? otherwise : value;
}

static void identify(void)
{
    int32_t rank[] = {identity.rank, identity.local_rank, identity.world_size};
    uint32_t launcher[] = {identity.rank_source, identity.launcher_world_size, identity.attempt};
    memset(&identity, 0, sizeof identity);
    identity.state = RS_RUNNING;
    identity.flags = life.flags | (asked.matrix ? RS_MATRIX : 0);
    identity.pid = rs.pid;
    identity.parent_pid = life.parent_pid;
    identity.ancestor_pid = ancestor.mapped ? ancestor.mapped->pid : (int32_t)strtol(ancestor.name, NULL, 10);
    identity.loaded = life.began;
    identity.rank = rank[0], identity.local_rank = rank[1], identity.world_size = rank[2];
    identity.rank_source = launcher[0], identity.launcher_world_size = launcher[1], identity.attempt = launcher[2];
    if (life.flags & RS_FORKED)     /* it may have been given a rank since */
        rs_rank_from_environment(&identity);
    rs_identify(&identity);
}

int rs_is_first_image(void) { return (int32_t)number_or("RANKSCOPE_PID", 0) == rs.pid; }

/* --- what children are told --- */

static uint32_t rank_hash(void)
{
    char text[64];
    snprintf(text, sizeof text, "%u %d %d %d %u", identity.rank_source, identity.rank, identity.world_size,
             identity.local_rank, identity.attempt);
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
static uint64_t log_records(uint64_t bound_bytes, uint64_t share, uint64_t record_bytes)
{
    uint64_t most = bound_bytes / share / record_bytes;
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
    rs_oneccl_forget();
    rs_horovod_forget();
    rs_steps_forget();
    rs_ranges_forget();
    rs_process_groups_forget();
    rs_workers_forget();
    rs_xla_programs_forget();
    rs_cliques_forget();
    rs_marks_forget();
    rs_notes_forget();
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
    rs.log_capacity = log_records(file->bound_bytes - set_aside, LOG_SHARE, sizeof(struct rs_collective));
    rs.message_capacity = log_records(file->bound_bytes - set_aside, MESSAGES_SHARE, sizeof(struct rs_message)) / 2;
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

/* --- processes without a file --- */

static struct rs_header *map_ancestor(void)
{
    char host[sizeof identity.host];
    if (!ancestor.name[0])
        return NULL;
    rs_read_host(host, sizeof host);
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
    rs_read_host(host, sizeof host);
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
    rs_direct(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, (long)&cpu);
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

/* --- load, fork, end: for process.c --- */

static int needs_a_file_at_once(void)
{
    return rs_is_first_image() || is_first_of_rank() || (int32_t)strtol(ancestor.name, NULL, 10) == rs.pid
        || asked.imports_mode >= RS_IMPORTS_CALLS;
}

void rs_recording_load(const char *folder)
{
    life.began = rs_anchor_now();
    life.parent_pid = getppid();
    rs.pid = getpid();
    read_settings(folder);
    rs_rank_from_environment(&identity);
    read_handed_down();
    rs.untold = 1;
    if (needs_a_file_at_once())
        make_file_at_once();
    if (rs.untold)
        life.load_ticks = rs_ticks() - life.began.ticks;
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
    if (rs.gpu) {
        rs_ze_forget();
        rs_cuda_forget();
        rs_opencl_forget();
        rs_rocm_forget();
        rs_gpu_forget();
    }
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

RS_FORK_PATH void rs_recording_fork(int inside)
{
    struct rs_header *parents = rs.file;
    life.began = rs.refresh_ticks ? (struct rs_anchor){.ticks = rs_ticks()} : rs_anchor_now();
    life.load_ticks = 0;
    life.flags = RS_FORKED;
    life.parent_pid = rs.pid;
    rs.pid = (int32_t)rs_direct(SYS_getpid, 0, 0);
    rs.forks++;
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
}

RS_FORK_PATH void rs_recording_end(int status, int may_block)
{
    if (rs.untold && (may_block || ancestor.mapped))
        end_untold(status);
}

void rs_child_ended(pid_t pid, int signal, int again)
{
    char host[sizeof identity.host];
    rs_read_host(host, sizeof host);
    if (!rs_file_child_ended(asked.folder, host, pid, signal) && signal && !again)
        count_short(rs.file ? rs.file : ancestor.mapped, 1, 0);
}
