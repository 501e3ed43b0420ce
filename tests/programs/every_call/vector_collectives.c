/* Collectives with one count per rank. */
#include "every_call.h"

enum { MOST = 64 };

/* What rank i gives to rank j, in ints: different everywhere, zero sometimes. */
static int share(int i, int j) { return (3 * i + 5 * j) % 7; }

#define VECTORS(number, offset)                                                                                        \
    number to[MOST], from[MOST], mine[MOST];                                                                           \
    offset to_at[MOST], from_at[MOST], mine_at[MOST];                                                                  \
    long long sent = 0, each = 0;                                                                                      \
    for (int i = 0, s = 0, r = 0, m = 0; i < size; i++) {                                                              \
        to[i] = share(rank, i), from[i] = share(i, rank), mine[i] = i + 1;                                             \
        to_at[i] = s, from_at[i] = r, mine_at[i] = m;                                                                  \
        s += (int)to[i], r += (int)from[i], m += i + 1;                                                                \
        sent += to[i], each += i + 1;                                                                                  \
    }                                                                                                                  \
    sent *= 4, each *= 4

#define FORMS(name, lower, large, root, bytes, ...)                                                                    \
    do {                                                                                                               \
        COLL("world", root, name##large, bytes, __VA_ARGS__, world);                                                   \
        ASYNC_COLL("world", root, I##lower##large, bytes, __VA_ARGS__, world);                                         \
        PERSISTENT_COLL("world", root, name##_init##large, bytes, __VA_ARGS__, world);                                 \
    } while (0)

#define EXCHANGES(large)                                                                                               \
    do {                                                                                                               \
        long long own = 4LL * (rank + 1);                                                                              \
        int root = size - 1;                                                                                           \
        FORMS(Gatherv, gatherv, large, root, own, out, rank + 1, MPI_INT, in, mine, mine_at, MPI_INT, root);           \
        FORMS(Scatterv, scatterv, large, root, own, out, mine, mine_at, MPI_INT, in, rank + 1, MPI_INT, root);         \
        FORMS(Allgatherv, allgatherv, large, NO_ROOT, own, out, rank + 1, MPI_INT, in, mine, mine_at, MPI_INT);        \
        FORMS(Alltoallv, alltoallv, large, NO_ROOT, sent, out, to, to_at, MPI_INT, in, from, from_at, MPI_INT);        \
        FORMS(Reduce_scatter, reduce_scatter, large, NO_ROOT, each, out, in, mine, MPI_INT, MPI_SUM);                  \
    } while (0)

static void with_ints(void)
{
    VECTORS(int, int);
    EXCHANGES();
}

static void with_types(void)
{
    int to[MOST], from[MOST], at[MOST];
    MPI_Datatype types[MOST];
    long long sent = 0;
    for (int i = 0; i < size; i++) {
        to[i] = share(rank, i), from[i] = share(i, rank), at[i] = 4096 * i;
        types[i] = MPI_SHORT;
        sent += 2 * to[i];
    }
    FORMS(Alltoallw, alltoallw, , NO_ROOT, sent, out, to, at, types, in, from, at, types);
}

#ifdef HAS_LARGE_COUNTS
static void with_counts(void)
{
    VECTORS(MPI_Count, MPI_Aint);
    MPI_Datatype types[MOST];
    for (int i = 0; i < size; i++) types[i] = MPI_INT, to_at[i] *= 4, from_at[i] *= 4;
    FORMS(Alltoallw, alltoallw, _c, NO_ROOT, sent, out, to, to_at, types, in, from, from_at, types);
    for (int i = 0; i < size; i++) to_at[i] /= 4, from_at[i] /= 4;
    EXCHANGES(_c);
}
#endif

void vector_collectives(void)
{
    with_ints();
    with_types();
#ifdef HAS_LARGE_COUNTS
    with_counts();
#endif
}
