/* Collectives in which everything that MPI calls not significant is rubbish: null types, counts, addresses that nobody may
 * look at. Needs three ranks: 0 and 1 on one side of an intercommunicator, 2 on the other. Prints what it received. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_TYPE MPI_DATATYPE_NULL

/* Not addresses; volatile, or the compiler would complain of them. */
static void *volatile nothing = (void *)8;
static int *volatile no_array = (int *)8;
static MPI_Datatype *volatile no_types = (MPI_Datatype *)8;
static int *volatile unweighted;

static int rank;
static int in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[32];

static void say(const char *what)
{
    int sum = 0;
    for (int i = 0; i < 32; i++) sum += out[i];
    printf("%d %s %d\n", rank, what, sum);
    memset(out, 0, sizeof out);
}

static void across(MPI_Comm inter, int root)
{
    int counts[] = {2, 2}, places[] = {0, 2};
    int side = root == 0 ? 2 : root == MPI_ROOT ? 0 : 1;  /* the other group, the root, beside the root */
    if (side == 0) {
        MPI_Gather(NULL, 1, NO_TYPE, out, 2, MPI_INT, root, inter), say("gather");
        MPI_Gatherv(nothing, 7, NO_TYPE, out, counts, places, MPI_INT, root, inter), say("gatherv");
        MPI_Scatter(in, 2, MPI_INT, nothing, 7, NO_TYPE, root, inter), say("scatter");
        MPI_Scatterv(in, counts, places, MPI_INT, nothing, 7, NO_TYPE, root, inter), say("scatterv");
        MPI_Bcast(in, 2, MPI_INT, root, inter), say("bcast");
        MPI_Reduce(nothing, out, 2, MPI_INT, MPI_SUM, root, inter), say("reduce");
    } else if (side == 1) {
        MPI_Gather(nothing, 7, NO_TYPE, nothing, 7, NO_TYPE, root, inter);
        MPI_Gatherv(nothing, 7, NO_TYPE, nothing, no_array, no_array, NO_TYPE, root, inter);
        MPI_Scatter(nothing, 7, NO_TYPE, nothing, 7, NO_TYPE, root, inter);
        MPI_Scatterv(nothing, no_array, no_array, NO_TYPE, nothing, 7, NO_TYPE, root, inter);
        MPI_Bcast(nothing, 7, MPI_INT, root, inter);     /* every MPI looks at the type here, significant or not */
        MPI_Reduce(nothing, nothing, 7, MPI_INT, MPI_SUM, root, inter);
    } else {
        MPI_Gather(in, 2, MPI_INT, nothing, 7, NO_TYPE, root, inter);
        MPI_Gatherv(in, 2, MPI_INT, nothing, no_array, no_array, NO_TYPE, root, inter);
        MPI_Scatter(nothing, 7, NO_TYPE, out, 2, MPI_INT, root, inter), say("scatter");
        MPI_Scatterv(nothing, no_array, no_array, NO_TYPE, out, 2, MPI_INT, root, inter), say("scatterv");
        MPI_Bcast(out, 2, MPI_INT, root, inter), say("bcast");
        MPI_Reduce(in, nothing, 2, MPI_INT, MPI_SUM, root, inter);
    }
}

static void across_later(MPI_Comm inter, int root)
{
    MPI_Request request;
    if (root == MPI_ROOT) {
        MPI_Igather(NULL, 1, NO_TYPE, out, 2, MPI_INT, root, inter, &request);
    } else if (root == MPI_PROC_NULL) {
        MPI_Igather(nothing, 7, NO_TYPE, nothing, 7, NO_TYPE, root, inter, &request);
    } else {
        MPI_Igather(in, 2, MPI_INT, nothing, 7, NO_TYPE, root, inter, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE), say("igather");
}

/* On one communicator only the root looks at the other half. */
static void within(MPI_Comm comm)
{
    int counts[] = {2, 2, 2}, places[] = {0, 2, 4};
    if (rank == 0) {
        MPI_Gather(MPI_IN_PLACE, 7, NO_TYPE, out, 2, MPI_INT, 0, comm), say("gather");
        MPI_Gatherv(MPI_IN_PLACE, 7, NO_TYPE, out, counts, places, MPI_INT, 0, comm), say("gatherv");
        MPI_Scatter(in, 2, MPI_INT, MPI_IN_PLACE, 7, NO_TYPE, 0, comm);
        MPI_Scatterv(in, counts, places, MPI_INT, MPI_IN_PLACE, 7, NO_TYPE, 0, comm);
    } else {
        MPI_Gather(in, 2, MPI_INT, nothing, 7, NO_TYPE, 0, comm);
        MPI_Gatherv(in, 2, MPI_INT, nothing, no_array, no_array, NO_TYPE, 0, comm);
        MPI_Scatter(nothing, 7, NO_TYPE, out, 2, MPI_INT, 0, comm), say("scatter");
        MPI_Scatterv(nothing, no_array, no_array, NO_TYPE, out, 2, MPI_INT, 0, comm), say("scatterv");
    }
    MPI_Allgather(MPI_IN_PLACE, 7, NO_TYPE, out, 2, MPI_INT, comm), say("allgather");
    MPI_Alltoall(MPI_IN_PLACE, 7, NO_TYPE, out, 2, MPI_INT, comm), say("alltoall");
    MPI_Alltoallv(MPI_IN_PLACE, no_array, no_array, NO_TYPE, out, counts, places, MPI_INT, comm), say("alltoallv");
    MPI_Datatype types[] = {MPI_INT, MPI_INT, MPI_INT};
    int bytes[] = {0, 8, 16};
    MPI_Alltoallw(MPI_IN_PLACE, no_array, no_array, no_types, out, counts, bytes, types, comm), say("alltoallw");
}

/* Ranks without neighbours; types beside counts of nothing are valid because every MPI checks them there. */
static void neighbours(MPI_Comm comm)
{
    MPI_Comm lonely;
    unweighted = MPI_UNWEIGHTED;
    MPI_Dist_graph_create_adjacent(comm, 0, in, unweighted, 0, in, unweighted, MPI_INFO_NULL, 0, &lonely);
    MPI_Neighbor_allgather(in, 2, MPI_INT, out, 2, MPI_INT, lonely), say("lonely");
    MPI_Neighbor_alltoallv(in, in, in, MPI_INT, out, in, in, MPI_INT, lonely), say("lonely");
    MPI_Comm_free(&lonely);
}

/* With MPI_NO_OP nothing of the origin counts. */
static void windows(MPI_Comm comm)
{
    MPI_Win win;
    int *memory, result = 0;
    MPI_Win_allocate(8, 4, MPI_INFO_NULL, comm, &memory, &win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    memory[0] = 5;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(comm);
    MPI_Win_lock_all(0, win);
    MPI_Get_accumulate(NULL, 0, MPI_INT, &result, 1, MPI_INT, (rank + 1) % 3, 0, 1, MPI_INT, MPI_NO_OP, win);
    MPI_Put(in, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
    MPI_Win_unlock_all(win);
    out[0] = result, say("window");
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Comm side, inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 2, rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 2 ? 0 : 2, 3, &inter);
    int root = rank == 0 ? MPI_ROOT : rank == 1 ? MPI_PROC_NULL : 0;
    across(inter, root);
    across_later(inter, root);
    within(MPI_COMM_WORLD);
    neighbours(MPI_COMM_WORLD);
    windows(MPI_COMM_WORLD);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&side);
    MPI_Finalize();
    return 0;
}
