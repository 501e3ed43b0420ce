/* The wrappers that do more than a line of the table can say: start and end, making and freeing. */
#include <stdarg.h>

#include "mpi_wrappers.h"

/* --- steps and phases --- */

/* A call of so many ticks has just returned. */
RS_COLD void rs_mpi_in_step(uint64_t ticks)
{
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

static int initialise(struct rs_thread *thread, enum rs_mpi_function function, uint64_t enter, int failed)
{
    uint64_t leave = rs_ticks();
    if (thread) {
        rs_note(thread, function, rs_group_none(), 0, enter, leave, failed);
        rs_leave(thread, leave);
    }
    rs_mark_at(RS_MARK_INIT_BEGIN, "MPI_Init", enter);
    rs_mark_at(RS_MARK_INIT_END, "MPI_Init", leave);
    if (!failed)
        rs_mpi_started();
    return failed;
}

static int wrap_Init(ARGS_2)
{
    OPEN(Init, 2)
    rs_set_phase(RS_PHASE_INIT);
    uint64_t enter = rs_ticks();
    return initialise(thread, F_Init, enter, real(PASS_2));
}
EXPORT_ALWAYS(Init, 2)

static int wrap_Init_thread(ARGS_4)
{
    OPEN(Init_thread, 4)
    rs_set_phase(RS_PHASE_INIT);
    uint64_t enter = rs_ticks();
    return initialise(thread, F_Init_thread, enter, real(PASS_4));
}
EXPORT_ALWAYS(Init_thread, 4)

static int wrap_Session_init(ARGS_3)
{
    OPEN(Session_init, 3)
    uint64_t enter = rs_ticks();
    return initialise(thread, F_Session_init, enter, real(PASS_3));
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

static int wrap_Finalize(ARGS_0)
{
    OPEN(Finalize, 0)
    finalising();
    PASS_ON(0)
    TIMED(0)
    rs_mpi.ready = 0;
    rs_mpi.finalized = 1;
    rs_note(thread, F_Finalize, rs_group_none(), 0, enter, leave, failed);
    CLOSE
}
EXPORT_ALWAYS(Finalize, 0)

static int wrap_Session_finalize(ARGS_1)
{
    OPEN(Session_finalize, 1)
    PASS_ON(1)
    TIMED(1)
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

/* 0 pauses, any other level resumes. The arguments after the level are nobody's business. */
RS_EXPORT int MPI_Pcontrol(const int level, ...)
{
    int (*real)(int, ...) = (int (*)(int, ...))rs_mpi_symbol("PMPI_Pcontrol");
    if (rs_telling()) {
        if (level)
            __atomic_fetch_and(&rs.file->flags, ~(uint32_t)RS_PAUSED, __ATOMIC_RELAXED);
        else
            rs_set_flag(RS_PAUSED);
        atomic_store(&rs.enabled, level != 0);
    }
    return real ? real(level) : 0;
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
        PASS_ON_COLLECTIVE(n, rs_comm(thread, a0))                                                \
        struct rs_mpi_group *group = rs_comm(thread, a0);                                         \
        struct rs_logged logged = rs_collective_enter(thread, F_##fn, group, 0, -1, RS_COLL_NONBLOCKING, rs_ticks()); \
        TIMED(n)                                                                                  \
        rs_collective_end(logged, leave, failed);                                                 \
        rs_note(thread, F_##fn, group, 0, enter, leave, failed);                                  \
        if (!failed)                                                                              \
            track_idup(thread, F_##fn, group, a##made, a##request, enter);                                \
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
    rs_comm(thread, a0);
    TIMED(2)
    rs_note(thread, F_Comm_set_name, rs_comm(thread, a0), 0, enter, leave, failed);
    if (!failed)
        rs_group_named(a0, (const char *)a1);
    CLOSE
}
EXPORT_ALWAYS(Comm_set_name, 2)

/* Not counted, only watched: the handle may come back as another type. */
static int wrap_Type_free(ARGS_1)
{
    int (*real)(ARGS_1) = (int (*)(ARGS_1))rs_mpi_function(F_Type_free);
    if (!real)
        return RS_MPI_MISSING;
    int failed = real(a0);
    __atomic_fetch_add(&rs_mpi.type_epoch, 1, __ATOMIC_RELEASE);
    return failed;
}
EXPORT_ALWAYS(Type_free, 1)

static int wrap_Win_free(ARGS_1)
{
    W freed = (W)rs_handle_at(a0, 0);
    OPEN(Win_free, 1)
    PASS_ON_COLLECTIVE(1, rs_win(thread, freed))
    struct rs_mpi_group *group = rs_win(thread, freed);
    struct rs_logged logged = rs_collective_enter(thread, F_Win_free, group, 0, -1, 0, rs_ticks());
    TIMED(1)
    rs_collective_end(logged, leave, failed);
    rs_note(thread, F_Win_free, group, 0, enter, leave, failed);
    if (!failed)
        rs_group_freed(freed, RS_GROUP_WINDOW);
    CLOSE
}
EXPORT_ALWAYS(Win_free, 1)

static int wrap_File_open(ARGS_5)
{
    OPEN(File_open, 5)
    PASS_ON_COLLECTIVE(5, rs_comm(thread, a0))
    struct rs_mpi_group *group = rs_comm(thread, a0);
    struct rs_logged logged = rs_collective_enter(thread, F_File_open, group, 0, -1, 0, rs_ticks());
    TIMED(5)
    rs_collective_end(logged, leave, failed);
    rs_note(thread, F_File_open, group, 0, enter, leave, failed);
    if (!failed)
        rs_group_new(*(const W *)a4, RS_GROUP_FILE, group, "file", -1);
    CLOSE
}
EXPORT_ALWAYS(File_open, 5)

static int wrap_File_close(ARGS_1)
{
    W freed = *(const W *)a0;
    OPEN(File_close, 1)
    PASS_ON_COLLECTIVE(1, rs_file_group(thread, freed))
    struct rs_mpi_group *group = rs_file_group(thread, freed);
    struct rs_logged logged = rs_collective_enter(thread, F_File_close, group, 0, -1, 0, rs_ticks());
    TIMED(1)
    rs_collective_end(logged, leave, failed);
    rs_note(thread, F_File_close, group, 0, enter, leave, failed);
    if (!failed)
        rs_group_freed(freed, RS_GROUP_FILE);
    CLOSE
}
EXPORT_ALWAYS(File_close, 1)
