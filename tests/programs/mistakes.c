/* mistakes return|handler|fatal NAME…: invalid calls, one rank. Prints of each what it returned and how often the error
 * handler was called, with what: a recorded run must print the same. fatal: only that one, which ends the program; else
 * all but those, at which this MPI ends the program whatever its handler is. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int handled, last_class;
static int in[8], out[8];

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    handled++;
    MPI_Error_class(*code, &last_class);
}

static MPI_Comm null_comm = MPI_COMM_NULL;
static MPI_Request null_request = MPI_REQUEST_NULL;

static int allreduce_type(void) { return MPI_Allreduce(in, out, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD); }
static int allreduce_comm(void) { return MPI_Allreduce(in, out, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL); }
static int allreduce_count(void) { return MPI_Allreduce(in, out, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); }
static int allreduce_op(void) { return MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD); }
static int iallreduce_type(void)
{
    MPI_Request request;
    return MPI_Iallreduce(in, out, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD, &request);
}
static int bcast_root(void) { return MPI_Bcast(in, 1, MPI_INT, 99, MPI_COMM_WORLD); }
static int bcast_type(void) { return MPI_Bcast(in, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD); }
static int gather_type(void)
{
    return MPI_Gather(in, 1, MPI_DATATYPE_NULL, out, 1, MPI_INT, 0, MPI_COMM_WORLD);
}
static int barrier_comm(void) { return MPI_Barrier(MPI_COMM_NULL); }
static int send_rank(void) { return MPI_Send(in, 1, MPI_INT, 99, 0, MPI_COMM_WORLD); }
static int send_type(void) { return MPI_Send(in, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD); }
static int send_comm(void) { return MPI_Send(in, 1, MPI_INT, 0, 0, MPI_COMM_NULL); }
static int recv_tag(void) { return MPI_Recv(in, 1, MPI_INT, 0, -99, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static int recv_comm(void) { return MPI_Recv(in, 1, MPI_INT, 0, 0, MPI_COMM_NULL, MPI_STATUS_IGNORE); }
static int isend_type(void)
{
    MPI_Request request;
    return MPI_Isend(in, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD, &request);
}
static int send_init_type(void)
{
    MPI_Request request;
    return MPI_Send_init(in, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD, &request);
}
static int probe_comm(void) { return MPI_Probe(0, 0, MPI_COMM_NULL, MPI_STATUS_IGNORE); }
static int rank_comm(void) { return MPI_Comm_rank(MPI_COMM_NULL, out); }
static int dup_comm(void) { MPI_Comm made; return MPI_Comm_dup(MPI_COMM_NULL, &made); }
static int split_comm(void) { MPI_Comm made; return MPI_Comm_split(MPI_COMM_NULL, 0, 0, &made); }
static int free_comm(void) { return MPI_Comm_free(&null_comm); }
static int free_nothing(void) { return MPI_Comm_free(NULL); }
static int name_comm(void) { return MPI_Comm_set_name(MPI_COMM_NULL, "x"); }
static int start_null(void) { return MPI_Start(&null_request); }
static int free_request(void) { return MPI_Request_free(&null_request); }
static int wait_nothing(void) { return MPI_Wait(NULL, MPI_STATUS_IGNORE); }
static int waitall_nothing(void) { return MPI_Waitall(1, NULL, MPI_STATUSES_IGNORE); }
static int waitall_count(void) { return MPI_Waitall(-1, &null_request, MPI_STATUSES_IGNORE); }
static int test_nothing(void) { return MPI_Test(NULL, out, MPI_STATUS_IGNORE); }
static int put_win(void) { return MPI_Put(in, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_WIN_NULL); }
static int free_win(void) { MPI_Win win = MPI_WIN_NULL; return MPI_Win_free(&win); }
static int spawn_comm(void) { MPI_Comm made; return MPI_Intercomm_merge(MPI_COMM_NULL, 0, &made); }

static int truncated_recv(void)
{
    MPI_Request request;
    MPI_Isend(in, 4, MPI_INT, 0, 5, MPI_COMM_SELF, &request);
    int failed = MPI_Recv(out, 1, MPI_INT, 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return failed;
}
static int truncated_wait(void)
{
    MPI_Request pair[2];
    MPI_Irecv(out, 1, MPI_INT, 0, 6, MPI_COMM_SELF, &pair[0]);
    MPI_Isend(in, 4, MPI_INT, 0, 6, MPI_COMM_SELF, &pair[1]);
    int failed = MPI_Wait(&pair[0], MPI_STATUS_IGNORE);
    MPI_Wait(&pair[1], MPI_STATUS_IGNORE);
    return failed;
}
static int truncated_waitall(void)
{
    MPI_Request pair[2];
    MPI_Irecv(out, 1, MPI_INT, 0, 7, MPI_COMM_SELF, &pair[0]);
    MPI_Isend(in, 4, MPI_INT, 0, 7, MPI_COMM_SELF, &pair[1]);
    return MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
}
static int truncated_waitsome(void)
{
    MPI_Request pair[2];
    int done, which[2];
    MPI_Irecv(out, 1, MPI_INT, 0, 8, MPI_COMM_SELF, &pair[0]);
    MPI_Isend(in, 4, MPI_INT, 0, 8, MPI_COMM_SELF, &pair[1]);
    int failed = MPI_Waitsome(2, pair, &done, which, MPI_STATUSES_IGNORE);
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
    return failed;
}

#define MISTAKE(name) {#name, name}
static const struct { const char *name; int (*make)(void); } mistakes[] = {
    MISTAKE(allreduce_type), MISTAKE(barrier_comm), MISTAKE(free_comm), MISTAKE(allreduce_comm),
    MISTAKE(allreduce_count), MISTAKE(allreduce_op), MISTAKE(iallreduce_type), MISTAKE(bcast_root),
    MISTAKE(bcast_type), MISTAKE(gather_type), MISTAKE(send_rank), MISTAKE(send_type), MISTAKE(send_comm),
    MISTAKE(recv_tag), MISTAKE(recv_comm), MISTAKE(isend_type), MISTAKE(send_init_type), MISTAKE(probe_comm),
    MISTAKE(rank_comm), MISTAKE(dup_comm), MISTAKE(split_comm), MISTAKE(free_nothing), MISTAKE(name_comm),
    MISTAKE(start_null), MISTAKE(free_request), MISTAKE(wait_nothing), MISTAKE(waitall_nothing),
    MISTAKE(waitall_count), MISTAKE(test_nothing), MISTAKE(put_win), MISTAKE(free_win), MISTAKE(spawn_comm),
    MISTAKE(truncated_recv), MISTAKE(truncated_wait), MISTAKE(truncated_waitall), MISTAKE(truncated_waitsome),
};

static void make(int i)
{
    int before = handled, class = -1;
    last_class = -1;
    int code = mistakes[i].make();
    MPI_Error_class(code, &class);
    printf("%s returned class %d, handler called %d times, last with class %d\n", mistakes[i].name, class,
           handled - before, last_class);
    fflush(stdout);
}

static int named(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], name)) return 1;
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Errhandler own = MPI_ERRORS_RETURN;
    MPI_Init(NULL, NULL);
    if (!strcmp(argv[1], "handler"))
        MPI_Comm_create_errhandler(handler, &own);
    if (!strcmp(argv[1], "fatal"))
        own = MPI_ERRORS_ARE_FATAL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, own);
    for (int i = 0; i < (int)(sizeof mistakes / sizeof mistakes[0]); i++)
        if (named(mistakes[i].name, argc, argv) == (own == MPI_ERRORS_ARE_FATAL))
            make(i);
    MPI_Finalize();
    return 0;
}
