/* traced ROUNDS: a known sequence of MPI calls between two ranks; rank and calls are printed in the order in which they are made. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank;
static double in[512], out[512];

static void said(const char *name, long bytes) { printf("%d %s %ld\n", rank, name, bytes); }

static void one_round(int round)
{
    int count = 1 + round % 512, other = 1 - rank;
    MPI_Request pair[2];
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    said("MPI_Allreduce", 8L * count);
    MPI_Irecv(out, 512, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, &pair[0]);
    said("MPI_Irecv", 0);
    MPI_Isend(in, count, MPI_DOUBLE, other, 7, MPI_COMM_WORLD, &pair[1]);
    said("MPI_Isend", 8L * count);
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
    said("MPI_Waitall", 0);
    if (rank == 0) {
        MPI_Send(in, count, MPI_INT, 1, 8, MPI_COMM_WORLD);
        said("MPI_Send", 4L * count);
    } else {
        MPI_Recv(out, 512, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        said("MPI_Recv", 4L * count);
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &pair[0]);
    said("MPI_Ibarrier", 0);
    MPI_Wait(&pair[0], MPI_STATUS_IGNORE);
    said("MPI_Wait", 0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    said("MPI_Init", 0);
    said("MPI_Comm_rank", 0);
    for (int round = 0; round < atoi(argv[1]); round++)
        one_round(round);
    MPI_Finalize();
    said("MPI_Finalize", 0);
    return 0;
}
