/* scripted_nccl VERSIONS OPERATIONS [twice|groups|calls|measure|measure-cold|measure-beside]
 *
 * A caller that does with profiler plugins what NCCL does. It opens what
 * NCCL_PROFILER_PLUGIN names (or libnccl-profiler.so), takes the newest of VERSIONS versions that it finds, gives every
 * communicator the one mask there is, tells the events that the mask asks for with their parents, uses handles of
 * operations after their stop, and closes the library after the last communicator. Prints the version it took. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

#define COMMS 2
#define CHANNELS 2
#define STEPS 3

static struct nccl_profiler *plugin;
static int version, operations, mask, reported_version;

/* Exported as NCCL does (-rdynamic): what is told differs between its versions. */
int ncclGetVersion(int *number)
{
    *number = reported_version;
    return 0;
}

struct comm { void *context; uint64_t hash; int rank; };
struct work { void *handle; int mask; int is_collective; };

static uint64_t asked(uint64_t type)
{
    const uint64_t below = NCCL_EVENT_PROXY_OP | NCCL_EVENT_PROXY_STEP | NCCL_EVENT_KERNEL_CHANNEL | NCCL_EVENT_NET_PLUGIN;
    const uint64_t copies = NCCL_EVENT_CE_COLL | NCCL_EVENT_CE_SYNC | NCCL_EVENT_CE_BATCH;
    const uint64_t proxies = NCCL_EVENT_PROXY_OP | NCCL_EVENT_PROXY_STEP;
    if (reported_version && reported_version < 22600) {
        if (type == NCCL_EVENT_GROUP)
            return NCCL_EVENT_COLL | NCCL_EVENT_P2P | proxies;
        if (type == NCCL_EVENT_COLL || type == NCCL_EVENT_P2P)
            return NCCL_EVENT_COLL | proxies;
        return type == NCCL_EVENT_PROXY_OP ? proxies : type;
    }
    switch (type) {
    case NCCL_EVENT_GROUP_API: return ~(uint64_t)NCCL_EVENT_PROXY_CTRL;
    case NCCL_EVENT_COLL_API: return NCCL_EVENT_COLL_API | NCCL_EVENT_COLL | below | copies;
    case NCCL_EVENT_P2P_API: return NCCL_EVENT_P2P_API | NCCL_EVENT_P2P | below;
    case NCCL_EVENT_GROUP: return NCCL_EVENT_GROUP | NCCL_EVENT_COLL | NCCL_EVENT_P2P | below;
    case NCCL_EVENT_COLL: return NCCL_EVENT_COLL | below;
    case NCCL_EVENT_P2P: return NCCL_EVENT_P2P | below;
    case NCCL_EVENT_PROXY_OP: return NCCL_EVENT_PROXY_OP | NCCL_EVENT_PROXY_STEP | NCCL_EVENT_NET_PLUGIN;
    case NCCL_EVENT_PROXY_STEP: return NCCL_EVENT_PROXY_STEP | NCCL_EVENT_NET_PLUGIN;
    case NCCL_EVENT_CE_COLL: return copies;
    default: return type;
    }
}

/* What older versions of the interface have no event for is not told to them. */
static int exists(uint64_t type)
{
    if (type >= NCCL_EVENT_CE_COLL)
        return version >= 6;
    if (type >= NCCL_EVENT_GROUP_API)
        return version >= 5;
    return type < NCCL_EVENT_KERNEL_CHANNEL || version >= 3;
}

static void *start(struct comm *comm, int with_mask, uint64_t type, void *parent)
{
    void *handle = NULL;
    union { struct nccl_descr_v1 v1; struct nccl_descr_v2 v2; struct nccl_descr_v3 v3; struct nccl_descr_v4 v4;
            struct nccl_descr_v5 v5; char room[512]; } descr;
    if (!exists(type) || !((uint64_t)with_mask & asked(type)))
        return NULL;
    memset(&descr, 0, sizeof descr);
    if (version >= 5)
        descr.v5.type = type;
    else
        descr.v4.type = (uint8_t)type;
    descr.v5.parent = parent;
    descr.v5.rank = comm->rank;
#define COLL(v) \
    do { v.coll.func = "AllReduce"; v.coll.datatype = "ncclFloat32"; v.coll.algo = "RING"; v.coll.proto = "LL"; \
         v.coll.count = 256; v.coll.channels = CHANNELS; } while (0)
#define P2P(v) do { v.p2p.func = "Send"; v.p2p.datatype = "ncclInt8"; v.p2p.count = 10; v.p2p.peer = 1; } while (0)
    if (type == NCCL_EVENT_COLL) {
        if (version == 1)
            descr.v1.coll.func = 4, descr.v1.coll.datatype = 7, descr.v1.coll.count = 256, descr.v1.coll.comm_hash = comm->hash;
        else if (version == 2) { COLL(descr.v2); descr.v2.coll.comm_hash = comm->hash; }
        else if (version == 3) { COLL(descr.v3); descr.v3.coll.comm_hash = comm->hash; }
        else if (version == 4) COLL(descr.v4);
        else COLL(descr.v5);
    } else if (type == NCCL_EVENT_P2P) {
        if (version == 1)
            descr.v1.p2p.func = 6, descr.v1.p2p.datatype = 0, descr.v1.p2p.count = 10, descr.v1.p2p.comm_hash = comm->hash;
        else if (version == 2) { P2P(descr.v2); descr.v2.p2p.comm_hash = comm->hash; }
        else if (version == 3) { P2P(descr.v3); descr.v3.p2p.comm_hash = comm->hash; }
        else if (version == 4) { P2P(descr.v4); descr.v4.p2p.channels = CHANNELS; }
        else { P2P(descr.v5); descr.v5.p2p.channels = CHANNELS; }
    } else if (type == NCCL_EVENT_CE_COLL) {
        descr.v5.ce_coll.func = "AllGather";
        descr.v5.ce_coll.datatype = "ncclInt8";
        descr.v5.ce_coll.count = 5;
    }
    plugin->start(comm->context, &handle, &descr);
    return handle;
}

static void stop(void *handle)
{
    if (handle)
        plugin->stop(handle);
}

/* What the proxy thread tells of one operation, after its stop. */
static void progress(struct comm *comm, const struct work *work)
{
    union nccl_state_args_v4 args = {.transferred = 4096};
    void *op = start(comm, work->mask, NCCL_EVENT_PROXY_OP, work->handle), *channels[CHANNELS];
    for (int i = 0; i < CHANNELS; i++)
        channels[i] = start(comm, work->mask, NCCL_EVENT_KERNEL_CHANNEL, work->handle);
    for (int i = 0; i < STEPS; i++) {
        void *step = start(comm, work->mask, NCCL_EVENT_PROXY_STEP, op);
        void *net = start(comm, work->mask, NCCL_EVENT_NET_PLUGIN, step);
        if (step)
            plugin->state(step, 9, &args);
        stop(net);
        stop(step);
    }
    for (int i = 0; i < CHANNELS; i++) {
        args.channel_gpu_ns = 0;
        if (channels[i] && version >= 4)
            plugin->state(channels[i], NCCL_STATE_KERNEL_CHANNEL_STOP, &args);
        stop(channels[i]);
    }
    stop(op);
}

struct line { struct comm *comm; struct work *work; int put, done, closed; pthread_mutex_t lock; pthread_cond_t more; };

static void *proxy(void *of)
{
    struct line *line = of;
    for (int done = 0;; ) {
        pthread_mutex_lock(&line->lock);
        line->done = done;
        pthread_cond_signal(&line->more);
        while (done == line->put && !line->closed)
            pthread_cond_wait(&line->more, &line->lock);
        int is_over = done == line->put;
        pthread_mutex_unlock(&line->lock);
        if (is_over)
            return NULL;
        if (done % 10 == 0) {
            void *control = start(line->comm, mask, NCCL_EVENT_PROXY_CTRL, NULL);
            stop(control);
        }
        progress(line->comm, &line->work[done++]);
    }
}

static void put(struct line *line, struct work work)
{
    pthread_mutex_lock(&line->lock);
    line->work[line->put++] = work;
    pthread_cond_signal(&line->more);
    pthread_mutex_unlock(&line->lock);
}

static void one(struct line *line, int is_collective)
{
    struct comm *comm = line->comm;
    int now = __atomic_load_n(&mask, __ATOMIC_RELAXED);
    uint64_t api = is_collective ? NCCL_EVENT_COLL_API : NCCL_EVENT_P2P_API;
    void *group_api = start(comm, now, NCCL_EVENT_GROUP_API, NULL), *of_api = start(comm, now, api, group_api);
    stop(of_api);
    stop(start(comm, now, NCCL_EVENT_KERNEL_LAUNCH, group_api));
    void *group = start(comm, now, NCCL_EVENT_GROUP, NULL);
    void *task = start(comm, now, is_collective ? NCCL_EVENT_COLL : NCCL_EVENT_P2P, version >= 5 ? of_api : group);
    stop(task);
    stop(group);
    stop(group_api);
    if (is_collective && version >= 6) {
        void *copies = start(comm, now, NCCL_EVENT_CE_COLL, of_api);
        void *sync = copies ? start(comm, now, NCCL_EVENT_CE_SYNC, copies) : NULL;
        void *batch = copies ? start(comm, now, NCCL_EVENT_CE_BATCH, copies) : NULL;
        stop(sync);
        stop(batch);
        stop(copies);
    }
    put(line, (struct work){task, now, is_collective});
}

/* As ncclGroupEnd: all are started, then all are stopped, in the same order or another, and their kernel runs them in one
 * of its own. Not many more are enqueued than the proxy has seen the end of. */
static int group(struct line *line, int from)
{
    enum { MOST = 9, AHEAD = 100 };
    void *tasks[MOST];
    int count = from % MOST + 1 < operations - from ? from % MOST + 1 : operations - from;
    for (int i = 0; i < count; i++)
        tasks[i] = start(line->comm, mask, i % 3 != 2 ? NCCL_EVENT_COLL : NCCL_EVENT_P2P, NULL);
    for (int i = 0; i < count; i++)
        stop(tasks[from % 2 ? count - 1 - i : i]);
    for (int i = 0; i < count; i++)
        put(line, (struct work){tasks[(i + from) % count], mask, 1});
    pthread_mutex_lock(&line->lock);
    while (line->put - line->done > AHEAD)
        pthread_cond_wait(&line->more, &line->lock);
    pthread_mutex_unlock(&line->lock);
    return count;
}

static int in_groups;

static void *enqueue(void *of)
{
    struct line *line = of;
    pthread_t thread;
    pthread_create(&thread, NULL, proxy, line);
    for (int i = 0; i < operations;) {
        if (!in_groups)
            one(line, i % 3 != 2);
        i += in_groups ? group(line, i) : 1;
    }
    pthread_mutex_lock(&line->lock);
    line->closed = 1;
    pthread_cond_signal(&line->more);
    pthread_mutex_unlock(&line->lock);
    pthread_join(thread, NULL);
    return NULL;
}

static int open_comm(struct comm *comm, int place)
{
    *comm = (struct comm){NULL, 0xC0FFEE00u + (uint64_t)place, place};
    if (version <= 3)
        return plugin->init_v1(&comm->context, &mask);
    if (version == 4)
        return plugin->init_v4(&comm->context, &mask, "world", comm->hash, 1, 8, comm->rank, NULL);
    return plugin->init_v5(&comm->context, comm->hash, &mask, "world", 1, 8, comm->rank, NULL);
}

static void play(void)
{
    struct comm comms[COMMS];
    struct line lines[COMMS];
    pthread_t threads[COMMS];
    int is_open[COMMS];
    for (int i = 0; i < COMMS; i++)
        is_open[i] = open_comm(&comms[i], i) == 0;
    for (int i = 0; i < COMMS; i++) {
        lines[i] = (struct line){.comm = &comms[i], .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};
        lines[i].work = calloc((size_t)operations + 1, sizeof *lines[i].work);
        if (is_open[i])
            pthread_create(&threads[i], NULL, enqueue, &lines[i]);
    }
    for (int i = 0; i < COMMS; i++)
        if (is_open[i])
            pthread_join(threads[i], NULL);
    for (int i = 0; i < COMMS; i++) {
        if (is_open[i] && comms[i].context)
            plugin->finalize(comms[i].context);
        free(lines[i].work);
    }
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Nanoseconds a collective, the best of many rounds: in the thread that enqueues it (start and stop), and in the proxy
 * thread (start, state and stop of each channel of its kernel). */
static void measure(void)
{
    enum { BATCH = 64 };
    struct comm comm;
    void *tasks[BATCH];
    union nccl_state_args_v4 args = {.channel_gpu_ns = 0};
    double enqueuing = 1e9, proxying = 1e9;
    if (open_comm(&comm, 0))
        return;
    for (int round = 0; round < operations; round++) {
        double from = now_ns();
        for (int i = 0; i < BATCH; i++) {
            tasks[i] = start(&comm, mask, NCCL_EVENT_COLL, NULL);
            stop(tasks[i]);
        }
        double between = now_ns();
        for (int i = 0; i < BATCH * CHANNELS; i++) {
            void *channel = start(&comm, mask, NCCL_EVENT_KERNEL_CHANNEL, tasks[i / CHANNELS]);
            if (channel && version >= 4)
                plugin->state(channel, NCCL_STATE_KERNEL_CHANNEL_STOP, &args);
            stop(channel);
        }
        double to = now_ns();
        enqueuing = between - from < enqueuing ? between - from : enqueuing;
        proxying = to - between < proxying ? to - between : proxying;
    }
    printf("%.1f %.1f\n", enqueuing / BATCH, proxying / BATCH);
    if (comm.context)
        plugin->finalize(comm.context);
}

static int by_size(const void *one, const void *other)
{
    double left = *(const double *)one, right = *(const double *)other;
    return (left > right) - (left < right);
}

/* The same of single operations between which the caches hold something else: medians. */
static void measure_cold(void)
{
    enum { BUFFER = 8 << 20, MOST = 20000 };
    static double enqueuing[MOST], proxying[MOST];
    static volatile unsigned char buffer[BUFFER];
    struct comm comm;
    union nccl_state_args_v4 args = {.channel_gpu_ns = 0};
    int count = operations < MOST ? operations : MOST;
    if (open_comm(&comm, 0))
        return;
    for (int i = 0; i < count; i++) {
        for (int at = 0; at < BUFFER; at += 64)
            buffer[at]++;
        double from = now_ns();
        void *task = start(&comm, mask, NCCL_EVENT_COLL, NULL);
        stop(task);
        double between = now_ns();
        for (int channel = 0; channel < CHANNELS; channel++) {
            void *of_channel = start(&comm, mask, NCCL_EVENT_KERNEL_CHANNEL, task);
            if (of_channel && version >= 4)
                plugin->state(of_channel, NCCL_STATE_KERNEL_CHANNEL_STOP, &args);
            stop(of_channel);
        }
        enqueuing[i] = between - from;
        proxying[i] = now_ns() - between;
    }
    qsort(enqueuing, (size_t)count, sizeof *enqueuing, by_size);
    qsort(proxying, (size_t)count, sizeof *proxying, by_size);
    printf("%.1f %.1f\n", enqueuing[count / 2], proxying[count / 2]);
    if (comm.context)
        plugin->finalize(comm.context);
}

/* The same with a proxy of its own at work beside it, on another processor: what either writes is then in the caches of
 * the other. Between two operations a launch's worth of something else is touched. Means without the slowest eighth. */
enum { MOST_BESIDE = 200000 };
static struct {
    void *tasks[MOST_BESIDE];
    double proxying[MOST_BESIDE];
    int told __attribute__((aligned(64)));
    struct comm comm;
    int count;
} beside;

static void on_processor(int number)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

static void *proxy_beside(void *unused)
{
    union nccl_state_args_v4 args = {.channel_gpu_ns = 0};
    on_processor(1);
    for (int i = 0; i < beside.count; i++) {
        while (__atomic_load_n(&beside.told, __ATOMIC_ACQUIRE) <= i)
            ;
        double from = now_ns();
        void *channels[CHANNELS];
        for (int channel = 0; channel < CHANNELS; channel++)
            channels[channel] = start(&beside.comm, mask, NCCL_EVENT_KERNEL_CHANNEL, beside.tasks[i]);
        for (int channel = 0; channel < CHANNELS; channel++) {
            if (channels[channel] && version >= 4)
                plugin->state(channels[channel], NCCL_STATE_KERNEL_CHANNEL_STOP, &args);
            stop(channels[channel]);
        }
        beside.proxying[i] = now_ns() - from;
    }
    return unused;
}

static double middle(double *values, int count)
{
    double sum = 0;
    int kept = count - count / 8;
    qsort(values, (size_t)count, sizeof *values, by_size);
    for (int i = 0; i < kept; i++)
        sum += values[i] / kept;
    return sum;
}

/* As much code and data as a launch goes through: more than the first caches hold, less than the second. */
static void launch(void)
{
    enum { BYTES = 160 << 10, CODE_BYTES = 128 << 10 };
    static volatile unsigned char data[BYTES];
    static unsigned char *code;
    for (int at = 0; at < BYTES; at += 64)
        data[at]++;
#if defined(__x86_64__)
    if (!code) {
        code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(code, 0xC3, CODE_BYTES);     /* ret */
        mprotect(code, CODE_BYTES, PROT_READ | PROT_EXEC);
    }
    for (int at = 0; at < CODE_BYTES; at += 64)
        ((void (*)(void))(void *)(code + at))();
#endif
}

/* Starts and stops alone, for a tool that counts instructions. */
static void calls(void)
{
    struct comm comm;
    if (open_comm(&comm, 0))
        return;
    for (int i = 0; i < operations; i++)
        stop(start(&comm, mask, NCCL_EVENT_COLL, NULL));
}

static void measure_beside(void)
{
    enum { APART_NS = 8000 };
    static double enqueuing[MOST_BESIDE];
    pthread_t proxy;
    beside.count = operations < MOST_BESIDE ? operations : MOST_BESIDE;
    if (open_comm(&beside.comm, 0))
        return;
    on_processor(0);
    pthread_create(&proxy, NULL, proxy_beside, NULL);
    for (int i = 0; i < beside.count; i++) {
        launch();
        double from = now_ns();
        beside.tasks[i] = start(&beside.comm, mask, NCCL_EVENT_COLL, NULL);
        stop(beside.tasks[i]);
        enqueuing[i] = now_ns() - from;
        __atomic_store_n(&beside.told, i + 1, __ATOMIC_RELEASE);
        while (now_ns() - from < APART_NS)
            ;
    }
    pthread_join(proxy, NULL);
    printf("%.1f %.1f\n", middle(enqueuing, beside.count), middle(beside.proxying, beside.count));
    if (beside.comm.context)
        plugin->finalize(beside.comm.context);
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[3] : "";
    const char *path = getenv("NCCL_PROFILER_PLUGIN");
    int newest = argc > 1 ? atoi(argv[1]) : 6;
    char symbol[32];
    operations = argc > 2 ? atoi(argv[2]) : 30;
    in_groups = !strcmp(what, "groups");
    reported_version = getenv("SCRIPTED_NCCL_VERSION") ? atoi(getenv("SCRIPTED_NCCL_VERSION")) : 23007;
    for (int round = 0; round < (!strcmp(what, "twice") ? 2 : 1); round++) {
        void *library = dlopen(path && path[0] ? path : "libnccl-profiler.so", RTLD_NOW | RTLD_LOCAL);
        plugin = NULL;
        for (version = newest + 1; library && !plugin && version > 1;) {
            snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", --version);
            plugin = dlsym(library, symbol);
        }
        if (strncmp(what, "measure", 7) && strcmp(what, "calls"))
            printf("version %d\n", plugin ? version : 0);
        if (plugin && !strcmp(what, "measure"))
            measure();
        else if (plugin && !strcmp(what, "measure-cold"))
            measure_cold();
        else if (plugin && !strcmp(what, "measure-beside"))
            measure_beside();
        else if (plugin && !strcmp(what, "calls"))
            calls();
        else if (plugin)
            play();
        if (library)
            dlclose(library);
    }
    return 0;
}
