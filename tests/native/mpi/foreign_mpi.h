/* An MPI of one rank of a layout that is nobody's: handles are pointers to objects, a status has two ints, constants are
 * addresses of its own. */
#ifndef FOREIGN_MPI_H
#define FOREIGN_MPI_H

typedef struct foreign { unsigned magic; int kind, value; } *MPI_Comm, *MPI_Datatype, *MPI_Op, *MPI_Request;
typedef struct { int source, bytes; } MPI_Status;

extern struct foreign foreign_world, foreign_int, foreign_sum, foreign_no_request;
extern char foreign_in_place[1], foreign_ignore[1];
#define MPI_COMM_WORLD (&foreign_world)
#define MPI_INT (&foreign_int)
#define MPI_SUM (&foreign_sum)
#define MPI_REQUEST_NULL (&foreign_no_request)
#define MPI_IN_PLACE ((void *)foreign_in_place)
#define MPI_STATUS_IGNORE ((MPI_Status *)foreign_ignore)

#define FOREIGN_FUNCTIONS(X)                                                                                           \
    X(Init, (int *argc, char ***argv))                                                                                 \
    X(Finalize, (void))                                                                                                \
    X(Initialized, (int *flag))                                                                                        \
    X(Finalized, (int *flag))                                                                                          \
    X(Query_thread, (int *level))                                                                                      \
    X(Get_library_version, (char *text, int *length))                                                                  \
    X(Comm_rank, (MPI_Comm comm, int *rank))                                                                           \
    X(Comm_size, (MPI_Comm comm, int *size))                                                                           \
    X(Comm_test_inter, (MPI_Comm comm, int *flag))                                                                     \
    X(Comm_dup, (MPI_Comm comm, MPI_Comm * copy))                                                                      \
    X(Comm_free, (MPI_Comm * comm))                                                                                    \
    X(Type_size, (MPI_Datatype type, int *bytes))                                                                      \
    X(Status_set_elements_x, (MPI_Status * status, MPI_Datatype type, long long count))                                \
    X(Isend, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request))   \
    X(Recv, (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status))          \
    X(Wait, (MPI_Request * request, MPI_Status *status))                                                               \
    X(Waitall, (int count, MPI_Request *requests, MPI_Status *statuses))                                               \
    X(Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))

#define DECLARE(name, arguments) int MPI_##name arguments; int PMPI_##name arguments;
FOREIGN_FUNCTIONS(DECLARE)

#endif
