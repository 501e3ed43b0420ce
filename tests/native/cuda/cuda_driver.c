/* Plays a program that uses CUDA: calls InitializeInjection as CUDA does and puts known records into the fake CUPTI.
 * What must come out is worked out by hand in test_cuda.py. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../src/rankscope/native/cuda/cupti.h"
#include "fake_cupti.h"

#define US 1000u
#define NCCL "ncclDevKernel_AllReduce_Sum_f32_RING_LL"

int InitializeInjection(void);
int InitializeInjectionNvtx2(void *get_export_table);
int cuptiActivityRegisterCallbacks(rs_buffer_requested requested, rs_buffer_completed completed);

/* As long as CUDA 13's, so that a reader of too much would read it. */
static void put(const void *record, size_t bytes)
{
    char padded[256] = "";
    memcpy(padded, record, bytes);
    fake_put(padded, sizeof padded);
}

static void kernel(const char *name, uint32_t device, uint32_t stream, uint64_t start, uint64_t end)
{
    struct rs_cupti_kernel record = {.kind = RS_CUPTI_CONCURRENT_KERNEL, .start = start, .end = end, .name = name};
    record.deviceId = device;
    record.streamId = stream;
    put(&record, sizeof record);
}

static void copy(uint8_t direction, uint64_t bytes, uint64_t start, uint64_t end)
{
    struct rs_cupti_memcpy record = {.kind = RS_CUPTI_MEMCPY, .copyKind = direction, .bytes = bytes, .start = start, .end = end};
    record.streamId = 7;
    put(&record, sizeof record);
}

static void call(uint32_t kind, uint32_t cbid, uint64_t start, uint64_t end, uint32_t result)
{
    struct rs_cupti_api record = {.kind = kind, .cbid = cbid, .start = start, .end = end, .returnValue = result};
    put(&record, sizeof record);
}

static void marker(uint32_t flags, uint32_t id, uint32_t thread, uint64_t at, const char *name, const char *domain)
{
    struct rs_cupti_marker_record record = {.kind = RS_CUPTI_MARKER, .flags = flags, .id = id, .timestamp = at};
    record.objectKind = RS_CUPTI_OBJECT_THREAD;
    record.threadId = thread;
    record.name = name;
    record.domain = domain;
    put(&record, sizeof record);
}

static void memory(uint32_t operation, uint32_t kind, uint64_t bytes)
{
    struct rs_cupti_memory_record record = {.kind = RS_CUPTI_MEMORY2, .memoryOperationType = operation, .memoryKind = kind};
    record.bytes = bytes;
    put(&record, sizeof record);
}

/* time in us  0    10   20   30   40   50   60   70   80   90  100
 * stream 7    |gemm     |    |gemm|         |add |         |copy|
 * stream 20        |nccl          |    |nccl     |    |nccl|          on device 0; one kernel of no length on device 1 */
static void activities(void)
{
    uint64_t t = 1000 * US;
    kernel("add", 0, 7, t + 60 * US, t + 70 * US);      /* not in the order of their starts */
    kernel("gemm", 0, 7, t, t + 20 * US);
    kernel(NCCL, 0, 20, t + 10 * US, t + 40 * US);
    kernel("gemm", 0, 7, t + 30 * US, t + 40 * US);
    copy(1, 4096, t + 90 * US, t + 100 * US);
    kernel(NCCL, 0, 20, t + 80 * US, t + 90 * US);
    kernel(NCCL, 0, 20, t + 50 * US, t + 70 * US);
    kernel("empty", 1, 7, t, t);
    kernel("running", 0, 7, t, 0);                      /* no end: a forced flush gives such */
}

static void copies_sets_memory(void)
{
    uint64_t t = 3000 * US;
    copy(2, 100, t, t + 1 * US);
    copy(2, 3, t + 1 * US, t + 3 * US);
    struct rs_cupti_memcpy2 peer = {.kind = RS_CUPTI_MEMCPY2, .copyKind = 10, .bytes = 50, .start = t + 3 * US, .end = t + 4 * US};
    peer.streamId = 7;
    peer.dstDeviceId = 1;
    put(&peer, sizeof peer);
    struct rs_cupti_memset set = {.kind = RS_CUPTI_MEMSET, .bytes = 1 << 20, .start = t + 4 * US, .end = t + 9 * US};
    set.streamId = 7;
    put(&set, sizeof set);
    memory(RS_CUPTI_ALLOCATION, RS_CUPTI_DEVICE, 1000);
    memory(RS_CUPTI_ALLOCATION, RS_CUPTI_DEVICE, 500);
    memory(RS_CUPTI_RELEASE, RS_CUPTI_DEVICE, 1000);
    memory(RS_CUPTI_ALLOCATION, RS_CUPTI_PINNED, 64);
    memory(RS_CUPTI_RELEASE, RS_CUPTI_PINNED, 64);
    struct rs_cupti_record other = {.kind = 46};
    put(&other, sizeof other);
}

static void calls(void)
{
    call(RS_CUPTI_RUNTIME, 2, 10, 15, 0);
    call(RS_CUPTI_RUNTIME, 2, 20, 32, 0);
    call(RS_CUPTI_RUNTIME, 3, 40, 140, 2);              /* cudaMalloc: out of memory */
    call(RS_CUPTI_DRIVER, 3, 200, 201, 0);
    call(RS_CUPTI_DRIVER, 2, 300, 310, 600);            /* not ready is no error */
}

static void ranges(void)
{
    marker(RS_CUPTI_START, 1, 501, 1000, "step", NULL);
    marker(RS_CUPTI_START, 2, 501, 1100, "forward", "model");
    marker(RS_CUPTI_END, 2, 501, 1400, NULL, "model");
    marker(RS_CUPTI_START, 3, 502, 1000, "step", NULL);
    marker(RS_CUPTI_END, 4, 502, 5000, NULL, "NCCL");   /* the other thread's buffer came first */
    marker(RS_CUPTI_START, 4, 501, 2000, "ncclAllReduce", "NCCL");
    marker(RS_CUPTI_END, 1, 501, 2500, NULL, NULL);
    marker(RS_CUPTI_END, 3, 502, 1001, NULL, NULL);
    marker(RS_CUPTI_INSTANTANEOUS, 0, 502, 1200, "here", "model");
    marker(RS_CUPTI_START, 9, 501, 9000, "never ended", NULL);
}

/* Names like "step 17", and ranges that overlap so that every place of the table is used. */
static void many_ranges(int count)
{
    static char names[20000][24];
    for (int i = 0; i < count && i < 20000; i++) {
        char *name = names[i];
        snprintf(name, sizeof names[0], "step %d", i);
        marker(RS_CUPTI_START, (uint32_t)i + 1, 501, (uint64_t)i + 1, name, NULL);
        if (i >= 1000)
            marker(RS_CUPTI_END, (uint32_t)i + 1 - 1000, 501, (uint64_t)i + 8, NULL, NULL);
    }
}

static void *many_kernels(void *argument)
{
    uint32_t stream = *(uint32_t *)argument;
    static char names[5][50][32];
    for (uint64_t i = 0; i < 20000; i++) {
        char *name = names[stream][i % 50];
        if (!name[0])
            snprintf(name, sizeof names[0][0], "kernel_%u_%u", stream, (unsigned)(i % 50));
        kernel(name, 0, stream, 1000 + i * 100, 1000 + i * 100 + 60);
        if (i % 500 == 0)
            fake_flush_full();
    }
    return NULL;
}

static void many_threads(void)
{
    pthread_t threads[4];
    uint32_t streams[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, many_kernels, &streams[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* Starts in order but for one that comes last of all. */
static void long_run(int count)
{
    uint64_t t = 1000000;
    for (int i = 0; i < count; i++) {
        kernel("tick", 0, 7, t + (uint64_t)i * 100, t + (uint64_t)i * 100 + 40);
        kernel("tock", 0, 7, t + (uint64_t)i * 100 + 20, t + (uint64_t)i * 100 + 50);
    }
    kernel("late", 0, 7, t + 150, t + 190);             /* into a gap that was counted before */
}

/* What a launch costs: 1,000 of them a buffer's worth of calls, then their kernels, of 50 names as long as real ones.
 * For callgrind: --toggle-collect=take_buffer. */
static void launches(int count, int with_calls, int with_kernels, int in_range)
{
    static char names[50][160];
    for (int i = 0; i < 50; i++)
        snprintf(names[i], sizeof names[i], "_ZN2at6native29vectorized_elementwise_kernel%080d%d", 0, i);
    if (in_range)
        marker(RS_CUPTI_START, 1, 501, 1, "all", NULL);
    for (int from = 1; from <= count; from += 1000) {
        for (int i = from; with_calls && i < from + 1000; i++) {
            struct rs_cupti_api record = {.kind = RS_CUPTI_RUNTIME, .cbid = 2, .start = (uint64_t)i * 7000, .threadId = 501};
            record.end = record.start + 3000;
            record.correlationId = (uint32_t)i;
            put(&record, sizeof record);
        }
        for (int i = from; with_kernels && i < from + 1000; i++) {
            struct rs_cupti_kernel record = {.kind = RS_CUPTI_CONCURRENT_KERNEL, .start = (uint64_t)i * 7000 + 4000};
            record.end = record.start + 2000;
            record.streamId = 7;
            record.correlationId = (uint32_t)i;
            record.name = names[i % 50];
            put(&record, sizeof record);
        }
    }
}

static void nobody(uint8_t **buffer, size_t *size, size_t *most) { *buffer = malloc(*size = 4096), *most = 0; }
static void theirs(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    free(buffer);
}

/* The recorder's own thread, by its name. */
static uint32_t own_thread(void)
{
    char path[300], name[32];
    uint32_t found = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; !found && tasks && (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && !strcmp(name, "rankscope\n"))
            found = (uint32_t)atoi(task->d_name);
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return found;
}

/* It asks the driver for things, which CUPTI reports like any call; one of the program's is beside them. */
static void own_calls(void)
{
    uint32_t tid = 0;
    for (int tries = 0; !tid && tries < 5000; tries++, usleep(1000))
        tid = own_thread();
    usleep(20000);                      /* it has written down its number */
    for (uint32_t i = 0; i < 10; i++) {
        struct rs_cupti_api record = {RS_CUPTI_DRIVER, 1, 1000 + i, 1001 + i, 1, i ? tid : 501, i, 0};
        put(&record, sizeof record);
    }
}

static void everything(void)
{
    activities();
    copies_sets_memory();
    calls();
    ranges();
    fake_drop(11);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "everything";
    int count = argc > 2 ? atoi(argv[2]) : 0;
    if (InitializeInjection() != 1 || InitializeInjection() != 1)
        return 2;
    if (!strcmp(part, "everything"))
        everything();
    else if (!strcmp(part, "ranges"))
        many_ranges(count);
    else if (!strcmp(part, "threads"))
        many_threads();
    else if (!strcmp(part, "long"))
        long_run(count);
    else if (!strcmp(part, "launches"))
        launches(count, !strchr(argv[3], 'K'), !strchr(argv[3], 'C'), strchr(argv[3], 'R') != NULL);
    else if (!strcmp(part, "own"))
        own_calls();
    else if (!strcmp(part, "devices"))
        for (uint32_t device = 0; device < 80; device += 10)
            kernel("one", device, 7, 1000, 1010);
    else if (!strcmp(part, "nothing"))
        return 0;
    else if (!strcmp(part, "selected"))
        printf("%d %d %d\n", fake_selected(), fake_enabled(RS_CUPTI_RUNTIME), fake_enabled(RS_CUPTI_CONCURRENT_KERNEL));
    else if (!strcmp(part, "nvtx"))
        printf("%d %d\n", InitializeInjectionNvtx2((void *)7), InitializeInjectionNvtx2((void *)8));
    else if (!strcmp(part, "fork")) {
        kernel("before", 0, 7, 1000, 1010);
        pid_t child = fork();
        if (!child) {
            InitializeInjection();
            exit(0);
        }
        waitpid(child, NULL, 0);
        kernel("after", 0, 7, 2000, 2010);
    } else if (!strcmp(part, "fast")) {
        everything();
        _exit(3);
    } else if (!strcmp(part, "killed")) {
        kernel("done", 0, 7, 1000, 1010);
        fake_flush_full();
        kernel("in the buffer", 0, 7, 2000, 2010);
        raise(SIGKILL);
    } else if (!strcmp(part, "kept")) {                 /* killed after the flusher had its turn */
        kernel("done", 0, 7, 1000, 1010);
        fake_set_now(10000000000u);
        sleep(3);
        raise(SIGKILL);
    } else if (!strcmp(part, "aside")) {
        kernel("ours", 0, 7, 1000, 1010);
        cuptiActivityRegisterCallbacks(nobody, theirs);
        printf("%d %d %d\n", fake_selected(), fake_enabled(RS_CUPTI_CONCURRENT_KERNEL), fake_clients());
        kernel("theirs", 0, 7, 3000, 3010);
        fake_flush_full();
    } else if (!strcmp(part, "early")) {                /* CUPTI is not attached yet */
        cuptiActivityRegisterCallbacks(nobody, theirs);
        printf("%d %d %d\n", fake_selected(), fake_enabled(RS_CUPTI_CONCURRENT_KERNEL), fake_clients());
    } else
        return 2;
    return 0;
}
