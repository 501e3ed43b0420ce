/* What NCCL asks of a profiler plugin, versions 1 to 6 (NCCL 2.23 to 2.30), as far as the recorder uses it. NCCL looks
 * for the newest ncclProfiler_vN it knows and calls through it; an event is described by a structure that differs from
 * version to version. The layouts were worked out for 64-bit Linux and are checked in tests/native/nccl/test_nccl_layout.py. */
#ifndef RANKSCOPE_NCCL_H
#define RANKSCOPE_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of events: one bit each, in the mask by which a plugin says what it wants and in a descriptor. */
enum nccl_event {
    NCCL_EVENT_GROUP = 1 << 0, NCCL_EVENT_COLL = 1 << 1, NCCL_EVENT_P2P = 1 << 2,
    NCCL_EVENT_PROXY_OP = 1 << 3, NCCL_EVENT_PROXY_STEP = 1 << 4, NCCL_EVENT_PROXY_CTRL = 1 << 5,
    NCCL_EVENT_KERNEL_CHANNEL = 1 << 6,     /* from version 3: one channel of one kernel, told by the proxy thread */
    NCCL_EVENT_NET_PLUGIN = 1 << 7,
    NCCL_EVENT_GROUP_API = 1 << 8, NCCL_EVENT_COLL_API = 1 << 9, NCCL_EVENT_P2P_API = 1 << 10,     /* from version 5 */
    NCCL_EVENT_KERNEL_LAUNCH = 1 << 11,
    NCCL_EVENT_CE_COLL = 1 << 12,           /* version 6: a collective done by copy engines, without a kernel */
    NCCL_EVENT_CE_SYNC = 1 << 13, NCCL_EVENT_CE_BATCH = 1 << 14
};
enum nccl_state { NCCL_STATE_KERNEL_CHANNEL_STOP = 22 };    /* from version 4: brings the GPU's time of the end */

struct nccl_coll_v1 {
    const char *comm_name;
    uint64_t comm_hash, sequence;
    uint8_t func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    uint8_t datatype;
    uint32_t op;
    size_t traffic_bytes;
    uint8_t channels, warps, algo, proto;
    int collnet, nvls;
};
struct nccl_p2p_v1 {
    const char *comm_name;
    uint64_t comm_hash;
    uint8_t func;
    void *buffer;
    uint8_t datatype;
    size_t count;
    int peer;
};

/* From version 2 on functions, types, algorithms and protocols are given by name. */
struct nccl_coll_v2 {
    const char *comm_name;
    uint64_t comm_hash, sequence;
    const char *func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    size_t traffic_bytes;
    uint8_t channels, warps;
    const char *algo, *proto;
};
struct nccl_p2p_v2 {
    const char *comm_name;
    uint64_t comm_hash;
    const char *func;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
};

struct nccl_coll_v3 {
    const char *comm_name;
    uint64_t comm_hash, sequence;
    const char *func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels, warps;    /* at most so many channels */
    const char *algo, *proto;
};
struct nccl_channel_v3 { uint8_t channel; };

/* From version 4 on the communicator is told at init instead, and the number of channels is exact. */
struct nccl_coll_v4 {
    uint64_t sequence;
    const char *func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels, warps;
    const char *algo, *proto;
};
struct nccl_p2p_v4 {
    const char *func;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t channels;
};
struct nccl_channel_v4 { uint8_t channel; uint64_t gpu_ns; };

/* The common beginning; what follows in version 6 (synchronisation strategy, batches, stream) is not used. */
struct nccl_ce_coll_v6 {
    uint64_t sequence;
    const char *func;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
};

struct nccl_descr_v1 {
    uint8_t type;
    void *parent;
    int rank;
    union { struct nccl_coll_v1 coll; struct nccl_p2p_v1 p2p; };
};
struct nccl_descr_v2 {
    uint8_t type;
    void *parent;
    int rank;
    union { struct nccl_coll_v2 coll; struct nccl_p2p_v2 p2p; };
};
struct nccl_descr_v3 {
    uint8_t type;
    void *parent;
    int rank;
    union { struct nccl_coll_v3 coll; struct nccl_p2p_v2 p2p; struct nccl_channel_v3 channel; };
};
struct nccl_descr_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union { struct nccl_coll_v4 coll; struct nccl_p2p_v4 p2p; struct nccl_channel_v4 channel; };
};
/* Versions 5 and 6: coll and p2p end in one pointer more, which is not used. */
struct nccl_descr_v5 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct nccl_coll_v4 coll;
        struct nccl_p2p_v4 p2p;
        struct nccl_channel_v4 channel;
        struct nccl_ce_coll_v6 ce_coll;
    };
};

union nccl_state_args_v4 { size_t transferred; int appended; void *data; uint64_t channel_gpu_ns; };

/* The exported structures. A result of 0 is success. */
struct nccl_profiler {
    const char *name;
    union {
        int (*init_v1)(void **context, int *mask);
        int (*init_v4)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nodes, int ranks,
                       int rank, void *log);
        int (*init_v5)(void **context, uint64_t comm_hash, int *mask, const char *comm_name, int nodes, int ranks,
                       int rank, void *log);
    };
    int (*start)(void *context, void **handle, const void *descr);
    int (*stop)(void *handle);
    int (*state)(void *handle, int state, const void *args);
    int (*finalize)(void *context);
};

#endif
