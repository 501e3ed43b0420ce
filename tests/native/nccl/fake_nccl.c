/* fake_nccl LIBRARY VERSION PART [operations]: opens the plugin as NCCL does and plays a known sequence of events:
 * two communicators, each with a thread that enqueues and a proxy thread that tells of kernels.
 * Prints what was done, one "layer name kind calls bytes" a line, of both communicators together. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"

#define COMMS 2
#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(2); \
        } \
    } while (0)

static struct nccl_profiler *plugin;
static int version, operations = 50, kernels;

struct told { void *task; uint64_t gpu_start_ns, gpu_end_ns; int channels, slow; };
struct comm {
    const char *name;
    uint64_t hash;
    int rank;
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct told *queue;
    int told, done, closed;
};

/* --- events in the words of each version --- */

struct task { int p2p; const char *func, *datatype, *algo, *proto; uint8_t func_id, type_id, algo_id, proto_id, channels; size_t count; };
static const struct task all_reduce = {0, "AllReduce", "ncclFloat32", "RING", "LL128", 4, 7, 1, 1, 2, 1000};
static const struct task broadcast = {0, "Broadcast", "ncclBfloat16", "TREE", "SIMPLE", 0, 9, 0, 2, 1, 64};
static const struct task send_bytes = {1, "Send", "Unknown", "", "", 6, 1, 0, 0, 1, 10};
static const struct task all_gather_ce = {0, "AllGather", "ncclInt64", "CE", "", 0, 0, 0, 0, 0, 3};

#define FILL_COLL(c, t) \
    do { (c).func = (t)->func; (c).datatype = (t)->datatype; (c).algo = (t)->algo; (c).proto = (t)->proto; \
         (c).count = (t)->count; (c).root = 1; (c).channels = (t)->channels; } while (0)
#define FILL_P2P(p, t) do { (p).func = (t)->func; (p).datatype = (t)->datatype; (p).count = (t)->count; (p).peer = 1; } while (0)
#define FILL_COMM(c, of) do { (c).comm_name = (of)->name; (c).comm_hash = (of)->hash; } while (0)

static void *start_v1(struct comm *comm, const struct task *task)
{
    void *handle = (void *)1;
    struct nccl_descr_v1 descr;
    memset(&descr, 0, sizeof descr);
    descr.type = task->p2p ? NCCL_EVENT_P2P : NCCL_EVENT_COLL;
    descr.rank = comm->rank;
    if (task->p2p) {
        FILL_COMM(descr.p2p, comm);
        descr.p2p.func = task->func_id;
        descr.p2p.datatype = task->type_id;
        descr.p2p.count = task->count;
        descr.p2p.peer = 1;
    } else {
        FILL_COMM(descr.coll, comm);
        descr.coll.func = task->func_id;
        descr.coll.datatype = task->type_id;
        descr.coll.count = task->count;
        descr.coll.root = 1;
        descr.coll.algo = task->algo_id;
        descr.coll.proto = task->proto_id;
    }
    plugin->start(comm->context, &handle, &descr);
    return handle;
}

#define START(n, HAS_COMM) \
    static void *start_v##n(struct comm *comm, const struct task *task) \
    { \
        void *handle = (void *)1; \
        struct nccl_descr_v##n descr; \
        memset(&descr, 0, sizeof descr); \
        descr.type = task->p2p ? NCCL_EVENT_P2P : NCCL_EVENT_COLL; \
        descr.rank = comm->rank; \
        if (task->p2p) { \
            FILL_P2P(descr.p2p, task); \
            HAS_COMM(descr.p2p, comm); \
        } else { \
            FILL_COLL(descr.coll, task); \
            HAS_COMM(descr.coll, comm); \
        } \
        P2P_CHANNELS_##n; \
        plugin->start(comm->context, &handle, &descr); \
        return handle; \
    }
#define NO_COMM(c, of) (void)(of)
#define P2P_CHANNELS_2 (void)0
#define P2P_CHANNELS_3 (void)0
#define P2P_CHANNELS_4 if (task->p2p) descr.p2p.channels = task->channels
#define P2P_CHANNELS_5 P2P_CHANNELS_4
START(2, FILL_COMM)
START(3, FILL_COMM)
START(4, NO_COMM)
START(5, NO_COMM)

static void *start_task(struct comm *comm, const struct task *task)
{
    void *(*starts[])(struct comm *, const struct task *) = {start_v1, start_v2, start_v3, start_v4, start_v5, start_v5};
    return starts[version - 1](comm, task);
}

static void *start_other(struct comm *comm, uint64_t type, void *parent, uint64_t gpu_ns)
{
    void *handle = (void *)1;
    struct nccl_descr_v5 wide;
    struct nccl_descr_v4 narrow;
    memset(&wide, 0, sizeof wide);
    memset(&narrow, 0, sizeof narrow);
    wide.type = type;
    narrow.type = (uint8_t)type;
    wide.parent = narrow.parent = parent;
    wide.channel.gpu_ns = narrow.channel.gpu_ns = gpu_ns;
    plugin->start(comm->context, &handle, version >= 5 ? (void *)&wide : (void *)&narrow);
    return handle;
}

static void *start_ce(struct comm *comm, const struct task *task)
{
    void *handle = NULL;
    struct nccl_descr_v5 descr;
    memset(&descr, 0, sizeof descr);
    descr.type = NCCL_EVENT_CE_COLL;
    descr.ce_coll.func = task->func;
    descr.ce_coll.datatype = task->datatype;
    descr.ce_coll.count = task->count;
    plugin->start(comm->context, &handle, &descr);
    return handle;
}

/* --- the proxy thread --- */

static void run_kernel(struct comm *comm, const struct told *told)
{
    void *channels[8];
    union nccl_state_args_v4 args;
    for (int i = 0; i < told->channels; i++)
        channels[i] = start_other(comm, NCCL_EVENT_KERNEL_CHANNEL, told->task, told->gpu_start_ns + (uint64_t)i);
    if (told->slow)
        usleep(4000);
    for (int i = 0; i < told->channels; i++) {
        args.channel_gpu_ns = told->gpu_end_ns - (uint64_t)i;
        plugin->state(channels[i], NCCL_STATE_KERNEL_CHANNEL_STOP, &args);
        plugin->stop(channels[i]);
    }
}

static void *proxy(void *of)
{
    struct comm *comm = of;
    pthread_mutex_lock(&comm->lock);
    while (comm->done < comm->told || !comm->closed) {
        if (comm->done == comm->told) {
            pthread_cond_wait(&comm->more, &comm->lock);
            continue;
        }
        struct told next = comm->queue[comm->done++];
        pthread_mutex_unlock(&comm->lock);
        run_kernel(comm, &next);
        pthread_mutex_lock(&comm->lock);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

static void launch(struct comm *comm, struct told told)
{
    pthread_mutex_lock(&comm->lock);
    comm->queue[comm->told++] = told;
    pthread_cond_signal(&comm->more);
    pthread_mutex_unlock(&comm->lock);
}

/* --- a communicator's life --- */

static int open_comm(struct comm *comm)
{
    int mask = -1;
    comm->context = (void *)1;
    if (version <= 3)
        EXPECT(plugin->init_v1(&comm->context, &mask) == 0);
    else if (version == 4)
        EXPECT(plugin->init_v4(&comm->context, &mask, comm->name, comm->hash, 1, 8, comm->rank, NULL) == 0);
    else
        EXPECT(plugin->init_v5(&comm->context, comm->hash, &mask, comm->name, 1, 8, comm->rank, NULL) == 0);
    kernels = (mask & NCCL_EVENT_KERNEL_CHANNEL) != 0;
    return mask;
}

static void one(struct comm *comm, const struct task *task, int slow)
{
    EXPECT(start_other(comm, NCCL_EVENT_GROUP, NULL, 0) == NULL);
    void *handle = start_task(comm, task);
    if (kernels && handle)
        launch(comm, (struct told){handle, 1000000, 3000000, task->channels, slow});
    plugin->stop(handle);
}

static void *enqueue(void *of)
{
    struct comm *comm = of;
    pthread_t thread;
    if (kernels)
        EXPECT(pthread_create(&thread, NULL, proxy, comm) == 0);
    for (int i = 0; i < operations; i++) {
        one(comm, i % 2 ? &broadcast : &all_reduce, 0);
        one(comm, &send_bytes, 0);
        if (version == 6)
            plugin->stop(start_ce(comm, &all_gather_ce));
    }
    pthread_mutex_lock(&comm->lock);
    comm->closed = 1;
    pthread_cond_signal(&comm->more);
    pthread_mutex_unlock(&comm->lock);
    if (kernels)
        pthread_join(thread, NULL);
    return NULL;
}

static void use_after_end(struct comm *comm, void *handle)
{
    plugin->finalize(comm->context);
    plugin->finalize(comm->context);
    plugin->finalize(NULL);
    EXPECT(start_task(comm, &all_reduce) == NULL);
    EXPECT(start_other(comm, NCCL_EVENT_KERNEL_CHANNEL, handle, 5) == NULL || version < 3);
    plugin->stop(handle);
    plugin->stop(NULL);
    plugin->stop((void *)0x12345678);
    plugin->state(handle, 4711, NULL);
    plugin->state((void *)6, NCCL_STATE_KERNEL_CHANNEL_STOP, NULL);
}

static void say(const char *layer, const char *name, const char *kind, long calls, size_t bytes)
{
    printf("%s,%s,%s,%ld,%zu\n", layer, name, kind, calls, (size_t)calls * bytes);
}

static void say_task(const char *func, const char *full, long calls, size_t bytes, int with_kernel)
{
    char name[64], long_name[64];
    snprintf(name, sizeof name, "nccl%s", func);
    snprintf(long_name, sizeof long_name, "nccl%s%s", func, full);
    say("nccl", name, "call", calls, bytes);
    if (with_kernel)
        say("nccl", name, "progress", calls, bytes);
    say("nccl_algo", long_name, with_kernel ? "progress" : "call", calls, bytes);
}

static void make(struct comm *comm, int number)
{
    memset(comm, 0, sizeof *comm);
    comm->name = number ? NULL : "default_pg";
    comm->hash = number ? 0xB2B2B2B2B2B2 : 0xA1A1A1A1A1A1;
    comm->rank = 3 + number;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->more, NULL);
    comm->queue = calloc((size_t)operations * 2 + 1, sizeof *comm->queue);
    EXPECT(comm->queue);
}

static void play(void)
{
    struct comm comms[COMMS];
    pthread_t threads[COMMS];
    for (int i = 0; i < COMMS; i++) {
        make(&comms[i], i);
        open_comm(&comms[i]);
    }
    for (int i = 0; i < COMMS; i++)
        EXPECT(pthread_create(&threads[i], NULL, enqueue, &comms[i]) == 0);
    for (int i = 0; i < COMMS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < COMMS; i++) {
        plugin->finalize(comms[i].context);
        use_after_end(&comms[i], comms[i].queue[0].task);
        free(comms[i].queue);
    }
    long odd = COMMS * (operations / 2), even = COMMS * ((operations + 1) / 2);
    say_task("AllReduce", " RING LL128", even, 4000, kernels);
    say_task("Broadcast", " TREE SIMPLE", odd, 128, kernels);
    say_task("Send", "", even + odd, 10, kernels);
    if (version == 6)
        say_task("AllGather", " CE", even + odd, 24, 0);
}

static void off(void)
{
    struct comm comm;
    make(&comm, 0);
    EXPECT(open_comm(&comm) == 0);
    EXPECT(comm.context == NULL);
    EXPECT(start_task(&comm, &all_reduce) == NULL);
    use_after_end(&comm, (void *)5);
    free(comm.queue);
}

/* Kernels that take 2 ms by the GPU's clock and at least 4 ms as the proxy thread sees them. */
static void timed(void)
{
    struct comm comm;
    make(&comm, 0);
    open_comm(&comm);
    for (int i = 0; i < operations; i++) {
        void *handle = start_task(&comm, &all_reduce);
        run_kernel(&comm, &(struct told){handle, 1000000, 3000000, all_reduce.channels, 1});
        plugin->stop(handle);
    }
    free(comm.queue);   /* no finalize: a program may end without */
}

/* More operations under way than there are slots, of which no kernel ever ends. */
static void lost(void)
{
    struct comm comm;
    make(&comm, 0);
    open_comm(&comm);
    for (int i = 0; i < operations; i++)
        plugin->stop(start_task(&comm, &all_reduce));
    free(comm.queue);
    say("nccl", "ncclAllReduce", "call", operations, 4000);
}

static void forked(void)
{
    struct comm comm, fresh;
    make(&comm, 0);
    open_comm(&comm);
    plugin->stop(start_task(&comm, &all_reduce));
    void *under_way = start_task(&comm, &all_reduce);
    pid_t child = fork();
    if (!child) {
        use_after_end(&comm, under_way);
        make(&fresh, 1);
        open_comm(&fresh);
        plugin->stop(start_task(&fresh, &broadcast));
        plugin->finalize(fresh.context);
        free(fresh.queue);
        free(comm.queue);
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(status == 0);
    plugin->stop(under_way);
    free(comm.queue);
    say("nccl", "ncclAllReduce", "call", 2, 4000);
}

int main(int argc, char **argv)
{
    EXPECT(argc >= 4);
    char symbol[32];
    version = atoi(argv[2]);
    if (argc > 4)
        operations = atoi(argv[4]);
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    EXPECT(library);
    plugin = dlsym(library, symbol);
    if (version > 6)
        return plugin ? 2 : 0;
    EXPECT(plugin && !strcmp(plugin->name, "rankscope"));
    if (!strcmp(argv[3], "play"))
        play();
    else if (!strcmp(argv[3], "off"))
        off();
    else if (!strcmp(argv[3], "timed"))
        timed();
    else if (!strcmp(argv[3], "lost"))
        lost();
    else if (!strcmp(argv[3], "forked"))
        forked();
    else
        return 3;
    dlclose(library);
    return 0;
}
