/* Neighbourhood collectives on a ring (two neighbours) and on a directed graph (one in, one out). */
#include "every_call.h"

/* MPI_UNWEIGHTED is a special address, not an array; gcc thinks it is one of length 0. */
#pragma GCC diagnostic ignored "-Wstringop-overread"

enum { MOST = 2 };

#define THREE(name, lower, large, bytes, ...)                                                                          \
    do {                                                                                                               \
        COLL(label, NO_ROOT, Neighbor_##name##large, bytes, __VA_ARGS__, comm);                                        \
        ASYNC_COLL(label, NO_ROOT, Ineighbor_##name##large, bytes, __VA_ARGS__, comm);                                 \
        PERSISTENT_COLL(label, NO_ROOT, Neighbor_##name##_init##large, bytes, __VA_ARGS__, comm);                      \
    } while (0)

#define EVERY(large, number, offset)                                                                                   \
    do {                                                                                                               \
        number counts[MOST] = {3, 3};                                                                                  \
        offset at[MOST] = {0, 100};                                                                                    \
        MPI_Aint bytes_at[MOST] = {0, 400};                                                                            \
        MPI_Datatype types[MOST] = {MPI_INT, MPI_INT};                                                                 \
        THREE(allgather, allgather, large, 28, out, 7, MPI_INT, in, 7, MPI_INT);                                       \
        THREE(allgatherv, allgatherv, large, 12, out, 3, MPI_INT, in, counts, at, MPI_INT);                            \
        THREE(alltoall, alltoall, large, 28LL * degree, out, 7, MPI_INT, in, 7, MPI_INT);                              \
        THREE(alltoallv, alltoallv, large, 12LL * degree, out, counts, at, MPI_INT, in, counts, at, MPI_INT);          \
        THREE(alltoallw, alltoallw, large, 12LL * degree, out, counts, bytes_at, types, in, counts, bytes_at, types);  \
    } while (0)

static void exchange(MPI_Comm comm, const char *label, int degree)
{
    EVERY(, int, int);
#ifdef HAS_LARGE_COUNTS
    EVERY(_c, MPI_Count, MPI_Aint);
#endif
}

static void on_a_ring(void)
{
    MPI_Comm ring;
    const char *label = fresh("ring");
    int periodic = 1;
    COLL("world", NO_ROOT, Cart_create, 0, world, 1, &size, &periodic, 0, &ring);
    exchange(ring, label, 2);
    COLL(label, NO_ROOT, Comm_free, 0, &ring);
}

static void on_a_graph(void)
{
    MPI_Comm graph, other;
    const char *label = fresh("graph"), *other_label = fresh("graph");
    COLL("world", NO_ROOT, Dist_graph_create_adjacent, 0, world, 1, &prev, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED,
         MPI_INFO_NULL, 0, &graph);
    exchange(graph, label, 1);
    COLL(label, NO_ROOT, Comm_free, 0, &graph);
    int degree = 1;
    COLL("world", NO_ROOT, Dist_graph_create, 0, world, 1, &rank, &degree, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &other);
    COLL(other_label, NO_ROOT, Neighbor_alltoall, 20, out, 5, MPI_INT, in, 5, MPI_INT, other);
    COLL(other_label, NO_ROOT, Comm_free, 0, &other);
}

void neighbours(void)
{
    on_a_ring();
    on_a_graph();
}
