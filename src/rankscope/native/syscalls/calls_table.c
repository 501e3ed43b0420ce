/* The counters of system calls: a table of open addressing in the rank file, and a larger one behind it when it fills
 * up. No lock: a call may be counted in a signal handler that has interrupted the counting of another. */
#include <errno.h>

#include "calls_layer.h"
#include "recorder.h"

#define FIRST_ROWS 1024u
#define LEVELS 7
#define PROBES 8u

static struct { struct rs_system_call *rows; uint64_t mask; } levels[LEVELS];
static volatile int levels_used;
static volatile int growing, full;

static int grow(void)
{
    if (full || levels_used == LEVELS || __atomic_exchange_n(&growing, 1, __ATOMIC_ACQUIRE))
        return 0;
    uint64_t rows = (uint64_t)FIRST_ROWS << levels_used;
    struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_SYSTEM_CALLS, 0, sizeof(struct rs_system_call),
                                          sizeof *chunk + rows * sizeof(struct rs_system_call));
    if (chunk) {
        levels[levels_used].rows = (struct rs_system_call *)(chunk + 1);
        levels[levels_used].mask = rows - 1;
        __atomic_store_n(&chunk->rows, (uint32_t)rows, __ATOMIC_RELEASE);
        __atomic_store_n(&levels_used, levels_used + 1, __ATOMIC_RELEASE);
    }
    full = !chunk;
    __atomic_store_n(&growing, 0, __ATOMIC_RELEASE);
    return chunk != NULL;
}

int rs_calls_table_open(void) { return levels_used || grow(); }

void rs_calls_table_forget(void)
{
    memset(levels, 0, sizeof levels);
    levels_used = growing = full = 0;
    memset(rankscope_calls_thread.cache, 0, sizeof rankscope_calls_thread.cache);
}

static uint64_t hash_of(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> 40; }

/* The row of the key, or a free one that it now has; NULL where there is no place. Two threads may come to have two
 * rows for one key: their sum is right. */
static struct rs_system_call *find(uint64_t key)
{
    for (int level = 0; level < levels_used; level++)
        for (uint64_t probe = 0; probe < PROBES; probe++) {
            struct rs_system_call *row = &levels[level].rows[(hash_of(key) + probe) & levels[level].mask];
            uint64_t found = __atomic_load_n(&row->key, __ATOMIC_RELAXED);
            if (found == key)
                return row;
            if (!found && __atomic_compare_exchange_n(&row->key, &found, key, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                return row;
        }
    return NULL;
}

#if !defined(__x86_64__)
#define __builtin_ia32_pause() ((void)0)
#endif

static struct rs_system_call *row_of(struct rs_calls_thread *self, uint64_t key)
{
    struct rs_system_call **place = &self->cache[hash_of(key) % RS_CALLS_CACHE];
    struct rs_system_call *row = *place;
    if (RS_LIKELY(row && row->key == key))
        return row;
    row = find(key);
    if (RS_UNLIKELY(!row)) {
        int grown = grow();
        for (int wait = 0; !grown && growing && wait < 100000; wait++)      /* another thread is at it */
            __builtin_ia32_pause();
        row = find(key);
    }
    if (row)
        *place = row;
    return row;
}

void rs_calls_row_add(struct rs_calls_thread *self, uint64_t key, const struct rs_call *call)
{
    struct rs_system_call *row = row_of(self, key);
    if (RS_UNLIKELY(!row)) {
        rs_count(&rs.file->lost_system_calls, 1);
        return;
    }
    int failed = call->result < 0 && call->result > -4096;
    if (failed)
        rs_count(&row->failed, 1);
    if (call->result == -ENOENT)
        rs_count(&row->missing, 1);
    rs_count(&row->ticks, call->ticks);
    if (!failed && call->result && (call->number == 0 || call->number == 17 || call->number == 19))
        rs_count(&row->bytes, (uint64_t)call->result);      /* read, pread64, readv */
    rs_count(&row->calls, call->taken_back ? (uint64_t)-1 : 1);
}
