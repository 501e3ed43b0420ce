/* Another layer between a program and its MPI, as sites have them: counts calls and says so at the end. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int inits, reduces, sends, ranks;

int MPI_Init(int *argc, char ***argv) { return inits++, PMPI_Init(argc, argv); }

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *given)
{
    return inits++, PMPI_Init_thread(argc, argv, wanted, given);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return reduces++, PMPI_Allreduce(in, out, count, type, op, comm);
}

#ifdef HAS_LARGE_COUNTS
int MPI_Allreduce_c(const void *in, void *out, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return reduces++, PMPI_Allreduce_c(in, out, count, type, op, comm);
}
#endif

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    return sends++, PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Comm_rank(MPI_Comm comm, int *rank) { return ranks++, PMPI_Comm_rank(comm, rank); }

int MPI_Finalize(void)
{
    int mine, all;
    MPI_Comm_rank(MPI_COMM_WORLD, &mine);   /* a layer's own calls are not the program's */
    PMPI_Allreduce(&reduces, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("shim %d: %d Init, %d of %d Allreduce, %d Send\n", mine, inits, reduces, all, sends);
    fflush(stdout);
    return PMPI_Finalize();
}
