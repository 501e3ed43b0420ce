/* The MPI layer. Every argument of MPI fits a machine word on 64-bit Linux, so wrappers take and pass on words and one
 * library serves every MPI; what differs between them is in struct rs_mpi. */
#ifndef RANKSCOPE_MPI_LAYER_H
#define RANKSCOPE_MPI_LAYER_H

#include "loaded_objects.h"
#include "messages.h"

typedef intptr_t W;

enum rs_mpi_flavour { RS_MPI_UNKNOWN, RS_MPI_OPENMPI, RS_MPI_MPICH, RS_MPI_ABI };

struct rs_mpi {
    enum rs_mpi_flavour flavour;
    uint8_t int_handles;        /* handles are 32-bit integers (MPICH and kin) */
    uint8_t described;          /* the library was asked what it is; all above `ready` is fixed from then on */
    uint8_t passive;            /* of no kind we know: its calls are passed on and nothing else */
    uint8_t ready;              /* initialised, not finalised: local questions may be asked */
    uint8_t world;              /* by MPI_Init: MPI_COMM_WORLD is valid; else only sessions are open */
    uint32_t sessions;          /* open ones */
    W session;                  /* the one opened last */
    uint32_t status_bytes;      /* sizeof(MPI_Status) */
    uint32_t status_layout;     /* how the received size is read from a status */
    W in_place, status_ignore;
    int root;                   /* MPI_ROOT */
    int topology_cart, topology_graph, threads_multiple;
    W comm_world, comm_self, comm_null, byte_type, null_type;
    uint64_t type_epoch;        /* changes when a datatype is freed */
    uint64_t group_epoch;       /* changes when a communicator is made or freed */
};
extern struct rs_mpi rs_mpi __attribute__((visibility("hidden")));

#define RS_GROUP_NAME 128

/* A communicator, window or file as this process knows it. Never NULL: `none` stands for what has no group. */
struct rs_mpi_group {
    uint64_t handle, identity;
    uint32_t size, rank, remote_size;   /* remote_size: of whom v-arrays speak */
    uint32_t children;
    int32_t out_degree;                 /* -1: not asked yet */
    uint16_t id;
    uint8_t kind, inter, of_session;    /* of_session: of the sessions model, not made from MPI_COMM_WORLD */
    struct rs_group *row;
    uint32_t *world_ranks;              /* only with the matrix on */
    struct rs_mpi_group *next;
    char name[RS_GROUP_NAME];
};

/* A nonblocking or persistent operation under way. One cache line. */
struct rs_request {
    uint64_t handle, start_ticks;
    uint64_t bytes : 48, flags : 16;
    uint64_t key;                       /* of its progress row; the size class of a receive is still to come */
    struct rs_mpi_group *group;
    /* its place in the log; RS_REQUEST_IDUP: where the new handle appears; RS_REQUEST_MESSAGE: a struct rs_message, or
     * of a persistent one struct rs_persistent */
    struct rs_collective *record;
    struct rs_request *next;
    uint32_t record_number;
    int32_t dest_or_root;               /* of a persistent operation */
};
enum rs_request_flag {
    RS_REQUEST_RECEIVE = 1, RS_REQUEST_PERSISTENT = 2, RS_REQUEST_ACTIVE = 4, RS_REQUEST_COLLECTIVE = 8,
    RS_REQUEST_IDUP = 16,
    RS_REQUEST_MESSAGE = 32,
    RS_REQUEST_PAIR = 64,       /* an older one of the same handle is complete with it */
    RS_REQUEST_WILDCARD = 128,  /* its envelope is known at completion */
    RS_REQUEST_CANCELLING = 256, /* MPI_Cancel was called on it */
    RS_REQUEST_UNCOUNTED = 512  /* the other of a pair is tallied */
};

/* mpi_library.c */
void *rs_mpi_symbol(const char *symbol);
void *rs_mpi_next(const char *symbol, void *otherwise);
int rs_mpi_describe(void);
int rs_mpi_contains(const void *code);
int rs_mpi_speaks_for_program(const void *code, const char *symbol);
void rs_mpi_started(int proven);
void rs_mpi_session_opened(W session);
void rs_mpi_session_closed(void);
void rs_mpi_finalized(void);
void rs_mpi_library_forget(void);
uint64_t rs_type_bytes_slow(struct rs_thread *thread, W type, int *unsure);
uint64_t rs_status_bytes_slow(const void *status);
void rs_mpi_each_symbol(void (*visit)(const char *name));
void rs_mpi_each_fortran(void (*visit)(const struct rs_object *bindings));

/* mpi_groups.c */
struct rs_mpi_group *rs_group_slow(struct rs_thread *thread, W handle, uint8_t kind, int proven);
void rs_group_new(W handle, uint8_t kind, struct rs_mpi_group *parent, const char *label, int64_t tag);
void rs_group_freed(W handle, uint8_t kind);
void rs_group_named(W handle, const char *name);
int32_t rs_out_degree(struct rs_mpi_group *group, W comm);
void rs_matrix_add(struct rs_thread *thread, struct rs_mpi_group *group, W comm, int32_t dest, uint64_t bytes);
void rs_groups_forget(void);
extern struct rs_mpi_group rs_no_group __attribute__((visibility("hidden")));
static inline struct rs_mpi_group *rs_group_none(void) { return &rs_no_group; }

/* mpi.c */
void rs_mpi_forget(void);
void rs_mpi_list_unwrapped(void);

/* Handles by value and from memory. Files are pointers everywhere. */
static inline uint64_t rs_handle(W word)
{
    return rs_mpi.int_handles ? (uint32_t)word : (uint64_t)word;
}

static inline uint64_t rs_handle_at(W array, int64_t index)
{
    return rs_mpi.int_handles ? ((const uint32_t *)array)[index] : ((const uint64_t *)array)[index];
}

/* The one that a program gives by its address, before the call: a mistaken NULL is for the MPI to find. */
static inline uint64_t rs_handle_given(W place) { return place ? rs_handle_at(place, 0) : 0; }

/* MPICH reports success where an error handler of the program's has returned, so even then a handle may be rubbish. Its
 * handles say what they are of: kinds are those below, and the two bits above them are 0 for null handles. */
enum rs_mpich_kind { RS_MPICH_COMM = 1, RS_MPICH_TYPE = 3 };

static inline int rs_plausible(W handle, enum rs_mpich_kind kind)
{
    uint32_t bits = (uint32_t)handle;
    return rs_mpi.flavour != RS_MPI_MPICH || ((bits >> 26 & 15) == (uint32_t)kind && bits >> 30);
}

static inline uint64_t rs_epoch(const uint64_t *epoch) { return __atomic_load_n(epoch, __ATOMIC_RELAXED); }

/* How the received size lies in a status: one word, or its low half and the rest left of the cancelled flag. */
enum rs_status_layout { RS_STATUS_UNKNOWN, RS_STATUS_WORD_AT_16, RS_STATUS_SPLIT_AT_0, RS_STATUS_SPLIT_AT_12 };

static inline uint64_t rs_status_decode(uint32_t layout, const void *status)
{
    uint64_t word;
    uint32_t pair[2];
    if (layout == RS_STATUS_WORD_AT_16) {
        memcpy(&word, (const char *)status + 16, sizeof word);
        return word;
    }
    memcpy(pair, (const char *)status + (layout == RS_STATUS_SPLIT_AT_12 ? 12 : 0), sizeof pair);
    return pair[0] | (uint64_t)(pair[1] >> 1) << 32;
}

/* Who sent it and with what tag: fields that programs read, so every MPI has them at fixed places. */
static inline const int32_t *rs_status_place(const void *status)
{
    return (const int32_t *)((const char *)status + (rs_mpi.flavour == RS_MPI_MPICH ? 8 : 0));
}

static inline int32_t rs_status_source(const void *status)
{
    return __atomic_load_n(rs_status_place(status), __ATOMIC_RELAXED);
}

/* One by one: the MPI has just written them so, and one load of both would have to wait for that. */
static inline int32_t rs_status_tag(const void *status)
{
    return __atomic_load_n(rs_status_place(status) + 1, __ATOMIC_RELAXED);
}

static inline uint64_t rs_status_bytes(const void *status)
{
    uint32_t layout = rs_mpi.status_layout;
    return RS_LIKELY(layout != RS_STATUS_UNKNOWN) ? rs_status_decode(layout, status) : rs_status_bytes_slow(status);
}

/* All three of a receive. */
static inline struct rs_envelope rs_status_read(const void *status)
{
    const int32_t *words = status;
    if (RS_LIKELY(rs_mpi.status_layout == RS_STATUS_WORD_AT_16))    /* Open MPI */
        return (struct rs_envelope){__atomic_load_n(words, __ATOMIC_RELAXED), __atomic_load_n(words + 1, __ATOMIC_RELAXED),
                                    rs_status_decode(RS_STATUS_WORD_AT_16, status)};
    return (struct rs_envelope){rs_status_source(status), rs_status_tag(status), rs_status_bytes(status)};
}

/* A datatype is asked for its size only where something is counted: MPI_DATATYPE_NULL may stand beside a zero. And only
 * after a call that took it: a type that the program made a mistake with would end in its error handler. */
static inline uint64_t rs_bytes(struct rs_thread *thread, int64_t count, W type)
{
    if (count <= 0)
        return 0;
    if (RS_LIKELY((uint64_t)type == thread->last_type && thread->last_type_epoch == rs_epoch(&rs_mpi.type_epoch)))
        return (uint64_t)count * thread->last_type_bytes;
    return (uint64_t)count * rs_type_bytes_slow(thread, type, NULL);
}

/* Before a call: of a type that was asked about earlier. */
static inline uint64_t rs_bytes_known(struct rs_thread *thread, int64_t count, W type, int *unsure)
{
    if (count <= 0)
        return 0;
    if (RS_LIKELY((uint64_t)type == thread->last_type && thread->last_type_epoch == rs_epoch(&rs_mpi.type_epoch)))
        return (uint64_t)count * thread->last_type_bytes;
    return (uint64_t)count * rs_type_bytes_slow(thread, type, unsure);
}

static inline struct rs_mpi_group *rs_comm_by(struct rs_thread *thread, W comm, int proven)
{
    if (RS_LIKELY((uint64_t)comm == thread->last_group_handle && thread->last_group_epoch == rs_epoch(&rs_mpi.group_epoch)))
        return thread->last_group;
    return rs_group_slow(thread, comm, RS_GROUP_COMM, proven);
}

/* After a call that took the handle: the MPI may be asked about it. */
static inline struct rs_mpi_group *rs_comm(struct rs_thread *thread, W comm) { return rs_comm_by(thread, comm, 1); }

/* Before a call nobody must be asked about a handle that may not be valid: only what is known already. */
static inline struct rs_mpi_group *rs_comm_known(struct rs_thread *thread, W comm) { return rs_comm_by(thread, comm, 0); }

static inline struct rs_mpi_group *rs_win(struct rs_thread *thread, W win)
{
    return rs_group_slow(thread, win, RS_GROUP_WINDOW, 0);
}

static inline struct rs_mpi_group *rs_file_group(struct rs_thread *thread, W file)
{
    return rs_group_slow(thread, file, RS_GROUP_FILE, 0);
}

#endif
