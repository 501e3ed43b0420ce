/* counts_itself FOLDER ENDING [rounds]: calls MPI and keeps, in a file shared with the test, how often each function was
 * entered and how often it had returned. Whatever kills the process, the two numbers bound the true count. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUNCTIONS(X) X(Init) X(Comm_rank) X(Comm_size) X(Allreduce) X(Bcast) X(Barrier) X(Isend) X(Irecv) X(Waitall) \
    X(Wait) X(Sendrecv) X(Iallreduce) X(Iprobe) X(Comm_dup) X(Comm_free) X(Abort) X(Finalize)
#define INDEX(name) AT_##name,
enum { FUNCTIONS(INDEX) FUNCTION_COUNT };

/* The layout is known to tests/robust/self_counts.py. */
struct count { char name[24]; uint64_t entered, returned; };
struct counts { uint64_t pid, rank, functions; struct count of[FUNCTION_COUNT]; };

static struct counts *counts;

#define DO(function, ...)                                                                                              \
    do {                                                                                                               \
        __atomic_fetch_add(&counts->of[AT_##function].entered, 1, __ATOMIC_SEQ_CST);                                   \
        MPI_##function(__VA_ARGS__);                                                                                   \
        __atomic_fetch_add(&counts->of[AT_##function].returned, 1, __ATOMIC_SEQ_CST);                                  \
    } while (0)

static void share(const char *folder)
{
    char path[4096], part[4110];
    snprintf(path, sizeof path, "%s/%d.counts", folder, (int)getpid());
    snprintf(part, sizeof part, "%s.part", path);
    int file = open(part, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof *counts)) { perror(part); exit(1); }
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
#define NAME(function) strcpy(counts->of[AT_##function].name, "MPI_" #function);
    FUNCTIONS(NAME)
    counts->pid = (uint64_t)getpid(), counts->rank = (uint64_t)-1, counts->functions = FUNCTION_COUNT;
    rename(part, path);
}

static void one_round(int rank, int size)
{
    static double in[512], out[512];
    MPI_Request pair[2], request;
    int next = (rank + 1) % size, prev = (rank + size - 1) % size, flag;
    DO(Isend, out, 100, MPI_DOUBLE, next, 1, MPI_COMM_WORLD, &pair[0]);
    DO(Irecv, in, 512, MPI_DOUBLE, prev, 1, MPI_COMM_WORLD, &pair[1]);
    DO(Waitall, 2, pair, MPI_STATUSES_IGNORE);
    DO(Allreduce, out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    DO(Bcast, out, 16, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    DO(Sendrecv, out, 4, MPI_DOUBLE, next, 2, in, 4, MPI_DOUBLE, prev, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    DO(Iallreduce, out, in, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    DO(Wait, &request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 20; i++) DO(Iprobe, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    DO(Barrier, MPI_COMM_WORLD);
}

static void finish(const char *ending, int rank)
{
    if (!strcmp(ending, "skip")) exit(0);
    if (!strcmp(ending, "abort") && rank == 0) DO(Abort, MPI_COMM_WORLD, 7);
    if (!strcmp(ending, "sigterm") && rank == 0) raise(SIGTERM);
    if (!strcmp(ending, "segv") && rank == 0) raise(SIGSEGV);
    if (!strcmp(ending, "_exit") && rank == 0) _exit(3);
    if (!strcmp(ending, "finalize")) DO(Finalize);
    else for (;;) pause(); /* until the launcher ends this rank too */
}

int main(int argc, char **argv)
{
    int rank, size;
    long rounds = argc > 3 ? atol(argv[3]) : 200;
    if (argc < 3) return 2;
    share(argv[1]);
    DO(Init, &argc, &argv);
    DO(Comm_rank, MPI_COMM_WORLD, &rank);
    DO(Comm_size, MPI_COMM_WORLD, &size);
    counts->rank = (uint64_t)rank;
    for (long i = 0; !strcmp(argv[2], "forever") || i < rounds; i++) {
        one_round(rank, size);
        if (i % 50 == 0) {
            MPI_Comm copy;
            DO(Comm_dup, MPI_COMM_WORLD, &copy);
            DO(Comm_free, &copy);
        }
    }
    finish(argv[2], rank);
    return 0;
}
