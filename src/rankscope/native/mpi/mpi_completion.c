/* Nonblocking and persistent operations: when they start and when they are complete. */
#include "mpi_wrappers.h"

/* `waited`: how long the call took that waited for it; 0: it was found to be complete. */
RS_HOT void note_completion(struct rs_thread *thread, struct rs_completed done, const void *status, uint64_t now,
                            uint64_t waited)
{
    if (done.flags & RS_REQUEST_RECEIVE)
        done.bytes = status ? rs_status_bytes(status) : 0;
    uint64_t key = rs_key_sized(done.key, done.bytes), took = now - done.start_ticks;
    rs_tally(thread, key, took, done.bytes, 0);
    rs_trace(thread, key, done.start_ticks, took, done.bytes, 0);
    if (RS_LIKELY(!done.record))
        return;
    if (done.flags & RS_REQUEST_IDUP)
        rs_group_new((W)rs_handle_at((W)done.record, 0), RS_GROUP_COMM, done.group, "dup", -1);
    else
        rs_collective_completed((struct rs_logged){done.record, done.record_number}, now, waited);
}

RS_HOT void complete(struct rs_thread *thread, uint64_t handle, const void *status, uint64_t now, uint64_t waited)
{
    struct rs_completed done;
    if (rs_request_take(thread, handle, &done))
        note_completion(thread, done, status, now, waited);
}

/* The handles before the call, which sets them to null, and statuses of our own where the program wants none: nothing
 * else tells the size of a receive. They lie in memory that the thread keeps. */
enum { STATUS_MOST = 40 };

struct waited {
    uint64_t *handles;
    char *statuses;
    int64_t n;
};

static RS_COLD void scratch_grow(struct rs_thread *thread, size_t bytes)
{
    rs_memory_free(thread->scratch, thread->scratch_bytes);
    thread->scratch_bytes = 2 * bytes;
    thread->scratch = rs_memory(thread->scratch_bytes);
    if (!thread->scratch)
        thread->scratch_bytes = 0;
}

static inline W before(struct rs_thread *thread, struct waited *waited, int64_t n, W requests, W statuses)
{
    n = requests && n > 0 ? n : 0;
    size_t bytes = (size_t)n * (sizeof(uint64_t) + STATUS_MOST);
    if (RS_UNLIKELY(bytes > thread->scratch_bytes))
        scratch_grow(thread, bytes);
    waited->n = thread->scratch ? n : 0;
    waited->handles = thread->scratch;
    waited->statuses = (char *)statuses;
    if (rs_mpi.int_handles)
        for (int64_t i = 0; i < waited->n; i++)
            waited->handles[i] = ((const uint32_t *)requests)[i];
    else
        for (int64_t i = 0; i < waited->n; i++)
            waited->handles[i] = ((const uint64_t *)requests)[i];
    if (statuses == rs_mpi.status_ignore)
        waited->statuses = waited->n ? (char *)(waited->handles + n) : NULL;
    return waited->statuses ? (W)waited->statuses : statuses;
}

static const void *status_of(const struct waited *waited, int64_t i)
{
    return waited->statuses ? waited->statuses + i * rs_mpi.status_bytes : NULL;
}

/* Without an MPI we know, handles cannot be read: pass on. */
#define OPEN_COMPLETION(fn, n)                                                                    \
    OPEN(fn, n)                                                                                   \
    PASS_ON(n)                                                                                    \
    struct waited waited = {NULL, NULL, 0};                                                       \
    int known = rs_mpi.ready;

#define NOTE(fn) rs_note(thread, F_##fn, rs_group_none(), 0, enter, leave, failed);

static int wrap_Wait(ARGS_2)
{
    OPEN(Wait, 2)
    PASS_ON(2)
    uint64_t own[8] = {0}, handle = 0;
    int known = rs_mpi.ready;
    if (known) {
        handle = rs_handle_given(a0);
        a1 = a1 == rs_mpi.status_ignore ? (W)own : a1;
    }
    TIMED_WAITING(Wait, 2, 0, RS_NO_PEER)
    NOTE(Wait)
    if (known && !failed)
        complete(thread, handle, (const void *)a1, leave, leave - enter);
    CLOSE
}
EXPORT_ALWAYS(Wait, 2)

static int wrap_Test(ARGS_3)
{
    OPEN(Test, 3)
    PASS_ON(3)
    uint64_t own[8] = {0}, handle = 0;
    int known = rs_mpi.ready;
    if (known) {
        handle = rs_handle_given(a0);
        a2 = a2 == rs_mpi.status_ignore ? (W)own : a2;
    }
    TIMED(3)
    NOTE(Test)
    if (known && !failed && *(const int *)a1)
        complete(thread, handle, (const void *)a2, leave, 0);
    CLOSE
}
EXPORT_ALWAYS(Test, 3)

/* One solo section for all of them. */
RS_HOT void complete_all(struct rs_thread *thread, const struct waited *waited, uint64_t now, uint64_t took)
{
    int solo = rs_solo_enter(thread);
    for (int64_t i = 0; i < waited->n; i++) {
        struct rs_completed done;
        uint64_t handle = waited->handles[i];
        if (solo ? rs_request_take_held(rs_request_bucket(handle), handle, &done) : rs_request_take(thread, handle, &done))
            note_completion(thread, done, status_of(waited, i), now, took);
    }
    if (solo)
        rs_solo_leave(thread);
}

/* After an error, those whose handle the MPI has set to null are complete. */
static void complete_changed(struct rs_thread *thread, const struct waited *waited, W requests, uint64_t now)
{
    for (int64_t i = 0; i < waited->n; i++)
        if (rs_handle_at(requests, i) != waited->handles[i])
            complete(thread, waited->handles[i], NULL, now, 0);
}

static int wrap_Waitall(ARGS_3)
{
    OPEN_COMPLETION(Waitall, 3)
    if (known)
        a2 = before(thread, &waited, (int)a0, a1, a2);
    TIMED_WAITING(Waitall, 3, 0, RS_NO_PEER)
    NOTE(Waitall)
    if (RS_UNLIKELY(failed))
        complete_changed(thread, &waited, a1, leave);
    else
        complete_all(thread, &waited, leave, leave - enter);
    CLOSE
}
EXPORT_ALWAYS(Waitall, 3)

static int wrap_Testall(ARGS_4)
{
    OPEN_COMPLETION(Testall, 4)
    if (known)
        a3 = before(thread, &waited, (int)a0, a1, a3);
    TIMED(4)
    NOTE(Testall)
    if (known && !failed && *(const int *)a2)
        complete_all(thread, &waited, leave, 0);
    CLOSE
}
EXPORT_ALWAYS(Testall, 4)

static int wrap_Waitany(ARGS_4)
{
    OPEN_COMPLETION(Waitany, 4)
    if (known)
        a3 = before(thread, &waited, (int)a0, a1, a3);
    TIMED_WAITING(Waitany, 4, 0, RS_NO_PEER)
    NOTE(Waitany)
    if (known && !failed) {
        int index = *(const int *)a2;
        if (index >= 0 && index < waited.n)
            complete(thread, waited.handles[index], status_of(&waited, 0), leave, leave - enter);
    }
    CLOSE
}
EXPORT_ALWAYS(Waitany, 4)

static int wrap_Testany(ARGS_5)
{
    OPEN_COMPLETION(Testany, 5)
    if (known)
        a4 = before(thread, &waited, (int)a0, a1, a4);
    TIMED(5)
    NOTE(Testany)
    if (known && !failed && *(const int *)a3) {
        int index = *(const int *)a2;
        if (index >= 0 && index < waited.n)
            complete(thread, waited.handles[index], status_of(&waited, 0), leave, 0);
    }
    CLOSE
}
EXPORT_ALWAYS(Testany, 5)

static void complete_some(struct rs_thread *thread, struct waited *waited, W done, W indices, uint64_t now,
                          uint64_t took)
{
    int n = *(const int *)done;
    for (int i = 0; i < n; i++) {
        int index = ((const int *)indices)[i];
        if (index >= 0 && index < waited->n)
            complete(thread, waited->handles[index], status_of(waited, i), now, took);
    }
}

static int wrap_Waitsome(ARGS_5)
{
    OPEN_COMPLETION(Waitsome, 5)
    if (known)
        a4 = before(thread, &waited, (int)a0, a1, a4);
    TIMED_WAITING(Waitsome, 5, 0, RS_NO_PEER)
    NOTE(Waitsome)
    if (known && !failed)
        complete_some(thread, &waited, a2, a3, leave, leave - enter);
    CLOSE
}
EXPORT_ALWAYS(Waitsome, 5)

static int wrap_Testsome(ARGS_5)
{
    OPEN_COMPLETION(Testsome, 5)
    if (known)
        a4 = before(thread, &waited, (int)a0, a1, a4);
    TIMED(5)
    NOTE(Testsome)
    if (known && !failed)
        complete_some(thread, &waited, a2, a3, leave, 0);
    CLOSE
}
EXPORT_ALWAYS(Testsome, 5)

/* --- persistent operations --- */

static void log_started(struct rs_thread *thread, uint64_t handle, const struct rs_request *request, uint64_t enter)
{
    if (!(request->flags & RS_REQUEST_COLLECTIVE))
        return;
    struct rs_group *row = request->group->row;
    __atomic_store_n(&row->collectives, row->collectives + 1, __ATOMIC_RELAXED);
    struct rs_collective filled = {
        .enter_ticks = enter, .bytes = request->bytes, .sequence = (uint32_t)row->collectives, .root = request->dest_or_root,
        .name = (uint16_t)request->key, .group = request->group->id, .thread = (uint16_t)thread->slot,
        .phase = rs.phase, .flags = RS_COLL_NONBLOCKING};
    rs_request_set_record(thread, handle, rs_log_enter(thread, &filled));
    rs_collective_seen(request->group);
}

static uint64_t start(struct rs_thread *thread, uint64_t handle, uint64_t enter, struct rs_mpi_group **group)
{
    struct rs_request request;
    if (!rs_request_start(thread, handle, enter, &request))
        return 0;
    log_started(thread, handle, &request, enter);
    if (rs.matrix && !(request.flags & (RS_REQUEST_COLLECTIVE | RS_REQUEST_RECEIVE)))
        rs_matrix_add(thread, request.group, (W)request.group->handle, request.dest_or_root, request.bytes);
    *group = request.group;
    return request.bytes;
}

static int wrap_Start(ARGS_1)
{
    OPEN(Start, 1)
    PASS_ON(1)
    TIMED(1)
    struct rs_mpi_group *group = rs_group_none();
    uint64_t bytes = rs_mpi.ready && !failed ? start(thread, rs_handle_at(a0, 0), enter, &group) : 0;
    rs_note(thread, F_Start, group, bytes, enter, leave, failed);
    CLOSE
}
EXPORT_ALWAYS(Start, 1)

static int wrap_Startall(ARGS_2)
{
    OPEN(Startall, 2)
    PASS_ON(2)
    TIMED(2)
    struct rs_mpi_group *group = rs_group_none();
    uint64_t bytes = 0;
    for (int i = 0; rs_mpi.ready && !failed && i < (int)a0; i++)
        bytes += start(thread, rs_handle_at(a1, i), enter, &group);
    rs_note(thread, F_Startall, group, bytes, enter, leave, failed);
    CLOSE
}
EXPORT_ALWAYS(Startall, 2)

/* Forgotten before the call: afterwards the handle may be another thread's already. */
static int wrap_Request_free(ARGS_1)
{
    OPEN(Request_free, 1)
    PASS_ON(1)
    if (rs_mpi.ready)
        rs_request_drop(thread, rs_handle_given(a0));
    TIMED(1)
    NOTE(Request_free)
    CLOSE
}
EXPORT_ALWAYS(Request_free, 1)
