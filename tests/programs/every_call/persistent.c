/* Persistent and partitioned point-to-point. */
#include "every_call.h"

/* Runs one persistent send against one persistent receive, `turns` times. */
#define PERSISTENT_PAIR(function, bytes)                                                                               \
    do {                                                                                                               \
        MPI_Request pair_[2];                                                                                          \
        CALL(Recv_init, 0, in, ROOM, MPI_BYTE, prev, 1, world, &pair_[0]);                                             \
        CALL(function, 0, out, bytes, MPI_BYTE, next, 1, world, &pair_[1]);                                            \
        run_pair("MPI_" #function, pair_, bytes);                                                                      \
    } while (0)

static void run_pair(const char *sender, MPI_Request pair[2], int bytes)
{
    for (int turn = 0; turn < 3; turn++) {
        CALL(Start, 0, &pair[0]);
        PMPI_Barrier(world);
        CALL(Start, bytes, &pair[1]);
        CALL(Waitall, 0, 2, pair, MPI_STATUSES_IGNORE);
        completed("MPI_Recv_init", bytes), completed(sender, bytes);
    }
    CALL(Request_free, 0, &pair[0]);
    CALL(Request_free, 0, &pair[1]);
}

static void start_all(int bytes)
{
    MPI_Request requests[3];
    CALL(Recv_init, 0, in, ROOM / 2, MPI_BYTE, prev, 2, world, &requests[0]);
    CALL(Send_init, 0, out, bytes, MPI_BYTE, next, 2, world, &requests[1]);
    CALL(Send_init, 0, out, 3, MPI_BYTE, next, 3, world, &requests[2]);
    for (int turn = 0; turn < 2; turn++) {
        CALL(Startall, bytes + 3, 3, requests);
        CALL(Waitall, 0, 3, requests, MPI_STATUSES_IGNORE);
        completed("MPI_Recv_init", bytes), completed("MPI_Send_init", bytes), completed("MPI_Send_init", 3);
        PMPI_Recv(in, 3, MPI_BYTE, prev, 3, world, MPI_STATUS_IGNORE);
    }
    CALL(Wait, 0, &requests[0], MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++) CALL(Request_free, 0, &requests[i]);
}

void persistent(void)
{
    static const int sizes[] = {0, 7, 4096, 150000};
    static char buffer[ROOM];
    void *detached;
    int detached_bytes;
    PMPI_Buffer_attach(buffer, sizeof buffer);
    for (int i = 0; i < 4; i++) {
        PERSISTENT_PAIR(Send_init, sizes[i]);
        PERSISTENT_PAIR(Bsend_init, sizes[i]);
        PERSISTENT_PAIR(Ssend_init, sizes[i]);
        PERSISTENT_PAIR(Rsend_init, sizes[i]);
#ifdef HAS_LARGE_COUNTS
        PERSISTENT_PAIR(Send_init_c, sizes[i]);
        PERSISTENT_PAIR(Ssend_init_c, sizes[i]);
#endif
        start_all(sizes[i]);
    }
    PMPI_Buffer_detach(&detached, &detached_bytes);
}

/* The received size of a partitioned transfer is what both sides agreed on. */
void partitioned(void)
{
    enum { PARTS = 4, EACH = 25 };
    MPI_Request sender, receiver;
    int flag, list[] = {2, 3};
    long long bytes = PARTS * EACH * (long long)sizeof(int);
    CALL(Psend_init, 0, out, PARTS, EACH, MPI_INT, next, 11, world, MPI_INFO_NULL, &sender);
    CALL(Precv_init, 0, in, PARTS, EACH, MPI_INT, prev, 11, world, MPI_INFO_NULL, &receiver);
    for (int turn = 0; turn < 2; turn++) {
        CALL(Start, 0, &receiver);
        CALL(Start, bytes, &sender);
        CALL(Pready, 0, 0, sender);
        CALL(Pready_range, 0, 1, 1, sender);
        CALL(Pready_list, 0, 2, list, sender);
        CALL(Parrived, 0, receiver, 0, &flag);
        CALL(Wait, 0, &sender, MPI_STATUS_IGNORE);
        CALL(Wait, 0, &receiver, MPI_STATUS_IGNORE);
        completed("MPI_Psend_init", bytes);
        completed("MPI_Precv_init", bytes);
    }
    CALL(Request_free, 0, &sender);
    CALL(Request_free, 0, &receiver);
}
