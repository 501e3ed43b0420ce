/* CUPTI is asked for records and taken off again, and has what it is given: buffers, and the program's NVTX. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_layer.h"
#include "steps.h"

#define BUFFER_BYTES (256u << 10)   /* about 1,200 kernels: what CUPTI holds back while one of them still runs */
#define KEPT_BUFFERS 64u
#define DETACH_NS 2000000000u       /* so long is waited for the end of a step, at which CUPTI may be taken off */

static atomic_int is_attached;
static atomic_int has_nvtx;         /* CUPTI was given to the program's NVTX, which keeps calling it */
static uint64_t finalize_ns;        /* how long the last one took */
static struct rs_gpu_thread *asker;

/* Who takes CUPTI off: the loop's thread does, once it is asked to. */
enum detaching { NOBODY = 0, ASKED = 1, AT_WORK = 2, DONE = 3 };
static atomic_int detaching;
static int (*add_pending_call)(int (*)(void *), void *);    /* Python's; NULL: there is no interpreter, or it ends */
static int (*is_initialized)(void);
static atomic_int is_pending;       /* Python was asked to have it done, and has not come to it yet */
static pthread_mutex_t python_lock = PTHREAD_MUTEX_INITIALIZER;     /* an interpreter does not end while it is asked */
static pthread_mutex_t use_lock = PTHREAD_MUTEX_INITIALIZER;    /* CUPTI is not used elsewhere while it is taken off */

int rs_cuda_is_attached(void) { return is_attached; }
int rs_cuda_has_nvtx(void) { return atomic_load(&has_nvtx); }

/* 1: CUPTI stays until it is let go again. */
int rs_cuda_hold(void)
{
    pthread_mutex_lock(&use_lock);
    if (atomic_load(&detaching) < AT_WORK)
        return 1;
    pthread_mutex_unlock(&use_lock);
    return 0;
}

void rs_cuda_let_go(void) { pthread_mutex_unlock(&use_lock); }

/* In the child of a fork: else its next step would take off a CUPTI that is its parent's. */
void rs_cuda_attach_forget(void)
{
    pthread_mutex_init(&use_lock, NULL);
    pthread_mutex_init(&python_lock, NULL);
    atomic_store(&detaching, NOBODY);
    atomic_store(&is_pending, 0);
}

/* --- what it is asked for --- */

enum when { ALWAYS, UNTIL_PAUSED, WITH_WAITS };
static const struct { int kind; enum when when; const char *name; } kinds[] = {
    {RS_CUPTI_CONCURRENT_KERNEL, ALWAYS, "kernels"}, {RS_CUPTI_MEMCPY, ALWAYS, "copies"},
    {RS_CUPTI_MEMCPY2, ALWAYS, "peer copies"}, {RS_CUPTI_MEMSET, ALWAYS, "sets"},
    {RS_CUPTI_MARKER, UNTIL_PAUSED, "NVTX ranges"}, {RS_CUPTI_MEMORY2, UNTIL_PAUSED, "memory"},         /* what is not seen whole is not seen at all */
    {RS_CUPTI_POOL, UNTIL_PAUSED, "memory pools"},
    {RS_CUPTI_SYNCHRONIZATION, WITH_WAITS, "waits"},  /* in place of calls; it costs more than the kernels */
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static int is_wanted(enum when when, int with_waits)
{
    return when == ALWAYS || (when == WITH_WAITS ? with_waits : !rs_cuda.row->windows);
}

/* --- buffers --- */

static rs_lock buffers_lock;
static void *kept[KEPT_BUFFERS];
static uint32_t kept_used;

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    void *memory = NULL;
    if (rs_lock_take(&buffers_lock)) {
        memory = kept_used ? kept[--kept_used] : NULL;
        rs_lock_give(&buffers_lock);
    }
    *buffer = memory ? memory : rs_memory(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void keep_buffer(void *memory)
{
    if (rs_lock_take(&buffers_lock)) {
        if (kept_used < KEPT_BUFFERS) {
            kept[kept_used++] = memory;
            memory = NULL;
        }
        rs_lock_give(&buffers_lock);
    }
    rs_memory_free(memory, BUFFER_BYTES);
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)size;
    int saved = errno;
    size_t dropped = 0;
    rs_gpu_enter();
    if (rs_cuda.row && rs.file && atomic_load(&rs_cuda.life) == RS_CUDA_STARTED) {
        rs_cuda_buffer(buffer, valid);
        if (rs_cuda.cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == RS_CUPTI_SUCCESS)
            rs_cuda.row->dropped += dropped;
    }
    rs_gpu_leave();
    keep_buffer(buffer);
    errno = saved;
}

/* --- attaching CUPTI and taking it off --- */

static const char *result_text(int result)
{
    const char *text = NULL;
    rs_cuda.cupti.cuptiGetResultString(result, &text);
    return text ? text : "?";
}

/* Whether kernels can be recorded; what else CUPTI refuses is said in the note. */
static int enable_kinds(int with_waits, char *note, size_t size)
{
    int result = rs_cuda.cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    if (result != RS_CUPTI_SUCCESS) {
        snprintf(note, size, "CUPTI refused to start: %s%s", result_text(result),
                 result == RS_CUPTI_MULTIPLE_SUBSCRIBERS ? " (another profiler is active)" : "");
        return 0;
    }
    for (unsigned i = 0; i < KINDS; i++) {
        result = is_wanted(kinds[i].when, with_waits) ? rs_cuda.cupti.cuptiActivityEnable(kinds[i].kind) : RS_CUPTI_SUCCESS;
        if (result == RS_CUPTI_SUCCESS)
            continue;
        size_t used = strlen(note);
        snprintf(note + used, size - used, "%sCUPTI refused to record %s: %s", used ? "; " : "", kinds[i].name,
                 result_text(result));
        if (i == 0)
            return 0;
    }
    return 1;
}

/* Nothing but what CUPTI needs to begin: it may be the second time. */
int rs_cuda_attach(int with_waits, char *note, size_t size)
{
    if (rs_cuda.cupti.cuptiSetThreadIdType)
        rs_cuda.cupti.cuptiSetThreadIdType(RS_CUPTI_THREAD_ID_SYSTEM);
    if (!enable_kinds(with_waits, note, size))
        return 0;
    rs_cuda.row->api = rs_cuda_calls_select(rs_cuda_api_asked(), 1);
    if (rs_cuda.cupti.cuptiActivityFlushPeriod)
        rs_cuda.cupti.cuptiActivityFlushPeriod(RS_CUDA_FLUSH_NS / 1000000u);
    is_attached = 1;
    return 1;
}

/* In the loop's thread, at the end of a step, or in Python's main thread: outside calls of CUDA taking CUPTI off broke no
 * program. In the middle of a call, as its documentation has it, it did, as soon as several threads use CUDA. */
void rs_cuda_step_ended(void)
{
    int before = ASKED, saved = errno;
    if (atomic_load(&detaching) != ASKED)
        return;
    pthread_mutex_lock(&use_lock);
    int is_chosen = !atomic_load(&has_nvtx) && atomic_compare_exchange_strong(&detaching, &before, AT_WORK);
    pthread_mutex_unlock(&use_lock);
    if (is_chosen) {
        uint64_t begun = rs_clock_ns(CLOCK_MONOTONIC);
        rs_cuda.cupti.cuptiFinalize();
        finalize_ns = rs_clock_ns(CLOCK_MONOTONIC) - begun;
        pthread_mutex_lock(&asker->lock);
        atomic_store(&detaching, DONE);
        pthread_cond_broadcast(&asker->wake);
        pthread_mutex_unlock(&asker->lock);
    }
    errno = saved;
}

/* Without steps Python is asked to have it done by its main thread, between two instructions of the program. */
static int called_by_python(void *nothing)
{
    (void)nothing;
    atomic_store(&is_pending, 0);
    rs_cuda_step_ended();
    return 0;
}

/* Told by the agent in an interpreter that is up, and once more, without both, before it ends: asked at another time, Python
 * ends the process. */
RS_EXPORT void rankscope_python(int (*add)(int (*)(void *), void *), int (*initialized)(void))
{
    pthread_mutex_lock(&python_lock);
    __atomic_store_n(&add_pending_call, add && initialized ? add : NULL, __ATOMIC_RELAXED);
    is_initialized = initialized;
    pthread_mutex_unlock(&python_lock);
}

/* Not again before it has come to what it was asked before: its main thread is blocked. */
int rs_cuda_may_interrupt(void) { return __atomic_load_n(&add_pending_call, __ATOMIC_RELAXED) && !atomic_load(&is_pending); }

static void ask_python(void)
{
    pthread_mutex_lock(&python_lock);
    if (add_pending_call && is_initialized() && !atomic_exchange(&is_pending, 1) && add_pending_call(called_by_python, NULL) != 0)
        atomic_store(&is_pending, 0);
    pthread_mutex_unlock(&python_lock);
}

/* 0: no step ended meanwhile, or the program ends, or another client of CUPTI came: CUPTI stays. */
int rs_cuda_detach(struct rs_gpu_thread *thread, int has_steps)
{
    asker = thread;
    atomic_store(&detaching, ASKED);
    if (!has_steps)
        ask_python();
    struct timespec until = rs_gpu_after(DETACH_NS);
    pthread_mutex_lock(&asker->lock);
    while (atomic_load(&detaching) != DONE && !asker->asked_to_end && !atomic_load(&rs_cuda.others)
           && pthread_cond_timedwait(&asker->wake, &asker->lock, &until) == 0)
        continue;
    int before = ASKED;
    int is_called_off = atomic_compare_exchange_strong(&detaching, &before, NOBODY);
    while (!is_called_off && atomic_load(&detaching) != DONE)
        pthread_cond_wait(&asker->wake, &asker->lock);
    pthread_mutex_unlock(&asker->lock);
    is_attached = is_called_off;
    return !is_called_off;
}

/* After that, once what it had recorded is put in order; returns how long it took. */
uint64_t rs_cuda_detached(void)
{
    atomic_store(&detaching, NOBODY);
    return finalize_ns;
}

int rs_cuda_can_detach(void)
{
    return rs_cuda.row->cupti_version >= RS_CUPTI_DETACHES && rs_cuda.cupti.cuptiFinalize;
}

/* Somebody else is its client from now on, and must not get what we had asked for. */
void rs_cuda_ask_no_more(void)
{
    if (!is_attached)
        return;
    for (unsigned i = 0; i < KINDS; i++)
        rs_cuda.cupti.cuptiActivityDisable(kinds[i].kind);
    rs_cuda_calls_select((enum rs_cuda_api)rs_cuda.row->api, 0);
    if (rs_cuda.cupti.cuptiActivityFlushPeriod)
        rs_cuda.cupti.cuptiActivityFlushPeriod(0);
}

/* --- NVTX --- */

/* NVIDIA's own libraries name every operation, whether somebody wants to know or not. */
static int is_nvidias(const void *code)
{
    Dl_info about;
    const char *path = dladdr(code, &about) && about.dli_fname ? about.dli_fname : "", *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return !strncmp(name, "libnccl", 7) || !strncmp(name, "libcu", 5) || !strncmp(name, "libnv", 5);
}

/* NVTX, once for every library that carries a copy of it, asks whoever NVTX_INJECTION64_PATH names. 0: nobody. */
RS_EXPORT int InitializeInjectionNvtx2(void *get_export_table)
{
    struct rs_cupti cupti = {0};
    char path[1024];
    uint32_t version;
    const char *asked = getenv("RANKSCOPE_CUDA");
    int saved = errno, taken = rs_nvtx_chain(get_export_table);
    const void *caller = __builtin_return_address(0);
    if (!taken && rs_recording() && !(asked && !strcmp(asked, "0")) && rs_cupti_find(&cupti, &version, path, sizeof path, 0) == RS_FOUND
        && cupti.InitializeInjectionNvtx2) {
        pthread_mutex_lock(&use_lock);          /* while recording pauses nobody is there to listen */
        int is_there = atomic_load(&rs_cuda.life) != RS_CUDA_STARTED || atomic_load(&rs_cuda.is_waiting)
                       || (is_attached && atomic_load(&detaching) < AT_WORK);
        int is_on = !rs_windows_wanted() || (is_there && !is_nvidias(caller));
        if (is_on)
            atomic_store(&has_nvtx, 1);
        pthread_mutex_unlock(&use_lock);
        if (is_on)
            taken = cupti.InitializeInjectionNvtx2(get_export_table);
    }
    errno = saved;
    return taken;
}
