#include "every_call.h"

static void until_there(int tag)
{
    for (int flag = 0; !flag;) PMPI_Iprobe(prev, tag, world, &flag, MPI_STATUS_IGNORE);
}

/* Two matched receives of one message each: found by waiting, found by asking. */
static void matched(int bytes)
{
    MPI_Request sent[2];
    MPI_Message message;
    MPI_Status status;
    int flag;
    for (int i = 0; i < 2; i++) PMPI_Isend(out, bytes, MPI_BYTE, next, 20 + i, world, &sent[i]);
    CALL(Mprobe, 0, prev, 20, world, &message, &status);
    CALL(Mrecv, bytes, in, ROOM, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    until_there(21);
    CALL(Improbe, 0, prev, 21, world, &flag, &message, MPI_STATUS_IGNORE);
    if (!flag) abort();
    MPI_Request received;
    CALL(Imrecv, 0, in, ROOM, MPI_BYTE, &message, &received);
    CALL(Wait, 0, &received, MPI_STATUS_IGNORE);
    completed("MPI_Imrecv", bytes);
    PMPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
}

static void matched_large(int bytes)
{
#ifdef HAS_LARGE_COUNTS
    MPI_Request sent[2], received;
    MPI_Message message;
    for (int i = 0; i < 2; i++) PMPI_Isend(out, bytes, MPI_BYTE, next, 30 + i, world, &sent[i]);
    CALL(Mprobe, 0, prev, 30, world, &message, MPI_STATUS_IGNORE);
    CALL(Mrecv_c, bytes, in, ROOM, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    CALL(Mprobe, 0, prev, 31, world, &message, MPI_STATUS_IGNORE);
    CALL(Imrecv_c, 0, in, ROOM, MPI_BYTE, &message, &received);
    CALL(Wait, 0, &received, MPI_STATUS_IGNORE);
    completed("MPI_Imrecv_c", bytes);
    PMPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
#else
    (void)bytes;
#endif
}

static void unmatched(int bytes)
{
    MPI_Request sent;
    MPI_Message message;
    int flag;
    PMPI_Isend(out, bytes, MPI_BYTE, next, 22, world, &sent);
    CALL(Probe, 0, prev, 22, world, MPI_STATUS_IGNORE);
    CALL(Iprobe, 0, prev, 22, world, &flag, MPI_STATUS_IGNORE);
    CALL(Iprobe, 0, rank, 23, world, &flag, MPI_STATUS_IGNORE);
    CALL(Improbe, 0, rank, 23, world, &flag, &message, MPI_STATUS_IGNORE);
    CALL(Recv, bytes, in, ROOM, MPI_BYTE, prev, 22, world, MPI_STATUS_IGNORE);
    PMPI_Wait(&sent, MPI_STATUS_IGNORE);
}

void probes(void)
{
    static const int sizes[] = {0, 6, 3000, 100001};
    for (int i = 0; i < 4; i++) {
        matched(sizes[i]);
        matched_large(sizes[i]);
        unmatched(sizes[i]);
    }
}
