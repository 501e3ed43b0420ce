/* Communicators made, used, freed and made again, so that handles come back as something else. */
#include "every_call.h"

static void use_and_free(MPI_Comm comm, const char *stem)
{
    const char *label = fresh(stem);
    for (int i = 0; i < 3; i++) COLL(label, NO_ROOT, Allreduce, 8, out, in, 1, MPI_DOUBLE, MPI_SUM, comm);
    COLL(label, 0, Bcast, 24, out, 3, MPI_DOUBLE, 0, comm);
    CALL(Comm_set_info, 0, comm, MPI_INFO_ENV);
    COLL(label, NO_ROOT, Comm_free, 0, &comm);
}

static void copies(void)
{
    MPI_Comm comm, second;
    COLL("world", NO_ROOT, Comm_dup, 0, world, &comm);
    use_and_free(comm, "dup");
    COLL("world", NO_ROOT, Comm_dup_with_info, 0, world, MPI_INFO_NULL, &comm);
    use_and_free(comm, "dup_with_info");
    ASYNC_COLL("world", NO_ROOT, Comm_idup, 0, world, &comm);
    use_and_free(comm, "idup");
    ASYNC_COLL("world", NO_ROOT, Comm_idup_with_info, 0, world, MPI_INFO_NULL, &comm);
    use_and_free(comm, "idup_with_info");
    COLL("world", NO_ROOT, Comm_dup, 0, world, &comm);
    COLL("world", NO_ROOT, Comm_dup, 0, world, &second);
    use_and_free(comm, "first");
    use_and_free(second, "second");
}

static void parts(void)
{
    MPI_Comm comm;
    COLL("world", NO_ROOT, Comm_split, 0, world, rank % 2, rank, &comm);
    use_and_free(comm, "split");
    COLL("world", NO_ROOT, Comm_split, 0, world, rank ? 1 : MPI_UNDEFINED, -rank, &comm);
    if (comm != MPI_COMM_NULL) use_and_free(comm, "all_but_one");
    COLL("world", NO_ROOT, Comm_split_type, 0, world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    use_and_free(comm, "node");
}

static void from_groups(void)
{
    MPI_Group everyone, pair;
    MPI_Comm comm;
    int two[] = {0, 1};
    PMPI_Comm_group(world, &everyone);
    PMPI_Group_incl(everyone, 2, two, &pair);
    COLL("world", NO_ROOT, Comm_create, 0, world, pair, &comm);
    if (rank < 2) use_and_free(comm, "create");
    if (rank < 2) {
        CALL(Comm_create_group, 0, world, pair, 9, &comm);
        use_and_free(comm, "create_group");
    }
    PMPI_Group_free(&everyone), PMPI_Group_free(&pair);
}

static void grids(void)
{
    MPI_Comm grid, row;
    int dims[] = {size, 1}, periods[] = {0, 0}, keep[] = {1, 0}, coordinates[2], ignored;
    const char *label = fresh("grid");
    COLL("world", NO_ROOT, Cart_create, 0, world, 2, dims, periods, 0, &grid);
    COLL(label, NO_ROOT, Cart_sub, 0, grid, keep, &row);
    PMPI_Cart_coords(grid, rank, 2, coordinates);
    PMPI_Comm_rank(row, &ignored);
    use_and_free(row, "row");
    COLL(label, NO_ROOT, Comm_free, 0, &grid);
}

static void two_sides(void)
{
    MPI_Comm half, inter, merged;
    const char *half_label = fresh("half"), *label = fresh("inter");
    COLL("world", NO_ROOT, Comm_split, 0, world, rank == 0, rank, &half);
    CALL(Intercomm_create, 0, half, 0, world, rank == 0, 6, &inter);
    COLL(label, NO_ROOT, Intercomm_merge, 0, inter, rank == 0, &merged);
    use_and_free(merged, "merged");
    COLL(label, NO_ROOT, Comm_free, 0, &inter);
    COLL(half_label, NO_ROOT, Comm_free, 0, &half);
}

/* The same handle values again and again, with other members behind them. */
static void reused(void)
{
    for (int turn = 0; turn < 20; turn++) {
        MPI_Comm comm;
        COLL("world", NO_ROOT, Comm_split, 0, world, (rank + turn) % 2, turn % 3 ? rank : -rank, &comm);
        use_and_free(comm, "reused");
    }
}

static void refused(void)
{
    PMPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (CALL(Send, 0, out, 0, MPI_INT, size + 5, 0, world) == MPI_SUCCESS) abort();
    failed("MPI_Send");
    PMPI_Comm_set_errhandler(world, MPI_ERRORS_ARE_FATAL);
}

void communicators(void)
{
    copies();
    parts();
    from_groups();
    grids();
    two_sides();
    reused();
    refused();
}
