/* MPI_IN_PLACE, with no type where the standard lets a caller leave it out. */
#include "every_call.h"

enum { MOST = 64 };
#define NOTHING 0, MPI_DATATYPE_NULL

static void at_root(int root)
{
    if (rank == root) {
        COLL("world", root, Gather, 20, MPI_IN_PLACE, NOTHING, in, 5, MPI_INT, root, world);
        COLL("world", root, Scatter, 20, out, 5, MPI_INT, MPI_IN_PLACE, NOTHING, root, world);
        COLL("world", root, Reduce, 20, MPI_IN_PLACE, in, 5, MPI_INT, MPI_MAX, root, world);
        ASYNC_COLL("world", root, Ireduce, 20, MPI_IN_PLACE, in, 5, MPI_INT, MPI_MAX, root, world);
    } else {
        COLL("world", root, Gather, 20, out, 5, MPI_INT, NULL, NOTHING, root, world);
        COLL("world", root, Scatter, 20, NULL, NOTHING, in, 5, MPI_INT, root, world);
        COLL("world", root, Reduce, 20, out, NULL, 5, MPI_INT, MPI_MAX, root, world);
        ASYNC_COLL("world", root, Ireduce, 20, out, NULL, 5, MPI_INT, MPI_MAX, root, world);
    }
}

static void at_root_vectors(int root, int *counts, int *at)
{
    long long own = 4LL * counts[rank];
    if (rank == root) {
        COLL("world", root, Gatherv, own, MPI_IN_PLACE, NOTHING, in, counts, at, MPI_INT, root, world);
        COLL("world", root, Scatterv, own, out, counts, at, MPI_INT, MPI_IN_PLACE, NOTHING, root, world);
    } else {
        COLL("world", root, Gatherv, own, out, counts[rank], MPI_INT, NULL, NULL, NULL, MPI_DATATYPE_NULL, root, world);
        COLL("world", root, Scatterv, own, NULL, NULL, NULL, MPI_DATATYPE_NULL, in, counts[rank], MPI_INT, root, world);
    }
}

static void everywhere(int *counts, int *at)
{
    long long all = 0;
    for (int i = 0; i < size; i++) all += 4 * counts[i];
    COLL("world", NO_ROOT, Allgather, 12, MPI_IN_PLACE, NOTHING, in, 3, MPI_INT, world);
    COLL("world", NO_ROOT, Allgatherv, 4LL * counts[rank], MPI_IN_PLACE, NOTHING, in, counts, at, MPI_INT, world);
    COLL("world", NO_ROOT, Alltoall, 12LL * size, MPI_IN_PLACE, NOTHING, in, 3, MPI_INT, world);
    COLL("world", NO_ROOT, Allreduce, 12, MPI_IN_PLACE, in, 3, MPI_INT, MPI_SUM, world);
    COLL("world", NO_ROOT, Scan, 12, MPI_IN_PLACE, in, 3, MPI_INT, MPI_SUM, world);
    COLL("world", NO_ROOT, Exscan, 12, MPI_IN_PLACE, in, 3, MPI_INT, MPI_SUM, world);
    COLL("world", NO_ROOT, Reduce_scatter, all, MPI_IN_PLACE, in, counts, MPI_INT, MPI_SUM, world);
    COLL("world", NO_ROOT, Reduce_scatter_block, 12LL * size, MPI_IN_PLACE, in, 3, MPI_INT, MPI_SUM, world);
    ASYNC_COLL("world", NO_ROOT, Iallreduce, 12, MPI_IN_PLACE, in, 3, MPI_INT, MPI_SUM, world);
    ASYNC_COLL("world", NO_ROOT, Iallgather, 12, MPI_IN_PLACE, NOTHING, in, 3, MPI_INT, world);
}

/* Every pair must agree on the size when the exchange is in place. */
static void exchanged(void)
{
    int counts[MOST], at[MOST];
    MPI_Datatype types[MOST];
    long long all = 0;
    for (int i = 0; i < size; i++) counts[i] = i + rank, at[i] = 100 * i, types[i] = MPI_INT, all += 4 * counts[i];
    COLL("world", NO_ROOT, Alltoallv, all, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, counts, at, MPI_INT, world);
    for (int i = 0; i < size; i++) at[i] *= 4;
    COLL("world", NO_ROOT, Alltoallw, all, MPI_IN_PLACE, NULL, NULL, NULL, in, counts, at, types, world);
}

void in_place(void)
{
    int counts[MOST], at[MOST];
    for (int i = 0; i < size; i++) counts[i] = 2 * i + 1, at[i] = i * i;
    at_root(0);
    at_root(size - 1);
    at_root_vectors(size - 1, counts, at);
    everywhere(counts, at);
    exchanged();
}
