/* Collectives with one count: blocking, nonblocking, persistent, and their large-count forms. */
#include "every_call.h"

#define THREE(group, root, name, lower, bytes, ...)                                                                    \
    do {                                                                                                               \
        COLL(group, root, name, bytes, __VA_ARGS__, world);                                                            \
        ASYNC_COLL(group, root, I##lower, bytes, __VA_ARGS__, world);                                                  \
        PERSISTENT_COLL(group, root, name##_init, bytes, __VA_ARGS__, world);                                          \
    } while (0)
#ifdef HAS_LARGE_COUNTS
#define THREE_LARGE(group, root, name, lower, bytes, ...)                                                              \
    do {                                                                                                               \
        COLL(group, root, name##_c, bytes, __VA_ARGS__, world);                                                        \
        ASYNC_COLL(group, root, I##lower##_c, bytes, __VA_ARGS__, world);                                              \
        PERSISTENT_COLL(group, root, name##_init_c, bytes, __VA_ARGS__, world);                                        \
    } while (0)
#else
#define THREE_LARGE(...) ((void)0)
#endif
#define ALL(...)                                                                                                       \
    do {                                                                                                               \
        THREE(__VA_ARGS__);                                                                                            \
        THREE_LARGE(__VA_ARGS__);                                                                                      \
    } while (0)

static void rooted(int count, int root)
{
    long long bytes = count * (long long)sizeof(int);
    MPI_Datatype at_root = rank == root ? MPI_INT : MPI_DATATYPE_NULL;
    int root_count = rank == root ? count : 0;
    ALL("world", root, Bcast, bcast, bytes, out, count, MPI_INT, root);
    ALL("world", root, Reduce, reduce, bytes, out, in, count, MPI_INT, MPI_SUM, root);
    ALL("world", root, Gather, gather, bytes, out, count, MPI_INT, in, root_count, at_root, root);
    ALL("world", root, Scatter, scatter, bytes, out, root_count, at_root, in, count, MPI_INT, root);
}

static void rootless(int count)
{
    long long bytes = count * (long long)sizeof(float);
    ALL("world", NO_ROOT, Allreduce, allreduce, bytes, out, in, count, MPI_FLOAT, MPI_SUM);
    ALL("world", NO_ROOT, Allgather, allgather, bytes, out, count, MPI_FLOAT, in, count, MPI_FLOAT);
    ALL("world", NO_ROOT, Alltoall, alltoall, bytes * size, out, count, MPI_FLOAT, in, count, MPI_FLOAT);
    ALL("world", NO_ROOT, Scan, scan, bytes, out, in, count, MPI_FLOAT, MPI_SUM);
    ALL("world", NO_ROOT, Exscan, exscan, bytes, out, in, count, MPI_FLOAT, MPI_SUM);
    ALL("world", NO_ROOT, Reduce_scatter_block, reduce_scatter_block, bytes * size, out, in, count, MPI_FLOAT, MPI_SUM);
}

/* An exchange between the two halves of an intercommunicator: sizes are the other side's. */
static void between_groups(void)
{
    const char *label = fresh("inter"), *half_label = fresh("half");
    MPI_Comm half, inter;
    int remote;
    COLL("world", NO_ROOT, Comm_split, 0, world, rank == 0, rank, &half);
    CALL(Intercomm_create, 0, half, 0, world, rank == 0, 5, &inter);
    PMPI_Comm_remote_size(inter, &remote);
    COLL(label, NO_ROOT, Alltoall, 4LL * 3 * remote, out, 3, MPI_INT, in, 3, MPI_INT, inter);
    COLL(label, NO_ROOT, Allgather, 12, out, 3, MPI_INT, in, 3, MPI_INT, inter);
    COLL(label, NO_ROOT, Allreduce, 12, out, in, 3, MPI_INT, MPI_SUM, inter);
    COLL(label, NO_ROOT, Barrier, 0, inter);
    COLL(label, NO_ROOT, Comm_free, 0, &inter);
    COLL(half_label, NO_ROOT, Comm_free, 0, &half);
}

void collectives(void)
{
    static const int counts[] = {0, 1, 3, 1000};
    for (int i = 0; i < 4; i++) {
        rooted(counts[i], 0);
        rooted(counts[i], size - 1);
        rootless(counts[i]);
    }
    for (int i = 0; i < 5; i++) COLL("world", NO_ROOT, Barrier, 0, world);
    ASYNC_COLL("world", NO_ROOT, Ibarrier, 0, world);
    PERSISTENT_COLL("world", NO_ROOT, Barrier_init, 0, world);
    REPEATED_COLL(4, "world", NO_ROOT, Allreduce_init, 16, out, in, 4, MPI_INT, MPI_SUM, world);
    between_groups();
}
