/* What the files of the OpenCL layer share. The ICD loader hands us its table of functions and takes ours: every argument
 * of OpenCL fits a word, so that one way through serves all functions, and opencl_functions.h says what is special. */
#ifndef RANKSCOPE_OPENCL_LAYER_H
#define RANKSCOPE_OPENCL_LAYER_H

#include "gpu.h"

typedef uintptr_t word;
#define RS_CL_PLACES 150u           /* of the loader's table, as far as we know it */
#define RS_CL_EXTENSIONS 10u        /* functions that are asked for by name: behind those places */
#define RS_CL_FUNCTIONS (RS_CL_PLACES + RS_CL_EXTENSIONS)

enum rs_cl_result { RS_CL_NONE, RS_CL_STATUS, RS_CL_OBJECT, RS_CL_LOOKUP };
enum rs_cl_work {
    RS_CL_NO_WORK, RS_CL_KERNEL, RS_CL_NATIVE, RS_CL_COPY, RS_CL_HTOD, RS_CL_DTOH, RS_CL_DTOD, RS_CL_SET, RS_CL_MAP,
    RS_CL_UNMAP, RS_CL_MIGRATE, RS_CL_WORKS
};
enum rs_cl_size { RS_CL_NO_SIZE, RS_CL_SIZE, RS_CL_REGION, RS_CL_PIXELS, RS_CL_PIXELS_OF_2 };

struct rs_cl_function {
    const char *name;
    uint8_t arguments, result, work, blocking_at, size, size_at;
};
extern const struct rs_cl_function rs_cl_functions[RS_CL_FUNCTIONS] __attribute__((visibility("hidden")));

enum rs_cl_place {
#define RS_CL_CALL(place, name, arguments, result) RS_CL_##name = place,
#define RS_CL_WORK(place, name, arguments, result, ...) RS_CL_##name = place,
#define RS_CL_EXTENSION(place, name, arguments, result) RS_CL_##name = RS_CL_PLACES + place,
#define RS_CL_EXTENSION_WORK(place, name, arguments, result, ...) RS_CL_##name = RS_CL_PLACES + place,
#include "opencl_functions.h"
#undef RS_CL_CALL
#undef RS_CL_WORK
#undef RS_CL_EXTENSION
#undef RS_CL_EXTENSION_WORK
};

/* Values of OpenCL's constants, as far as we ask or answer. */
enum rs_cl_value {
    RS_CL_SUCCESS = 0, RS_CL_PROFILING_INFO_NOT_AVAILABLE = -7, RS_CL_INVALID_VALUE = -30,
    RS_CL_INVALID_OPERATION = -59,
    RS_CL_QUEUE_OUT_OF_ORDER = 1, RS_CL_QUEUE_PROFILING = 2, RS_CL_QUEUE_ON_DEVICE = 4,
    RS_CL_PLATFORM_VERSION = 0x0901, RS_CL_PLATFORM_NAME = 0x0902, RS_CL_DEVICE_PLATFORM = 0x1031,
    RS_CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, RS_CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F, RS_CL_DEVICE_NAME = 0x102B,
    RS_CL_DEVICE_UUID = 0x106A,
    RS_CL_CONTEXT_REFERENCE_COUNT = 0x1080, RS_CL_CONTEXT_DEVICES = 0x1081,
    RS_CL_QUEUE_REFERENCE_COUNT = 0x1092, RS_CL_QUEUE_PROPERTIES = 0x1093, RS_CL_QUEUE_PROPERTIES_ARRAY = 0x1098,
    RS_CL_MEM_BYTES = 0x1102, RS_CL_IMAGE_ELEMENT_BYTES = 0x1111,
    RS_CL_KERNEL_FUNCTION_NAME = 0x1190,
    RS_CL_EVENT_COMMAND_QUEUE = 0x11D0, RS_CL_EVENT_REFERENCE_COUNT = 0x11D2, RS_CL_EVENT_STATUS = 0x11D3,
    RS_CL_TIME_QUEUED = 0x1280, RS_CL_TIME_SUBMIT = 0x1281, RS_CL_TIME_START = 0x1282, RS_CL_TIME_END = 0x1283,
    RS_CL_LAYER_API_VERSION = 0x4240, RS_CL_LAYER_NAME = 0x4241, RS_CL_LAYER_VERSION_100 = 100
};

/* opencl.c: the function behind us, with the program's arguments or our own */
word rs_cl_forward(enum rs_cl_place place, const word *arguments);
static inline int rs_cl_ask(enum rs_cl_place place, const word *arguments) { return (int)rs_cl_forward(place, arguments); }
#define RS_CL_ASK(name, ...) rs_cl_ask(RS_CL_##name, (const word[]){__VA_ARGS__})
extern struct rs_runtime *rs_cl_runtime __attribute__((visibility("hidden")));   /* not NULL while it is on */
int rs_cl_begin(void);              /* with the first queue; 1: it is on */
int rs_cl_is_on(void);              /* not before the first queue, in the child of a fork or at the end */

/* Called at the end of the process and in the child of a fork. */
void rs_opencl_finish(void);
void rs_opencl_forget(void);

/* opencl_queues.c: queues, and that the program does not see what we have changed of them */
struct rs_cl_command;
struct rs_cl_queue {
    word handle;
    uint32_t device, number, references;
    uint8_t is_profiled;            /* its commands have device times */
    uint8_t is_hidden;              /* but the program has not asked for them */
    uint8_t is_unordered, is_used;
    uint8_t has_array, array_used;  /* what the program gave to clCreateCommandQueueWithProperties */
    uint64_t array[32];
    atomic_int is_draining;
    struct rs_cl_command *first, *last;     /* under rs_cl_lock */
    uint32_t pending, drain_at;
    struct rs_cl_queue *next;       /* of its bucket or of the free ones */
};
extern rs_lock rs_cl_lock __attribute__((visibility("hidden")));
struct rs_cl_queue *rs_cl_queue_of(word handle);
word rs_cl_create_queue(enum rs_cl_place place, word *arguments);
word rs_cl_queue_info(word *arguments);
word rs_cl_set_queue_property(word *arguments);
word rs_cl_profiling_info(word *arguments);
void rs_cl_queue_retained(word handle);
void rs_cl_queue_released(word handle);
struct rs_cl_queue *rs_cl_next_queue(uint32_t *at);     /* all that there ever were, each with a number from 0 on */
void rs_cl_queues_forget(void);

/* opencl_devices.c */
uint32_t rs_cl_device_of(word handle);          /* not under rs_cl_lock: it asks the driver */
uint32_t rs_cl_device_of_context(word context);
void rs_cl_device_clock(uint32_t device, int64_t low_ns, int64_t high_ns, uint64_t now_ns);
uint64_t rs_cl_device_to_host(uint32_t device, uint64_t device_ns);
void rs_cl_devices_forget(void);

/* opencl_commands.c: what was put into queues, until its times are known */
struct rs_cl_command {
    struct rs_cl_command *next;
    word event;                     /* we hold a reference */
    uint64_t begin_ticks, end_ticks;        /* of the call */
    uint64_t bytes, queued, start, end;     /* of the device's clock */
    const char *kernel;
    uint16_t name_id;
    uint8_t kind;
};
void rs_cl_command_add(struct rs_cl_queue *queue, const struct rs_cl_function *function, const word *arguments, word event,
                       uint64_t begin_ticks, uint64_t end_ticks);
void rs_cl_drain(struct rs_cl_queue *queue, int is_last);
void rs_cl_drain_all(int is_last);
int rs_cl_holds(word event);
void rs_cl_kernel_made(word kernel);
void rs_cl_commands_forget(void);

/* opencl_memory.c */
void rs_cl_object_made(enum rs_cl_place place, const word *arguments, word object);
void rs_cl_pointer_made(enum rs_cl_place place, const word *arguments, word pointer);
void rs_cl_pointer_freed(word pointer);
void rs_cl_memory_forget(void);

#endif
