/* An MPI of one rank that does nothing, quickly: it drives the recorder in tests where a real MPI would only be in the
 * way (sanitizers, instruction counts, a thousand million calls). Handles and statuses look like MPICH's. */
#ifndef FAKE_MPI_H
#define FAKE_MPI_H

#include <stdint.h>

typedef int MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request, MPI_Group, MPI_Win, MPI_Info, MPI_Session, MPI_Errhandler;
typedef struct { int count_low, count_high, MPI_SOURCE, MPI_TAG, MPI_ERROR; } MPI_Status;

#define MPI_COMM_WORLD 0x44000000
#define MPI_COMM_SELF 0x44000001
#define MPI_COMM_NULL 0x04000000
#define MPI_REQUEST_NULL 0x2c000000
#define MPI_BYTE 0x4c00010d
#define MPI_INT 0x4c000405
#define MPI_DOUBLE 0x4c00080b
#define MPI_SUM 0x58000003
#define MPI_INFO_NULL 0x1c000000
#define MPI_THREAD_MULTIPLE 3
#define MPI_STATUS_IGNORE ((MPI_Status *)1)
#define MPI_STATUSES_IGNORE ((MPI_Status *)1)

#define FAKE_FUNCTIONS(X)                                                                                              \
    X(Init, (int *argc, char ***argv))                                                                                 \
    X(Init_thread, (int *argc, char ***argv, int wanted, int *given))                                                  \
    X(Finalize, (void))                                                                                                \
    X(Session_init, (MPI_Info info, MPI_Errhandler handler, MPI_Session * session))                                    \
    X(Session_finalize, (MPI_Session * session))                                                                       \
    X(Group_from_session_pset, (MPI_Session session, const char *name, MPI_Group *group))                              \
    X(Group_rank, (MPI_Group group, int *rank))                                                                        \
    X(Group_size, (MPI_Group group, int *size))                                                                        \
    X(Comm_create_from_group, (MPI_Group group, const char *tag, MPI_Info info, MPI_Errhandler handler,                \
                               MPI_Comm *comm))                                                                        \
    X(Initialized, (int *flag))                                                                                        \
    X(Finalized, (int *flag))                                                                                          \
    X(Query_thread, (int *level))                                                                                      \
    X(Get_library_version, (char *text, int *length))                                                                  \
    X(Comm_rank, (MPI_Comm comm, int *rank))                                                                           \
    X(Comm_size, (MPI_Comm comm, int *size))                                                                           \
    X(Comm_test_inter, (MPI_Comm comm, int *flag))                                                                     \
    X(Comm_group, (MPI_Comm comm, MPI_Group * group))                                                                  \
    X(Group_translate_ranks, (MPI_Group from, int count, const int *in, MPI_Group to, int *out))                       \
    X(Group_free, (MPI_Group * group))                                                                                 \
    X(Comm_dup, (MPI_Comm comm, MPI_Comm * copy))                                                                      \
    X(Comm_free, (MPI_Comm * comm))                                                                                    \
    X(Type_size, (MPI_Datatype type, int *bytes))                                                                      \
    X(Type_free, (MPI_Datatype * type))                                                                                \
    X(Status_set_elements_x, (MPI_Status * status, MPI_Datatype type, int64_t count))                                  \
    X(Get_elements_x, (const MPI_Status *status, MPI_Datatype type, int64_t *count))                                   \
    X(Send, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm))                          \
    X(Recv, (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status))          \
    X(Isend, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request))   \
    X(Irecv, (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request))       \
    X(Send_init, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)) \
    X(Start, (MPI_Request * request))                                                                                  \
    X(Wait, (MPI_Request * request, MPI_Status *status))                                                               \
    X(Waitall, (int count, MPI_Request *requests, MPI_Status *statuses))                                               \
    X(Test, (MPI_Request * request, int *flag, MPI_Status *status))                                                    \
    X(Request_free, (MPI_Request * request))                                                                           \
    X(Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))                  \
    X(Iallreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,                  \
                   MPI_Request *request))                                                                              \
    X(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm))                                      \
    X(Barrier, (MPI_Comm comm))                                                                                        \
    X(Iprobe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status))

#define DECLARE(name, arguments) int MPI_##name arguments; int PMPI_##name arguments;
FAKE_FUNCTIONS(DECLARE)
int MPI_Pcontrol(const int level, ...);
extern int fake_asked_initialized;      /* how often */

#endif
