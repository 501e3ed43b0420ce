/* The plugin as each version of NCCL sees it: six exported structures that translate to the calls of nccl_layer.h.
 * Every call returns success: nothing here is worth a warning of NCCL's. */
#include "nccl.h"
#include "loaded_objects.h"
#include "nccl_layer.h"
#include "steps.h"

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
    rs_mark_at(RS_MARK_NCCL_BEGIN, "", rs_ticks());
    *context = rs_nccl_comm_new(identity, has_kernels && mode == RS_NCCL_KERNELS);
    return 0;
}

/* Of versions 4 and later, whose communicators are told at init. */
static struct rs_nccl_identity told(const char *name, uint64_t hash, int ranks, int rank)
{
    return (struct rs_nccl_identity){name, hash, (uint32_t)ranks, (uint32_t)rank, 1};
}

/* Theirs is given its own context and mask; NCCL gets ours, or one that stands for both. */
#define OPEN(version, identity, has_kernels, more, member, ...) \
    struct rs_nccl_opening opening = {0}; \
    rs_nccl_opening(&opening, version, mask, __builtin_return_address(0)); \
    open_context(&opening.ours, &opening.our_mask, identity, has_kernels); \
    opening.our_mask |= opening.our_mask ? (more) : 0; \
    if (opening.plugin) \
        opening.failed = opening.plugin->member(__VA_ARGS__); \
    return rs_nccl_opened(&opening, version, context, mask)

#define INIT_UNTOLD(version, has_kernels) \
    static int init_v##version(void **context, int *mask) \
    { \
        const struct rs_nccl_identity identity = {.known = 0}; \
        OPEN(version, &identity, has_kernels, 0, init_v1, &opening.theirs, opening.their_mask); \
    }
INIT_UNTOLD(1, 0)
INIT_UNTOLD(2, 0)
INIT_UNTOLD(3, 1)

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log)
{
    const struct rs_nccl_identity identity = told(name, hash, ranks, rank);
    OPEN(4, &identity, 1, 0, init_v4, &opening.theirs, opening.their_mask, name, hash, nodes, ranks, rank, log);
}

#define INIT_HASH_FIRST(version, more) \
    static int init_v##version(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, \
                               int rank, void *log) \
    { \
        const struct rs_nccl_identity identity = told(name, hash, ranks, rank); \
        OPEN(version, &identity, 1, more, init_v5, &opening.theirs, hash, opening.their_mask, name, nodes, ranks, rank, log); \
    }
INIT_HASH_FIRST(5, 0)
INIT_HASH_FIRST(6, NCCL_EVENT_CE_COLL)

/* --- events --- */

/* Versions 1 to 3 tell the communicator with every operation. */
static struct rs_nccl_identity told_now(const char *name, uint64_t hash, int rank)
{
    return (struct rs_nccl_identity){name, hash, 0, (uint32_t)rank, 1};
}

static int start_v1(void *context, void **handle, const void *description, void *theirs)
{
    const struct nccl_descr_v1 *descr = description;
    const struct nccl_coll_v1 *coll = &descr->coll;
    const struct nccl_p2p_v1 *p2p = &descr->p2p;
    struct rs_nccl_identity comm;
    struct rs_nccl_task task = {.comm = &comm, .root = -1, .algo = "", .proto = "", .theirs = theirs};
    *handle = NULL;
    if (descr->type == NCCL_EVENT_COLL) {
        comm = told_now(coll->comm_name, coll->comm_hash, descr->rank);
        task.func = NAME_OF(functions, coll->func);
        task.datatype = NAME_OF(datatypes, coll->datatype);
        task.algo = NAME_OF(algorithms, coll->algo);
        task.proto = NAME_OF(protocols, coll->proto);
        task.count = coll->count;
        task.root = coll->root;
        task.collective = 1;
    } else if (descr->type == NCCL_EVENT_P2P) {
        comm = told_now(p2p->comm_name, p2p->comm_hash, descr->rank);
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
#define COLL_TASK(from, ...) \
    (struct rs_nccl_task){.func = (from).func, .datatype = (from).datatype, .algo = (from).algo, .proto = (from).proto, \
                          .count = (from).count, .root = (from).root, .theirs = theirs, .collective = 1, \
                          __VA_ARGS__}
#define P2P_TASK(from, ...) \
    (struct rs_nccl_task){.func = (from).func, .datatype = (from).datatype, .algo = "", .proto = "", \
                          .count = (from).count, .root = -1, .peer = (from).peer, .theirs = theirs, __VA_ARGS__}

#define START_UNTOLD(version, kernel) \
    static int start_v##version(void *context, void **handle, const void *description, void *theirs) \
    { \
        const struct nccl_descr_v##version *descr = description; \
        struct rs_nccl_identity comm; \
        struct rs_nccl_task task; \
        *handle = NULL; \
        if (descr->type == NCCL_EVENT_COLL) { \
            comm = told_now(descr->coll.comm_name, descr->coll.comm_hash, descr->rank); \
            task = COLL_TASK(descr->coll, .comm = &comm, .has_kernel = kernel); \
        } else if (descr->type == NCCL_EVENT_P2P) { \
            comm = told_now(descr->p2p.comm_name, descr->p2p.comm_hash, descr->rank); \
            task = P2P_TASK(descr->p2p, .comm = &comm, .has_kernel = kernel); \
        } else { \
            if (kernel && descr->type == NCCL_EVENT_KERNEL_CHANNEL) \
                *handle = rs_nccl_channel_start(descr->parent, 0); \
            return 0; \
        } \
        *handle = rs_nccl_task_start(context, &task); \
        return 0; \
    }
START_UNTOLD(2, 0)
START_UNTOLD(3, 1)

/* From version 4 on operations are the same structures, after a head that grew in version 5. */
#define START_TOLD(version) \
    RS_NCCL_PATH static int start_v##version(void *context, void **handle, const void *description, void *theirs) \
    { \
        const struct nccl_descr_v##version *descr = description; \
        if (RS_LIKELY(descr->type == NCCL_EVENT_COLL)) \
            *handle = rs_nccl_task_start(context, &COLL_TASK(descr->coll, .channels = descr->coll.channels, .has_kernel = 1)); \
        else if (descr->type == NCCL_EVENT_P2P) \
            *handle = rs_nccl_task_start(context, &P2P_TASK(descr->p2p, .channels = descr->p2p.channels, .has_kernel = 1)); \
        else if (descr->type == NCCL_EVENT_KERNEL_CHANNEL) \
            *handle = rs_nccl_channel_start(descr->parent, descr->channel.gpu_ns); \
        else \
            *handle = NULL; \
        return 0; \
    }
START_TOLD(4)
START_TOLD(5)

static int start_v6(void *context, void **handle, const void *description, void *theirs)
{
    const struct nccl_descr_v5 *descr = description;
    if (RS_LIKELY(descr->type != NCCL_EVENT_CE_COLL))
        return start_v5(context, handle, description, theirs);
    const struct nccl_ce_coll_v6 *coll = &descr->ce_coll;
    struct rs_nccl_task task = {.func = coll->func, .datatype = coll->datatype, .algo = "CE", .proto = "",
                                .count = coll->count, .root = coll->root, .theirs = theirs, .collective = 1};
    *handle = rs_nccl_task_start(context, &task);
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

/* --- what NCCL looks up --- */

/* Each version has functions of its own: a handle alone does not say which of their structures it belongs to. */
#define PLUGIN(version, init_member, start_function, state_function) \
    RS_NCCL_PATH static int start_both_v##version(void *context, void **handle, const void *descr) \
    { \
        if (RS_LIKELY(!rs_nccl_is_beside(version))) \
            return start_function(context, handle, descr, NULL); \
        return rs_nccl_start_both(version, start_function, context, handle, (void *)(uintptr_t)descr); \
    } \
    RS_NCCL_PATH static int stop_v##version(void *handle) \
    { \
        if (RS_UNLIKELY(rs_nccl_is_beside(version))) \
            return rs_nccl_stop_both(version, handle); \
        rs_nccl_stop(handle); \
        return 0; \
    } \
    static int state_both_v##version(void *handle, int state, const void *args) \
    { \
        if (RS_LIKELY(!rs_nccl_is_beside(version))) \
            return state_function(handle, state, args); \
        return rs_nccl_state_both(version, state_function, handle, state, args); \
    } \
    static int finalize_v##version(void *context) \
    { \
        if (RS_UNLIKELY(rs_nccl_is_beside(version))) \
            return rs_nccl_closed(context); \
        rs_nccl_comm_end(context); \
        return 0; \
    } \
    static struct nccl_profiler plugin_v##version __attribute__((aligned(64))) RS_FORKED_DATA = { \
        .name = RS_NCCL_NAME, .init_member = init_v##version, .start = start_both_v##version, \
        .stop = stop_v##version, .state = state_both_v##version, .finalize = finalize_v##version}; \
    CHOOSE(version, &plugin_v##version)

/* A name that is looked up when NCCL asks for it: see mpi_exports.c. */
#define EXPORT(version) \
    extern RS_EXPORT struct nccl_profiler ncclProfiler_v##version __attribute__((alias("plugin_v" #version)));
#if defined(__GLIBC__)
#define CHOOSE(version, ours) \
    EXPORT(version) \
    static void *choose_v##version(void) { return rs_nccl_choose(version, ours); } \
    static struct rs_optional optional_v##version __attribute__((used, section("rs_optional"))) = \
        {&plugin_v##version, choose_v##version};
#else
#define CHOOSE(version, ours) EXPORT(version)
#endif

PLUGIN(1, init_v1, start_v1, state_v1)
PLUGIN(2, init_v1, start_v2, state_v1)
PLUGIN(3, init_v1, start_v3, state_v1)
PLUGIN(4, init_v4, start_v4, state_v4)
PLUGIN(5, init_v5, start_v5, state_v4)
PLUGIN(6, init_v5, start_v6, state_v4)

/* Versions that are not ours yet: what NCCL finds is theirs, or nothing. Where the loader knows no such names it finds
 * one that refuses at once, as every version has it in the same place, and goes on without. */
#if defined(__GLIBC__)
static int refuse(void **context, int *mask)
{
    (void)context, (void)mask;
    return 3;
}

#define NEWER(version) \
    static struct nccl_profiler plugin_v##version = {.name = RS_NCCL_NAME, .init_v1 = refuse}; \
    CHOOSE(version, NULL)
NEWER(7)
NEWER(8)
NEWER(9)
#endif
