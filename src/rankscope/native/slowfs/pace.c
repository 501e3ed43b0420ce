/* How long an answer is held back: the latency of the operation, behind a queue that all mounts of a server share. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "slow.h"

#define SERVER_MAGIC 0x31776f6c73736b72ull /* the letters rksslow1 */
/* The queue holds at most one operation per waiting client; more than this is a file left by an earlier boot. */
#define LONGEST_QUEUE_NS (600 * 1000000000ll)

struct slow_settings slow_settings = {.threads = 512, .cache_ns = 3600 * 1000000000ll};
struct slow_server *slow_server;
struct slow_counters *slow_counters;

int64_t slow_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void *shared_memory(size_t size, int file) {
    int flags = MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct slow_server *slow_map_server(const char *path, bool create) {
    int file = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    if (file < 0) return NULL;
    struct stat found;
    struct slow_server *server = NULL;
    bool sized = rs_fstat(file, &found) == 0 && (size_t)found.st_size >= sizeof *server;
    if (sized || (create && ftruncate(file, sizeof *server) == 0)) server = shared_memory(sizeof *server, file);
    close(file);
    if (server && server->magic == 0 && create) server->magic = SERVER_MAGIC;
    if (server && server->magic != SERVER_MAGIC) {
        munmap(server, sizeof *server);
        errno = EINVAL;
        return NULL;
    }
    return server;
}

int slow_pace_start(void) {
    const char *path = slow_settings.server_file;
    slow_server = path ? slow_map_server(path, true) : shared_memory(sizeof *slow_server, -1);
    slow_counters = shared_memory(sizeof *slow_counters, -1);
    return slow_server && slow_counters ? 0 : -1;
}

static void add(struct slow_counters *counters, enum slow_operation operation, bool missing, uint64_t bytes) {
    atomic_fetch_add_explicit(&counters->operations[operation], 1, memory_order_relaxed);
    if (missing) atomic_fetch_add_explicit(&counters->missing, 1, memory_order_relaxed);
    if (bytes) atomic_fetch_add_explicit(&counters->bytes, bytes, memory_order_relaxed);
}

void slow_count(enum slow_operation operation, bool missing, uint64_t bytes) {
    add(slow_counters, operation, missing, bytes);
    add(&slow_server->total, operation, missing, bytes);
}

static void add_delay(struct slow_counters *counters, int64_t delayed_ns, int64_t queued_ns) {
    atomic_fetch_add_explicit(&counters->delayed_ns, delayed_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->queued_ns, queued_ns, memory_order_relaxed);
}

/* Joins the queue behind everybody who came before and returns when this one's turn is over. */
static int64_t served_at(_Atomic int64_t *until_ns, int64_t begin_ns, int64_t work_ns) {
    int64_t busy = atomic_load(until_ns), start, end;
    do {
        start = busy > begin_ns && busy - begin_ns < LONGEST_QUEUE_NS ? busy : begin_ns;
        end = start + work_ns;
    } while (!atomic_compare_exchange_weak(until_ns, &busy, end));
    return end;
}

static int64_t queue_end_ns(bool metadata, int64_t begin_ns, uint64_t bytes) {
    int64_t rate = metadata ? slow_settings.operations_per_second : slow_settings.bytes_per_second;
    if (rate <= 0) return begin_ns;
    int64_t work_ns = (int64_t)((metadata ? 1.0 : (double)bytes) * 1e9 / (double)rate);
    return served_at(metadata ? &slow_server->operations_until_ns : &slow_server->bytes_until_ns, begin_ns, work_ns);
}

static void sleep_until(int64_t due_ns) {
    struct timespec due = {due_ns / 1000000000, due_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) continue;
}

void slow_delay(enum slow_operation operation, int64_t begin_ns, uint64_t bytes) {
    bool metadata = operation <= SLOW_LAST_METADATA;
    if (!metadata && operation != SLOW_read) return;
    int64_t queue_end = queue_end_ns(metadata, begin_ns, bytes);
    int64_t due_ns = queue_end + (metadata ? slow_settings.latency_ns : slow_settings.read_latency_ns);
    if (due_ns <= begin_ns) return;
    add_delay(slow_counters, due_ns - begin_ns, queue_end - begin_ns);
    add_delay(&slow_server->total, due_ns - begin_ns, queue_end - begin_ns);
    sleep_until(due_ns); /* absolute: the time the real operation took is part of the latency, not on top of it */
}
