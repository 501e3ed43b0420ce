/* What every layer of the recorder uses: tallies, strings, the collective log, threads. Nothing here can fail
 * loudly: without a file, or with a full one, calls are counted as lost and the program goes on. */
#ifndef RANKSCOPE_RECORDER_H
#define RANKSCOPE_RECORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "calls_layer.h"
#include "clock.h"
#include "fnv.h"
#include "layout.h"

#define RS_EXPORT __attribute__((visibility("default")))
#define RS_LIKELY(x) __builtin_expect(!!(x), 1)
#define RS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RS_COLD __attribute__((noinline, cold))
#ifndef RS_HOT  /* builds with sanitizers take minutes less where the compiler may choose */
#define RS_HOT static inline __attribute__((always_inline))
#endif
/* What a forked child runs and writes lies together: every page of it is a fault and a copy in every child. */
#define RS_FORK_PATH __attribute__((section(".text.hot.fork")))
#define RS_FORKED_DATA __attribute__((section("rs_forked")))

#define RS_CACHE_ROWS 256u
#define RS_NAMES_MAX 65535u
#define RS_TYPES 16u
#define RS_ALIKE 64u

/* What the words of an operation of NCCL say, where these words lie, and the row of its call. */
struct rs_nccl_words {
    const char *func, *datatype, *algo, *proto;
    uint32_t library;
    uint16_t name, full;
    uint32_t type_bytes;
    uint8_t has_root, is_send, is_receive;
    const struct rs_tally *row;
    uint32_t next_to_stop, to_stop;     /* beside a plugin of the job's: the slot that comes next, and how many do */
};

/* One thread of the program, or several in turn: a slot is handed on when its thread ends. */
struct rs_thread {
    struct rs_tally *cache[RS_CACHE_ROWS];  /* direct-mapped by key; never NULL */
    uint32_t solo;                          /* using the common tables without a lock: see rs_solo_enter */
    uint32_t depth;                         /* inside an intercepted call: what it calls is not the program's */
    uint32_t slot;
    uint64_t refresh_at;                    /* tick after which the facts are brought up to date */
    struct rs_thread_row *row;              /* never NULL: says which call it waits in */
    struct rs_message *messages;            /* its ring: see messages.h */
    uint64_t messages_written, messages_mask;

    struct rs_nccl_words nccl __attribute__((aligned(64)));     /* of its last operation of NCCL */

    /* by function of MPI: the row of its last call. A call like it needs no key and no hash. */
    struct rs_alike { uint64_t what, bytes; struct rs_tally *row; } alike[RS_ALIKE];
    uint64_t last_type, last_type_epoch;    /* the datatype asked for last, and its size */
    uint64_t last_type_bytes;
    struct { uint64_t type, epoch, bytes; } types[RS_TYPES];    /* those before it, of any place */
    uint64_t last_group_handle, last_group_epoch;
    void *last_group;

    void *scratch;                          /* handles and statuses of a wait for many */
    size_t scratch_bytes;
    struct rs_tally **index;                /* open addressing over all rows of the slot */
    uint32_t index_capacity, index_used;
    struct rs_chunk *tallies;               /* chunk with room for the next row */
    struct rs_peer **peers;                 /* open addressing by world rank */
    uint32_t peers_capacity, peers_used;
    struct rs_chunk *peer_chunk;
    struct rs_overwritten *overwritten;     /* by envelope, once the ring is full */
    uint32_t envelopes_used;
    uint8_t messages_refused, overwritten_refused;      /* the file has no room for them */
    struct rs_thread *next_free, *next;
};

#define RS_PHASE_CHANGES 16u

struct rs_recorder {
    struct rs_header *file;     /* NULL: not recording */
    atomic_uint enabled;        /* 0 while paused or without a file */
    uint8_t phase;
    uint8_t concurrent;         /* a second thread records: common tables are locked from now on */
    uint8_t matrix;
    uint8_t full;               /* no chunk left for tallies */
    uint8_t tracing;            /* not 0: events go to the trace as well */
    uint8_t imported, gpu;      /* these layers have begun: a forked child has to clear what is theirs at once */
    uint8_t untold;             /* this process has told nothing yet: its file is made when it does */
    int32_t pid;
    uint32_t forks;             /* between the process that loaded us and this one */
    uint64_t refresh_ticks;     /* ticks between two looks at the facts */
    uint64_t log_capacity;
    struct rs_collective *log;
    uint64_t message_capacity;  /* of the first ring of messages */
    uint32_t message_rings;
    uint32_t phase_changes;     /* so far; the latest are in: */
    uint64_t phase_ticks[RS_PHASE_CHANGES];     /* when, and in the lowest three bits which */
    char path[512];             /* of the rank file */
} __attribute__((aligned(64)));     /* what every call reads is in the first line of the cache */

extern struct rs_recorder rs __attribute__((visibility("hidden")));
extern __thread struct rs_thread *rs_self __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* recording.c: a process that has nothing to tell leaves no file. Both make it where that is still to be done. */
int rs_begin(void);                         /* 1: calls are recorded now */
struct rs_header *rs_file_now(void);        /* NULL: not recording */

/* For all that is worth a file: what a layer counts, names or marks. */
static inline struct rs_header *rs_telling(void)
{
    return RS_UNLIKELY(__atomic_load_n(&rs.untold, __ATOMIC_ACQUIRE)) ? rs_file_now() : rs.file;
}

static inline int rs_recording(void) { return rs.file || rs.untold; }

/* threads.c */
struct rs_thread *rs_thread_start(void);
struct rs_thread *rs_thread_of(uint32_t tid, const char *name); /* rows kept by a layer for another thread */
void rs_thread_clear(struct rs_thread *thread);
void rs_solo_prepare(void);
void rs_thread_forget(void);
void rs_threads_forget(int keep);

/* tallies.c */
struct rs_tally *rs_tally_find(struct rs_thread *thread, uint64_t key);
void rs_tally_lost(uint64_t ticks);
void rs_peer_add(struct rs_thread *thread, uint32_t world_rank, uint64_t bytes);

static inline uint32_t rs_hash(const char *text) { return rs_fnv32(RS_FNV32, text); }

/* strings.c */
uint16_t rs_intern(const char *text);
uint16_t rs_intern_as(const char *text, const char **stored);   /* and where the file holds it */
void rs_strings_forget(void);

/* recorder.c */
void rs_refresh(struct rs_thread *thread, uint64_t now);
void rs_refresh_facts(void);
struct rs_group *rs_group_row(uint16_t *id);
void rs_unwrapped_add(const char *name);
int rs_log_open(void);
void rs_calibrate(void);
void rs_recorder_forget(int keep_threads);

/* file.c */
struct rs_header *rs_file_create(const char *folder, uint64_t bound_bytes, const struct rs_header *identity);
void rs_file_forget(void);
struct rs_chunk *rs_chunk_new(uint32_t kind, uint32_t thread, uint32_t row_bytes, uint64_t chunk_bytes);
void rs_file_reserve(uint64_t up_to_bytes);
void rs_file_set_aside(uint64_t bytes);     /* for the trace: nothing else may use them */
#define RS_NAMES_PER_PID 1000   /* PID.rank, PID-1.rank, …: one for each program that a process becomes */
void rs_file_make_folders(const char *folder, const char *host);
int rs_file_is_of_same_process(const struct rs_header *one, const struct rs_header *other);
void rs_file_collect(const char *run_folder);
int rs_file_child_ended(const char *folder, const char *host, int32_t pid, int signal);
                                                        /* signal 0: it ended by itself. 0: it has no file */
struct rs_header *rs_file_map_head(const char *folder, const char *host, const char *name);
const char *rs_file_problem(void);

/* Behind the published rows. Those of their own length (row_bytes 0) are counted in bytes. */
static inline char *rs_chunk_end(const struct rs_chunk *chunk, uint32_t row_bytes)
{
    return (char *)(chunk + 1) + (uint64_t)chunk->rows * (row_bytes ? row_bytes : 1);
}

static inline int rs_chunk_has_room(const struct rs_chunk *chunk, uint32_t row_bytes, uint32_t bytes)
{
    return chunk && rs_chunk_end(chunk, row_bytes) + bytes <= (const char *)chunk + chunk->chunk_bytes;
}

/* Where the next row of a table goes: behind those of its chunk, or into a new one like the other where that is full.
 * NULL: so is the file. For readers it is no row before rs_row_publish. */
RS_HOT void *rs_row_place(struct rs_chunk **chunk, struct rs_chunk like, uint32_t bytes)
{
    if (RS_UNLIKELY(!rs_chunk_has_room(*chunk, like.row_bytes, bytes))) {
        struct rs_chunk *next = rs_chunk_new(like.kind, like.thread, like.row_bytes, like.chunk_bytes);
        if (!next)
            return NULL;
        next->first_id = like.first_id;
        *chunk = next;
    }
    return rs_chunk_end(*chunk, like.row_bytes);
}

RS_HOT void rs_row_publish(struct rs_chunk *chunk, uint32_t by)
{
    __atomic_store_n(&chunk->rows, chunk->rows + by, __ATOMIC_RELEASE);
}

/* What a report is to say of this process. */
void rs_remark(const char *text, int is_warning);
void rs_notes_forget(void);

/* private memory that survives nothing and needs no malloc */
void *rs_memory(size_t bytes);
void rs_memory_free(void *memory, size_t bytes);

/* Says since which fork it is held: whoever held it in the parent does not in the child. */
typedef struct { atomic_uint held; } rs_lock;
int rs_lock_wait(rs_lock *lock);

static inline int rs_lock_try(rs_lock *lock)
{
    unsigned held = atomic_load_explicit(&lock->held, memory_order_relaxed);
    return held != rs.forks + 1
           && atomic_compare_exchange_strong_explicit(&lock->held, &held, rs.forks + 1, memory_order_acquire,
                                                      memory_order_relaxed);
}

/* 0 where it could not be had: give up rather than hang. */
static inline int rs_lock_take(rs_lock *lock) { return RS_LIKELY(rs_lock_try(lock)) || rs_lock_wait(lock); }

static inline void rs_lock_give(rs_lock *lock) { atomic_store_explicit(&lock->held, 0, memory_order_release); }

void rs_pause(long us);     /* no cancellation point, and errno stays */

/* Files are opened and read on behalf of calls that are no cancellation points, fork and _exit among them. */
static inline int rs_cancel_off(void)
{
    int before = PTHREAD_CANCEL_DISABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void rs_cancel_back(int before) { pthread_setcancelstate(before, NULL); }

static inline void rs_count(uint64_t *counter, uint64_t by)
{
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

static inline void rs_set_phase(uint8_t phase)
{
    uint32_t at = __atomic_load_n(&rs.phase_changes, __ATOMIC_RELAXED);
    __atomic_store_n(&rs.phase_ticks[at % RS_PHASE_CHANGES], rs_ticks() << 3 | phase, __ATOMIC_RELAXED);
    __atomic_store_n(&rs.phase_changes, at + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&rs.phase, phase, __ATOMIC_RELAXED);
    if (rs.file)
        __atomic_store_n(&rs.file->phase, phase, __ATOMIC_RELAXED);
    rs_calls_enter_phase(phase);
}

static inline void rs_set_flag(uint32_t flag)
{
    if (rs.file)
        __atomic_fetch_or(&rs.file->flags, flag, __ATOMIC_RELAXED);
}

/* Class 0: nothing; 1: one byte; k: (2^(k-2), 2^(k-1)] bytes. */
static inline uint8_t rs_size_class(uint64_t bytes)
{
    if (bytes < 2)
        return (uint8_t)bytes;
    return (uint8_t)(65 - __builtin_clzll(bytes - 1));
}

static inline uint64_t rs_key(uint16_t name, uint16_t group, uint8_t layer, uint8_t phase, uint8_t size, uint8_t kind)
{
    return (uint64_t)name | (uint64_t)group << 16 | (uint64_t)layer << 32 | (uint64_t)phase << 40
         | (uint64_t)size << 48 | (uint64_t)kind << 56;
}

static inline uint64_t rs_key_in_phase(uint64_t key, uint8_t phase)
{
    return (key & ~((uint64_t)0xFF << 40)) | (uint64_t)phase << 40;
}

static inline uint64_t rs_key_of(const struct rs_tally *row)
{
    uint64_t key;
    memcpy(&key, row, sizeof key);
    return key;
}

static inline uint32_t rs_cache_slot(uint64_t key)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 56) & (RS_CACHE_ROWS - 1);
}

/* Around what is stored in a row that others may be copying: its seq is odd meanwhile. */
RS_HOT uint32_t rs_row_begin(uint32_t *seq)
{
    uint32_t odd = *seq + 1;
    __atomic_store_n(seq, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return odd;
}

RS_HOT void rs_row_done(uint32_t *seq, uint32_t odd) { __atomic_store_n(seq, odd + 1, __ATOMIC_RELEASE); }

/* calls is stored last: a process killed in between leaves every call that had returned. */
RS_HOT void rs_tally_store(struct rs_tally *row, uint64_t ticks, uint64_t bytes, int failed)
{
    uint32_t odd = rs_row_begin(&row->seq);
    row->total_ticks += ticks;
    row->bytes += bytes;
    row->sum_squares_ticks2 += (double)(int64_t)ticks * (double)(int64_t)ticks;  /* signed: one instruction, no branch */
    if (ticks < row->min_ticks)
        row->min_ticks = ticks;
    if (ticks > row->max_ticks)
        row->max_ticks = ticks;
    if (RS_UNLIKELY(failed))
        row->errors++;
    __atomic_store_n(&row->calls, row->calls + 1, __ATOMIC_RELEASE);
    rs_row_done(&row->seq, odd);
}

RS_HOT void rs_tally(struct rs_thread *thread, uint64_t key, uint64_t ticks, uint64_t bytes, int failed)
{
    struct rs_tally *row = thread->cache[rs_cache_slot(key)];
    if (RS_UNLIKELY(rs_key_of(row) != key)) {
        row = rs_tally_find(thread, key);
        if (!row) {
            rs_tally_lost(ticks);
            return;
        }
    }
    rs_tally_store(row, ticks, bytes, failed);
}

/* The calling thread, ready to record one call; NULL where it should only be passed on. */
static inline struct rs_thread *rs_enter(void)
{
    if (RS_UNLIKELY(!atomic_load_explicit(&rs.enabled, memory_order_relaxed)) && !rs_begin())
        return NULL;
    struct rs_thread *thread = rs_self;
    if (RS_UNLIKELY(!thread)) {
        thread = rs_thread_start();
        if (!thread)
            return NULL;
    }
    if (RS_UNLIKELY(thread->depth))
        return NULL;
    thread->depth = 1;
    return thread;
}

static inline void rs_leave(struct rs_thread *thread, uint64_t now)
{
    if (RS_UNLIKELY(now > thread->refresh_at))
        rs_refresh(thread, now);
    thread->depth = 0;
}

/* Calls that may wait for another rank and leave no record in the log: who looks sees where the thread is. */
RS_HOT void rs_call_begins(struct rs_thread *thread, uint16_t name, uint16_t group, int32_t peer, int32_t tag,
                           uint64_t now)
{
    struct rs_thread_row *row = thread->row;
    __atomic_store_n(&row->call_ticks, now, __ATOMIC_RELAXED);
    __atomic_store_n(&row->call_tag, tag, __ATOMIC_RELAXED);
    __atomic_store_n(&row->call, (uint64_t)name | (uint64_t)group << 16 | (uint64_t)(uint32_t)peer << 32,
                     __ATOMIC_RELEASE);
}

RS_HOT void rs_call_ended(struct rs_thread *thread)
{
    __atomic_store_n(&thread->row->call, 0, __ATOMIC_RELAXED);
}

/* While only one thread of the process records, what threads share needs no lock and no atomic addition. The second
 * thread to come ends that: it sets `concurrent`, makes every running thread see it (membarrier), and waits until
 * the first is out of what it is doing. 1: go on without a lock, then rs_solo_leave. */
static inline int rs_solo_enter(struct rs_thread *thread)
{
    __atomic_store_n(&thread->solo, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (RS_LIKELY(!__atomic_load_n(&rs.concurrent, __ATOMIC_RELAXED)))
        return 1;
    __atomic_store_n(&thread->solo, 0, __ATOMIC_RELEASE);
    return 0;
}

static inline void rs_solo_leave(struct rs_thread *thread) { __atomic_store_n(&thread->solo, 0, __ATOMIC_RELEASE); }

RS_HOT uint64_t rs_log_claim(struct rs_thread *thread)
{
    uint64_t *written = &rs.file->log_written;
    if (RS_UNLIKELY(!rs_solo_enter(thread)))
        return __atomic_fetch_add(written, 1, __ATOMIC_RELAXED);
    uint64_t claim = *written;
    __atomic_store_n(written, claim + 1, __ATOMIC_RELAXED);
    rs_solo_leave(thread);
    return claim;
}

#define RS_SET(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELAXED)

/* A place and those behind it that fill a word, in one store: fewer stores stand before the message the MPI sends. */
typedef uint64_t __attribute__((may_alias)) rs_word;
#define RS_SET_WORD(first, value) __atomic_store_n((rs_word *)&(first), value, __ATOMIC_RELAXED)
_Static_assert(offsetof(struct rs_collective, root) == offsetof(struct rs_collective, call_ticks) + 4
                   && offsetof(struct rs_collective, number) == offsetof(struct rs_collective, sequence) + 4
                   && offsetof(struct rs_collective, flags) == offsetof(struct rs_collective, name) + 7
                   && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rs_log_enter writes these as words");

static inline uint32_t rs_log_number(const struct rs_collective *record)
{
    return __atomic_load_n(&record->number, __ATOMIC_RELAXED);
}

/* Takes the next place in the ring and makes it valid: whoever looks sees an operation under way. A place is left
 * alone where a thread that the others have overtaken by a whole ring is still filling it in. */
RS_HOT struct rs_collective *rs_log_enter(struct rs_thread *thread, const struct rs_collective *filled)
{
    if (RS_UNLIKELY(!rs.log))
        return NULL;
    uint64_t claim = rs_log_claim(thread);
    struct rs_collective *record = &rs.log[claim & (rs.log_capacity - 1)];
    if (RS_UNLIKELY(claim >= rs.log_capacity && !rs_log_number(record)))
        return NULL;
    RS_SET(record->number, 0);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    RS_SET(record->enter_ticks, filled->enter_ticks);
    RS_SET(record->end_ticks, 0);
    RS_SET(record->bytes, filled->bytes);
    RS_SET_WORD(record->call_ticks, (uint64_t)(uint32_t)filled->root << 32);
    RS_SET_WORD(record->name, (uint64_t)filled->name | (uint64_t)filled->group << 16 | (uint64_t)filled->thread << 32
                                  | (uint64_t)filled->phase << 48 | (uint64_t)filled->flags << 56);
    uint32_t number = (uint32_t)(claim + 1);
    __atomic_store_n((rs_word *)&record->sequence,
                     (uint64_t)filled->sequence | (uint64_t)(number ? number : 1) << 32, __ATOMIC_RELEASE);
    /* Stores become visible in order: a record that misses the cache would hold up the message the MPI sends next. */
    __builtin_prefetch((char *)&rs.log[(claim + 1) & (rs.log_capacity - 1)] + sizeof *record - 1, 1);
    return record;
}

#endif
