/* Nonblocking and persistent operations: when they start and when they are complete. */
#include "mpi_wrappers.h"

/* --- messages --- */

static int was_cancelled(const void *status)
{
    int (*ask)(W, W) = (int (*)(W, W))rs_mpi_symbol("PMPI_Test_cancelled");
    int cancelled = 0;
    return ask && status && ask((W)status, (W)&cancelled) == 0 && cancelled;
}

/* Whether a message was sent or taken is not known: from here on its envelope is in doubt. */
RS_COLD void rs_message_failed(struct rs_thread *thread, enum rs_mpi_function function, const struct rs_mpi_group *group,
                               uint8_t flags, int32_t peer, int32_t tag, uint64_t enter, uint64_t leave)
{
    if (group->id)
        rs_message_add(thread, rs_mpi_key(function, group, RS_KIND_CALL), flags | RS_MESSAGE_FAILED, peer, tag, 0, enter,
                       leave);
}

RS_COLD void rs_message_failed_both(struct rs_thread *thread, enum rs_mpi_function function,
                                    const struct rs_mpi_group *group, int32_t peer, int32_t tag, int32_t source,
                                    int32_t source_tag, uint64_t enter, uint64_t leave)
{
    if (peer >= 0)
        rs_message_failed(thread, function, group, 0, peer, tag, enter, leave);
    rs_message_failed(thread, function, group, RS_MESSAGE_RECEIVE, source, source_tag, enter, leave);
}

static void end_without_message(struct rs_message_place place, uint8_t flag, uint64_t now)
{
    RS_SET(place.record->flags, (uint8_t)(place.record->flags | flag));
    __atomic_store_n(&place.record->end_ticks, now, __ATOMIC_RELEASE);
}

static inline struct rs_message_place place_of(const void *record, uint32_t number, uint16_t flags)
{
    if (RS_UNLIKELY(flags & RS_REQUEST_PERSISTENT))
        return ((const struct rs_persistent *)record)->place;
    return (struct rs_message_place){(struct rs_message *)record, number};
}

/* The rare ends: MPI_Cancel was tried, a receive from MPI_PROC_NULL, without a status, the record was given up. */
static RS_COLD void message_ended_oddly(struct rs_thread *thread, uint64_t key, uint16_t flags,
                                        struct rs_message_place place, const void *status, uint64_t now, uint64_t waited)
{
    int receive = flags & RS_REQUEST_RECEIVE, told = status && receive;
    int32_t peer = told ? rs_status_source(status) : -1, tag = told ? rs_status_tag(status) : -1;
    int none = ((flags & RS_REQUEST_CANCELLING) && was_cancelled(status)) || (told && peer < 0);
    if (!rs_message_is_there(place)) {
        uint8_t kind = (uint8_t)((receive ? RS_MESSAGE_RECEIVE : 0) | (none ? RS_MESSAGE_CANCELLED : 0));
        rs_message_after(thread, (uint16_t)(key >> 16), kind, (flags & RS_REQUEST_WILDCARD) != 0, peer, tag);
    } else if (none || !status) {
        end_without_message(place, none ? RS_MESSAGE_CANCELLED : RS_MESSAGE_FAILED, now);
    } else {
        if (receive)
            rs_message_told(place, peer, tag, rs_status_bytes(status));
        rs_message_end(place, now, waited);
    }
}

/* Nothing here takes the address of what the request table gave: it stays in registers. */
RS_HOT void message_complete(struct rs_thread *thread, uint64_t key, uint16_t flags, struct rs_message_place place,
                             uint64_t bytes, const void *status, uint64_t now, uint64_t waited)
{
    if (RS_UNLIKELY(!place.record))
        return;
    if (RS_UNLIKELY(!rs_message_is_there(place) || (flags & RS_REQUEST_CANCELLING)
                    || ((flags & RS_REQUEST_RECEIVE) && (!status || rs_status_source(status) < 0)))) {
        message_ended_oddly(thread, key, flags, place, status, now, waited);
        return;
    }
    if (flags & RS_REQUEST_RECEIVE)
        rs_message_told(place, rs_status_source(status), rs_status_tag(status), bytes);
    rs_message_end(place, now, waited);
}

/* A matched probe has taken its message out of the queue: that is its place among the receives. */
static void message_matched(struct rs_thread *thread, enum rs_mpi_function function, struct rs_mpi_group *group, W message,
                            const void *status, uint64_t enter)
{
    uint64_t key = rs_mpi_key(function, group, RS_KIND_CALL);
    struct rs_message_place place = rs_message_note(thread, key, RS_MESSAGE_RECEIVE, rs_status_source(status),
                                                    rs_status_tag(status), 0, enter, 0);
    if (place.record)
        rs_request_add(thread, rs_handle_at(message, 0), enter, 0, group, rs_mpi_key(function, group, RS_KIND_PROGRESS),
                       RS_REQUEST_ACTIVE | RS_REQUEST_RECEIVE | RS_REQUEST_MESSAGE, -1,
                       rs_as_logged(place.record, place.number));
}

static int take_matched(struct rs_thread *thread, uint64_t probed, struct rs_message_place *place)
{
    struct rs_completed done;
    if (!probed || !rs_request_take(thread, probed, &done) || !(done.flags & RS_REQUEST_MESSAGE))
        return 0;
    *place = place_of(done.record, done.record_number, done.flags);
    return rs_message_is_there(*place);
}

void rs_message_received(struct rs_thread *thread, uint64_t probed, const void *status, uint64_t bytes, uint64_t now)
{
    struct rs_message_place place;
    if (!take_matched(thread, probed, &place))
        return;
    rs_message_told(place, rs_status_source(status), rs_status_tag(status), bytes);
    rs_message_end(place, now, 0);
}

struct rs_message_place rs_message_receiving(struct rs_thread *thread, uint64_t probed)
{
    struct rs_message_place place;
    if (!take_matched(thread, probed, &place))
        return RS_NO_PLACE;
    RS_SET(place.record->flags, (uint8_t)(place.record->flags | RS_MESSAGE_NONBLOCKING));
    return place;
}

static int wrap_Mprobe(ARGS_5)
{
    OPEN(Mprobe, 5)
    PASS_ON(5)
    uint64_t own[8] = {0};
    int readable = rs_mpi.ready;
    if (readable && a4 == rs_mpi.status_ignore)
        a4 = (W)own;
    TIMED_WAITING(Mprobe, 5, rs_comm_known(thread, a2)->id, (int32_t)a0, (int32_t)a1)
    struct rs_mpi_group *group = failed ? rs_group_none() : rs_comm(thread, a2);
    rs_note(thread, F_Mprobe, group, 0, enter, leave, failed);
    if (readable && !failed)
        message_matched(thread, F_Mprobe, group, a3, (const void *)a4, enter);
    CLOSE
}
EXPORT_ALWAYS(Mprobe, 5)

static int wrap_Improbe(ARGS_6)
{
    OPEN(Improbe, 6)
    PASS_ON(6)
    uint64_t own[8] = {0};
    int readable = rs_mpi.ready;
    if (readable && a5 == rs_mpi.status_ignore)
        a5 = (W)own;
    TIMED(6)
    struct rs_mpi_group *group = failed ? rs_group_none() : rs_comm(thread, a2);
    rs_note(thread, F_Improbe, group, 0, enter, leave, failed);
    if (readable && !failed && *(const int *)a3)
        message_matched(thread, F_Improbe, group, a4, (const void *)a5, enter);
    CLOSE
}
EXPORT_ALWAYS(Improbe, 6)

static int wrap_Cancel(ARGS_1)
{
    OPEN(Cancel, 1)
    PASS_ON(1)
    uint64_t handle = rs_mpi.ready ? rs_handle_given(a0) : 0;
    TIMED(1)
    rs_note(thread, F_Cancel, rs_group_none(), 0, enter, leave, failed);
    if (!failed && handle)
        rs_request_cancelling(thread, handle);
    CLOSE
}
EXPORT_ALWAYS(Cancel, 1)

/* --- completion --- */

/* `waited`: how long the call took that waited for it; 0: it was found to be complete. */
RS_HOT void note_completion(struct rs_thread *thread, struct rs_completed done, const void *status, uint64_t now,
                            uint64_t waited)
{
    if (done.flags & RS_REQUEST_RECEIVE)
        done.bytes = status ? rs_status_bytes(status) : 0;
    if (RS_LIKELY(!(done.flags & RS_REQUEST_UNCOUNTED))) {
        uint64_t key = rs_key_sized(done.key, done.bytes), took = now - done.start_ticks;
        rs_tally(thread, key, took, done.bytes, 0);
        rs_trace(thread, key, done.start_ticks, took, done.bytes, 0);
    }
    if (RS_UNLIKELY(!done.record))
        return;
    if (RS_LIKELY(done.flags & RS_REQUEST_MESSAGE))
        message_complete(thread, done.key, done.flags, place_of(done.record, done.record_number, done.flags), done.bytes,
                         status, now, waited);
    else if (done.flags & RS_REQUEST_IDUP)
        rs_group_new((W)rs_handle_at((W)done.record, 0), RS_GROUP_COMM, done.group, "dup", -1);
    else
        rs_collective_completed((struct rs_logged){done.record, done.record_number}, now, waited);
}

RS_HOT void complete(struct rs_thread *thread, uint64_t handle, const void *status, uint64_t now, uint64_t waited)
{
    struct rs_completed done;
    if (!rs_request_take(thread, handle, &done))
        return;
    note_completion(thread, done, status, now, waited);
    if (RS_UNLIKELY(done.flags & RS_REQUEST_PAIR) && rs_request_take(thread, handle, &done))
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
    TIMED_WAITING(Wait, 2, 0, RS_NO_PEER, RS_NO_PEER)
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
        while (solo ? rs_request_take_held(rs_request_bucket(handle), handle, &done)
                    : rs_request_take(thread, handle, &done)) {
            note_completion(thread, done, status_of(waited, i), now, took);
            if (RS_LIKELY(!(done.flags & RS_REQUEST_PAIR)))
                break;
        }
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
    TIMED_WAITING(Waitall, 3, 0, RS_NO_PEER, RS_NO_PEER)
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
    TIMED_WAITING(Waitany, 4, 0, RS_NO_PEER, RS_NO_PEER)
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
    TIMED_WAITING(Waitsome, 5, 0, RS_NO_PEER, RS_NO_PEER)
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

static void message_started(struct rs_thread *thread, const struct rs_request *request, uint64_t enter)
{
    struct rs_persistent *persistent = (struct rs_persistent *)request->record;
    uint8_t flags = (uint8_t)(RS_MESSAGE_NONBLOCKING | (request->flags & RS_REQUEST_RECEIVE ? RS_MESSAGE_RECEIVE : 0));
    if (!persistent || !request->group->id)
        return;
    uint64_t key = rs_key_sized(request->key, request->bytes) & ~((uint64_t)0xFF << 56);
    persistent->place = RS_NO_PLACE;
    if (persistent->peer >= 0 || (flags & RS_MESSAGE_RECEIVE))
        persistent->place = rs_message_add(thread, key, flags, persistent->peer,
                                           persistent->tag, request->bytes, enter, 0);
}

static uint64_t start(struct rs_thread *thread, uint64_t handle, uint64_t enter, struct rs_mpi_group **group)
{
    struct rs_request request;
    if (!rs_request_start(thread, handle, enter, &request))
        return 0;
    log_started(thread, handle, &request, enter);
    if (request.flags & RS_REQUEST_MESSAGE)
        message_started(thread, &request, enter);
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
