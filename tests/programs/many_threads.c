/* many_threads COUNT ROUNDS: so many threads call MPI at once, each on a communicator and a tag of its own. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, rounds;
static MPI_Comm *own;

static void *work(void *number)
{
    long me = (long)number;
    double in = 1, out = 0;
    int next = (rank + 1) % size, prev = (rank + size - 1) % size, got = -1;
    for (int i = 0; i < rounds; i++) {
        MPI_Request pair[2];
        MPI_Irecv(&got, 1, MPI_INT, prev, (int)me, MPI_COMM_WORLD, &pair[0]);
        MPI_Isend(&i, 1, MPI_INT, next, (int)me, MPI_COMM_WORLD, &pair[1]);
        MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
        MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, own[me]);
        if (got != i || out != 1) abort();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int given, count = argc > 1 ? atoi(argv[1]) : 4;
    rounds = argc > 2 ? atoi(argv[2]) : 10;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
    if (given != MPI_THREAD_MULTIPLE) return puts("no MPI_THREAD_MULTIPLE"), MPI_Finalize();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    own = calloc((size_t)count, sizeof *own);
    for (int i = 0; i < count; i++) MPI_Comm_dup(MPI_COMM_SELF, &own[i]);
    for (long i = 0; i < count; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) MPI_Comm_free(&own[i]);
    MPI_Finalize();
    printf("rank %d: %d threads\n", rank, count);
    return 0;
}
