#include "foreign_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x5EED, COMM = 1, TYPE = 2, OP = 3, REQUEST = 4 };
struct foreign foreign_world = {MAGIC, COMM, 0}, foreign_int = {MAGIC, TYPE, 4}, foreign_sum = {MAGIC, OP, 0};
struct foreign foreign_no_request = {MAGIC, REQUEST, 0};
char foreign_in_place[1], foreign_ignore[1];
static int started;

/* Whoever asks with a handle of another layout gets what a real MPI would give it. */
static void check(const struct foreign *handle, int kind)
{
    if ((unsigned long)handle < 4096 || handle->magic != MAGIC || handle->kind != kind) {
        fprintf(stderr, "foreign MPI: not a handle of kind %d: %p\n", kind, (const void *)handle);
        abort();
    }
}

#define FOREIGN(name, arguments)                                                                                       \
    int MPI_##name arguments __attribute__((weak, alias("PMPI_" #name)));                                              \
    int PMPI_##name arguments

#pragma GCC diagnostic ignored "-Wunused-parameter"
FOREIGN(Init, (int *argc, char ***argv)) { return started = 1, 0; }
FOREIGN(Finalize, (void)) { return started = 2, 0; }
FOREIGN(Initialized, (int *flag)) { return *flag = started > 0, 0; }
FOREIGN(Finalized, (int *flag)) { return *flag = started > 1, 0; }
FOREIGN(Query_thread, (int *level)) { return *level = 0, 0; }
FOREIGN(Get_library_version, (char *text, int *length))
{
    return strcpy(text, "Foreign Message Passing 1.0\n(nobody's)"), *length = (int)strlen(text), 0;
}
FOREIGN(Comm_rank, (MPI_Comm comm, int *rank)) { return check(comm, COMM), *rank = 0, 0; }
FOREIGN(Comm_size, (MPI_Comm comm, int *size)) { return check(comm, COMM), *size = 1, 0; }
FOREIGN(Comm_test_inter, (MPI_Comm comm, int *flag)) { return check(comm, COMM), *flag = 0, 0; }
FOREIGN(Comm_dup, (MPI_Comm comm, MPI_Comm *copy))
{
    check(comm, COMM);
    *copy = malloc(sizeof **copy);
    **copy = *comm;
    return 0;
}
FOREIGN(Comm_free, (MPI_Comm *comm)) { return check(*comm, COMM), free(*comm), *comm = NULL, 0; }
FOREIGN(Type_size, (MPI_Datatype type, int *bytes)) { return check(type, TYPE), *bytes = type->value, 0; }
FOREIGN(Status_set_elements_x, (MPI_Status *status, MPI_Datatype type, long long count))
{
    return check(type, TYPE), status->bytes = (int)count, 0;
}
FOREIGN(Isend, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request))
{
    check(type, TYPE), check(comm, COMM);
    *request = malloc(sizeof **request);
    **request = (struct foreign){MAGIC, REQUEST, count * type->value};
    return 0;
}
FOREIGN(Recv, (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status))
{
    check(type, TYPE), check(comm, COMM);
    if (status != MPI_STATUS_IGNORE) *status = (MPI_Status){0, count * type->value};
    return 0;
}
FOREIGN(Wait, (MPI_Request *request, MPI_Status *status))
{
    check(*request, REQUEST);
    if (*request != MPI_REQUEST_NULL) free(*request);
    *request = MPI_REQUEST_NULL;
    if (status != MPI_STATUS_IGNORE) *status = (MPI_Status){0, 0};
    return 0;
}
FOREIGN(Waitall, (int count, MPI_Request *requests, MPI_Status *statuses))
{
    for (int i = 0; i < count; i++)
        PMPI_Wait(&requests[i], statuses == MPI_STATUS_IGNORE ? statuses : &statuses[i]);
    return 0;
}
FOREIGN(Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    check(type, TYPE), check(op, OP), check(comm, COMM);
    if (in != MPI_IN_PLACE) memcpy(out, in, (size_t)(count * type->value));
    return 0;
}
