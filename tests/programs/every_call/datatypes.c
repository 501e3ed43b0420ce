/* Derived types, and types whose handle comes back with another size. */
#include "every_call.h"

static void pass(MPI_Datatype type, int count, int element_bytes)
{
    MPI_Request sent;
    PMPI_Isend(out, count, type, next, 40, world, &sent);
    CALL(Recv, (long long)count * element_bytes, in, count, type, prev, 40, world, MPI_STATUS_IGNORE);
    PMPI_Wait(&sent, MPI_STATUS_IGNORE);
    PMPI_Irecv(in, count, type, prev, 41, world, &sent);
    CALL(Send, (long long)count * element_bytes, out, count, type, next, 41, world);
    PMPI_Wait(&sent, MPI_STATUS_IGNORE);
    COLL("world", 0, Bcast, (long long)count * element_bytes, out, count, type, 0, world);
}

static void remade(void)
{
    for (int ints = 1; ints < 40; ints++) {
        MPI_Datatype type;
        MPI_Type_contiguous(ints, MPI_INT, &type);
        MPI_Type_commit(&type);
        pass(type, 5, ints * (int)sizeof(int));
        MPI_Type_free(&type);
    }
}

static void strided(void)
{
    MPI_Datatype column, copy, resized;
    MPI_Type_vector(6, 2, 5, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    pass(column, 3, 6 * 2 * (int)sizeof(double));
    MPI_Type_dup(column, &copy);
    pass(copy, 1, 6 * 2 * (int)sizeof(double));
    MPI_Type_create_resized(column, 0, 8, &resized);
    MPI_Type_commit(&resized);
    pass(resized, 2, 6 * 2 * (int)sizeof(double));
    MPI_Type_free(&column), MPI_Type_free(&copy), MPI_Type_free(&resized);
}

void datatypes(void)
{
    pass(MPI_CHAR, 11, 1);
    pass(MPI_DOUBLE, 11, 8);
    pass(MPI_DOUBLE_INT, 4, 12);
    pass(MPI_LONG_LONG, 0, 8);
    remade();
    strided();
}
