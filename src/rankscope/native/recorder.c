/* Threads, tallies, strings, the collective log: the paths that are taken once per new thing. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"
#include "recorder.h"

#define FIRST_INDEX 128u
#define STRINGS_CHUNK (4u * RS_PAGE)
#define NAME_SLOTS 131072u

struct rs_recorder rs;
__thread struct rs_thread *rs_self __attribute__((tls_model("initial-exec")));

/* Stands in every empty cache slot: no real row has its key. */
static struct rs_tally nobody = {.name = 0xFFFF, .group = 0xFFFF, .layer = 0xFF, .phase = 0xFF};

static rs_lock thread_lock, string_lock, facts_lock, group_lock, log_lock;
static struct rs_thread *free_threads, *all_threads;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static uint32_t slots_used;
static struct rs_chunk *thread_rows, *string_chunk, *group_chunk, *unwrapped_rows;
static uint32_t strings_used, groups_used;
static struct { const char *text; uint32_t hash; uint16_t id; } *names;  /* text lies in the file */

/* --- threads --- */

static void clear_cache(struct rs_thread *thread)
{
    for (uint32_t i = 0; i < RS_CACHE_ROWS; i++)
        thread->cache[i] = &nobody;
    thread->last_type_epoch = thread->last_group_epoch = UINT64_MAX;
}

static void thread_ended(void *memory)
{
    struct rs_thread *thread = memory;
    rs_self = NULL;
    if (!rs_lock_take(&thread_lock))
        return;
    thread->next_free = free_threads;
    free_threads = thread;
    rs_lock_give(&thread_lock);
}

/* Whether the kernel can end solo use for us; without it there is none. */
static int barrier_works;

void rs_solo_prepare(void)
{
#if defined(__SANITIZE_THREAD__)
    barrier_works = 0;  /* the sanitizer does not know membarrier */
#else
    barrier_works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
    rs.concurrent = !barrier_works;
}

static void end_solo(const struct rs_thread *newcomer)
{
    if (rs.concurrent)
        return;
    __atomic_store_n(&rs.concurrent, 1, __ATOMIC_SEQ_CST);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        usleep(10000);  /* longer than any thread stays in a critical section of some instructions */
    for (struct rs_thread *thread = all_threads; thread; thread = thread->next)
        for (int wait = 0; thread != newcomer && __atomic_load_n(&thread->solo, __ATOMIC_ACQUIRE) && wait < 10000; wait++)
            usleep(10);
}

static void make_thread_key(void) { pthread_key_create(&thread_key, thread_ended); }

static void write_thread_row(uint32_t slot, uint32_t tid, const char *name)
{
    if (!thread_rows || (thread_rows->rows + 1) * sizeof(struct rs_thread_row) > thread_rows->chunk_bytes - sizeof *thread_rows)
        thread_rows = rs_chunk_new(RS_CHUNK_THREADS, 0, sizeof(struct rs_thread_row), RS_PAGE);
    if (!thread_rows)
        return;
    struct rs_thread_row *row = (struct rs_thread_row *)(thread_rows + 1) + thread_rows->rows;
    row->slot = slot;
    row->tid = tid;
    row->first_ticks = rs_ticks();
    memcpy(row->name, name, sizeof row->name);
    __atomic_store_n(&thread_rows->rows, thread_rows->rows + 1, __ATOMIC_RELEASE);
}

static struct rs_thread *new_slot(uint32_t tid, const char *name)
{
    struct rs_thread *thread = rs_memory(sizeof *thread);
    if (!thread)
        return NULL;
    thread->slot = slots_used++;
    thread->next = all_threads;
    all_threads = thread;
    clear_cache(thread);
    write_thread_row(thread->slot, tid, name);
    return thread;
}

/* The slot of a thread that has ended is used again: thousands of short threads do not fill the file. */
static struct rs_thread *take_slot(void)
{
    char name[16] = "";
    struct rs_thread *thread = free_threads;
    if (thread) {
        free_threads = thread->next_free;
        return thread;
    }
    prctl(PR_GET_NAME, name);
    return new_slot((uint32_t)syscall(SYS_gettid), name);
}

/* Never handed on; whoever asked for it writes its rows from one thread at a time. */
RS_COLD struct rs_thread *rs_thread_of(uint32_t tid, const char *name)
{
    char cut[16] = "";
    if (!rs.file || !rs_lock_take(&thread_lock))
        return NULL;
    strncpy(cut, name, sizeof cut - 1);
    struct rs_thread *thread = new_slot(tid, cut);
    rs_lock_give(&thread_lock);
    return thread;
}

RS_COLD struct rs_thread *rs_thread_start(void)
{
    int saved = errno;
    pthread_once(&thread_key_once, make_thread_key);
    if (!rs.file || !rs_lock_take(&thread_lock))
        return NULL;
    struct rs_thread *thread = take_slot();
    if (thread && rs.file->threads_seen)
        end_solo(thread);
    if (thread)
        rs.file->threads_seen++;
    rs_lock_give(&thread_lock);
    errno = saved;
    if (!thread)
        return NULL;
    thread->depth = 0;
    thread->refresh_at = rs_ticks() + rs.refresh_ticks;
    pthread_setspecific(thread_key, thread);
    rs_self = thread;
    return thread;
}

/* --- tallies --- */

static uint32_t index_slot(uint64_t key, uint32_t capacity)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32) & (capacity - 1);
}

static void index_put(struct rs_tally **index, uint32_t capacity, struct rs_tally *row)
{
    uint32_t at = index_slot(rs_key_of(row), capacity);
    while (index[at])
        at = (at + 1) & (capacity - 1);
    index[at] = row;
}

static int index_grow(struct rs_thread *thread)
{
    uint32_t capacity = thread->index ? 2 * thread->index_capacity : FIRST_INDEX;
    struct rs_tally **index = rs_memory(capacity * sizeof *index);
    if (!index)
        return 0;
    for (uint32_t i = 0; i < thread->index_capacity; i++)
        if (thread->index[i])
            index_put(index, capacity, thread->index[i]);
    rs_memory_free(thread->index, thread->index_capacity * sizeof *index);
    thread->index = index;
    thread->index_capacity = capacity;
    return 1;
}

static int chunk_full(const struct rs_chunk *chunk)
{
    return !chunk || (uint64_t)(chunk->rows + 1) * chunk->row_bytes > chunk->chunk_bytes - sizeof *chunk;
}

static struct rs_tally *new_row(struct rs_thread *thread, uint64_t key)
{
    if (chunk_full(thread->tallies)) {
        struct rs_chunk *chunk = NULL;
        if (!__atomic_load_n(&rs.full, __ATOMIC_RELAXED))
            chunk = rs_chunk_new(RS_CHUNK_TALLIES, thread->slot, sizeof(struct rs_tally), RS_PAGE);
        if (!chunk) {
            RS_SET(rs.full, 1);
            return NULL;
        }
        thread->tallies = chunk;
    }
    struct rs_chunk *chunk = thread->tallies;
    struct rs_tally *row = (struct rs_tally *)(chunk + 1) + chunk->rows;
    memcpy(row, &key, sizeof key);
    row->min_ticks = UINT64_MAX;
    __atomic_store_n(&chunk->rows, chunk->rows + 1, __ATOMIC_RELEASE);
    return row;
}

RS_COLD struct rs_tally *rs_tally_find(struct rs_thread *thread, uint64_t key)
{
    struct rs_tally *row = NULL;
    if (thread->index) {
        uint32_t at = index_slot(key, thread->index_capacity);
        while ((row = thread->index[at]) && rs_key_of(row) != key)
            at = (at + 1) & (thread->index_capacity - 1);
    }
    if (!row) {
        if (2 * (thread->index_used + 1) > thread->index_capacity && !index_grow(thread))
            return NULL;
        row = new_row(thread, key);
        if (!row)
            return NULL;
        index_put(thread->index, thread->index_capacity, row);
        thread->index_used++;
    }
    thread->cache[rs_cache_slot(key)] = row;
    return row;
}

RS_COLD void rs_tally_lost(uint64_t ticks)
{
    rs_count(&rs.file->lost_calls, 1);
    rs_count(&rs.file->lost_ticks, ticks);
}

/* --- bytes per destination --- */

static struct rs_peer **peer_place(struct rs_peer **peers, uint32_t capacity, uint32_t world_rank)
{
    uint32_t at = index_slot(world_rank + 1, capacity);
    while (peers[at] && peers[at]->world_rank != world_rank)
        at = (at + 1) & (capacity - 1);
    return &peers[at];
}

static int peers_grow(struct rs_thread *thread)
{
    uint32_t capacity = thread->peers ? 2 * thread->peers_capacity : FIRST_INDEX;
    struct rs_peer **peers = rs_memory(capacity * sizeof *peers);
    if (!peers)
        return 0;
    for (uint32_t i = 0; i < thread->peers_capacity; i++)
        if (thread->peers[i])
            *peer_place(peers, capacity, thread->peers[i]->world_rank) = thread->peers[i];
    rs_memory_free(thread->peers, thread->peers_capacity * sizeof *peers);
    thread->peers = peers;
    thread->peers_capacity = capacity;
    return 1;
}

static struct rs_peer *new_peer(struct rs_thread *thread, uint32_t world_rank)
{
    if (2 * (thread->peers_used + 1) > thread->peers_capacity && !peers_grow(thread))
        return NULL;
    if (chunk_full(thread->peer_chunk)) {
        struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_PEERS, thread->slot, sizeof(struct rs_peer), RS_PAGE);
        if (!chunk)
            return NULL;
        thread->peer_chunk = chunk;
    }
    struct rs_peer *row = (struct rs_peer *)(thread->peer_chunk + 1) + thread->peer_chunk->rows;
    row->world_rank = world_rank;
    __atomic_store_n(&thread->peer_chunk->rows, thread->peer_chunk->rows + 1, __ATOMIC_RELEASE);
    *peer_place(thread->peers, thread->peers_capacity, world_rank) = row;
    thread->peers_used++;
    return row;
}

RS_COLD void rs_peer_add(struct rs_thread *thread, uint32_t world_rank, uint64_t bytes)
{
    struct rs_peer *row = thread->peers ? *peer_place(thread->peers, thread->peers_capacity, world_rank) : NULL;
    if (!row)
        row = new_peer(thread, world_rank);
    if (!row) {
        rs_count(&rs.file->lost_peers, 1);
        return;
    }
    uint32_t seq = row->seq;
    __atomic_store_n(&row->seq, seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->bytes += bytes;
    row->calls++;
    __atomic_store_n(&row->seq, seq + 2, __ATOMIC_RELEASE);
}

/* --- strings --- */

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 16777619u;
    return hash;
}

/* Where `text` is in the private index, or the empty place where it belongs. */
static uint32_t name_place(const char *text, uint32_t hash)
{
    uint32_t at = hash & (NAME_SLOTS - 1);
    while (names[at].text && (names[at].hash != hash || strcmp(names[at].text, text)))
        at = (at + 1) & (NAME_SLOTS - 1);
    return at;
}

/* Each string ends in \0 in the file, so that the index can point at it. */
static const char *append_string(const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    uint32_t need = (uint32_t)sizeof(struct rs_string) + (length + 1 + 3) / 4 * 4;
    if (!string_chunk || sizeof *string_chunk + string_chunk->rows + need > string_chunk->chunk_bytes) {
        uint64_t chunk_bytes = sizeof *string_chunk + need > STRINGS_CHUNK ? sizeof *string_chunk + need : STRINGS_CHUNK;
        struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_STRINGS, 0, 0, chunk_bytes);
        if (!chunk)
            return NULL;
        chunk->first_id = strings_used + 1;
        string_chunk = chunk;
    }
    struct rs_string *entry = (struct rs_string *)((char *)(string_chunk + 1) + string_chunk->rows);
    entry->length = length;
    memcpy(entry->bytes, text, length + 1);
    __atomic_store_n(&string_chunk->rows, string_chunk->rows + need, __ATOMIC_RELEASE);
    return entry->bytes;
}

static uint16_t intern_locked(const char *text, const char **stored)
{
    uint32_t hash = hash_text(text);
    if (!names && !(names = rs_memory(NAME_SLOTS * sizeof *names)))
        return 0;
    uint32_t at = name_place(text, hash);
    if (!names[at].text) {
        const char *appended = strings_used < RS_NAMES_MAX - 1 ? append_string(text) : NULL;
        if (!appended)
            return 0;
        names[at].text = appended;
        names[at].hash = hash;
        names[at].id = (uint16_t)++strings_used;
    }
    *stored = names[at].text;
    return names[at].id;
}

uint16_t rs_intern_as(const char *text, const char **stored)
{
    uint16_t id = 0;
    if (!text[0] || !rs.file)
        return 0;
    if (rs_lock_take(&string_lock)) {
        id = intern_locked(text, stored);
        rs_lock_give(&string_lock);
    }
    if (!id)
        rs_count(&rs.file->lost_strings, 1);
    return id;
}

uint16_t rs_intern(const char *text)
{
    const char *stored;
    return rs_intern_as(text, &stored);
}

/* --- groups, the collective log, entry points that are not intercepted --- */

struct rs_group *rs_group_row(uint16_t *id)
{
    struct rs_group *row = NULL;
    if (!rs.file || !rs_lock_take(&group_lock))
        return NULL;
    int room = groups_used < 4094;
    if (room && chunk_full(group_chunk)) {
        struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_GROUPS, 0, sizeof(struct rs_group), RS_PAGE);
        if (chunk) {
            chunk->first_id = groups_used + 1;
            group_chunk = chunk;
        }
    }
    if (room && !chunk_full(group_chunk)) {
        row = (struct rs_group *)(group_chunk + 1) + group_chunk->rows;
        *id = (uint16_t)++groups_used;
        __atomic_store_n(&group_chunk->rows, group_chunk->rows + 1, __ATOMIC_RELEASE);
    }
    rs_lock_give(&group_lock);
    return row;
}

/* Taken at the first communication, not at load: most processes of a job never need it. */
int rs_log_open(void)
{
    if (rs.log || !rs.log_capacity || !rs.file || !rs_lock_take(&log_lock))
        return rs.log != NULL;
    if (!rs.log) {
        uint64_t bytes = sizeof(struct rs_chunk) + rs.log_capacity * sizeof(struct rs_collective);
        struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_LOG, 0, sizeof(struct rs_collective), bytes);
        if (chunk) {
            chunk->rows = (uint32_t)rs.log_capacity;
            rs.file->log_capacity = rs.log_capacity;
            rs.log = (struct rs_collective *)(chunk + 1);
        }
    }
    rs_lock_give(&log_lock);
    return rs.log != NULL;
}

void rs_unwrapped_add(const char *name)
{
    uint16_t id = rs_intern(name);
    if (!id)
        return;
    if (chunk_full(unwrapped_rows))
        unwrapped_rows = rs_chunk_new(RS_CHUNK_UNWRAPPED, 0, sizeof(uint32_t), RS_PAGE);
    if (!unwrapped_rows)
        return;
    ((uint32_t *)(unwrapped_rows + 1))[unwrapped_rows->rows] = id;
    __atomic_store_n(&unwrapped_rows->rows, unwrapped_rows->rows + 1, __ATOMIC_RELEASE);
}

/* --- facts --- */

static uint64_t timeval_ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static void store_facts(struct rs_facts *facts)
{
    struct rusage usage;
    struct rs_process_stat stat = rs_process_stat();
    getrusage(RUSAGE_SELF, &usage);
    uint32_t seq = facts->seq;
    __atomic_store_n(&facts->seq, seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    facts->anchor = rs_anchor_now();
    facts->threads = stat.threads;
    facts->user_ns = timeval_ns(usage.ru_utime);
    facts->system_ns = timeval_ns(usage.ru_stime);
    facts->max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    facts->voluntary_switches = (uint64_t)usage.ru_nvcsw;
    facts->involuntary_switches = (uint64_t)usage.ru_nivcsw;
    facts->minor_faults = (uint64_t)usage.ru_minflt;
    facts->major_faults = (uint64_t)usage.ru_majflt;
    __atomic_store_n(&facts->seq, seq + 2, __ATOMIC_RELEASE);
}

void rs_refresh_facts(void)
{
    int saved = errno;
    if (rs.file && !atomic_flag_test_and_set_explicit(&facts_lock.held, memory_order_acquire)) {
        store_facts(&rs.file->facts);
        rs_lock_give(&facts_lock);
    }
    errno = saved;
}

RS_COLD void rs_refresh(struct rs_thread *thread, uint64_t now)
{
    thread->refresh_at = now + rs.refresh_ticks;
    rs_refresh_facts();
}

/* --- what a call costs, measured here and now on rows that are nobody's --- */

static uint64_t best_milliticks(struct rs_thread *scratch, struct rs_tally *row, int with_log)
{
    enum { ROUNDS = 12, CALLS = 200 };
    static struct rs_collective record;
    uint64_t best = UINT64_MAX, key = rs_key_of(row);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = rs_ticks();
        for (int call = 0; call < CALLS; call++) {
            uint64_t enter = rs_ticks();
            if (with_log) {
                __atomic_store_n(&record.number, 0, __ATOMIC_RELEASE);
                record.enter_ticks = enter;
                __atomic_fetch_add(&record.bytes, 1, __ATOMIC_RELAXED);
                __atomic_store_n(&record.number, (uint32_t)call, __ATOMIC_RELEASE);
            }
            rs_tally(scratch, key, rs_ticks() - enter, 8, 0);
        }
        uint64_t took = (rs_ticks() - start) * 1000 / CALLS;
        if (took < best)
            best = took;
    }
    return best;
}

void rs_calibrate(void)
{
    struct rs_thread *scratch = rs_memory(sizeof *scratch);
    if (!scratch || !rs.file)
        return;
    static struct rs_tally row;
    uint64_t key = rs_key(1, 1, RS_LAYER_MPI, 0, 4, 0);
    memcpy(&row, &key, sizeof key);
    clear_cache(scratch);
    scratch->cache[rs_cache_slot(key)] = &row;
    rs.file->call_cost_milliticks = best_milliticks(scratch, &row, 0);
    rs.file->collective_cost_milliticks = best_milliticks(scratch, &row, 1);
    rs_memory_free(scratch, sizeof *scratch);
}

/* --- fork --- */

static void free_thread(struct rs_thread *thread)
{
    rs_memory_free(thread->index, thread->index_capacity * sizeof *thread->index);
    rs_memory_free(thread->peers, thread->peers_capacity * sizeof *thread->peers);
    rs_memory_free(thread->scratch, thread->scratch_bytes);
    rs_memory_free(thread, sizeof *thread);
}

/* In the child: nothing of the parent's file may be touched again. keep_threads: the stack still uses them. */
void rs_recorder_forget(int keep_threads)
{
    rs_lock *locks[] = {&thread_lock, &string_lock, &facts_lock, &group_lock, &log_lock};
    for (unsigned i = 0; i < sizeof locks / sizeof locks[0]; i++)
        memset(locks[i], 0, sizeof *locks[i]);
    if (all_threads)
        pthread_setspecific(thread_key, NULL);
    for (struct rs_thread *thread = all_threads, *next; thread && !keep_threads; thread = next) {
        next = thread->next;
        free_thread(thread);
    }
    all_threads = free_threads = NULL;
    slots_used = 0;
    rs_self = NULL;
    thread_rows = string_chunk = group_chunk = unwrapped_rows = NULL;
    strings_used = groups_used = 0;
    rs_memory_free(names, NAME_SLOTS * sizeof *names);
    names = NULL;
    rs.log = NULL;
    rs.full = 0;
}
