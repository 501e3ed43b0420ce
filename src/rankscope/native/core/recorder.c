/* Groups, the collective log, facts about the process, what a call costs. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/resource.h>

#include "process.h"
#include "recorder.h"
#include "steps.h"

#define MOST_GROUPS 4094u

struct rs_recorder rs RS_FORKED_DATA;

static rs_lock facts_lock, group_lock, log_lock;
static struct rs_chunk *group_chunk, *unwrapped_rows;
static uint32_t groups_used;

/* --- groups, the collective log, entry points that are not intercepted --- */

struct rs_group *rs_group_row(uint16_t *id)
{
    struct rs_group *row = NULL;
    if (!rs.file || !rs_lock_take(&group_lock))
        return NULL;
    const struct rs_chunk like = {.kind = RS_CHUNK_GROUPS, .row_bytes = sizeof *row, .chunk_bytes = RS_PAGE,
                                  .first_id = groups_used + 1};
    if (groups_used < MOST_GROUPS)
        row = rs_row_place(&group_chunk, like, sizeof *row);
    if (row) {
        *id = (uint16_t)++groups_used;
        rs_row_publish(group_chunk, 1);
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
    const struct rs_chunk like = {.kind = RS_CHUNK_UNWRAPPED, .row_bytes = sizeof(uint32_t), .chunk_bytes = RS_PAGE};
    uint32_t *row = rs_row_place(&unwrapped_rows, like, sizeof *row);
    if (!row)
        return;
    *row = id;
    rs_row_publish(unwrapped_rows, 1);
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
    uint32_t odd = rs_row_begin(&facts->seq);
    facts->anchor = rs_anchor_now();
    facts->threads = stat.threads;
    facts->user_ns = timeval_ns(usage.ru_utime);
    facts->system_ns = timeval_ns(usage.ru_stime);
    facts->max_rss_bytes = (uint64_t)usage.ru_maxrss * 1024;
    facts->voluntary_switches = (uint64_t)usage.ru_nvcsw;
    facts->involuntary_switches = (uint64_t)usage.ru_nivcsw;
    facts->minor_faults = (uint64_t)usage.ru_minflt;
    facts->major_faults = (uint64_t)usage.ru_majflt;
    rs_row_done(&facts->seq, odd);
    RS_SET(rs.file->runnable_ns, rs_runnable_ns(rs.file->pid));
}

void rs_refresh_facts(void)
{
    int saved = errno;
    if (rs.file && rs_lock_try(&facts_lock)) {
        int cancel = rs_cancel_off();
        rs_own_enter();
        store_facts(&rs.file->facts);
        rs_own_leave();
        rs_cancel_back(cancel);
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
    rs_thread_clear(scratch);
    scratch->cache[rs_cache_slot(key)] = &row;
    rs.file->call_cost_milliticks = best_milliticks(scratch, &row, 0);
    rs.file->collective_cost_milliticks = best_milliticks(scratch, &row, 1);
    rs_memory_free(scratch, sizeof *scratch);
}

/* --- fork --- */

/* In the child: nothing of the parent's file may be touched again. keep_threads: the stack still uses them. */
void rs_recorder_forget(int keep_threads)
{
    rs_threads_forget(keep_threads);
    rs_strings_forget();
    group_chunk = unwrapped_rows = NULL;
    groups_used = 0;
    rs.log = NULL;
    rs.message_rings = 0;
    rs.full = 0;
}
