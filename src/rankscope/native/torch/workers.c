/* Workers of a job that call each other, by torch RPC or Ray: a tally for each function, under the worker that is waited
 * for, or under the worker itself for what it executes for others. */
#include "steps.h"

#define MOST_WORKERS 512u

static rs_lock lock;
static struct { const struct rs_group *row; uint16_t id, name; } workers[MOST_WORKERS];
static uint32_t workers_used;
static uint16_t own;            /* group of the worker itself; 0: it has no name yet */

void rs_workers_forget(void)
{
    workers_used = 0;
    own = 0;
}

static uint16_t group_of(const char *text, uint32_t kind)
{
    uint16_t name = rs_intern(text), id = 0;
    if (!rs_lock_take(&lock))
        return 0;
    for (uint32_t at = 0; at < workers_used && !id; at++)
        id = workers[at].name == name && workers[at].row->kind == kind ? workers[at].id : 0;
    if (!id && workers_used < MOST_WORKERS) {
        struct rs_group *row = rs_group_row(&id);
        if (row) {
            row->identity = rs_hash(text);
            row->name = name;
            row->kind = kind;
            row->created_ticks = rs_ticks();
            workers[workers_used].row = row;
            workers[workers_used].id = id;
            workers[workers_used++].name = name;
        }
    }
    if (!id)
        rs_count(&rs.file->folded_groups, 1);
    rs_lock_give(&lock);
    return id;
}

/* What this worker is called; the name that comes first stays. */
RS_EXPORT void rankscope_worker(const char *name)
{
    if (rs_telling() && name && name[0] && !own)
        own = group_of(name, RS_GROUP_SERVED);
}

/* A call that began at `begin` (rankscope_ticks) ends now. worker: whom it waited for; NULL: it was executed here. */
RS_EXPORT void rankscope_worker_call(const char *name, const char *worker, uint64_t begin)
{
    struct rs_thread *thread = begin ? rs_enter() : NULL;
    if (!thread)
        return;
    uint64_t now = rs_ticks();
    if (!worker && !own)
        own = group_of("worker", RS_GROUP_SERVED);
    uint16_t group = worker ? group_of(worker, RS_GROUP_WORKER) : own;
    rs_tally(thread, rs_key(rs_intern(name), group, RS_LAYER_TORCH, rs.phase, 0, RS_KIND_CALL), now - begin, 0, 0);
    if (worker && rs_step_open)
        rs_step_blocked(begin, now);
    rs_leave(thread, now);
}
