/* OpenCL. The ICD loader loads this library by OPENCL_LAYERS and gives us its table of functions: all calls of the program
 * come through ours. Calls are counted in the slot of the thread that makes them; what they put into queues is followed
 * by its events (opencl_commands.c). A thread of ours looks at these once a second, so that a run can be watched. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "opencl_layer.h"
#include "steps.h"
#include "trace.h"


const struct rs_cl_function rs_cl_functions[RS_CL_FUNCTIONS] = {
#define ROW(place, name, arguments, result, work, blocking_at, size, size_at) \
    [place] = {#name, arguments, RS_CL_##result, RS_CL_##work, blocking_at, RS_CL_##size, size_at},
#define RS_CL_CALL(place, name, arguments, result) ROW(place, name, arguments, result, NO_WORK, 0, NO_SIZE, 0)
#define RS_CL_WORK(place, name, arguments, result, work, blocking_at, size, size_at) \
    ROW(place, name, arguments, result, work, blocking_at, size, size_at)
#define RS_CL_EXTENSION(place, name, arguments, result) \
    ROW(RS_CL_PLACES + place, name, arguments, result, NO_WORK, 0, NO_SIZE, 0)
#define RS_CL_EXTENSION_WORK(place, name, arguments, result, work, blocking_at, size, size_at) \
    ROW(RS_CL_PLACES + place, name, arguments, result, work, blocking_at, size, size_at)
#include "opencl_functions.h"
#undef RS_CL_CALL
#undef RS_CL_WORK
#undef RS_CL_EXTENSION
#undef RS_CL_EXTENSION_WORK
#undef ROW
};

static word target[RS_CL_FUNCTIONS];        /* the functions behind us */
static uint16_t name_ids[RS_CL_FUNCTIONS];  /* string ids, 0: not interned yet */
static uint32_t names_of;           /* after so many forks */

enum life { NOT_STARTED = 0, STARTED = 1, OVER = 2 };
static atomic_int life;             /* STARTED with the first queue; OVER: nothing more is asked of the driver */
static atomic_int has_layer;        /* a loader has our functions */
static atomic_int is_ending;        /* somebody takes the last look */
static int32_t owner_pid;
static atomic_int has_second;       /* a second loader of the process was refused */
static atomic_int has_unwrapped;
static char unwrapped[64];          /* a function that launches and goes by us */
struct rs_runtime *rs_cl_runtime;

/* --- the functions behind us --- */

word rs_cl_forward(enum rs_cl_place place, const word *a)
{
    word function = target[place];
    if (RS_UNLIKELY(!function))     /* of a loader that is older than it; only we ask then */
        return (word)(uint32_t)RS_CL_INVALID_OPERATION;
    switch (rs_cl_functions[place].arguments) {
    case 0: return ((word (*)(void))function)();
    case 1: return ((word (*)(word))function)(a[0]);
    case 2: return ((word (*)(word, word))function)(a[0], a[1]);
    case 3: return ((word (*)(word, word, word))function)(a[0], a[1], a[2]);
    case 4: return ((word (*)(word, word, word, word))function)(a[0], a[1], a[2], a[3]);
    case 5: return ((word (*)(word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4]);
    case 6: return ((word (*)(word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5]);
    case 7: return ((word (*)(word, word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
    case 8: return ((word (*)(word, word, word, word, word, word, word, word))function)(a[0], a[1], a[2], a[3], a[4], a[5],
                                                                                        a[6], a[7]);
    case 9: return ((word (*)(word, word, word, word, word, word, word, word, word))function)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
    case 10: return ((word (*)(word, word, word, word, word, word, word, word, word, word))function)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    case 11: return ((word (*)(word, word, word, word, word, word, word, word, word, word, word))function)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    case 12: return ((word (*)(word, word, word, word, word, word, word, word, word, word, word, word))function)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    case 13: return ((word (*)(word, word, word, word, word, word, word, word, word, word, word, word, word))function)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12]);
    default: return ((word (*)(word, word, word, word, word, word, word, word, word, word, word, word, word, word))function)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
    }
}

/* --- counting --- */

int rs_cl_is_on(void) { return atomic_load_explicit(&life, memory_order_relaxed) == STARTED && rs.file; }

static int has_failed(enum rs_cl_place place, word result)
{
    switch (rs_cl_functions[place].result) {
    case RS_CL_STATUS: return (int32_t)result != RS_CL_SUCCESS;
    case RS_CL_OBJECT: return !result;
    default: return 0;
    }
}

static void count(struct rs_thread *thread, enum rs_cl_place place, uint64_t begin, uint64_t end, int failed)
{
    int saved = errno;
    if (RS_UNLIKELY(names_of != rs.forks)) {    /* what the parent of a fork has interned is in its file */
        memset(name_ids, 0, sizeof name_ids);
        names_of = rs.forks;
    }
    if (RS_UNLIKELY(!name_ids[place]))
        name_ids[place] = rs_intern(rs_cl_functions[place].name);
    uint64_t key = rs_key(name_ids[place], 0, RS_LAYER_OPENCL, rs.phase, 0, RS_KIND_CALL);
    rs_tally(thread, key, end - begin, 0, failed);
    rs_trace(thread, key, begin, end - begin, 0, failed);
    if (RS_UNLIKELY(end > thread->refresh_at))
        rs_refresh(thread, end);
    errno = saved;
}

/* The loop's thread had nothing to do but wait for the device. */
static void note_wait(uint64_t begin, uint64_t end)
{
    if (!rs_cl_is_on() || rs_loop_tid() != (uint32_t)syscall(SYS_gettid))
        return;
    rs_gpu_enter();
    if (rs_gpu_has_rate())
        rs_gpu_add_wait(rs_gpu_ns_of(begin), rs_gpu_ns_of(end));
    rs_gpu_leave();
}

/* --- work --- */

static word put_into_queue(enum rs_cl_place place, word *a)
{
    const struct rs_cl_function *function = &rs_cl_functions[place];
    struct rs_thread *thread = rs_gpu_caller();
    struct rs_cl_queue *queue = thread && rs_cl_is_on() ? rs_cl_queue_of(a[0]) : NULL;
    unsigned event_at = function->arguments - (function->result == RS_CL_OBJECT ? 2u : 1u);
    word own = 0, *event = (word *)a[event_at];
    int is_followed = queue && queue->is_profiled;
    if (is_followed && !event)
        a[event_at] = (word)&own;
    uint64_t begin = rs_ticks();
    word result = rs_cl_forward(place, a);
    uint64_t end = rs_ticks();
    int failed = has_failed(place, result), waits = function->blocking_at && (uint32_t)a[function->blocking_at];
    if (thread)
        count(thread, place, begin, end, failed);
    if (is_followed && !failed && (event || own)) {
        int saved = errno;
        if (!event || RS_CL_ASK(clRetainEvent, *event) == RS_CL_SUCCESS)
            rs_cl_command_add(queue, function, a, event ? *event : own, begin, end);
        if (waits)
            rs_cl_drain(queue, 0);
        errno = saved;
    }
    if (waits && thread)
        note_wait(begin, end);
    return result;
}

/* --- what is special about some calls --- */

static void after_wait(const word *a, enum rs_cl_place place)
{
    struct rs_cl_queue *queue;
    if (!rs_cl_is_on())
        return;
    if (place == RS_CL_clFinish) {
        queue = rs_cl_queue_of(a[0]);
        if (queue)
            rs_cl_drain(queue, 0);
        return;
    }
    rs_cl_drain_all(0);
}

static void after_kernels(const word *a)
{
    uint32_t count = (uint32_t)a[1];
    for (uint32_t i = 0; a[2] && i < count; i++)
        if (((const word *)a[2])[i])
            rs_cl_kernel_made(((const word *)a[2])[i]);
}

static void after_svm_free(const word *a)
{
    for (uint32_t i = 0; a[2] && i < (uint32_t)a[1]; i++)
        rs_cl_pointer_freed(((const word *)a[2])[i]);
}

static int makes_queue(enum rs_cl_place place)
{
    return place == RS_CL_clCreateCommandQueue || place == RS_CL_clCreateCommandQueueWithProperties
           || place == RS_CL_clCreateCommandQueueWithPropertiesKHR;
}

/* What the program asks of counts of references is answered when ours are out, as far as they can be. */
static void before(enum rs_cl_place place, const word *a)
{
    int is_asked = (place == RS_CL_clGetEventInfo && (uint32_t)a[1] == RS_CL_EVENT_REFERENCE_COUNT)
                   || (place == RS_CL_clGetContextInfo && (uint32_t)a[1] == RS_CL_CONTEXT_REFERENCE_COUNT)
                   || (place == RS_CL_clGetCommandQueueInfo && (uint32_t)a[1] == RS_CL_QUEUE_REFERENCE_COUNT);
    if (makes_queue(place))     /* what that takes is no time of the call */
        rs_cl_begin();
    if (!rs_cl_is_on())
        return;
    if (is_asked || place == RS_CL_clReleaseContext || place == RS_CL_clReleaseCommandQueue)
        rs_cl_drain_all(0);
    if (place == RS_CL_clReleaseCommandQueue)
        rs_cl_queue_released(a[0]);
    else if (place == RS_CL_clSVMFree || place == RS_CL_clMemFreeINTEL || place == RS_CL_clMemBlockingFreeINTEL)
        rs_cl_pointer_freed(a[1]);
}

static void after(enum rs_cl_place place, const word *a, word result)
{
    switch (place) {
    case RS_CL_clFinish:
    case RS_CL_clWaitForEvents: after_wait(a, place); break;
    case RS_CL_clRetainCommandQueue: rs_cl_queue_retained(a[0]); break;
    case RS_CL_clCreateKernel:
    case RS_CL_clCloneKernel: rs_cl_kernel_made(result); break;
    case RS_CL_clCreateKernelsInProgram: after_kernels(a); break;
    case RS_CL_clCreateBuffer:
    case RS_CL_clCreateBufferWithProperties:
    case RS_CL_clCreateImage:
    case RS_CL_clCreateImage2D:
    case RS_CL_clCreateImage3D:
    case RS_CL_clCreateImageWithProperties:
    case RS_CL_clCreatePipe: rs_cl_object_made(place, a, result); break;
    case RS_CL_clSVMAlloc:
    case RS_CL_clHostMemAllocINTEL:
    case RS_CL_clDeviceMemAllocINTEL:
    case RS_CL_clSharedMemAllocINTEL: rs_cl_pointer_made(place, a, result); break;
    case RS_CL_clEnqueueSVMFree: after_svm_free(a); break;
    case RS_CL_clGetEventInfo:
        if ((uint32_t)a[1] == RS_CL_EVENT_REFERENCE_COUNT && a[3] && rs_cl_holds(a[0]))
            --*(uint32_t *)a[3];
        break;
    default: break;
    }
}

/* --- functions that the program asks for by name --- */

static word wrapped[RS_CL_PLACES], wrapped_extensions[RS_CL_EXTENSIONS];

/* Ours, where it is the first of its name; that of a second driver goes by us. */
static word handed_out(const char *name, word function)
{
    for (unsigned i = 0; function && name && i < RS_CL_EXTENSIONS; i++) {
        word before_that = 0, *place = &target[RS_CL_PLACES + i];
        if (strcmp(name, rs_cl_functions[RS_CL_PLACES + i].name))
            continue;
        __atomic_compare_exchange_n(place, &before_that, function, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        return *place == function ? wrapped_extensions[i] : function;
    }
    for (unsigned i = 0; function && name && i < RS_CL_PLACES; i++)
        if (wrapped[i] && !strcmp(name, rs_cl_functions[i].name))
            return wrapped[i];
    int before_that = 0;
    if (function && name && !strncmp(name, "clEnqueue", 9)
        && atomic_compare_exchange_strong(&has_unwrapped, &before_that, 1))
        snprintf(unwrapped, sizeof unwrapped, "%s", name);
    return function;
}

/* --- one way for all calls --- */

static word special(enum rs_cl_place place, word *a)
{
    if (makes_queue(place))
        return rs_cl_create_queue(place, a);
    switch (place) {
    case RS_CL_clGetCommandQueueInfo: return rs_cl_queue_info(a);
    case RS_CL_clSetCommandQueueProperty: return rs_cl_set_queue_property(a);
    case RS_CL_clGetEventProfilingInfo: return rs_cl_profiling_info(a);
    case RS_CL_clGetExtensionFunctionAddress: return handed_out((const char *)a[0], rs_cl_forward(place, a));
    case RS_CL_clGetExtensionFunctionAddressForPlatform: return handed_out((const char *)a[1], rs_cl_forward(place, a));
    default: return rs_cl_forward(place, a);
    }
}

static word do_call(enum rs_cl_place place, word *a)
{
    if (rs_cl_functions[place].work)
        return put_into_queue(place, a);
    struct rs_thread *thread = rs_gpu_caller();
    int saved = errno;
    before(place, a);
    errno = saved;
    uint64_t begin = rs_ticks();
    word result = special(place, a);
    uint64_t end = rs_ticks();
    int failed = has_failed(place, result);
    saved = errno;
    if (thread)
        count(thread, place, begin, end, failed);
    if (!failed)
        after(place, a, result);
    if (thread && (place == RS_CL_clFinish || place == RS_CL_clWaitForEvents))
        note_wait(begin, end);
    errno = saved;
    return result;
}

#define P1 word a
#define P2 P1, word b
#define P3 P2, word c
#define P4 P3, word d
#define P5 P4, word e
#define P6 P5, word f
#define P7 P6, word g
#define P8 P7, word h
#define P9 P8, word i
#define P10 P9, word j
#define P11 P10, word k
#define P12 P11, word l
#define P13 P12, word m
#define P14 P13, word n
#define A1 a
#define A2 A1, b
#define A3 A2, c
#define A4 A3, d
#define A5 A4, e
#define A6 A5, f
#define A7 A6, g
#define A8 A7, h
#define A9 A8, i
#define A10 A9, j
#define A11 A10, k
#define A12 A11, l
#define A13 A12, m
#define A14 A13, n
#define P0 void
#define A0 0

#define WRAPPER(name, arguments) \
    static word wrapped_##name(P##arguments) \
    { \
        word all[] = {A##arguments}; \
        return do_call(RS_CL_##name, all); \
    }
#define RS_CL_CALL(place, name, arguments, result) WRAPPER(name, arguments)
#define RS_CL_WORK(place, name, arguments, result, ...) WRAPPER(name, arguments)
#define RS_CL_EXTENSION(place, name, arguments, result) WRAPPER(name, arguments)
#define RS_CL_EXTENSION_WORK(place, name, arguments, result, ...) WRAPPER(name, arguments)
#include "opencl_functions.h"
#undef RS_CL_CALL
#undef RS_CL_WORK
#undef RS_CL_EXTENSION
#undef RS_CL_EXTENSION_WORK

static void fill_tables(void)
{
#define RS_CL_CALL(place, name, arguments, result) wrapped[place] = (word)wrapped_##name;
#define RS_CL_WORK(place, name, arguments, result, ...) wrapped[place] = (word)wrapped_##name;
#define RS_CL_EXTENSION(place, name, arguments, result) wrapped_extensions[place] = (word)wrapped_##name;
#define RS_CL_EXTENSION_WORK(place, name, arguments, result, ...) wrapped_extensions[place] = (word)wrapped_##name;
#include "opencl_functions.h"
#undef RS_CL_CALL
#undef RS_CL_WORK
#undef RS_CL_EXTENSION
#undef RS_CL_EXTENSION_WORK
}

/* --- the loader's side --- */

RS_EXPORT int32_t clGetLayerInfo(uint32_t name, size_t bytes, void *value, size_t *needed_bytes)
{
    static const char title[] = "rankscope";
    static const uint32_t version = RS_CL_LAYER_VERSION_100;
    const void *answer = name == RS_CL_LAYER_API_VERSION ? (const void *)&version : title;
    size_t size = name == RS_CL_LAYER_API_VERSION ? sizeof version : sizeof title;
    if (name != RS_CL_LAYER_API_VERSION && name != RS_CL_LAYER_NAME)
        return RS_CL_INVALID_VALUE;
    if (value && bytes < size)
        return RS_CL_INVALID_VALUE;
    if (value)
        memcpy(value, answer, size);
    if (needed_bytes)
        *needed_bytes = size;
    return RS_CL_SUCCESS;
}

/* Refused: the loader goes on without us. It is by a second loader of the process, whose functions are others. */
RS_EXPORT int32_t clInitLayer(uint32_t places, const void *theirs, uint32_t *our_places, const void **ours)
{
    const char *asked = getenv("RANKSCOPE_OPENCL");
    int before_that = 0;
    if (!theirs || !our_places || !ours || !rs_recording() || (asked && !strcmp(asked, "0")))
        return RS_CL_INVALID_OPERATION;
    if (!atomic_compare_exchange_strong(&has_layer, &before_that, 1)) {
        atomic_store(&has_second, 1);
        return RS_CL_INVALID_OPERATION;
    }
    fill_tables();
    for (uint32_t i = 0; i < RS_CL_PLACES; i++) {
        target[i] = i < places ? ((const word *)theirs)[i] : 0;
        if (!target[i])
            wrapped[i] = 0;
    }
    *our_places = places < RS_CL_PLACES ? places : RS_CL_PLACES;
    *ours = wrapped;
    return RS_CL_SUCCESS;
}

RS_EXPORT int32_t clInitLayerWithProperties(uint32_t places, const void *theirs, uint32_t *our_places, const void **ours,
                                            const uint64_t *properties)
{
    (void)properties;
    return clInitLayer(places, theirs, our_places, ours);
}

/* The loader ends: the drivers go with it. */
RS_EXPORT int32_t clDeinitLayer(void)
{
    rs_opencl_finish();
    return RS_CL_SUCCESS;
}

/* --- the thread that looks, and the end --- */

static void say_missing(void)
{
    char note[256] = "";
    if (atomic_load(&has_second))
        snprintf(note, sizeof note, "a second loader of OpenCL came: what goes through it is not recorded");
    else if (unwrapped[0])
        snprintf(note, sizeof note, "%s was asked for by name: what it launches is not recorded", unwrapped);
    if (note[0] && !rs_cl_runtime->note)
        rs_cl_runtime->note = rs_intern(note);
}

static void look(int is_last)
{
    rs_cl_drain_all(is_last);
    rs_gpu_enter();
    if (rs_gpu.row && rs_cl_is_on())
        rs_gpu_settle(rs_gpu_note_now(), is_last);
    rs_gpu_leave();
    rs_refresh_facts();
}

static struct rs_gpu_thread looker = {.turn = look, .lock = PTHREAD_MUTEX_INITIALIZER};

/* With the first queue: drivers have registered what they do at exit by then, so that we come before it. 1: it is on. */
int rs_cl_begin(void)
{
    int before_that = NOT_STARTED, is_first;
    if (atomic_load(&life) != NOT_STARTED || !rs_gpu_caller())
        return rs_cl_is_on();
    if (!atomic_compare_exchange_strong(&life, &before_that, OVER))
        return rs_cl_is_on();
    owner_pid = getpid();
    if (!rs_gpu_begin(RS_BACKEND_OPENCL, NULL, &is_first) || !(rs_cl_runtime = rs_gpu_runtime(RS_BACKEND_OPENCL, "")))
        return 0;
    atomic_store(&life, STARTED);
    rs_gpu_thread_start(&looker);
    atexit(rs_opencl_finish);
    return 1;
}

/* A handler of the program may end it while its thread tells of commands, and drivers that end must not be asked any more: by
 * our own thread neither. */
void rs_opencl_finish(void)
{
    if (atomic_load(&life) != STARTED || owner_pid != getpid() || atomic_exchange(&is_ending, 1))
        return;
    if (!rs_gpu_inside && rs_gpu_thread_end(&looker)) {
        look(1);
        say_missing();
    }
    atomic_store(&life, OVER);
}

/* In the child of a fork the driver's threads are gone, and what was put into queues is the parent's. */
void rs_opencl_forget(void)
{
    if (atomic_load(&life) == NOT_STARTED)
        return;
    atomic_store(&life, OVER);
    atomic_store(&is_ending, 0);
    rs_gpu_thread_forget(&looker);
    rs_cl_runtime = NULL;
    rs_cl_queues_forget();
    rs_cl_commands_forget();
    rs_cl_devices_forget();
    rs_cl_memory_forget();
}
