/* The NCCL layer: what every version of the plugin interface comes down to. */
#ifndef RANKSCOPE_NCCL_LAYER_H
#define RANKSCOPE_NCCL_LAYER_H

#include "recorder.h"

/* What is known of a communicator when it is made; versions 1 to 3 tell it with every operation instead. */
struct rs_nccl_identity {
    const char *name;           /* given by the user, or NULL */
    uint64_t hash;              /* equal on all ranks */
    uint32_t size, rank;        /* size 0: not told */
    uint8_t known;
};

/* A collective or a point-to-point operation, as it is being enqueued. */
struct rs_nccl_task {
    const struct rs_nccl_identity *comm;    /* NULL: told before */
    const char *func, *datatype, *algo, *proto;
    uint64_t count;
    int32_t root;
    int32_t peer;               /* of ncclSend and ncclRecv: rank in the communicator */
    uint32_t channels;          /* how many will be told; 0: not known */
    void *theirs;               /* how the job's own plugin calls it, or NULL */
    uint8_t collective;
    uint8_t has_kernel;         /* whose channels are told where they were asked for */
};

/* What every operation runs through lies together: most of its cost is code that is no longer in the caches. */
#define RS_NCCL_PATH __attribute__((hot))

/* What the user lets NCCL be asked for. */
enum rs_nccl_mode { RS_NCCL_NONE, RS_NCCL_CALLS, RS_NCCL_KERNELS };
enum rs_nccl_mode rs_nccl_mode(void);

/* Contexts and handles are numbers, not addresses: one that has become stale is recognised and ignored. */
void *rs_nccl_comm_new(const struct rs_nccl_identity *identity, int kernels_told);
void rs_nccl_comm_end(void *context);
void *rs_nccl_task_start(void *context, const struct rs_nccl_task *task);
void *rs_nccl_channel_start(void *task, uint64_t gpu_ns);
void rs_nccl_channel_gpu_end(void *channel, uint64_t gpu_ns);
void rs_nccl_stop(void *handle);
void rs_nccl_expect(void *context);
int rs_nccl_is_under_way(void *handle);
/* By what the job's own plugin calls an operation: the one that this thread now stops, of those that it has started; the
 * one that a channel of its kernel belongs to. */
void *rs_nccl_to_stop(void *theirs);
void *rs_nccl_parent(void *context, void *theirs);
int rs_nccl_is_called(void *handle, void *theirs);

/* A handle of an operation or of one of its channels: a generation, a slot, and in the last two bits which of these. */
#define RS_NCCL_SLOTS 4096u     /* more than a CUDA stream takes launches ahead */
#define RS_NCCL_TASK 1u
#define RS_NCCL_CHANNEL 2u
static inline int rs_nccl_is_channel(const void *handle) { return ((uintptr_t)handle & 3) == RS_NCCL_CHANNEL; }
static inline unsigned rs_nccl_slot(const void *handle) { return (uintptr_t)handle >> 2 & (RS_NCCL_SLOTS - 1); }

/* nccl_groups.c: communicators. */
struct rs_nccl_comm {
    rs_lock lock;
    uint32_t generation;
    uint16_t group;
    uint8_t used, kernels_told;
    uint64_t collectives;       /* so many have begun */
    struct rs_group *row;
    /* what the proxy's thread writes: the operation whose kernel began last, and the slot that it looked up last */
    void *running __attribute__((aligned(64)));
    uint32_t looked_up;
} __attribute__((aligned(64)));
#define RS_NCCL_COMMS 1024u
extern struct rs_nccl_comm rs_nccl_comms[RS_NCCL_COMMS] __attribute__((visibility("hidden")));
void rs_nccl_comm_name(struct rs_nccl_comm *comm, const struct rs_nccl_identity *identity);
void rs_nccl_comms_forget(void);

/* The communicator behind a context, NULL where there is none any more. */
RS_HOT struct rs_nccl_comm *rs_nccl_comm(void *context)
{
    uintptr_t number = (uintptr_t)context & 0xFFFF;
    if (RS_UNLIKELY(!number || number > RS_NCCL_COMMS))
        return NULL;
    struct rs_nccl_comm *comm = &rs_nccl_comms[number - 1];
    int current = __atomic_load_n(&comm->generation, __ATOMIC_ACQUIRE) == (uint32_t)((uintptr_t)context >> 16)
               && __atomic_load_n(&comm->used, __ATOMIC_ACQUIRE);
    return RS_LIKELY(current) ? comm : NULL;
}

RS_HOT void rs_nccl_comm_identify(struct rs_nccl_comm *comm, const struct rs_nccl_identity *identity)
{
    if (RS_UNLIKELY(identity && identity->known && !__atomic_load_n(&comm->group, __ATOMIC_ACQUIRE)))
        rs_nccl_comm_name(comm, identity);
}

/* Where there is no row the number is 0, as for a communicator that nobody counts. Of one communicator one thread at a
 * time enqueues: NCCL asks for that. The row is in the file, which is not in the caches: nothing waits for what is
 * stored there. */
RS_HOT uint32_t rs_nccl_next_sequence(struct rs_nccl_comm *comm)
{
    if (RS_UNLIKELY(!__atomic_load_n(&comm->group, __ATOMIC_ACQUIRE)))
        return 0;
    uint64_t number = __atomic_load_n(&comm->collectives, __ATOMIC_RELAXED) + 1;
    RS_SET(comm->collectives, number);
    RS_SET(comm->row->collectives, number);
    return (uint32_t)number;
}

/* Whether NCCL has opened the plugin in this process: it then tells its operations itself. */
int rs_nccl_recording(void);

/* nccl_neighbour.c: the plugin that the job brings itself, behind ours. */
#define RS_NCCL_NAME "rankscope"
#define RS_NCCL_NEWEST 6
struct nccl_profiler;
#define RS_NCCL_NEWEST_KNOWN 9  /* versions that are looked for; above RS_NCCL_NEWEST theirs is left alone */
/* What every event asks for, in one line of the cache and in a page that is in use anyway. */
struct rs_nccl_neighbour {
    int mask;                   /* theirs, as NCCL's own: one for all communicators; they may write to it at any time */
    uint32_t versions;          /* a bit each: theirs has been there, calls may be for both */
    struct nccl_profiler *exported[RS_NCCL_NEWEST_KNOWN + 1];
    int nccl_version;           /* 0: not known, taken for a new one */
} __attribute__((aligned(64)));
extern struct rs_nccl_neighbour rs_nccl_neighbour;
RS_HOT int rs_nccl_is_beside(unsigned version)
{
    return __atomic_load_n(&rs_nccl_neighbour.versions, __ATOMIC_RELAXED) >> version & 1;
}
struct rs_nccl_opening {        /* of one communicator: what either plugin's init has given */
    struct nccl_profiler *plugin;
    void *ours, *theirs;
    int our_mask, failed;
    int *their_mask, *nccl_mask;
};
typedef int (*rs_nccl_start)(void *context, void **handle, const void *description, void *theirs);
typedef int (*rs_nccl_state)(void *handle, int state, const void *args);
void *rs_nccl_choose(int version, void *ours);
void rs_nccl_opening(struct rs_nccl_opening *opening, int version, int *mask, const void *caller);
int rs_nccl_opened(const struct rs_nccl_opening *opening, int version, void **context, int *mask);
int rs_nccl_closed(void *context);
int rs_nccl_start_both(int version, rs_nccl_start ours, void *context, void **handle, void *description);
int rs_nccl_stop_both(int version, void *handle);
int rs_nccl_state_both(int version, rs_nccl_state ours, void *handle, int state, const void *args);
void rs_nccl_neighbour_forget(void);

void rs_nccl_prepare(void);
/* What has ended on the GPU and was not yet counted, at the end of a communicator or (NULL) of the process. */
void rs_nccl_flush(const struct rs_nccl_comm *comm);
/* In the child of a fork. */
void rs_nccl_forget(void);

#endif
