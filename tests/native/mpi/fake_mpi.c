#include "fake_mpi.h"

#include <string.h>

enum { SLOTS = 1 << 16, PERSISTENT = 1 << 28, FIRST_REQUEST = 0x60000000, FIRST_COMM = (int)0x84000000 };

int fake_asked_initialized;
static int initialized, finalized, level;
static unsigned requests, communicators;
static int received[SLOTS];     /* bytes of the receive with that number; overwritten when numbers come round */

static void answer(MPI_Status *status, int bytes)
{
    if (status != MPI_STATUS_IGNORE) *status = (MPI_Status){bytes, 0, 0, 0, 0};
}

static MPI_Request new_request(int bytes, int kind)
{
    unsigned number = __atomic_fetch_add(&requests, 1, __ATOMIC_RELAXED) % (PERSISTENT - 1);
    __atomic_store_n(&received[number % SLOTS], bytes, __ATOMIC_RELAXED);
    return (MPI_Request)(FIRST_REQUEST + number) | kind;
}

static void complete(MPI_Request *request, MPI_Status *status)
{
    answer(status, __atomic_load_n(&received[(unsigned)*request % SLOTS], __ATOMIC_RELAXED));
    if (!(*request & PERSISTENT)) *request = MPI_REQUEST_NULL;
}

/* MPI_X is PMPI_X unless somebody else defines it first. */
#define FAKE(name, arguments)                                                                                          \
    int MPI_##name arguments __attribute__((weak, alias("PMPI_" #name)));                                              \
    int PMPI_##name arguments

#pragma GCC diagnostic ignored "-Wunused-parameter"
FAKE(Init, (int *argc, char ***argv)) { return initialized = 1, 0; }
FAKE(Init_thread, (int *argc, char ***argv, int wanted, int *given)) { return initialized = 1, *given = level = wanted, 0; }
FAKE(Finalize, (void)) { return finalized = 1, 0; }
FAKE(Session_init, (MPI_Info info, MPI_Errhandler handler, MPI_Session *session)) { return *session = 0x38000001, 0; }
FAKE(Session_finalize, (MPI_Session *session)) { return *session = 0, 0; }
FAKE(Group_from_session_pset, (MPI_Session session, const char *name, MPI_Group *group)) { return *group = 1, 0; }
FAKE(Group_rank, (MPI_Group group, int *rank)) { return *rank = 0, 0; }
FAKE(Group_size, (MPI_Group group, int *size)) { return *size = 1, 0; }
FAKE(Comm_create_from_group, (MPI_Group group, const char *tag, MPI_Info info, MPI_Errhandler handler, MPI_Comm *comm))
{
    return PMPI_Comm_dup(MPI_COMM_WORLD, comm);
}
FAKE(Initialized, (int *flag)) { return __atomic_fetch_add(&fake_asked_initialized, 1, __ATOMIC_RELAXED), *flag = initialized, 0; }
FAKE(Finalized, (int *flag)) { return *flag = finalized, 0; }
FAKE(Query_thread, (int *given)) { return *given = level, 0; }
FAKE(Get_library_version, (char *text, int *length)) { return strcpy(text, "MPICH Version: fake"), *length = 19, 0; }
FAKE(Comm_rank, (MPI_Comm comm, int *rank)) { return *rank = 0, 0; }
FAKE(Comm_size, (MPI_Comm comm, int *size)) { return *size = 1, 0; }
FAKE(Comm_test_inter, (MPI_Comm comm, int *flag)) { return *flag = 0, 0; }
FAKE(Comm_group, (MPI_Comm comm, MPI_Group *group)) { return *group = 1, 0; }
FAKE(Group_translate_ranks, (MPI_Group from, int count, const int *in, MPI_Group to, int *out))
{
    for (int i = 0; i < count; i++) out[i] = in[i];
    return 0;
}
FAKE(Group_free, (MPI_Group *group)) { return *group = 0, 0; }
FAKE(Comm_dup, (MPI_Comm comm, MPI_Comm *copy))
{
    return *copy = (int)((unsigned)FIRST_COMM + __atomic_fetch_add(&communicators, 1, __ATOMIC_RELAXED)), 0;
}
FAKE(Comm_free, (MPI_Comm *comm)) { return *comm = MPI_COMM_NULL, 0; }
FAKE(Type_size, (MPI_Datatype type, int *bytes)) { return *bytes = type >> 8 & 0xFF, 0; }
FAKE(Type_free, (MPI_Datatype *type)) { return *type = 0, 0; }
FAKE(Status_set_elements_x, (MPI_Status *status, MPI_Datatype type, int64_t count))
{
    return status->count_low = (int)count, status->count_high = (int)(count >> 32) << 1, 0;
}
FAKE(Get_elements_x, (const MPI_Status *status, MPI_Datatype type, int64_t *count)) { return *count = status->count_low, 0; }
FAKE(Send, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)) { return 0; }
FAKE(Recv, (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status))
{
    return answer(status, count), 0;
}
FAKE(Isend, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request))
{
    return *request = new_request(0, 0), 0;
}
FAKE(Irecv, (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request))
{
    return *request = new_request(count / 2, 0), 0;
}
FAKE(Send_init, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request))
{
    return *request = new_request(0, PERSISTENT), 0;
}
FAKE(Start, (MPI_Request *request)) { return 0; }
FAKE(Wait, (MPI_Request *request, MPI_Status *status)) { return complete(request, status), 0; }
FAKE(Waitall, (int count, MPI_Request *all, MPI_Status *statuses))
{
    for (int i = 0; i < count; i++) complete(&all[i], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i]);
    return 0;
}
FAKE(Test, (MPI_Request *request, int *flag, MPI_Status *status)) { return *flag = 1, complete(request, status), 0; }
FAKE(Request_free, (MPI_Request *request)) { return *request = MPI_REQUEST_NULL, 0; }
FAKE(Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)) { return 0; }
FAKE(Iallreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    return *request = new_request(0, 0), 0;
}
FAKE(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)) { return 0; }
FAKE(Barrier, (MPI_Comm comm)) { return 0; }
FAKE(Iprobe, (int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)) { return *flag = 0, 0; }
int PMPI_Pcontrol(const int now, ...) { return 0; }
int MPI_Pcontrol(const int now, ...) __attribute__((weak, alias("PMPI_Pcontrol")));
