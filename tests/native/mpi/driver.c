/* driver PART [number]: exercises the recorder on the fake MPI; prints what the part has done, one "name calls" a line. */
#include "fake_mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double in[64], out[64];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* A bit of everything on one communicator: 2 Allreduce, 1 each of the rest, 2 Waits. */
static void some_calls(MPI_Comm comm, int count)
{
    MPI_Request pair[2], request;
    MPI_Status statuses[2];
    int flag;
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Isend(in, count, MPI_BYTE, 0, 1, comm, &pair[0]);
    MPI_Irecv(out, count, MPI_BYTE, 0, 1, comm, &pair[1]);
    MPI_Waitall(2, pair, count % 2 ? MPI_STATUSES_IGNORE : statuses);
    MPI_Iallreduce(in, out, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Irecv(out, count, MPI_BYTE, 0, 1, comm, &request);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

struct worker { pthread_t thread; MPI_Comm own; int rounds; };

/* Collectives on a communicator of its own, as MPI demands of threads; point to point on the common one. */
static void *in_a_thread(void *given)
{
    struct worker *worker = given;
    for (int i = 0; i < worker->rounds; i++) {
        MPI_Request pair[2];
        some_calls(worker->own, i % 50);
        MPI_Isend(in, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &pair[0]);
        MPI_Irecv(out, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &pair[1]);
        MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
    }
    return NULL;
}

static void threads(int count, int rounds)
{
    struct worker *all = calloc((size_t)count, sizeof *all);
    for (int i = 0; i < count; i++) {
        all[i].rounds = rounds;
        MPI_Comm_dup(MPI_COMM_WORLD, &all[i].own);
        if (pthread_create(&all[i].thread, NULL, in_a_thread, &all[i])) die("pthread_create");
    }
    for (int i = 0; i < count; i++) {
        pthread_join(all[i].thread, NULL);
        MPI_Comm_free(&all[i].own);
    }
    free(all);
    printf("MPI_Allreduce %d\nMPI_Waitall %d\nMPI_Comm_dup %d\n", 2 * count * rounds, 2 * count * rounds, count);
}

static void reap(int count)
{
    for (int i = 0; i < count; i++) {
        int status;
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 5) die("a child failed");
    }
}

static void forks(int count)
{
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child < 0) die("fork");
        if (!child) {
            some_calls(MPI_COMM_WORLD, 4);
            _exit(5);
        }
        if (i % 8 == 7) reap(8);
    }
    reap(count % 8);
    some_calls(MPI_COMM_WORLD, 3);
    printf("MPI_Allreduce 2\n");
}

static void communicators(int count)
{
    for (int i = 0; i < count; i++) {
        MPI_Comm copy;
        MPI_Comm_dup(i % 2 ? MPI_COMM_SELF : MPI_COMM_WORLD, &copy);
        some_calls(copy, i % 20);
        if (i % 5) MPI_Comm_free(&copy);
    }
    printf("MPI_Comm_dup %d\nMPI_Allreduce %d\n", count, 2 * count);
}

static void requests(int count)
{
    MPI_Request *all = calloc((size_t)count, sizeof *all);
    MPI_Request persistent;
    for (int i = 0; i < count; i++) MPI_Isend(in, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &all[i]);
    MPI_Waitall(count, all, MPI_STATUSES_IGNORE);
    free(all);
    MPI_Send_init(in, 16, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &persistent);
    for (int i = 0; i < count; i++) {
        MPI_Start(&persistent);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&persistent);
    printf("MPI_Isend %d\nMPI_Start %d\n", count, count);
}

static void ring(int count)
{
    for (int i = 0; i < count; i++) MPI_Bcast(out, i % 32, MPI_INT, 0, MPI_COMM_WORLD);
    printf("MPI_Bcast %d\n", count);
}

static void tallies(long count)
{
    int flag;
    for (long i = 0; i < count; i++) MPI_Iprobe(0, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    printf("MPI_Iprobe %ld\n", count);
}

static void pauses(int count)
{
    for (int i = 0; i < count; i++) {
        MPI_Pcontrol(0);
        some_calls(MPI_COMM_WORLD, 3);
        MPI_Pcontrol(1);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    printf("MPI_Barrier %d\n", count);
}

static void late_calls(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

static void run(const char *part, long number)
{
    if (!strcmp(part, "threads")) threads((int)number, 200);
    else if (!strcmp(part, "forks")) forks((int)number);
    else if (!strcmp(part, "communicators")) communicators((int)number);
    else if (!strcmp(part, "requests")) requests((int)number);
    else if (!strcmp(part, "ring")) ring((int)number);
    else if (!strcmp(part, "tallies")) tallies(number);
    else if (!strcmp(part, "pauses")) pauses((int)number);
    else if (strcmp(part, "nothing")) die(part);
}

/* No MPI_Init: four threads at once make the first calls on communicators of a session. */
static void *in_a_session(void *given)
{
    struct worker *worker = given;
    for (int i = 0; i < worker->rounds; i++) MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, worker->own);
    return NULL;
}

static void sessions(int rounds)
{
    struct worker all[4];
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, 0, &session);
    for (int i = 0; i < 4; i++) {
        all[i].rounds = rounds;
        MPI_Comm_create_from_group(1, "tag", MPI_INFO_NULL, 0, &all[i].own);
        if (pthread_create(&all[i].thread, NULL, in_a_session, &all[i])) die("pthread_create");
    }
    for (int i = 0; i < 4; i++) pthread_join(all[i].thread, NULL);
    MPI_Session_finalize(&session);
    printf("asked %d\n", fake_asked_initialized);
}

int main(int argc, char **argv)
{
    int given;
    if (argc < 3) return 2;
    if (!strcmp(argv[1], "sessions")) return sessions((int)atol(argv[2])), 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
    run(argv[1], atol(argv[2]));
    MPI_Finalize();
    late_calls();
    return 0;
}
