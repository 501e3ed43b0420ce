/* The wrappers that do more than a line of the table can say: start and end, making and freeing. */
#include <stdarg.h>

#include "mpi_wrappers.h"
#include "trampolines.h"

/* --- steps and phases --- */

/* A call of so many ticks has just returned. */
/* Not where oneCCL calls MPI: that it stands still is told by the call of oneCCL's. */
RS_COLD void rs_mpi_in_step(uint64_t ticks)
{
    if (rs_frame_innermost(__builtin_frame_address(0)))
        return;
    uint64_t now = rs_ticks();
    rs_step_blocked(now - ticks, now);
}

RS_COLD void rs_mpi_first_collective(void)
{
    uint64_t now = rs_ticks(), written = rs.file->log_written;
    uint64_t enter = rs.log && written ? rs.log[(written - 1) & (rs.log_capacity - 1)].enter_ticks : now;
    rs_mark_at(RS_MARK_FIRST_COLLECTIVE_BEGIN, "MPI", enter);
    rs_mark_at(RS_MARK_FIRST_COLLECTIVE_END, "MPI", now);
    rs_first_collective_over();
}

/* --- start and end --- */

static int initialise(struct rs_thread *thread, enum rs_mpi_function function, uint64_t enter, uint8_t phase, int failed)
{
    uint64_t leave = rs_ticks();
    if (thread) {
        rs_note(thread, function, rs_group_none(), 0, enter, leave, failed);
        rs_leave(thread, leave);
    }
    if (failed) {
        rs_set_phase(phase);
        return failed;
    }
    rs_mark_at(RS_MARK_INIT_BEGIN, "MPI_Init", enter);
    rs_mark_at(RS_MARK_INIT_END, "MPI_Init", leave);
    return failed;
}

#define INITIALISE(fn, n)                                                                         \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        if (rs_mpi.passive)                                                                       \
            return real(PASS_##n);                                                                \
        uint8_t phase = rs.phase;                                                                 \
        rs_set_phase(RS_PHASE_INIT);                                                              \
        uint64_t enter = rs_ticks();                                                              \
        int failed = initialise(thread, F_##fn, enter, phase, real(PASS_##n));                    \
        if (!failed)                                                                              \
            rs_mpi_started(0);                                                                    \
        return failed;                                                                            \
    }
INITIALISE(Init, 2)
EXPORT_ALWAYS(Init, 2)
INITIALISE(Init_thread, 4)
EXPORT_ALWAYS(Init_thread, 4)

static int wrap_Session_init(ARGS_3)
{
    OPEN(Session_init, 3)
    if (rs_mpi.passive)
        return real(PASS_3);
    uint64_t enter = rs_ticks();
    int failed = initialise(thread, F_Session_init, enter, rs.phase, real(PASS_3));
    if (!failed)
        rs_mpi_session_opened((W)rs_handle_at(a2, 0));
    return failed;
}
EXPORT_IF_PRESENT(Session_init, 3)

static void finalising(void)
{
    if (!rs.file)
        return;
    rs_set_phase(RS_PHASE_FINALIZE);
    rs.file->mpi_finalized_ticks = rs_ticks();
    rs_mark_at(RS_MARK_FINALIZE, "MPI_Finalize", rs.file->mpi_finalized_ticks);
    rs_set_flag(RS_MPI_FINALIZED);
    rs_refresh_facts();
}

static RS_COLD void finalising_refused(uint8_t phase)
{
    if (!rs.file)
        return;
    rs_set_phase(phase);
    rs.file->mpi_finalized_ticks = 0;
    __atomic_fetch_and(&rs.file->flags, ~(uint32_t)RS_MPI_FINALIZED, __ATOMIC_RELAXED);
}

static int wrap_Finalize(ARGS_0)
{
    OPEN(Finalize, 0)
    if (rs_mpi.passive)
        return real();
    uint8_t phase = rs.phase;
    int last = rs_mpi.ready && !rs_mpi.sessions;
    if (last)
        finalising();
    PASS_ON(0)
    TIMED(0)
    if (!failed)
        rs_mpi_finalized();
    else if (last)
        finalising_refused(phase);
    rs_note(thread, F_Finalize, rs_group_none(), 0, enter, leave, failed);
    CLOSE
}
EXPORT_ALWAYS(Finalize, 0)

static int wrap_Session_finalize(ARGS_1)
{
    OPEN(Session_finalize, 1)
    if (rs_mpi.passive)
        return real(PASS_1);
    uint8_t phase = rs.phase;
    int last = rs_mpi.ready && rs_mpi.sessions == 1 && !rs_mpi.world;
    if (last)
        finalising();
    PASS_ON(1)
    TIMED(1)
    if (!failed)
        rs_mpi_session_closed();
    else if (last)
        finalising_refused(phase);
    rs_note(thread, F_Session_finalize, rs_group_none(), 0, enter, leave, failed);
    CLOSE
}
EXPORT_IF_PRESENT(Session_finalize, 1)

/* Noted before the call: it does not come back. */
static int wrap_Abort(ARGS_2)
{
    OPEN(Abort, 2)
    if (rs.file) {
        rs.file->abort_code = (int32_t)a1;
        rs_set_flag(RS_MPI_ABORTED);
        rs_refresh_facts();
    }
    if (thread) {
        uint64_t now = rs_ticks();
        rs_note(thread, F_Abort, rs_group_none(), 0, now, now, 0);
        rs_leave(thread, now);
    }
    return real(PASS_2);
}
EXPORT_ALWAYS(Abort, 2)

/* 0 pauses, any other level resumes. The arguments after the level are another layer's business. */
static int pcontrol(int level, va_list more, void *real)
{
    W words[5];
    for (int i = 0; i < 5; i++)
        words[i] = va_arg(more, W);
    if (rs_telling()) {
        if (level)
            __atomic_fetch_and(&rs.file->flags, ~(uint32_t)RS_PAUSED, __ATOMIC_RELAXED);
        else
            rs_set_flag(RS_PAUSED);
        atomic_store(&rs.enabled, level != 0);
    }
    return real ? ((int (*)(int, ...))real)(level, words[0], words[1], words[2], words[3], words[4]) : 0;
}

RS_EXPORT int MPI_Pcontrol(const int level, ...)
{
    va_list more;
    va_start(more, level);
    int failed = pcontrol(level, more, rs_mpi_next("MPI_Pcontrol", rs_mpi_symbol("PMPI_Pcontrol")));
    va_end(more);
    return failed;
}

RS_EXPORT int PMPI_Pcontrol(const int level, ...)
{
    va_list more;
    va_start(more, level);
    int failed = pcontrol(level, more, rs_mpi_symbol("PMPI_Pcontrol"));
    va_end(more);
    return failed;
}

/* --- communicators, datatypes, windows, files --- */

static void track_idup(struct rs_thread *thread, enum rs_mpi_function function, struct rs_mpi_group *parent, W made,
                       W request, uint64_t enter)
{
    if (!rs_mpi.ready)
        return;
    rs_request_add(thread, rs_handle_at(request, 0), enter, 0, parent, rs_mpi_key(function, parent, RS_KIND_PROGRESS),
                   RS_REQUEST_ACTIVE | RS_REQUEST_IDUP, -1, (struct rs_logged){(struct rs_collective *)made, 0});
}

#define IDUP(fn, n, made, request)                                                                \
    static int wrap_##fn(ARGS_##n)                                                                \
    {                                                                                             \
        OPEN(fn, n)                                                                               \
        PASS_ON_COLLECTIVE(n, rs_comm_known(thread, a0), rs_comm(thread, a0))                     \
        COLLECTIVE_CALL(fn, n, rs_comm_known(thread, a0), rs_comm(thread, a0), 0, 0, -1, RS_COLL_NONBLOCKING) \
        rs_collective_end(logged, leave, failed);                                                 \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        if (!failed)                                                                              \
            track_idup(thread, F_##fn, group, a##made, a##request, enter);                        \
        CLOSE                                                                                     \
    }
IDUP(Comm_idup, 3, 1, 2)
EXPORT_ALWAYS(Comm_idup, 3)
IDUP(Comm_idup_with_info, 4, 2, 3)
EXPORT_IF_PRESENT(Comm_idup_with_info, 4)

static int wrap_Comm_set_name(ARGS_2)
{
    OPEN(Comm_set_name, 2)
    PASS_ON(2)
    TIMED(2)
    rs_note(thread, F_Comm_set_name, failed ? rs_group_none() : rs_comm(thread, a0), 0, enter, leave, failed);
    if (!failed)
        rs_group_named(a0, (const char *)a1);
    CLOSE
}
EXPORT_ALWAYS(Comm_set_name, 2)

/* Not counted, only watched: the handle may come back as another type. */
static int wrap_Type_free(ARGS_1)
{
    int (*real)(ARGS_1) = (int (*)(ARGS_1))rs_mpi_real[F_Type_free];
    if (!real && !(real = (int (*)(ARGS_1))rs_mpi_resolve(F_Type_free)))
        return RS_MPI_MISSING;
    int failed = real(a0);
    __atomic_fetch_add(&rs_mpi.type_epoch, 1, __ATOMIC_RELEASE);
    return failed;
}
EXPORT_ALWAYS(Type_free, 1)

/* The handle of what is closed is known before the call and nothing afterwards. */
#define CLOSING(fn, handle_word, kind_word, group_word)                                           \
    static int wrap_##fn(ARGS_1)                                                                  \
    {                                                                                             \
        W closed = a0 ? handle_word : 0;                                                          \
        OPEN(fn, 1)                                                                               \
        PASS_ON_COLLECTIVE(1, group_word, rs_group_none())                                        \
        COLLECTIVE_CALL(fn, 1, group_word, rs_group_none(), 0, 0, -1, 0)                          \
        rs_collective_end(logged, leave, failed);                                                 \
        rs_note(thread, F_##fn, group, bytes, enter, leave, failed);                              \
        if (!failed)                                                                              \
            rs_group_freed(closed, kind_word);                                                    \
        CLOSE                                                                                     \
    }
CLOSING(Win_free, (W)rs_handle_at(a0, 0), RS_GROUP_WINDOW, rs_win(thread, closed))
EXPORT_ALWAYS(Win_free, 1)
CLOSING(File_close, *(const W *)a0, RS_GROUP_FILE, rs_file_group(thread, closed))
EXPORT_ALWAYS(File_close, 1)

static int wrap_File_open(ARGS_5)
{
    OPEN(File_open, 5)
    PASS_ON_COLLECTIVE(5, rs_comm_known(thread, a0), rs_comm(thread, a0))
    COLLECTIVE_CALL(File_open, 5, rs_comm_known(thread, a0), rs_comm(thread, a0), 0, 0, -1, 0)
    rs_collective_end(logged, leave, failed);
    rs_note(thread, F_File_open, group, bytes, enter, leave, failed);
    if (!failed)
        rs_group_new(*(const W *)a4, RS_GROUP_FILE, group, "file", -1);
    CLOSE
}
EXPORT_ALWAYS(File_open, 5)
