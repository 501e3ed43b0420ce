/* The plugin as each version of NCCL sees it: six exported structures that translate to the calls of nccl_layer.h.
 * Every call returns success: nothing here is worth a warning of NCCL's. */
#include "nccl.h"
#include "nccl_layer.h"

static const char *const functions[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
                                        "Send", "Recv"};
static const char *const datatypes[] = {"ncclInt8", "ncclUint8", "ncclInt32", "ncclUint32", "ncclInt64", "ncclUint64",
                                        "ncclFloat16", "ncclFloat32", "ncclFloat64", "ncclBfloat16"};
static const char *const algorithms[] = {"TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"};
static const char *const protocols[] = {"LL", "LL128", "SIMPLE"};

#define NAME_OF(table, number) ((number) < sizeof table / sizeof table[0] ? table[number] : "?")

/* --- init --- */

/* With the recorder off NCCL is asked for no event at all. */
static int open_context(void **context, int *mask, const struct rs_nccl_identity *identity, int has_kernels)
{
    enum rs_nccl_mode mode = rs_nccl_mode();
    *context = NULL;
    *mask = 0;
    if (mode == RS_NCCL_NONE)
        return 0;
    *mask = NCCL_EVENT_COLL | NCCL_EVENT_P2P;
    if (has_kernels && mode == RS_NCCL_KERNELS)
        *mask |= NCCL_EVENT_KERNEL_CHANNEL;
    *context = rs_nccl_comm_new(identity);
    return 0;
}

static int init_v1(void **context, int *mask)
{
    return open_context(context, mask, &(struct rs_nccl_identity){.known = 0}, 0);
}

static int init_v3(void **context, int *mask)
{
    return open_context(context, mask, &(struct rs_nccl_identity){.known = 0}, 1);
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log)
{
    (void)nodes, (void)log;
    struct rs_nccl_identity identity = {name, hash, (uint32_t)ranks, (uint32_t)rank, 1};
    return open_context(context, mask, &identity, 1);
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log)
{
    return init_v4(context, mask, name, hash, nodes, ranks, rank, log);
}

static int init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log)
{
    init_v4(context, mask, name, hash, nodes, ranks, rank, log);
    if (*mask)
        *mask |= NCCL_EVENT_CE_COLL;
    return 0;
}

/* --- events --- */

static uint8_t kernels_told(void) { return rs_nccl_mode() == RS_NCCL_KERNELS; }

static int start_v1(void *context, void **handle, const void *description)
{
    const struct nccl_descr_v1 *descr = description;
    struct rs_nccl_task task = {.root = -1, .algo = "", .proto = ""};
    *handle = NULL;
    if (descr->type == NCCL_EVENT_COLL) {
        const struct nccl_coll_v1 *coll = &descr->coll;
        task.comm = (struct rs_nccl_identity){coll->comm_name, coll->comm_hash, 0, (uint32_t)descr->rank, 1};
        task.func = NAME_OF(functions, coll->func);
        task.datatype = NAME_OF(datatypes, coll->datatype);
        task.algo = NAME_OF(algorithms, coll->algo);
        task.proto = NAME_OF(protocols, coll->proto);
        task.count = coll->count;
        task.root = coll->root;
        task.collective = 1;
    } else if (descr->type == NCCL_EVENT_P2P) {
        const struct nccl_p2p_v1 *p2p = &descr->p2p;
        task.comm = (struct rs_nccl_identity){p2p->comm_name, p2p->comm_hash, 0, (uint32_t)descr->rank, 1};
        task.func = NAME_OF(functions, p2p->func);
        task.datatype = NAME_OF(datatypes, p2p->datatype);
        task.count = p2p->count;
        task.peer = p2p->peer;
    } else {
        return 0;
    }
    *handle = rs_nccl_task_start(context, &task);
    return 0;
}

/* Versions 2 to 6 differ in where the fields lie, not in what they are called. */
#define TAKE_COLL(task, from) \
    do { \
        (task).func = (from).func; \
        (task).datatype = (from).datatype; \
        (task).algo = (from).algo; \
        (task).proto = (from).proto; \
        (task).count = (from).count; \
        (task).root = (from).root; \
        (task).collective = 1; \
    } while (0)
#define TAKE_P2P(task, from) \
    do { \
        (task).func = (from).func; \
        (task).datatype = (from).datatype; \
        (task).count = (from).count; \
        (task).peer = (from).peer; \
    } while (0)
#define TAKE_COMM(task, from, its_rank) \
    (task).comm = (struct rs_nccl_identity){(from).comm_name, (from).comm_hash, 0, (uint32_t)(its_rank), 1}

static int start_v2(void *context, void **handle, const void *description)
{
    const struct nccl_descr_v2 *descr = description;
    struct rs_nccl_task task = {.root = -1, .algo = "", .proto = ""};
    *handle = NULL;
    if (descr->type == NCCL_EVENT_COLL) {
        TAKE_COLL(task, descr->coll);
        TAKE_COMM(task, descr->coll, descr->rank);
    } else if (descr->type == NCCL_EVENT_P2P) {
        TAKE_P2P(task, descr->p2p);
        TAKE_COMM(task, descr->p2p, descr->rank);
    } else {
        return 0;
    }
    *handle = rs_nccl_task_start(context, &task);
    return 0;
}

static int start_v3(void *context, void **handle, const void *description)
{
    const struct nccl_descr_v3 *descr = description;
    struct rs_nccl_task task = {.root = -1, .algo = "", .proto = "", .kernel_told = kernels_told()};
    *handle = NULL;
    if (descr->type == NCCL_EVENT_COLL) {
        TAKE_COLL(task, descr->coll);
        TAKE_COMM(task, descr->coll, descr->rank);
    } else if (descr->type == NCCL_EVENT_P2P) {
        TAKE_P2P(task, descr->p2p);
        TAKE_COMM(task, descr->p2p, descr->rank);
    } else {
        if (descr->type == NCCL_EVENT_KERNEL_CHANNEL)
            *handle = rs_nccl_channel_start(descr->parent, 0);
        return 0;
    }
    *handle = rs_nccl_task_start(context, &task);
    return 0;
}

/* From version 4 on operations are the same structures, after a head that grew in version 5. */
static int start_named(void *context, void **handle, uint64_t type, void *parent, const struct nccl_coll_v4 *coll,
                       const struct nccl_p2p_v4 *p2p, const struct nccl_channel_v4 *channel)
{
    struct rs_nccl_task task = {.root = -1, .algo = "", .proto = "", .kernel_told = kernels_told()};
    *handle = NULL;
    if (type == NCCL_EVENT_COLL) {
        TAKE_COLL(task, *coll);
        task.channels = coll->channels;
    } else if (type == NCCL_EVENT_P2P) {
        TAKE_P2P(task, *p2p);
        task.channels = p2p->channels;
    } else {
        if (type == NCCL_EVENT_KERNEL_CHANNEL)
            *handle = rs_nccl_channel_start(parent, channel->gpu_ns);
        return 0;
    }
    *handle = rs_nccl_task_start(context, &task);
    return 0;
}

static int start_v4(void *context, void **handle, const void *description)
{
    const struct nccl_descr_v4 *descr = description;
    return start_named(context, handle, descr->type, descr->parent, &descr->coll, &descr->p2p, &descr->channel);
}

static int start_v5(void *context, void **handle, const void *description)
{
    const struct nccl_descr_v5 *descr = description;
    return start_named(context, handle, descr->type, descr->parent, &descr->coll, &descr->p2p, &descr->channel);
}

static int start_v6(void *context, void **handle, const void *description)
{
    const struct nccl_descr_v5 *descr = description;
    if (descr->type != NCCL_EVENT_CE_COLL)
        return start_v5(context, handle, description);
    const struct nccl_ce_coll_v6 *coll = &descr->ce_coll;
    struct rs_nccl_task task = {.func = coll->func, .datatype = coll->datatype, .algo = "CE", .proto = "",
                                .count = coll->count, .root = coll->root, .collective = 1};
    *handle = rs_nccl_task_start(context, &task);
    return 0;
}

static int stop(void *handle)
{
    rs_nccl_stop(handle);
    return 0;
}

static int state_v1(void *handle, int state, const void *args)
{
    (void)handle, (void)state, (void)args;
    return 0;
}

static int state_v4(void *handle, int state, const void *args)
{
    if (state == NCCL_STATE_KERNEL_CHANNEL_STOP && args)
        rs_nccl_channel_gpu_end(handle, ((const union nccl_state_args_v4 *)args)->channel_gpu_ns);
    return 0;
}

static int finalize(void *context)
{
    rs_nccl_comm_end(context);
    return 0;
}

#define PLUGIN(version, init_member, init_function, start_function, state_function) \
    RS_EXPORT struct nccl_profiler ncclProfiler_v##version = { \
        .name = "rankscope", .init_member = init_function, .start = start_function, .stop = stop, \
        .state = state_function, .finalize = finalize};
PLUGIN(1, init_v1, init_v1, start_v1, state_v1)
PLUGIN(2, init_v1, init_v1, start_v2, state_v1)
PLUGIN(3, init_v1, init_v3, start_v3, state_v1)
PLUGIN(4, init_v4, init_v4, start_v4, state_v4)
PLUGIN(5, init_v5, init_v5, start_v5, state_v4)
PLUGIN(6, init_v5, init_v6, start_v6, state_v4)
