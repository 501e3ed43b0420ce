/* The wrappers: one for every line of mpi_functions.h. What MPI 3 has is exported plainly; what is new in MPI 4, and
 * every large-count twin, only where the loaded MPI has it (mpi_exports.c). */
#include "mpi_wrappers.h"

RS_COLD struct rs_thread *rs_mpi_enter_slow(void) { return rs_mpi_describe() && !rs_mpi.passive ? rs_enter() : NULL; }

/* NULL unless MPI_Pcontrol(0) is in force and this is a call of the program's own. */
RS_COLD struct rs_thread *rs_paused_thread(void)
{
    if (!rs.file || !(rs.file->flags & RS_PAUSED) || (rs_self && rs_self->depth))
        return NULL;
    rs_count(&rs.file->paused_calls, 1);
    return rs_self ? rs_self : rs_thread_start();
}

/* The first call of its kind, or one of another size, group or phase than the one before. */
__attribute__((noinline)) uint64_t rs_note_unlike(struct rs_thread *thread, enum rs_mpi_function function,
                                                  const struct rs_mpi_group *group, uint64_t bytes, uint64_t ticks,
                                                  int failed)
{
    uint64_t what = rs_alike_what(function, group);
    uint64_t key = rs_key_in_phase(rs_key_sized(rs_mpi_key(function, group, RS_KIND_CALL), bytes), (uint8_t)what);
    rs_tally(thread, key, ticks, bytes, failed);
    struct rs_tally *row = thread->cache[rs_cache_slot(key)];
    if (RS_LIKELY(rs_key_of(row) == key))   /* else the file has no room for it */
        thread->alike[function % RS_ALIKE] = (struct rs_alike){what, bytes, row};
    return key;
}

static RS_COLD void rs_note_apart(struct rs_thread *thread, enum rs_mpi_function function, struct rs_mpi_group *group,
                                  uint64_t bytes, uint64_t enter, uint64_t leave, int failed)
{
    rs_note(thread, function, group, bytes, enter, leave, failed);
}

/* What could not be known before the call: how much a collective moves. */
RS_COLD void rs_collective_sized(struct rs_logged logged, uint64_t bytes)
{
    struct rs_collective *record = logged.record;
    if (!record || rs_log_number(record) != logged.number)
        return;
    RS_SET(record->bytes, bytes);
    RS_SET(record->flags, (uint8_t)(__atomic_load_n(&record->flags, __ATOMIC_RELAXED) & ~RS_COLL_UNSIZED));
}

/* --- the words of the table --- */

/* Before a call (only_known) nobody is asked, no array is looked into, and what stays open makes the sum unsure. */
enum { only_known = 0 };
static int unsure;      /* never looked at: wrappers that can be unsure have their own */
#define OPEN_QUESTION ((uint64_t)(unsure = 1, 0))
#define KNOWN(word) ({ enum { only_known = 1 }; (word); })

#define COUNT(c) (RS_WIDE ? (int64_t)a##c : (int64_t)(int)a##c)
#define CT(c, t) (only_known ? rs_bytes_known(thread, COUNT(c), a##t, &unsure) : rs_bytes(thread, COUNT(c), a##t))
#define ONE(t) rs_bytes(thread, 1, a##t)
#define PLACE(b, there, here) (a##b == rs_mpi.in_place ? (there) : (here))
#define ELEMENT(array, i) (RS_WIDE ? ((const int64_t *)(array))[i] : (int64_t)((const int *)(array))[i])
#define AT(c, i, t) (only_known ? OPEN_QUESTION : rs_bytes(thread, ELEMENT(a##c, i), a##t))
#define SUM(c, n, t) (only_known ? OPEN_QUESTION : sum_bytes(thread, a##c, n, a##t, RS_WIDE))
#define SUMW(c, n, t) (only_known ? OPEN_QUESTION : sum_bytes_w(thread, a##c, n, a##t, RS_WIDE))
#define MY_RANK group->rank
#define OF_GROUP(size) (only_known && group == rs_group_none() ? OPEN_QUESTION : (uint64_t)(size))
#define MEMBERS OF_GROUP(group->size)
#define PEERS OF_GROUP(group->remote_size)
#define NEIGHBOURS(c) (!only_known ? (uint64_t)rs_out_degree(group, a##c)                         \
                       : group->out_degree < 0 ? OPEN_QUESTION : (uint64_t)group->out_degree)
#define ROOT(r) (int32_t)a##r
/* Negative roots are of intercommunicators: MPI_ROOT in the group of the root, MPI_PROC_NULL beside it. */
#define TO_ROOT(r, bytes) (RS_UNLIKELY((int)a##r < 0) ? 0 : (bytes))
#define WITH_ROOT(r, bytes) (RS_UNLIKELY((int)a##r < 0) && (int)a##r != rs_mpi.root ? 0 : (bytes))
/* To MPI_PROC_NULL, which is negative in every MPI, nothing is sent. */
#define TO_PEER(r, bytes) (RS_UNLIKELY((int)a##r < 0) ? 0 : (bytes))
#define TO_SOME(n, bytes) ((n) ? (bytes) : 0)
#define COMM(c) (only_known ? rs_comm_known(thread, a##c) : rs_comm(thread, a##c))
#define WIN(w) rs_win(thread, a##w)
#define FILE_(f) rs_file_group(thread, a##f)
#define NONE rs_group_none()
#define FROM_TAG(text) (int64_t)rs_hash((const char *)a##text)

static uint64_t sum_bytes(struct rs_thread *thread, W counts, uint64_t n, W type, int wide)
{
    int64_t total = 0;
    for (uint64_t i = 0; i < n && counts; i++)
        total += wide ? ((const int64_t *)counts)[i] : ((const int *)counts)[i];
    return rs_bytes(thread, total, type);
}

static uint64_t sum_bytes_w(struct rs_thread *thread, W counts, uint64_t n, W types, int wide)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < n && counts; i++)
        total += rs_bytes(thread, wide ? ((const int64_t *)counts)[i] : ((const int *)counts)[i],
                          (W)rs_handle_at(types, (int64_t)i));
    return total;
}

#define TRACK(fn, request, bytes, flags, dest_or_root, logged)                                    \
    if (RS_LIKELY(!failed && rs_mpi.ready))                                                       \
        rs_request_add(thread, rs_handle_at(a##request, 0), enter, bytes, group,                  \
                       rs_mpi_key(F_##fn, group, RS_KIND_PROGRESS), flags, dest_or_root, logged);

/* --- the kinds of the table --- */

/* After the call: what it was about, asked for only where the MPI has taken the arguments. */
#define GROUP_AFTER(group_word)                                                                   \
    struct rs_mpi_group *group = RS_UNLIKELY(failed) ? rs_group_none() : (group_word);
/* The same where the group was looked for before the call: what was known then is not looked for again. */
#define KNOWN_BEFORE(group_word) struct rs_mpi_group *known = KNOWN(group_word);
#define KNOWN_AFTER(group_word) (RS_LIKELY(known != rs_group_none()) ? known : (group_word))
#define BYTES_AFTER(bytes_word) uint64_t bytes = RS_UNLIKELY(failed) ? 0 : (bytes_word);

#define PLAIN_(fn, n, group_word, bytes_word)                                                     \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        BYTES_AFTER(bytes_word)                                                                   \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define PROBE_(fn, n, group_word, ...)                                                            \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        KNOWN_BEFORE(group_word)                                                                  \
        TIMED_WAITING(fn, n, known->id, __VA_ARGS__)                                              \
        GROUP_AFTER(KNOWN_AFTER(group_word))                                                      \
        rs_note(thread, F_##fn, group, 0, enter, leave, failed);                                  \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define IPLAIN_(fn, n, group_word, bytes_word, request)                                           \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        BYTES_AFTER(bytes_word)                                                                   \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        TRACK(fn, request, bytes, RS_REQUEST_ACTIVE, -1, RS_NOT_LOGGED)                           \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define COUNT_DESTINATION(destination, bytes)                                                     \
    if (RS_UNLIKELY(rs.matrix) && !failed)                                                        \
        rs_matrix_add(thread, group, (W)group->handle, (int)a##destination, bytes);

/* A send or a receive that has failed may have sent or taken a message all the same. */
#define NOTE_MESSAGE(fn, group_word, flags, peer, tag, bytes, end)                                \
    (RS_LIKELY(!failed)                                                                           \
         ? rs_message_note(thread, key, flags, peer, tag, bytes, enter, end)                      \
         : (rs_message_failed(thread, F_##fn, KNOWN(group_word), flags, peer, tag, enter, leave), \
            RS_NO_PLACE))

#define SEND_(fn, n, group_word, bytes_word, destination, tag)                                    \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        KNOWN_BEFORE(group_word)                                                                  \
        TIMED_WAITING(fn, n, known->id, FROM(destination), FROM(tag))                             \
        GROUP_AFTER(KNOWN_AFTER(group_word))                                                      \
        BYTES_AFTER(TO_PEER(destination, bytes_word))                                             \
        uint64_t key = rs_note(thread, F_##fn, group, bytes, enter, leave, failed);               \
        NOTE_MESSAGE(fn, group_word, 0, FROM(destination), FROM(tag), bytes, leave);              \
        COUNT_DESTINATION(destination, bytes)                                                     \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define TRACK_MESSAGE(fn, request, bytes, flags, place)                                           \
    TRACK(fn, request, bytes, RS_REQUEST_ACTIVE | ((place).record ? RS_REQUEST_MESSAGE : 0) | (flags), -1, \
          rs_as_logged((place).record, (place).number))

#define ISEND_(fn, n, group_word, bytes_word, destination, tag, request)                          \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        BYTES_AFTER(TO_PEER(destination, bytes_word))                                             \
        uint64_t key = rs_note(thread, F_##fn, group, bytes, enter, leave, failed);               \
        struct rs_message_place place =                                                           \
            NOTE_MESSAGE(fn, group_word, RS_MESSAGE_NONBLOCKING, FROM(destination), FROM(tag), bytes, 0); \
        TRACK_MESSAGE(fn, request, bytes, 0, place)                                               \
        COUNT_DESTINATION(destination, bytes)                                                     \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define FROM(word) (int32_t)a##word
#define NOBODY RS_NO_PEER, RS_NO_PEER
/* Only the status knows how much came, and from whom, so there always is one. */
#define OWN_STATUS(status)                                                                        \
    uint64_t own[8]; /* the half that is read is 0 where an MPI has written nothing */            \
    memset(own, 0, sizeof own / 2);                                                               \
    int readable = rs_mpi.ready;                                                                  \
    if (RS_LIKELY(readable) && a##status == rs_mpi.status_ignore)                                 \
        a##status = (W)own;

#define NOTE_RECEIVE(fn, group_word, source, tag, status, received)                               \
    if (RS_LIKELY(readable && !failed)) {                                                         \
        const void *told = (const void *)a##status;                                               \
        rs_message_note(thread, key, RS_MESSAGE_RECEIVE, rs_status_source(told), rs_status_tag(told), received, enter, \
                        leave);                                                                   \
    } else {                                                                                      \
        rs_message_failed(thread, F_##fn, KNOWN(group_word), RS_MESSAGE_RECEIVE, FROM(source), FROM(tag), enter, leave); \
    }

#define RECEIVE_(fn, n, group_word, source, tag, status)                                          \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        OWN_STATUS(status)                                                                        \
        KNOWN_BEFORE(group_word)                                                                  \
        TIMED_WAITING(fn, n, known->id, FROM(source), FROM(tag))                                  \
        GROUP_AFTER(KNOWN_AFTER(group_word))                                                      \
        BYTES_AFTER(readable ? rs_status_bytes((const void *)a##status) : 0)                      \
        uint64_t key = rs_note(thread, F_##fn, group, bytes, enter, leave, failed);               \
        NOTE_RECEIVE(fn, group_word, source, tag, status, bytes)                                  \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

/* One record for both: they begin and end together. */
#define SENDRECV_(fn, n, group_word, bytes_word, destination, send_tag, source, tag, status)      \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        OWN_STATUS(status)                                                                        \
        KNOWN_BEFORE(group_word)                                                                  \
        TIMED_WAITING(fn, n, known->id, FROM(source), FROM(tag))                                  \
        GROUP_AFTER(KNOWN_AFTER(group_word))                                                      \
        BYTES_AFTER(TO_PEER(destination, bytes_word))                                             \
        if (RS_LIKELY(readable && !failed)) {                                                     \
            uint64_t key = rs_note(thread, F_##fn, group, bytes, enter, leave, 0);                \
            rs_message_combined(thread, key, FROM(destination), FROM(send_tag), bytes,            \
                                (const void *)a##status, enter, leave);                           \
        } else {                                                                                  \
            rs_note_apart(thread, F_##fn, group, bytes, enter, leave, failed);                    \
            rs_message_failed_both(thread, F_##fn, KNOWN(group_word), FROM(destination), FROM(send_tag),\
                                   FROM(source), FROM(tag), enter, leave);                        \
        }                                                                                         \
        COUNT_DESTINATION(destination, bytes)                                                     \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define START_LATER(fn, n, group_word, bytes_word, dest_or_root_word, request, more_flags, logged) \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        rs_note(thread, F_##fn, group, 0, enter, leave, failed);                                  \
        TRACK(fn, request, bytes_word, more_flags, dest_or_root_word, logged)                     \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define WILDCARD(source, tag) (FROM(source) < 0 || FROM(tag) < 0 ? RS_REQUEST_WILDCARD : 0)

#define IRECEIVE_(fn, n, group_word, source, tag, request)                                        \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        uint64_t key = rs_note(thread, F_##fn, group, 0, enter, leave, failed);                   \
        struct rs_message_place place = RS_NO_PLACE;                                              \
        if (RS_LIKELY(!failed))                                                                   \
            place = rs_message_posted(thread, key, FROM(source), FROM(tag), enter);               \
        TRACK_MESSAGE(fn, request, 0, RS_REQUEST_RECEIVE | WILDCARD(source, tag), place)          \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

/* One request for a send and a receive: an entry for each, the send's on top. */
#define ISENDRECV_(fn, n, group_word, bytes_word, destination, send_tag, source, tag, request)    \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        BYTES_AFTER(TO_PEER(destination, bytes_word))                                             \
        uint64_t key = rs_note(thread, F_##fn, group, bytes, enter, leave, failed);               \
        struct rs_message_place place =                                                           \
            NOTE_MESSAGE(fn, group_word, RS_MESSAGE_NONBLOCKING, FROM(destination), FROM(send_tag), bytes, 0); \
        struct rs_message_place other = RS_NO_PLACE;                                              \
        if (RS_LIKELY(!failed))                                                                   \
            other = rs_message_posted(thread, key, FROM(source), FROM(tag), enter);               \
        TRACK_MESSAGE(fn, request, 0, RS_REQUEST_RECEIVE | RS_REQUEST_UNCOUNTED | WILDCARD(source, tag), other) \
        TRACK_MESSAGE(fn, request, bytes, RS_REQUEST_PAIR, place)                                 \
        COUNT_DESTINATION(destination, bytes)                                                     \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

/* What a matched probe has found: its record was made then. */
#define MRECEIVE_(fn, n, message, status)                                                         \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        uint64_t probed = rs_mpi.ready ? rs_handle_given(a##message) : 0;                         \
        OWN_STATUS(status)                                                                        \
        TIMED_WAITING(fn, n, 0, RS_NO_PEER, RS_NO_PEER)                                           \
        struct rs_mpi_group *group = rs_group_none();                                             \
        BYTES_AFTER(readable ? rs_status_bytes((const void *)a##status) : 0)                      \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        if (readable && !failed)                                                                  \
            rs_message_received(thread, probed, (const void *)a##status, bytes, leave);           \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define IMRECEIVE_(fn, n, message, request)                                                       \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        uint64_t probed = rs_mpi.ready ? rs_handle_given(a##message) : 0;                         \
        TIMED(n)                                                                                  \
        struct rs_mpi_group *group = rs_group_none();                                             \
        rs_note(thread, F_##fn, group, 0, enter, leave, failed);                                  \
        struct rs_message_place place = RS_NO_PLACE;                                              \
        if (RS_LIKELY(!failed))                                                                   \
            place = rs_message_receiving(thread, probed);                                         \
        TRACK_MESSAGE(fn, request, 0, RS_REQUEST_RECEIVE, place)                                  \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define RECEIVE_INIT_(fn, n, group_word, source, tag, request)                                    \
    START_LATER(fn, n, group_word, 0, -1, request,                                                \
                RS_REQUEST_RECEIVE | RS_REQUEST_PERSISTENT | RS_REQUEST_MESSAGE | WILDCARD(source, tag), \
                rs_as_logged(rs_persistent_new(FROM(source), FROM(tag)), 0))
#define SEND_INIT_(fn, n, group_word, bytes, destination, tag, request)                           \
    START_LATER(fn, n, group_word, TO_PEER(destination, bytes), FROM(destination), request,       \
                RS_REQUEST_PERSISTENT | RS_REQUEST_MESSAGE,                                       \
                rs_as_logged(rs_persistent_new(FROM(destination), FROM(tag)), 0))
#define PRECEIVE_INIT_(fn, n, group_word, request)                                                \
    START_LATER(fn, n, group_word, 0, -1, request, RS_REQUEST_RECEIVE | RS_REQUEST_PERSISTENT, RS_NOT_LOGGED)
#define PSEND_INIT_(fn, n, group_word, bytes, destination, request)                               \
    START_LATER(fn, n, group_word, TO_PEER(destination, bytes), FROM(destination), request, RS_REQUEST_PERSISTENT, \
                RS_NOT_LOGGED)
#define COLLECTIVE_INIT_(fn, n, group_word, bytes, root, request)                                 \
    START_LATER(fn, n, group_word, bytes, root, request, RS_REQUEST_PERSISTENT | RS_REQUEST_COLLECTIVE, RS_NOT_LOGGED)

#define COLLECTIVE_BODY(fn, n, group_word, bytes_word, root)                                      \
        OPEN(fn, n)                                                                               \
        PASS_ON_COLLECTIVE(n, KNOWN(group_word), group_word)                                      \
        COLLECTIVE_CALL(fn, n, KNOWN(group_word), group_word, KNOWN((uint64_t)(bytes_word)), bytes_word, root, 0) \
        rs_collective_end(logged, leave, failed);                                                 \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        rs_collective_seen(group);

#define COLLECTIVE_(fn, n, group_word, bytes_word, root)                                          \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        COLLECTIVE_BODY(fn, n, group_word, bytes_word, root)                                      \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define ICOLLECTIVE_(fn, n, group_word, bytes_word, root_word, request)                           \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON_COLLECTIVE(n, KNOWN(group_word), group_word)                                      \
        COLLECTIVE_CALL(fn, n, KNOWN(group_word), group_word, KNOWN((uint64_t)(bytes_word)), bytes_word, root_word, \
                        RS_COLL_NONBLOCKING)                                                      \
        rs_collective_started(logged, leave - enter, leave, failed);                              \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        TRACK(fn, request, bytes, RS_REQUEST_ACTIVE, -1, logged)                                  \
        rs_collective_seen(group);                                                                \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

#define NEW_GROUP(fn, n, group_word, kind, made, label)                                           \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        COLLECTIVE_BODY(fn, n, group_word, 0, -1)                                                 \
        if (RS_LIKELY(!failed && group != rs_group_none()))                                       \
            rs_group_new((W)rs_handle_at(a##made, 0), kind, group, label, -1);                    \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)
#define NEW_COMM_(fn, n, group_word, made, label) NEW_GROUP(fn, n, group_word, RS_GROUP_COMM, made, label)
#define NEW_WINDOW_(fn, n, group_word, made, label) NEW_GROUP(fn, n, group_word, RS_GROUP_WINDOW, made, label)

#define NEW_COMM_APART_(fn, n, group_word, made, label, tag)                                      \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON(n)                                                                                \
        TIMED(n)                                                                                  \
        GROUP_AFTER(group_word)                                                                   \
        rs_note(thread, F_##fn, group, 0, enter, leave, failed);                                  \
        if (RS_LIKELY(!failed) && !rs_mpi.ready)                                                  \
            rs_mpi_started(1);                                                                    \
        if (RS_LIKELY(!failed))                                                                   \
            rs_group_new((W)rs_handle_at(a##made, 0), RS_GROUP_COMM, group, label, tag);          \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, n)

/* Nobody can be asked about the handle afterwards: a communicator that was never seen in use stays unknown. */
#define FREE_COMM_(fn)                                                                            \
    static int wrap_##fn(ARGS_1)                                                                  \
    {                                                                                             \
        W freed = (W)rs_handle_given(a0);                                                         \
        COLLECTIVE_BODY(fn, 1, rs_comm_known(thread, freed), 0, -1)                               \
        if (RS_LIKELY(!failed))                                                                   \
            rs_group_freed(freed, RS_GROUP_COMM);                                                 \
        CLOSE                                                                                     \
    }                                                                                             \
    EXPORT_NOW(fn, 1)

/* The twin's suffix has to be on the name before it is pasted to anything. */
#define SEND(name, ...) WITH_NAME(SEND_, RS_TWIN(name), __VA_ARGS__)
#define RECEIVE(name, ...) WITH_NAME(RECEIVE_, RS_TWIN(name), __VA_ARGS__)
#define SENDRECV(name, ...) WITH_NAME(SENDRECV_, RS_TWIN(name), __VA_ARGS__)
#define MRECEIVE(name, ...) WITH_NAME(MRECEIVE_, RS_TWIN(name), __VA_ARGS__)
#define ISENDRECV(name, ...) WITH_NAME(ISENDRECV_, RS_TWIN(name), __VA_ARGS__)
#define IMRECEIVE(name, ...) WITH_NAME(IMRECEIVE_, RS_TWIN(name), __VA_ARGS__)
#define PSEND_INIT(name, ...) WITH_NAME(PSEND_INIT_, RS_TWIN(name), __VA_ARGS__)
#define PRECEIVE_INIT(name, ...) WITH_NAME(PRECEIVE_INIT_, RS_TWIN(name), __VA_ARGS__)
#define ISEND(name, ...) WITH_NAME(ISEND_, RS_TWIN(name), __VA_ARGS__)
#define IRECEIVE(name, ...) WITH_NAME(IRECEIVE_, RS_TWIN(name), __VA_ARGS__)
#define SEND_INIT(name, ...) WITH_NAME(SEND_INIT_, RS_TWIN(name), __VA_ARGS__)
#define RECEIVE_INIT(name, ...) WITH_NAME(RECEIVE_INIT_, RS_TWIN(name), __VA_ARGS__)
#define COLLECTIVE(name, ...) WITH_NAME(COLLECTIVE_, RS_TWIN(name), __VA_ARGS__)
#define ICOLLECTIVE(name, ...) WITH_NAME(ICOLLECTIVE_, RS_TWIN(name), __VA_ARGS__)
#define COLLECTIVE_INIT(name, ...) WITH_NAME(COLLECTIVE_INIT_, RS_TWIN(name), __VA_ARGS__)
#define PLAIN(name, ...) WITH_NAME(PLAIN_, RS_TWIN(name), __VA_ARGS__)
#define IPLAIN(name, ...) WITH_NAME(IPLAIN_, RS_TWIN(name), __VA_ARGS__)
#define PROBE(name, ...) WITH_NAME(PROBE_, RS_TWIN(name), __VA_ARGS__)
#define NEW_COMM(name, ...) WITH_NAME(NEW_COMM_, RS_TWIN(name), __VA_ARGS__)
#define NEW_COMM_APART(name, ...) WITH_NAME(NEW_COMM_APART_, RS_TWIN(name), __VA_ARGS__)
#define NEW_WINDOW(name, ...) WITH_NAME(NEW_WINDOW_, RS_TWIN(name), __VA_ARGS__)
#define FREE_COMM(name) FREE_COMM_(name)
#define SPECIAL(name, n)
#define WITH_NAME(kind, name, ...) kind(name, __VA_ARGS__)

#define RS_TWIN(name) name
#define RS_WIDE 0
#define EXPORT_NOW EXPORT_ALWAYS
#define RS_SECTION 1
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 3
#include "mpi_functions.h"
#undef RS_SECTION
#undef EXPORT_NOW
#define EXPORT_NOW EXPORT_IF_PRESENT
#define RS_SECTION 2
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 4
#include "mpi_functions.h"
#undef RS_SECTION
#undef RS_TWIN
#undef RS_WIDE

#define RS_TWIN(name) name##_c
#define RS_WIDE 1
#define RS_SECTION 1
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 2
#include "mpi_functions.h"
