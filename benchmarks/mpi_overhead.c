/* mpi_overhead CHUNKS CALLS [NAME]: times calls in chunks; prints one line a call: name, best chunk, median chunk, in ns.
 * NAME: only that, on this rank alone. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int rank, size;
static double in[8], out[8];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void comm_rank(MPI_Comm comm) { MPI_Comm_rank(comm, &rank); }
static void allreduce(MPI_Comm comm) { MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_SUM, comm); }
static void bcast(MPI_Comm comm) { MPI_Bcast(out, 1, MPI_DOUBLE, 0, comm); }

static void test(MPI_Comm comm)
{
    MPI_Request none = MPI_REQUEST_NULL;
    int flag;
    (void)comm;
    MPI_Test(&none, &flag, MPI_STATUS_IGNORE);
}

/* To the next rank from the one before; on a communicator of one, to itself. */
static void post(MPI_Comm comm, MPI_Request pair[2])
{
    int next = comm == MPI_COMM_SELF ? 0 : (rank + 1) % size, prev = comm == MPI_COMM_SELF ? 0 : (rank + size - 1) % size;
    MPI_Irecv(out, 1, MPI_DOUBLE, prev, 0, comm, &pair[0]);
    MPI_Isend(in, 1, MPI_DOUBLE, next, 0, comm, &pair[1]);
}

static void post_waitall(MPI_Comm comm)
{
    MPI_Request pair[2];
    post(comm, pair);
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
}

static void post_two_waits(MPI_Comm comm)
{
    MPI_Request pair[2];
    post(comm, pair);
    MPI_Wait(&pair[0], MPI_STATUS_IGNORE);
    MPI_Wait(&pair[1], MPI_STATUS_IGNORE);
}

static void sendrecv(MPI_Comm comm)
{
    int next = comm == MPI_COMM_SELF ? 0 : (rank + 1) % size, prev = comm == MPI_COMM_SELF ? 0 : (rank + size - 1) % size;
    MPI_Sendrecv(in, 1, MPI_DOUBLE, next, 0, out, 1, MPI_DOUBLE, prev, 0, comm, MPI_STATUS_IGNORE);
}

/* What is timed, and how many MPI calls it is. */
static const struct work { const char *name; void (*run)(MPI_Comm); int calls; } works[] = {
    {"Comm_rank", comm_rank, 1}, {"Test", test, 1}, {"Allreduce 8 B", allreduce, 1}, {"Bcast 8 B", bcast, 1},
    {"Sendrecv 8 B", sendrecv, 1}, {"Isend+Irecv+Waitall", post_waitall, 3}, {"Isend+Irecv+2 Wait", post_two_waits, 4},
};

static void measure(const struct work *work, MPI_Comm comm, const char *where, int chunks, int calls)
{
    double *chunk = calloc((size_t)chunks, sizeof *chunk);
    for (int i = 0; i < chunks; i++) {
        MPI_Barrier(comm);
        double begin = now_ns();
        for (int j = 0; j < calls; j++) work->run(comm);
        chunk[i] = (now_ns() - begin) / calls / work->calls;
    }
    qsort(chunk, (size_t)chunks, sizeof *chunk, by_value);
    if (rank == 0) printf("%s, %s\t%.2f\t%.2f\n", work->name, where, chunk[0], chunk[chunks / 2]);
    free(chunk);
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    int chunks = argc > 1 ? atoi(argv[1]) : 50, calls = argc > 2 ? atoi(argv[2]) : 2000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(version, &length);
    if (rank == 0) printf("%.*s\n", (int)strcspn(version, "\n,"), version);
    const char *only = argc > 3 ? argv[3] : NULL;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        if (only && strcmp(only, works[i].name))
            continue;
        if (rank == 0) measure(&works[i], MPI_COMM_SELF, "alone", chunks, calls);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        if (size > 1 && !only) measure(&works[i], MPI_COMM_WORLD, "world", chunks, calls / 10);
    MPI_Finalize();
    return 0;
}
