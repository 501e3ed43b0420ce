/* One-sided communication. Every rank works on the next one's window. */
#include "every_call.h"

enum { ELEMENTS = 4096 };
static int memory[ELEMENTS];

static void operations(MPI_Win win)
{
    static int one = 1, two = 2, result; /* in use until the epoch ends */
    CALL(Put, 40, out, 10, MPI_INT, next, 0, 10, MPI_INT, win);
    CALL(Get, 44, in, 11, MPI_INT, next, 0, 11, MPI_INT, win);
    CALL(Accumulate, 48, out, 12, MPI_INT, next, 20, 12, MPI_INT, MPI_SUM, win);
    CALL(Get_accumulate, 52, out, 13, MPI_INT, in, 13, MPI_INT, next, 40, 13, MPI_INT, MPI_SUM, win);
    CALL(Fetch_and_op, 4, &one, &result, MPI_INT, next, 60, MPI_SUM, win);
    CALL(Compare_and_swap, 4, &one, &two, &result, MPI_INT, next, 61, win);
    CALL(Put, 0, out, 0, MPI_INT, next, 0, 0, MPI_INT, win);
#ifdef HAS_LARGE_COUNTS
    CALL(Put_c, 40, out, 10, MPI_INT, next, 0, 10, MPI_INT, win);
    CALL(Get_c, 44, in, 11, MPI_INT, next, 0, 11, MPI_INT, win);
    CALL(Accumulate_c, 48, out, 12, MPI_INT, next, 20, 12, MPI_INT, MPI_SUM, win);
    CALL(Get_accumulate_c, 52, out, 13, MPI_INT, in, 13, MPI_INT, next, 40, 13, MPI_INT, MPI_SUM, win);
#endif
}

static void with_requests(MPI_Win win)
{
    ASYNC(Rput, 40, out, 10, MPI_INT, next, 0, 10, MPI_INT, win);
    ASYNC(Rget, 44, in, 11, MPI_INT, next, 0, 11, MPI_INT, win);
    ASYNC(Raccumulate, 48, out, 12, MPI_INT, next, 20, 12, MPI_INT, MPI_SUM, win);
    ASYNC(Rget_accumulate, 52, out, 13, MPI_INT, in, 13, MPI_INT, next, 40, 13, MPI_INT, MPI_SUM, win);
#ifdef HAS_LARGE_COUNTS
    ASYNC(Rput_c, 40, out, 10, MPI_INT, next, 0, 10, MPI_INT, win);
    ASYNC(Rget_c, 44, in, 11, MPI_INT, next, 0, 11, MPI_INT, win);
    ASYNC(Raccumulate_c, 48, out, 12, MPI_INT, next, 20, 12, MPI_INT, MPI_SUM, win);
    ASYNC(Rget_accumulate_c, 52, out, 13, MPI_INT, in, 13, MPI_INT, next, 40, 13, MPI_INT, MPI_SUM, win);
#endif
}

static void fenced(MPI_Win win, const char *label)
{
    COLL(label, NO_ROOT, Win_fence, 0, MPI_MODE_NOPRECEDE, win);
    operations(win);
    COLL(label, NO_ROOT, Win_fence, 0, 0, win);
    COLL(label, NO_ROOT, Win_fence, 0, MPI_MODE_NOSUCCEED, win);
}

static void locked(MPI_Win win)
{
    CALL(Win_lock, 0, MPI_LOCK_SHARED, next, 0, win);
    operations(win);
    with_requests(win);
    CALL(Win_flush, 0, next, win);
    CALL(Win_flush_local, 0, next, win);
    CALL(Win_sync, 0, win);
    CALL(Win_unlock, 0, next, win);
    CALL(Win_lock_all, 0, 0, win);
    operations(win);
    CALL(Win_flush_all, 0, win);
    CALL(Win_flush_local_all, 0, win);
    CALL(Win_unlock_all, 0, win);
}

static void scheduled(MPI_Win win)
{
    MPI_Group everyone, targets, origins;
    int flag = 0;
    PMPI_Comm_group(world, &everyone);
    PMPI_Group_incl(everyone, 1, &next, &targets);
    PMPI_Group_incl(everyone, 1, &prev, &origins);
    for (int turn = 0; turn < 2; turn++) {
        CALL(Win_post, 0, origins, 0, win);
        CALL(Win_start, 0, targets, 0, win);
        operations(win);
        CALL(Win_complete, 0, win);
        PMPI_Barrier(world);
        if (turn == 0) CALL(Win_wait, 0, win);
        while (turn == 1 && !flag) CALL(Win_test, 0, win, &flag);
    }
    PMPI_Group_free(&everyone), PMPI_Group_free(&targets), PMPI_Group_free(&origins);
}

static void allocations(void)
{
    MPI_Win win;
    void *base;
    const char *label = fresh("window");
    COLL("world", NO_ROOT, Win_allocate, 0, sizeof memory, sizeof(int), MPI_INFO_NULL, world, &base, &win);
    locked(win);
    COLL(label, NO_ROOT, Win_free, 0, &win);
    label = fresh("window");
    COLL("world", NO_ROOT, Win_allocate_shared, 0, sizeof memory, sizeof(int), MPI_INFO_NULL, world, &base, &win);
    fenced(win, label);
    COLL(label, NO_ROOT, Win_free, 0, &win);
    label = fresh("window");
    COLL("world", NO_ROOT, Win_create_dynamic, 0, MPI_INFO_NULL, world, &win);
    CALL(Win_attach, 0, win, memory, sizeof memory);
    COLL(label, NO_ROOT, Win_fence, 0, 0, win);
    CALL(Win_detach, 0, win, memory);
    COLL(label, NO_ROOT, Win_free, 0, &win);
}

void windows(void)
{
    MPI_Win win;
    const char *label = fresh("window");
    COLL("world", NO_ROOT, Win_create, 0, memory, sizeof memory, sizeof(int), MPI_INFO_NULL, world, &win);
    fenced(win, label);
    locked(win);
    scheduled(win);
    CALL(Win_set_info, 0, win, MPI_INFO_ENV);
    COLL(label, NO_ROOT, Win_free, 0, &win);
    allocations();
}
