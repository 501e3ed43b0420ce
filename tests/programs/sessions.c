/* A program without MPI_Init: a session, a communicator of everybody from it, all-reduces from four threads at once. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, CALLS = 50 };
static MPI_Comm comms[THREADS];

static void *reduce(void *which)
{
    MPI_Comm comm = comms[(long)which];
    long sum = 0;
    int one = 1, all;
    for (int i = 0; i < CALLS; i++, sum += all) MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
    return (void *)sum;
}

int main(void)
{
    MPI_Session session;
    MPI_Group everybody;
    MPI_Info info;
    pthread_t threads[THREADS];
    int rank, size, initialized;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE");
    MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &everybody);
    for (int i = 0; i < THREADS; i++) {
        char tag[32];
        snprintf(tag, sizeof tag, "org.rankscope.%d", i);
        MPI_Comm_create_from_group(everybody, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comms[i]);
    }
    MPI_Comm_rank(comms[0], &rank);
    MPI_Comm_size(comms[0], &size);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, reduce, (void *)i);
    long total = 0;
    for (int i = 0; i < THREADS; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        total += (long)sum;
    }
    MPI_Initialized(&initialized);
    printf("%d of %d: %ld, initialized %d\n", rank, size, total, initialized);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
    MPI_Group_free(&everybody);
    MPI_Info_free(&info);
    MPI_Session_finalize(&session);
    return 0;
}
