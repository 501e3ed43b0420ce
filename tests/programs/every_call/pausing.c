/* What happens between MPI_Pcontrol(0) and MPI_Pcontrol(1) is not counted. */
#include "every_call.h"

static void some_calls(void)
{
    MPI_Request pair[2];
    COLL("world", NO_ROOT, Allreduce, 8, out, in, 1, MPI_DOUBLE, MPI_SUM, world);
    CALL(Isend, 100, out, 100, MPI_BYTE, next, 50, world, &pair[0]);
    CALL(Irecv, 0, in, 200, MPI_BYTE, prev, 50, world, &pair[1]);
    CALL(Waitall, 0, 2, pair, MPI_STATUSES_IGNORE);
    completed("MPI_Isend", 100), completed("MPI_Irecv", 100);
}

void pausing(void)
{
    some_calls();
    MPI_Pcontrol(0);
    pause_counting(1);
    some_calls();
    some_calls();
    pause_counting(0);
    MPI_Pcontrol(1);
    some_calls();
}
