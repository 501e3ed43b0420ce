/* What a program does with an MPI of nobody's layout. Prints what it got. */
#include "foreign_mpi.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct { MPI_Status status; int guard; } received = {{-1, -1}, 77};
    int data[4] = {1, 2, 3, 4}, rank = -1, size = -1;
    MPI_Comm copy;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int i = 0; i < 10; i++) MPI_Allreduce(MPI_IN_PLACE, data, 4, MPI_INT, MPI_SUM, copy);
    MPI_Isend(data, 4, MPI_INT, 0, 0, copy, &requests[0]);
    MPI_Isend(data, 2, MPI_INT, 0, 0, copy, &requests[1]);
    MPI_Recv(data, 4, MPI_INT, 0, 0, copy, &received.status);
    MPI_Recv(data, 4, MPI_INT, 0, 0, copy, MPI_STATUS_IGNORE);
    MPI_Waitall(2, requests, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
    MPI_Finalize();
    printf("%d of %d: %d %d %d\n", rank, size, data[3], received.status.bytes, received.guard);
    return 0;
}
