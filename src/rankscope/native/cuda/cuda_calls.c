/* Calls of the CUDA runtime and driver: which are recorded, and what they are. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdlib.h>

#include "cuda_layer.h"

#define CALLBACK_IDS 1024u          /* more than CUDA has in either domain */
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define NOT_READY 600u              /* what a query answers, which is no error */

/* By their beginnings: the calls that launch, copy, allocate, load code, or block. */
static const char *const wanted[] = {
    "cudaLaunch", "cudaGraphLaunch", "cudaGraphInstantiate", "cudaMemcpy", "cudaMemset", "cudaMemPrefetch",
    "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister",
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaThreadSynchronize",
    "cuLaunch", "cuGraphLaunch", "cuGraphInstantiate", "cuMemcpy", "cuMemset", "cuMemPrefetch", "cuMemAlloc",
    "cuMemFree", "cuMemHost", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuModuleLoad",
    "cuLibraryLoad", "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
};

/* The runtime asks for the name of every kernel that is launched, for a tool that listens: no call of the program's. */
static const char *const for_tools[] = {"cuKernelGetName"};

/* By domain and id. name: a string id, 0: not asked for yet; waits: it returns when the device has done something. */
static struct known { uint16_t name; uint8_t waits; } known[2][CALLBACK_IDS];

void rs_cuda_calls_forget(void) { memset(known, 0, sizeof known); }

/* While recording may pause, none: a CUPTI that was told of single calls corrupts the heap when it is taken off (seen
 * with 13.0, in every program), and all of them, most of which ask for the current device, cost more than the kernels. */
enum rs_cuda_api rs_cuda_api_asked(void)
{
    const char *text = getenv("RANKSCOPE_CUDA_API");
    if (rs_windows_may_pause() || (text && !strcmp(text, "none")))
        return RS_CUDA_API_NONE;
    return text && !strcmp(text, "all") ? RS_CUDA_API_ALL : RS_CUDA_API_SYNC;
}

static int begins_like_one(const char *name, const char *const *beginnings, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
            return 1;
    return 0;
}

static int select_domain(enum rs_cupti_domain domain, int (*select)(uint32_t, uint8_t), const char *const *beginnings,
                         unsigned count, int enable)
{
    int selected = 0;
    for (uint32_t cbid = 1; cbid < CALLBACK_IDS; cbid++) {
        const char *name = NULL;
        if (rs_cuda.cupti.cuptiGetCallbackName(domain, cbid, &name) == RS_CUPTI_SUCCESS && name
            && begins_like_one(name, beginnings, count))
            selected += select(cbid, (uint8_t)enable) == RS_CUPTI_SUCCESS;
    }
    return selected;
}

/* What is recorded in the end: a CUPTI that cannot choose among the calls would have to record every one. */
enum rs_cuda_api rs_cuda_calls_select(enum rs_cuda_api asked, int enable)
{
    struct rs_cupti *cupti = &rs_cuda.cupti;
    if (asked == RS_CUDA_API_ALL) {
        int (*set)(int) = enable ? cupti->cuptiActivityEnable : cupti->cuptiActivityDisable;
        int refused = set(RS_CUPTI_RUNTIME) + set(RS_CUPTI_DRIVER);
        if (!refused && enable && cupti->cuptiActivityEnableDriverApi)
            select_domain(RS_CUPTI_DRIVER_API, cupti->cuptiActivityEnableDriverApi, for_tools, COUNT(for_tools), 0);
        return refused ? RS_CUDA_API_NONE : asked;
    }
    if (asked == RS_CUDA_API_NONE || !cupti->cuptiActivityEnableRuntimeApi || !cupti->cuptiActivityEnableDriverApi)
        return RS_CUDA_API_NONE;
    int selected = select_domain(RS_CUPTI_RUNTIME_API, cupti->cuptiActivityEnableRuntimeApi, wanted, COUNT(wanted),
                                 enable);
    selected += select_domain(RS_CUPTI_DRIVER_API, cupti->cuptiActivityEnableDriverApi, wanted, COUNT(wanted),
                              enable);
    return selected ? asked : RS_CUDA_API_NONE;
}

/* cudaLaunchKernel_v7000 is known to everybody as cudaLaunchKernel. */
static uint16_t intern_call(const char *name)
{
    char text[128];
    size_t length = strnlen(name, sizeof text - 1);
    memcpy(text, name, length);
    text[length] = 0;
    char *version = strrchr(text, '_');
    if (version && version[1] == 'v' && isdigit((unsigned char)version[2]))
        *version = 0;
    return rs_intern(text);
}

static const char *text_of(const struct rs_cupti_api *call)
{
    int is_driver = call->kind == RS_CUPTI_DRIVER;
    const char *name = NULL;
    enum rs_cupti_domain domain = is_driver ? RS_CUPTI_DRIVER_API : RS_CUPTI_RUNTIME_API;
    if (rs_cuda.cupti.cuptiGetCallbackName(domain, call->cbid, &name) != RS_CUPTI_SUCCESS || !name)
        name = is_driver ? "(unknown driver call)" : "(unknown runtime call)";
    return name;
}

static struct known known_of(const struct rs_cupti_api *call)
{
    struct known *place = call->cbid < CALLBACK_IDS ? &known[call->kind == RS_CUPTI_DRIVER][call->cbid] : NULL;
    if (place && place->name)
        return *place;
    const char *text = text_of(call);
    int waits = strstr(text, "Synchronize") || (strstr(text, "Memcpy") && !strstr(text, "Async"));
    struct known found = {intern_call(text), (uint8_t)waits};
    if (place)
        *place = found;
    return found;
}

/* All but its times. */
void rs_cuda_call(const struct rs_cupti_api *record, struct rs_gpu_call *call)
{
    struct known about = known_of(record);
    *call = (struct rs_gpu_call){
        .layer = RS_LAYER_CUDA_API, .failed = record->returnValue && record->returnValue != NOT_READY,
        .waits = about.waits, .name = about.name, .tid = record->threadId, .correlation = record->correlationId};
}
