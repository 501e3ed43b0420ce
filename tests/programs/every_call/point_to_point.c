#include "every_call.h"

static const int sizes[] = {0, 1, 2, 3, 4, 5, 8, 9, 1024, 1025, 65536, 300000};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Sends to the next rank while a receive, posted before, waits on this one. */
#define DELIVER(function, bytes)                                                                                       \
    do {                                                                                                               \
        MPI_Request posted_;                                                                                           \
        PMPI_Irecv(in, ROOM, MPI_BYTE, prev, 7, world, &posted_);                                                      \
        PMPI_Barrier(world);                                                                                           \
        CALL(function, bytes, out, bytes, MPI_BYTE, next, 7, world);                                                   \
        PMPI_Wait(&posted_, MPI_STATUS_IGNORE);                                                                        \
    } while (0)
/* Receives what the previous rank sends; the buffer offered is larger than the message. */
#define ACCEPT(function, bytes, ...)                                                                                   \
    do {                                                                                                               \
        MPI_Request sent_;                                                                                             \
        PMPI_Isend(out, bytes, MPI_BYTE, next, 8, world, &sent_);                                                      \
        CALL(function, bytes, in, ROOM, MPI_BYTE, prev, 8, world, __VA_ARGS__);                                        \
        PMPI_Wait(&sent_, MPI_STATUS_IGNORE);                                                                          \
    } while (0)

static void buffered(void)
{
    static char buffer[4 * ROOM];
    void *detached;
    int detached_bytes;
    PMPI_Buffer_attach(buffer, sizeof buffer);
    for (int i = 0; i < SIZES; i++) {
        DELIVER(Bsend, sizes[i]);
#ifdef HAS_LARGE_COUNTS
        DELIVER(Bsend_c, sizes[i]);
#endif
    }
    CALL(Buffer_detach, 0, &detached, &detached_bytes);
}

/* New in MPI 4.1: buffers of a communicator and of a session, and waiting for what they hold. */
static void flushed(void)
{
#if defined HAS_LARGE_COUNTS && (MPI_VERSION > 4 || MPI_SUBVERSION >= 1)
    static char buffer[ROOM];
    void *detached;
    int bytes;
    MPI_Count many;
    MPI_Session session;
    PMPI_Buffer_attach(buffer, sizeof buffer);
    DELIVER(Bsend, 8);
    CALL(Buffer_flush, 0);
    CALL(Buffer_detach_c, 0, &detached, &many);
    PMPI_Comm_attach_buffer(world, buffer, sizeof buffer);
    DELIVER(Bsend, 8);
    CALL(Comm_flush_buffer, 0, world);
    CALL(Comm_detach_buffer, 0, world, &detached, &bytes);
    PMPI_Comm_attach_buffer(world, buffer, sizeof buffer);
    CALL(Comm_detach_buffer_c, 0, world, &detached, &many);
    CALL(Session_init, 0, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    PMPI_Session_attach_buffer(session, buffer, sizeof buffer);
    CALL(Session_flush_buffer, 0, session);
    CALL(Session_detach_buffer, 0, session, &detached, &bytes);
    PMPI_Session_attach_buffer(session, buffer, sizeof buffer);
    CALL(Session_detach_buffer_c, 0, session, &detached, &many);
    CALL(Session_finalize, 0, &session);
#endif
}

static void exchanges(int bytes)
{
    CALL(Sendrecv, bytes, out, bytes, MPI_BYTE, next, 3, in, ROOM, MPI_BYTE, prev, 3, world, MPI_STATUS_IGNORE);
    CALL(Sendrecv_replace, bytes, out, bytes, MPI_BYTE, next, 4, prev, 4, world, MPI_STATUS_IGNORE);
}

void point_to_point(void)
{
    MPI_Status status;
    for (int i = 0; i < SIZES; i++) {
        DELIVER(Send, sizes[i]);
        DELIVER(Ssend, sizes[i]);
        DELIVER(Rsend, sizes[i]);
        ACCEPT(Recv, sizes[i], MPI_STATUS_IGNORE);
        ACCEPT(Recv, sizes[i], &status);
        exchanges(sizes[i]);
    }
    buffered();
    flushed();
    CALL(Recv, 0, in, 100, MPI_INT, MPI_PROC_NULL, 0, world, MPI_STATUS_IGNORE);
    CALL(Send, 0, out, 0, MPI_INT, MPI_PROC_NULL, 0, world);
}

void large_point_to_point(void)
{
#ifdef HAS_LARGE_COUNTS
    for (int i = 0; i < SIZES; i++) {
        DELIVER(Send_c, sizes[i]);
        DELIVER(Ssend_c, sizes[i]);
        DELIVER(Rsend_c, sizes[i]);
        ACCEPT(Recv_c, sizes[i], MPI_STATUS_IGNORE);
        CALL(Sendrecv_c, sizes[i], out, sizes[i], MPI_BYTE, next, 3, in, ROOM, MPI_BYTE, prev, 3, world, MPI_STATUS_IGNORE);
        CALL(Sendrecv_replace_c, sizes[i], out, sizes[i], MPI_BYTE, next, 4, prev, 4, world, MPI_STATUS_IGNORE);
    }
#endif
}
