/* Nonblocking point-to-point and every way to complete it. */
#include "every_call.h"

/* Posts a receive larger than the message and a send of `bytes`, both to this rank's neighbours. */
static void post(MPI_Request pair[2], int bytes)
{
    CALL(Irecv, 0, in, ROOM, MPI_BYTE, prev, 1, world, &pair[0]);
    CALL(Isend, bytes, out, bytes, MPI_BYTE, next, 1, world, &pair[1]);
}

static void arrived(int bytes)
{
    completed("MPI_Irecv", bytes);
    completed("MPI_Isend", bytes);
}

static void waits(int bytes)
{
    MPI_Request pair[2];
    MPI_Status statuses[2];
    int index, done[2], count;
    post(pair, bytes);
    CALL(Wait, 0, &pair[0], MPI_STATUS_IGNORE);
    CALL(Wait, 0, &pair[1], &statuses[0]);
    arrived(bytes);
    post(pair, bytes);
    CALL(Waitall, 0, 2, pair, MPI_STATUSES_IGNORE);
    arrived(bytes);
    post(pair, bytes);
    CALL(Waitall, 0, 2, pair, statuses);
    arrived(bytes);
    post(pair, bytes);
    CALL(Waitany, 0, 2, pair, &index, MPI_STATUS_IGNORE);
    CALL(Waitany, 0, 2, pair, &index, &statuses[0]);
    CALL(Waitany, 0, 2, pair, &index, &statuses[0]);
    arrived(bytes);
    post(pair, bytes);
    until_complete(pair[0]), until_complete(pair[1]);
    CALL(Waitsome, 0, 2, pair, &count, done, MPI_STATUSES_IGNORE);
    if (count != 2) abort();
    arrived(bytes);
}

static void tests(int bytes)
{
    MPI_Request pair[2];
    MPI_Status statuses[2];
    int flag, index, done[2], count;
#define READY() (post(pair, bytes), until_complete(pair[0]), until_complete(pair[1]), arrived(bytes))
    READY();
    CALL(Test, 0, &pair[0], &flag, MPI_STATUS_IGNORE);
    CALL(Test, 0, &pair[1], &flag, &statuses[0]);
    READY();
    CALL(Testall, 0, 2, pair, &flag, MPI_STATUSES_IGNORE);
    if (!flag) abort();
    READY();
    CALL(Testany, 0, 2, pair, &index, &flag, MPI_STATUS_IGNORE);
    CALL(Testany, 0, 2, pair, &index, &flag, &statuses[0]);
    CALL(Testany, 0, 2, pair, &index, &flag, &statuses[0]);
    READY();
    CALL(Testsome, 0, 2, pair, &count, done, statuses);
    if (count != 2) abort();
    READY();
    CALL(Request_get_status, 0, pair[0], &flag, MPI_STATUS_IGNORE);
    CALL(Waitall, 0, 2, pair, statuses);
}

/* Tests that find nothing, because the message is sent only afterwards. */
static void too_early(void)
{
    MPI_Request requests[2];
    int flag, index, done[2], count;
    CALL(Irecv, 0, in, 100, MPI_INT, rank, 2, world, &requests[0]);
    CALL(Irecv, 0, in + 4096, 100, MPI_INT, rank, 3, world, &requests[1]);
    CALL(Test, 0, &requests[0], &flag, MPI_STATUS_IGNORE);
    CALL(Testall, 0, 2, requests, &flag, MPI_STATUSES_IGNORE);
    CALL(Testany, 0, 2, requests, &index, &flag, MPI_STATUS_IGNORE);
    CALL(Testsome, 0, 2, requests, &count, done, MPI_STATUSES_IGNORE);
    CALL(Request_get_status, 0, requests[0], &flag, MPI_STATUS_IGNORE);
    CALL(Send, 40, out, 10, MPI_INT, rank, 2, world);
    CALL(Send, 44, out, 11, MPI_INT, rank, 3, world);
    CALL(Waitall, 0, 2, requests, MPI_STATUSES_IGNORE);
    completed("MPI_Irecv", 40);
    completed("MPI_Irecv", 44);
}

static void send_forms(int bytes)
{
    static char buffer[ROOM];
    MPI_Request received, sent;
    void *detached;
    int detached_bytes;
    PMPI_Buffer_attach(buffer, sizeof buffer);
#define FORM(function)                                                                                                 \
    PMPI_Irecv(in, ROOM, MPI_BYTE, prev, 5, world, &received);                                                         \
    PMPI_Barrier(world);                                                                                               \
    CALL(function, bytes, out, bytes, MPI_BYTE, next, 5, world, &sent);                                                \
    CALL(Wait, 0, &sent, MPI_STATUS_IGNORE);                                                                           \
    completed("MPI_" #function, bytes);                                                                                \
    PMPI_Wait(&received, MPI_STATUS_IGNORE)
    FORM(Ibsend);
    FORM(Issend);
    FORM(Irsend);
#ifdef HAS_LARGE_COUNTS
    FORM(Isend_c);
    FORM(Ibsend_c);
    FORM(Issend_c);
    FORM(Irsend_c);
#endif
    PMPI_Buffer_detach(&detached, &detached_bytes);
}

/* More requests than fit any small fixed array, with holes, completed in one call. */
static void many(void)
{
    enum { PAIRS = 700 };
    static MPI_Request requests[2 * PAIRS + 2];
    for (int i = 0; i < 2 * PAIRS + 2; i++) requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < PAIRS; i++) {
        CALL(Irecv, 0, in + 8 * i, 8, MPI_BYTE, prev, 9, world, &requests[2 * i]);
        CALL(Isend, i % 9, out, i % 9, MPI_BYTE, next, 9, world, &requests[2 * i + 1]);
        completed("MPI_Irecv", i % 9), completed("MPI_Isend", i % 9);
    }
    CALL(Waitall, 0, 2 * PAIRS + 2, requests, MPI_STATUSES_IGNORE);
}

static void odd_requests(void)
{
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    int flag;
    CALL(Wait, 0, &request, MPI_STATUS_IGNORE);
    CALL(Test, 0, &request, &flag, &status);
    CALL(Waitall, 0, 0, NULL, MPI_STATUSES_IGNORE);
    CALL(Irecv, 0, in, 10, MPI_INT, rank, 77, world, &request);
    CALL(Cancel, 0, &request);
    CALL(Wait, 0, &request, &status);
    completed("MPI_Irecv", 0);
    CALL(Irecv, 0, in, 10, MPI_INT, MPI_PROC_NULL, 0, world, &request);
    CALL(Wait, 0, &request, &status);
    completed("MPI_Irecv", 0);
}

void requests(void)
{
    static const int sizes[] = {0, 1, 100, 5000, 200000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        waits(sizes[i]);
        tests(sizes[i]);
        send_forms(sizes[i]);
#ifdef HAS_LARGE_COUNTS
        MPI_Request received, sent;
        CALL(Irecv_c, 0, in, ROOM, MPI_BYTE, prev, 6, world, &received);
        PMPI_Isend(out, sizes[i], MPI_BYTE, next, 6, world, &sent);
        CALL(Wait, 0, &received, MPI_STATUS_IGNORE);
        completed("MPI_Irecv_c", sizes[i]);
        PMPI_Wait(&sent, MPI_STATUS_IGNORE);
#endif
        ASYNC(Isendrecv, sizes[i], out, sizes[i], MPI_BYTE, next, 8, in, sizes[i], MPI_BYTE, prev, 8, world);
        ASYNC(Isendrecv_replace, sizes[i], out, sizes[i], MPI_BYTE, next, 8, prev, 8, world);
    }
    too_early();
    many();
    odd_requests();
}
