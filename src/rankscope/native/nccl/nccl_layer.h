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
    struct rs_nccl_identity comm;
    const char *func, *datatype, *algo, *proto;
    uint64_t count;
    int32_t root;
    int32_t peer;               /* of ncclSend and ncclRecv: rank in the communicator */
    uint32_t channels;          /* how many will be told; 0: not known */
    uint8_t collective;
    uint8_t kernel_told;        /* events of its kernel's channels will follow */
};

/* What the user lets NCCL be asked for. */
enum rs_nccl_mode { RS_NCCL_NONE, RS_NCCL_CALLS, RS_NCCL_KERNELS };
enum rs_nccl_mode rs_nccl_mode(void);

/* Contexts and handles are numbers, not addresses: one that has become stale is recognised and ignored. */
void *rs_nccl_comm_new(const struct rs_nccl_identity *identity);
void rs_nccl_comm_end(void *context);
void *rs_nccl_task_start(void *context, const struct rs_nccl_task *task);
void *rs_nccl_channel_start(void *task, uint64_t gpu_ns);
void rs_nccl_channel_gpu_end(void *channel, uint64_t gpu_ns);
int rs_nccl_stop(void *handle);     /* 1: more will come of the operation */
void rs_nccl_expect(void);
int rs_nccl_is_under_way(void *handle);
int rs_nccl_is_channel(const void *handle);

/* nccl_groups.c: the communicator behind a context, NULL where there is none any more. */
struct rs_nccl_comm {
    rs_lock lock;
    uint32_t generation;
    uint16_t group;
    uint8_t used;
    struct rs_group *row;
    void *running;              /* the operation whose kernel began last */
};
#define RS_NCCL_COMMS 1024u
struct rs_nccl_comm *rs_nccl_comm(void *context);
void rs_nccl_comm_identify(struct rs_nccl_comm *comm, const struct rs_nccl_identity *identity);
uint32_t rs_nccl_next_sequence(struct rs_nccl_comm *comm);
void rs_nccl_comms_forget(void);
/* Whether NCCL has opened the plugin in this process: it then tells its operations itself. */
int rs_nccl_recording(void);

/* nccl_neighbour.c: the plugin that the job brings itself, behind ours. */
#define RS_NCCL_NAME "rankscope"
#define RS_NCCL_NEWEST 6
struct nccl_profiler;
extern uint8_t rs_nccl_beside[RS_NCCL_NEWEST + 1];      /* by version: theirs has been there, calls may be for both */
struct rs_nccl_opening {        /* of one communicator: what either plugin's init has given */
    struct nccl_profiler *plugin;
    void *ours, *theirs;
    int our_mask, failed;
    int *their_mask, *nccl_mask;
};
typedef int (*rs_nccl_start)(void *context, void **handle, const void *description);
typedef int (*rs_nccl_state)(void *handle, int state, const void *args);
void *rs_nccl_choose(int version, void *ours);
void rs_nccl_opening(struct rs_nccl_opening *opening, int version, int *mask, const void *caller);
int rs_nccl_opened(const struct rs_nccl_opening *opening, int version, void **context, int *mask);
int rs_nccl_closed(int version, void *context);
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
