/* A stand-in of librocprofiler-sdk and librocprofiler-register in one: the functions that a tool calls, with a version of
 * either layout (-DFAKE_VERSION=500 or 10100), a thread that delivers buffers, and an interface (fake_rocprofiler.h) through
 * which a program says what HIP, HSA and ROCTx did and when. Times are the program's own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake_rocprofiler.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 10100
#endif
#define CORRELATION_WORDS (FAKE_VERSION >= 10000 ? 3 : 2)

struct h { uint64_t handle; };
struct header { uint32_t category, kind; void *payload; };
typedef void (*buffer_callback)(struct h, struct h, struct header **, size_t, void *, uint64_t);
struct call {
    uint64_t context, thread, correlation, external;
#if FAKE_VERSION >= 10000
    uint64_t ancestor;
#endif
    uint32_t kind;
    int32_t operation;
    uint32_t phase;
    void *payload;
};
typedef void (*call_callback)(struct call, uint64_t *, void *);
struct tool { size_t size; int (*initialize)(void *, void *); void (*finalize)(void *); void *data; };
struct client { const char *name; uint32_t handle; };

static const char *const hip_names[] = {
    "hipGetDevice", "hipLaunchKernel", "hipMemcpy", "hipMemcpyAsync", "hipMalloc", "hipFree", "hipDeviceSynchronize",
    "hipStreamQuery", "hipMemsetAsync", "hipGraphLaunch", "hipSetDevice",
};
static const char *const hsa_names[] = {"hsa_init", "hsa_queue_create", "hsa_signal_wait_scacquire"};
static const char *const marker_names[] = {"roctxMarkA", "roctxRangePushA", "roctxRangePop", "roctxRangeStartA", "roctxRangeStop",
                                           "roctxGetThreadId"};
#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

static struct tool *tool;
static int is_configuring, is_started;
static struct { call_callback callback; void *data; uint8_t chosen[64]; int has_choice; } services[FAKE_LAST_CALLBACK];
static int wants_record[FAKE_LAST_RECORD];
static struct { buffer_callback callback; void *data; size_t bytes, watermark; } buffer;
static atomic_ullong correlations;
static __thread uint64_t correlation;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct header *waiting[1 << 16];
static size_t waiting_used;
static uint64_t shuffling, asked_flushes, done_flushes;

uint64_t fake_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fake_shuffle(uint64_t seed) { shuffling = seed; }

/* --- what tools call --- */

int rocprofiler_create_context(struct h *context) { return context->handle = 11, is_configuring ? 0 : 1; }
int rocprofiler_stop_context(struct h context) { return context.handle == 11 ? is_started = 0 : 1; }
int rocprofiler_get_timestamp(uint64_t *ns) { return *ns = fake_now(), 0; }
int rocprofiler_create_callback_thread(struct h *thread) { return thread->handle = 5, is_configuring ? 0 : 1; }

static void deliver(void)
{
    static struct header *taken[1 << 16];
    pthread_mutex_lock(&lock);
    size_t count = waiting_used;
    memcpy(taken, waiting, count * sizeof *taken);
    waiting_used = 0;
    for (size_t i = count; shuffling && i > 1; i--) {
        shuffling = shuffling * 6364136223846793005u + 1442695040888963407u;
        size_t other = (shuffling >> 33) % i;
        struct header *one = taken[i - 1];
        if (one->kind == FAKE_MEMORY || taken[other]->kind == FAKE_MEMORY)
            continue;       /* the SDK tells of these where they happen */
        taken[i - 1] = taken[other];
        taken[other] = one;
    }
    pthread_mutex_unlock(&lock);
    if (count)
        buffer.callback((struct h){11}, (struct h){22}, taken, count, buffer.data, 0);
    for (size_t i = 0; i < count; i++) {
        free(taken[i]->payload);
        free(taken[i]);
    }
}

static void *deliverer(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (asked_flushes == done_flushes)
            pthread_cond_wait(&changed, &lock);
        uint64_t asked = asked_flushes;
        pthread_mutex_unlock(&lock);
        deliver();
        pthread_mutex_lock(&lock);
        done_flushes = asked;
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

int rocprofiler_assign_callback_thread(struct h given, struct h thread)
{
    pthread_t made;
    if (given.handle != 22 || thread.handle != 5 || pthread_create(&made, NULL, deliverer, NULL))
        return 1;
    return pthread_detach(made);
}

int rocprofiler_create_buffer(struct h context, size_t bytes, size_t watermark, int policy, buffer_callback callback, void *data,
                              struct h *made)
{
    buffer.callback = callback;
    buffer.data = data;
    buffer.bytes = bytes;
    buffer.watermark = watermark;
    made->handle = 22;
    return context.handle == 11 && is_configuring && watermark <= bytes && policy == 2 ? 0 : 1;
}

int rocprofiler_flush_buffer(struct h given)
{
    if (given.handle != 22)
        return 1;
    pthread_mutex_lock(&lock);
    uint64_t mine = ++asked_flushes;
    pthread_cond_broadcast(&changed);
    while (done_flushes < mine)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

int rocprofiler_start_context(struct h context)
{
    return context.handle == 11 && !getenv("FAKE_REFUSES") ? is_started = 1, 0 : 1;
}

int rocprofiler_configure_buffer_tracing_service(struct h context, int kind, const int32_t *operations, size_t count, struct h given)
{
    if (context.handle != 11 || given.handle != 22 || kind < 1 || kind >= FAKE_LAST_RECORD || operations || count)
        return 1;
    wants_record[kind] = 1;
    return 0;
}

int rocprofiler_configure_callback_tracing_service(struct h context, int kind, const int32_t *operations, size_t count,
                                                   call_callback callback, void *data)
{
    if (context.handle != 11 || kind < 1 || kind >= FAKE_LAST_CALLBACK || !is_configuring)
        return 1;
    services[kind].callback = callback;
    services[kind].data = data;
    services[kind].has_choice = count > 0;
    for (size_t i = 0; i < count; i++)
        services[kind].chosen[operations[i]] = 1;
    return 0;
}

static int answer(const char *text, const char **name, uint64_t *length)
{
    *name = text;
    *length = text ? strlen(text) : 0;
    return text ? 0 : 1;
}

int rocprofiler_query_buffer_tracing_kind_name(int kind, const char **name, uint64_t *length)
{
    return answer(kind == FAKE_COPY ? "MEMORY_COPY" : kind == FAKE_KERNEL ? "KERNEL_DISPATCH"
                  : kind == FAKE_MEMORY && FAKE_VERSION >= 600 ? "MEMORY_ALLOCATION" : kind == 1 ? "HIP_RUNTIME_API" : NULL, name, length);
}

int rocprofiler_query_callback_tracing_kind_name(int kind, const char **name, uint64_t *length)
{
    return answer(kind == FAKE_CODE ? "CODE_OBJECT" : kind == FAKE_HIP ? "HIP_RUNTIME_API" : kind == FAKE_HSA ? "HSA_CORE_API"
                  : kind == FAKE_MARKERS ? "MARKER_CORE_API" : NULL, name, length);
}

int rocprofiler_query_callback_tracing_kind_operation_name(int kind, int32_t operation, const char **name, uint64_t *length)
{
    const char *const *names = kind == FAKE_HIP ? hip_names : kind == FAKE_HSA ? hsa_names : kind == FAKE_MARKERS ? marker_names : NULL;
    int most = kind == FAKE_HIP ? COUNT(hip_names) : kind == FAKE_HSA ? COUNT(hsa_names) : COUNT(marker_names);
    return answer(names && operation >= 0 && operation < most ? names[operation] : NULL, name, length);
}

int rocprofiler_query_available_agents(int version, int (*callback)(int, const void **, size_t, void *), size_t bytes, void *data)
{
    static char memory[4][512];
    const void *agents[4];
    if (version != 1 || bytes > 320)
        return 1;
    for (int i = 0; i < 4; i++) {       /* a CPU, then three GPUs of which HIP sees the first two */
        uint64_t id = 100 + (uint64_t)i * 7, local = 64ull << 30;
        uint32_t type = i ? 2 : 1, units = i ? 304 : 0, visible = i == 3 ? 0 : 0xF;
        const char *product = i ? "AMD Instinct MI300X" : "AMD EPYC";
        memcpy(memory[i] + 8, &id, 8);
        memcpy(memory[i] + 16, &type, 4);
        memcpy(memory[i] + 72, &units, 4);
        memcpy(memory[i] + 176, &local, 8);
        memcpy(memory[i] + 264, &product, 8);
        memcpy(memory[i] + 292, &visible, 4);
        agents[i] = memory[i];
    }
    return callback(version, agents, 4, data);
}

int rocprofiler_force_configure(struct tool *(*configure)(uint32_t, const char *, uint32_t, struct client *))
{
    struct client client = {NULL, 1};
    setenv("ROCPROFILER_REGISTER_FORCE_LOAD", "1", 1);
    is_configuring = 1;
    tool = configure(FAKE_VERSION, "fake", 0, &client);
    if (tool)
        tool->initialize(NULL, tool->data);
    is_configuring = 0;
    return 0;
}

void fake_end(void)
{
    if (tool && tool->finalize)
        tool->finalize(tool->data);
    tool = NULL;
}

/* --- what libraries of ROCm call; with -DFAKE_SDK_ONLY they call the real rocprofiler-register, which calls this --- */

static int tables_seen;
int rocprofiler_set_api_table(const char *name, uint64_t version, uint64_t instance, void **tables, uint64_t count)
{
    (void)version;
    (void)instance;
    return !name || !tables || !count ? 1 : (tables_seen++, 0);
}

#ifndef FAKE_SDK_ONLY

int rocprofiler_register_library_api_table(const char *name, void *import, uint32_t version, void **tables, uint64_t count, void *id)
{
    (void)import;
    (void)version;
    (void)tables;
    (void)count;
    *(uint64_t *)id = 42;
    return !strcmp(name, "hip") && is_started ? 0 : 1;
}
#endif

/* --- what the program says --- */

static void tell(int kind, int operation, uint32_t phase, void *payload, uint64_t *data)
{
    struct call call = {.context = 11, .thread = (uint64_t)syscall(SYS_gettid), .correlation = correlation,
                        .kind = (uint32_t)kind, .operation = operation, .phase = phase, .payload = payload};
    if (is_started && services[kind].callback && (!services[kind].has_choice || services[kind].chosen[operation]))
        services[kind].callback(call, data, services[kind].data);
}

/* Size, arguments, result: of HIP in the 24 bytes at the end, of ROCTx in 8. */
static void tell_call(int kind, int operation, uint32_t phase, uint64_t argument, uint64_t result, uint64_t *data)
{
    struct { uint64_t size, arguments[9], result[3]; } payload = {.arguments = {argument}};
    payload.size = kind == FAKE_MARKERS ? 32 : sizeof payload;
    if (kind == FAKE_MARKERS)
        payload.arguments[2] = result;
    else
        payload.result[0] = result;
    tell(kind, operation, phase, &payload, data);
}

uint64_t fake_enter(int kind, int operation, uint64_t argument)
{
    uint64_t data = 0;
    correlation = atomic_fetch_add(&correlations, 1) + 1;
    tell_call(kind, operation, 1, argument, 0, &data);
    return data;
}

void fake_leave(int kind, int operation, uint64_t begun, uint64_t argument, uint64_t result)
{
    tell_call(kind, operation, 2, argument, result, &begun);
}

uint64_t fake_correlation(void) { return correlation; }

int fake_hip_operation(const char *name)
{
    for (int i = 0; i < COUNT(hip_names); i++)
        if (!strcmp(hip_names[i], name))
            return i;
    return -1;
}

void fake_kernel_symbol(uint64_t kernel, const char *name)
{
    struct { uint64_t size, kernel, object; const char *name; } symbol = {32, kernel, 1, name};
    uint64_t data = 0;
    tell(FAKE_CODE, 2, 1, &symbol, &data);
}

static void add(int kind, const void *payload, size_t bytes)
{
    if (!is_started || !wants_record[kind])
        return;
    struct header *header = malloc(sizeof *header);
    *header = (struct header){1, (uint32_t)kind, memcpy(malloc(bytes), payload, bytes)};
    int is_full = 0;
    pthread_mutex_lock(&lock);
    if (waiting_used < sizeof waiting / sizeof waiting[0])
        waiting[waiting_used++] = header;
    is_full = waiting_used * 128 > buffer.watermark;
    if (is_full) {
        asked_flushes++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

void fake_kernel(uint64_t correlation_id, uint64_t agent, uint64_t queue, uint64_t kernel, uint64_t start, uint64_t end)
{
    uint64_t record[32] = {sizeof record, (uint64_t)FAKE_KERNEL | 2ull << 32, correlation_id, 0, (uint64_t)syscall(SYS_gettid), start, end,
                           128, agent, queue, kernel, 1};
    add(FAKE_KERNEL, record, sizeof record);
}

void fake_copy(uint64_t correlation_id, int direction, uint64_t from, uint64_t to, uint64_t bytes, uint64_t start, uint64_t end)
{
    uint64_t record[] = {96, (uint64_t)FAKE_COPY | (uint64_t)direction << 32, correlation_id, 0, (uint64_t)syscall(SYS_gettid), start, end,
                         to, from, bytes, 0, 0};
    add(FAKE_COPY, record, sizeof record);
}

void fake_memory(uint64_t correlation_id, int operation, uint64_t agent, uint64_t address, uint64_t bytes)
{
    uint64_t now = fake_now(), record[16] = {88, (uint64_t)FAKE_MEMORY | (uint64_t)operation << 32, correlation_id, 0};
    uint64_t *rest = record + 2 + CORRELATION_WORDS;
    rest[0] = (uint64_t)syscall(SYS_gettid);
    rest[1] = now;
    rest[2] = now + 1;
    rest[3] = agent;
    rest[4] = address;
    rest[5] = bytes;
    add(FAKE_MEMORY, record, sizeof record);
}
