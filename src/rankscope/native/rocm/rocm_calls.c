/* Calls of HIP and HSA, ranges of ROCTx, and the names of kernels: what the SDK tells in the thread that calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rocm_layer.h"
#include "trace.h"

#define MOST_KINDS 64
#define OPERATIONS 1024
#define NOT_READY 600               /* what a query answers, which is no error */
#define MOST_CODE 2000u             /* HIP's error codes lie below */
#define KERNELS (1u << 16)
#define DEPTH 64u
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum domain { HIP, HIP_COMPILER, HSA_CORE, HSA_AMD, MARKERS, CODE, DOMAINS };
static const char *const domain_names[DOMAINS] = {
    "HIP_RUNTIME_API", "HIP_COMPILER_API", "HSA_CORE_API", "HSA_AMD_EXT_API", "MARKER_CORE_API", "CODE_OBJECT",
};

/* By their beginnings: the calls that launch, copy, allocate, load code, or block. */
static const char *const wanted[] = {
    "hipLaunch", "hipExtLaunch", "hipModuleLaunch", "hipExtModuleLaunch", "hipHccModuleLaunch", "hipGraphLaunch",
    "hipGraphInstantiate", "hipMemcpy", "hipMemset", "hipMemPrefetch", "hipMalloc", "hipExtMalloc", "hipFree",
    "hipHostMalloc", "hipHostAlloc", "hipHostFree", "hipHostRegister", "hipHostUnregister", "hipMemAlloc", "hipMemCreate",
    "hipMemMap", "hipMemUnmap", "hipMemRelease", "hipModuleLoad", "hipDeviceSynchronize", "hipStreamSynchronize",
    "hipEventSynchronize", "hipCtxSynchronize",
};
enum marker { MARK, PUSH, POP, START, STOP, NO_MARKER };
static const char *const marker_names[NO_MARKER] = {
    "roctxMarkA", "roctxRangePushA", "roctxRangePop", "roctxRangeStartA", "roctxRangeStop",
};

struct operation { uint16_t name; uint8_t is_known, launches, waits, marker; };
static struct operation operations[DOMAINS][OPERATIONS];
static int kinds[DOMAINS];
static struct { uint64_t kernel; const char *name; } *kernels;
static rs_lock kernels_lock;
static uint32_t kernels_used;
static atomic_uint ranges;
static __thread struct { uint32_t ids[DEPTH], depth; } pushed;

void rs_rocm_calls_forget(void)
{
    memset(operations, 0, sizeof operations);
    rs_memory_free(kernels, KERNELS * sizeof *kernels);
    kernels = NULL;
    kernels_used = 0;
}

/* --- kernels --- */

static uint32_t kernel_place(uint64_t kernel)
{
    uint32_t at = (uint32_t)(kernel * 0x9E3779B97F4A7C15u >> 40) % KERNELS;
    while (kernels[at].name && kernels[at].kernel != kernel)
        at = (at + 1) % KERNELS;
    return at;
}

/* The name in its code object ends with ".kd". */
static void add_kernel(const struct rs_rocp_kernel_symbol *symbol)
{
    char name[4096];
    const char *stored = NULL;
    if (!symbol || !symbol->name || !rs_lock_take(&kernels_lock))
        return;
    size_t length = strnlen(symbol->name, sizeof name - 1);
    memcpy(name, symbol->name, length);
    name[length] = 0;
    if (length > 3 && !strcmp(name + length - 3, ".kd"))
        name[length - 3] = 0;
    if (!kernels)
        kernels = rs_memory(KERNELS * sizeof *kernels);
    if (kernels && kernels_used < KERNELS * 3 / 4 && (rs_intern_as(name, &stored), stored)) {
        uint32_t at = kernel_place(symbol->kernel);
        kernels_used += !kernels[at].name;
        kernels[at].kernel = symbol->kernel;
        kernels[at].name = stored;
    }
    rs_lock_give(&kernels_lock);
}

const char *rs_rocm_kernel(uint64_t kernel)
{
    const char *name = NULL;
    if (kernels && rs_lock_take(&kernels_lock)) {
        name = kernels[kernel_place(kernel)].name;
        rs_lock_give(&kernels_lock);
    }
    return name;
}

/* --- calls --- */

static int begins_like_one(const char *name)
{
    for (unsigned i = 0; i < COUNT(wanted); i++)
        if (!strncmp(name, wanted[i], strlen(wanted[i])))
            return 1;
    return 0;
}

static const char *name_of(enum domain domain, int32_t operation)
{
    const char *name = NULL;
    uint64_t length = 0;
    int status = rs_rocm.sdk.query_callback_tracing_kind_operation_name(kinds[domain], operation, &name, &length);
    return status == RS_ROCP_SUCCESS ? name : NULL;
}

static struct operation *operation_of(enum domain domain, int32_t number)
{
    if (number < 0 || number >= OPERATIONS)
        return NULL;
    struct operation *operation = &operations[domain][number];
    if (RS_LIKELY(operation->is_known))
        return operation;
    const char *name = name_of(domain, number);
    if (!name)
        return NULL;
    operation->name = domain == MARKERS ? 0 : rs_intern(name);
    operation->marker = NO_MARKER;
    for (uint8_t i = 0; domain == MARKERS && i < NO_MARKER; i++)
        if (!strcmp(name, marker_names[i]))
            operation->marker = i;
    operation->waits = strstr(name, "Synchronize") || (strstr(name, "Memcpy") && !strstr(name, "Async"));
    operation->launches = strstr(name, "Launch") || strstr(name, "Memcpy") || strstr(name, "Memset");
    operation->is_known = 1;
    return operation;
}

static int has_failed(enum domain domain, const void *payload)
{
    const struct rs_rocp_arguments *arguments = payload;
    uint32_t code = 0;
    if (domain != HIP || !payload || arguments->size < sizeof *arguments + RS_ROCP_HIP_RESULT_BYTES)
        return 0;
    memcpy(&code, (const char *)payload + arguments->size - RS_ROCP_HIP_RESULT_BYTES, sizeof code);
    return code && code != NOT_READY && code < MOST_CODE;
}

static void count(enum domain domain, int32_t number, uint64_t correlation, uint64_t begin, const void *payload)
{
    uint64_t end = rs_ticks();
    const struct operation *operation = operation_of(domain, number);
    struct rs_thread *thread = operation ? rs_gpu_caller() : NULL;
    if (!thread || !begin)
        return;
    int failed = has_failed(domain, payload);
    uint64_t key = rs_key(operation->name, 0, RS_LAYER_HIP_API, rs.phase, 0, RS_KIND_CALL);
    rs_tally(thread, key, end - begin, 0, failed);
    rs_trace(thread, key, begin, end - begin, 0, failed);
    if (RS_UNLIKELY(end > thread->refresh_at))
        rs_refresh(thread, end);
    if (!operation->launches && !operation->waits)
        return;
    struct rs_gpu_call call = {.layer = RS_LAYER_HIP_API, .failed = (uint8_t)failed, .waits = operation->waits,
                               .name = operation->name, .tid = (uint32_t)syscall(SYS_gettid),
                               .correlation = (uint32_t)correlation};
    rs_gpu_enter();
    if (rs_rocm_is_on() && rs_gpu.row && rs_gpu_has_rate()) {
        call.start_ns = rs_gpu_ns_of(begin);
        call.end_ns = rs_gpu_ns_of(end);
        rs_gpu_note_call(&call);
    }
    rs_gpu_leave();
}

/* --- ranges --- */

static void tell_marker(enum rs_marker kind, uint32_t id, const char *name)
{
    struct rs_gpu_marker marker = {.kind = (uint8_t)kind, .id = id, .tid = (uint32_t)syscall(SYS_gettid), .name = name,
                                   .domain = "ROCTx"};
    rs_gpu_enter();
    if (rs_rocm_is_on() && rs_gpu.row && rs_gpu_has_rate()) {
        marker.at_ns = rs_gpu_ns_of(rs_ticks());
        rs_gpu_add_marker(&marker);
    }
    rs_gpu_leave();
}

/* Ranges that are pushed and popped have odd ids, the program's own even ones. */
static void push(const char *name)
{
    uint32_t id = atomic_fetch_add(&ranges, 1) * 2 + 1;
    if (pushed.depth < DEPTH) {
        pushed.ids[pushed.depth] = id;
        tell_marker(RS_MARKER_START, id, name);
    }
    pushed.depth++;
}

static void pop(void)
{
    if (pushed.depth && --pushed.depth < DEPTH)
        tell_marker(RS_MARKER_END, pushed.ids[pushed.depth], NULL);
}

static void add_marker(int32_t number, uint32_t phase, const void *payload)
{
    const struct operation *operation = operation_of(MARKERS, number);
    const struct rs_rocp_arguments *arguments = payload;
    uint64_t id = 0;
    if (!operation || !payload || operation->marker == NO_MARKER)
        return;
    if (operation->marker == START && phase == RS_ROCP_EXIT)    /* its id is the result */
        memcpy(&id, (const char *)payload + arguments->size - sizeof id, sizeof id);
    const char *name = (const char *)(uintptr_t)arguments->first;
    if (operation->marker == PUSH && phase == RS_ROCP_EXIT)
        push(name);
    else if (operation->marker == POP && phase == RS_ROCP_ENTER)
        pop();
    else if (operation->marker == START && phase == RS_ROCP_EXIT)
        tell_marker(RS_MARKER_START, (uint32_t)id * 2, name);
    else if (operation->marker == STOP && phase == RS_ROCP_ENTER)
        tell_marker(RS_MARKER_END, (uint32_t)arguments->first * 2, NULL);
    else if (operation->marker == MARK && phase == RS_ROCP_ENTER)
        tell_marker(RS_MARKER_INSTANT, 0, name);
}

/* --- callbacks --- */

static void called(enum domain domain, int32_t operation, uint32_t phase, uint64_t correlation, void *payload, uint64_t *data)
{
    int saved = errno;
    if (!rs_rocm_is_on())
        return;
    if (domain == CODE) {
        if (operation == RS_ROCP_KERNEL_SYMBOL && phase == RS_ROCP_ENTER)
            add_kernel(payload);
    } else if (domain == MARKERS) {
        add_marker(operation, phase, payload);
    } else if (phase == RS_ROCP_ENTER) {
        *data = rs_ticks();
    } else if (phase == RS_ROCP_EXIT) {
        count(domain, operation, correlation, *data, payload);
    }
    errno = saved;
}

static void called_0(struct rs_rocp_call_0 call, uint64_t *data, void *domain)
{
    called((enum domain)(uintptr_t)domain, call.operation, call.phase, call.correlation, call.payload, data);
}

static void called_1(struct rs_rocp_call_1 call, uint64_t *data, void *domain)
{
    called((enum domain)(uintptr_t)domain, call.operation, call.phase, call.correlation, call.payload, data);
}

/* --- beginning --- */

static void find_kinds(void)
{
    for (int kind = 1; kind < MOST_KINDS; kind++) {
        const char *name = NULL;
        uint64_t length = 0;
        if (rs_rocm.sdk.query_callback_tracing_kind_name(kind, &name, &length) != RS_ROCP_SUCCESS || !name)
            continue;
        for (unsigned i = 0; i < DOMAINS; i++)
            if (!strcmp(name, domain_names[i]))
                kinds[i] = kind;
    }
}

static int listen(enum domain domain, const int32_t *chosen, size_t chosen_count)
{
    void *callback = rs_rocm.version >= RS_ROCP_FIRST ? (void *)called_1 : (void *)called_0;
    return kinds[domain]
           && rs_rocm.sdk.configure_callback_tracing_service(rs_rocm.context, kinds[domain], chosen, chosen_count, callback,
                                                             (void *)(uintptr_t)domain) == RS_ROCP_SUCCESS;
}

static int listen_to_chosen(void)
{
    static int32_t chosen[OPERATIONS];
    size_t used = 0;
    for (int32_t i = 0; i < OPERATIONS; i++) {
        const char *name = name_of(HIP, i);
        if (name && begins_like_one(name))
            chosen[used++] = i;
    }
    return used && listen(HIP, chosen, used);
}

static enum rs_cuda_api listen_to_calls(void)
{
    const char *asked = getenv("RANKSCOPE_CUDA_API");
    if (asked && !strcmp(asked, "none"))
        return RS_CUDA_API_NONE;
    if (!asked || strcmp(asked, "all"))
        return listen_to_chosen() ? RS_CUDA_API_SYNC : RS_CUDA_API_NONE;
    int is_on = listen(HIP, NULL, 0);
    for (enum domain domain = HIP_COMPILER; domain <= HSA_AMD; domain++)
        is_on += listen(domain, NULL, 0);
    return is_on ? RS_CUDA_API_ALL : RS_CUDA_API_NONE;
}

/* Without names of kernels nothing is worth recording; the rest is said where it is missing. */
int rs_rocm_calls_begin(char *note, size_t size)
{
    const char *asked = getenv("RANKSCOPE_CUDA_API");
    find_kinds();
    if (!listen(CODE, NULL, 0)) {
        snprintf(note, size, "rocprofiler-sdk tells no names of kernels: nothing is recorded of HIP");
        return 0;
    }
    listen(MARKERS, NULL, 0);
    enum rs_cuda_api api = listen_to_calls();
    if (api == RS_CUDA_API_NONE && !(asked && !strcmp(asked, "none")))
        snprintf(note, size, "rocprofiler-sdk refused to tell of calls: calls of HIP are not recorded");
    rs_gpu_enter();
    if (rs_gpu.row->api < (uint32_t)api)
        rs_gpu.row->api = api;
    rs_gpu_leave();
    return 1;
}
