/* What recorders of vendors' runtimes (CUPTI, Level Zero, OpenCL, HIP) tell of devices; everything that is counted, put
 * into steps and summed up is behind it. A producer converts its records to these, on one clock of the process (see
 * rs_gpu_begin), and hands them over from any thread, in any order, between rs_gpu_enter and rs_gpu_leave. */
#ifndef RANKSCOPE_GPU_H
#define RANKSCOPE_GPU_H

#include <pthread.h>
#include <time.h>

#include "recorder.h"

/* What a device does, as far as its time is told apart. */
enum rs_work { RS_WORK_COMPUTE = 0, RS_WORK_COMMUNICATION = 1, RS_WORK_COPY = 2 };

enum rs_gpu_kind { RS_GPU_KERNEL = 1, RS_GPU_COPY = 2, RS_GPU_SET = 3 };

/* Something a device did. */
struct rs_gpu_work {
    uint8_t kind;               /* enum rs_gpu_kind */
    uint8_t is_pageable;        /* a copy from or to pageable memory of the host */
    uint32_t device;            /* as rs_gpu_device numbers it */
    uint32_t queue;             /* any number that is its stream's or queue's own on that device */
    uint32_t correlation;       /* of the call that launched it, in rs_gpu_call; 0: not told */
    uint64_t launched_ns;       /* when it was launched, where that is known without a call; 0: not told */
    uint64_t start_ns, end_ns;
    uint64_t bytes;             /* of copies and sets */
    const char *name;           /* of a kernel: it must stay where it is while the kernel is loaded */
    uint16_t name_id;           /* of copies and sets: rs_intern's */
};

/* A call of the runtime. */
struct rs_gpu_call {
    uint8_t layer;              /* RS_LAYER_CUDA_API, … */
    uint8_t failed;
    uint8_t waits;              /* it returns when the device has done something */
    uint16_t name;              /* rs_intern's */
    uint32_t tid, correlation;
    uint64_t start_ns, end_ns;
};

/* Memory that a device can use; device UINT32_MAX: pinned memory of the host. */
struct rs_gpu_memory {
    uint32_t device;
    uint8_t is_release;
    uint64_t bytes;
};

/* A range of the program, which comes as two of these with one id, in either order, or an instant. */
enum rs_marker { RS_MARKER_INSTANT = 1, RS_MARKER_START = 2, RS_MARKER_END = 3 };
struct rs_gpu_marker {
    uint8_t kind;               /* enum rs_marker */
    uint32_t id, tid;           /* tid 0: of no thread */
    uint64_t at_ns;
    const char *name, *domain;  /* of starts and instants */
};

struct rs_gpu_layer {
    struct rs_cuda *row;            /* what is said of all backends together; NULL: none records */
    struct rs_thread *activities;   /* the slot of what has no thread: GPU activities, API calls */
    pthread_mutex_t lock;
    /* Of the producer that decides when to record; NULL: nobody does. */
    void (*step_seen)(uint64_t begin_ns, uint64_t end_ns, int is_rest);
    void (*device_step_seen)(uint64_t ns, uint64_t launching_ns);
    uint64_t (*note_now)(void);     /* reads the clock of the process and the ticks: sets row->flushed_* */
    uint32_t producers;             /* that have begun */
    uint64_t late_ns;               /* so long after its end news of something short may come; 0: a second */
    uint64_t longest_ns;            /* work of late: a runtime keeps what comes with it until it has ended */
    int has_no_waits;               /* waits for the device are not told now */
};
extern struct rs_gpu_layer rs_gpu __attribute__((visibility("hidden")));
extern __thread int rs_gpu_inside __attribute__((visibility("hidden"), tls_model("initial-exec")));    /* this thread has the lock */

/* The first producer brings the clock: note_now reads it (NULL: CLOCK_MONOTONIC), and it is all others' clock. Returns
 * the row that all share, or NULL where the file has no room. *is_first: this one's clock is it. */
struct rs_cuda *rs_gpu_begin(enum rs_backend backend, uint64_t (*note_now)(void), int *is_first);
struct rs_runtime *rs_gpu_runtime(enum rs_backend backend, const char *library);    /* its own row; NULL: no room */
struct rs_cuda *rs_gpu_new_row(enum rs_cuda_state state, const char *library, const char *note);

static inline void rs_gpu_enter(void)
{
    rs_gpu_inside = 1;              /* before: a signal may come in between, and its handler end the process */
    pthread_mutex_lock(&rs_gpu.lock);
}

static inline void rs_gpu_leave(void)
{
    pthread_mutex_unlock(&rs_gpu.lock);
    rs_gpu_inside = 0;
}

/* The thread that calls a runtime, ready to count that itself; NULL: nothing is recorded. Unlike with rs_enter a call inside
 * another one (from a callback of the driver's) is the program's as well. */
static inline struct rs_thread *rs_gpu_caller(void)
{
    if (RS_UNLIKELY(!atomic_load_explicit(&rs.enabled, memory_order_relaxed)) && !rs_begin())
        return NULL;
    return RS_LIKELY(rs_self != NULL) ? rs_self : rs_thread_start();
}

/* Between both: */
uint32_t rs_gpu_device(enum rs_backend backend, uint32_t index);
void rs_gpu_add_work(const struct rs_gpu_work *work);
void rs_gpu_add_call(const struct rs_gpu_call *call);
void rs_gpu_note_call(const struct rs_gpu_call *call);  /* one that its thread has counted: what it launched is put into steps and ranges */
void rs_gpu_add_wait(uint64_t start_ns, uint64_t end_ns);   /* of the loop's thread, where no call says so */
void rs_gpu_add_memory(const struct rs_gpu_memory *memory);
void rs_gpu_add_marker(const struct rs_gpu_marker *marker);
uint64_t rs_gpu_now(void);                      /* on the clock of the process; 0: not known yet */
uint64_t rs_gpu_ns_of(uint64_t ticks);          /* likewise; rs_gpu_has_rate first */
int rs_gpu_has_rate(void);
uint64_t rs_gpu_note_now(void);
void rs_gpu_settle(uint64_t now_ns, int is_last);   /* about once a second; is_last: this producer tells no more */
struct rs_device *rs_device_row(uint32_t device);   /* for what one runtime alone tells; NULL: no room */
uint64_t rs_gpu_busiest(uint64_t *last_ns);         /* how long the busiest device was so far, and until when it was, if asked */

/* For one that records in windows, between both as well. */
void rs_device_steps_open(uint64_t now_ns);         /* recording begins anew */
void rs_device_steps_close(void);
void rs_gpu_cut(void);                              /* it pauses: what is open or under way ends unseen */

static inline void rs_gpu_change(uint64_t *current, uint64_t *peak, uint64_t bytes, int is_release)
{
    *current = !is_release ? *current + bytes : bytes < *current ? *current - bytes : 0;
    if (*current > *peak)
        *peak = *current;
}

/* Without: at the end of the process, when all producers have told what they knew; and in the child of a fork, where all that
 * was recorded is the parent's. */
void rs_gpu_finish(void);
void rs_gpu_forget(void);

/* producer_thread.c: a thread in which a producer asks its devices. */
struct rs_gpu_thread {
    void (*turn)(int is_last);
    uint64_t (*pause_ns)(void);     /* until the next turn, under the lock; NULL: a second */
    int has_last;                   /* the last turn is the thread's; 0: it is for who ends it */
    pthread_mutex_t lock;
    pthread_cond_t wake, ended;
    int is_there, asked_to_end, has_ended;
    uint32_t tid;
};
void rs_gpu_thread_start(struct rs_gpu_thread *thread);
int rs_gpu_thread_end(struct rs_gpu_thread *thread);    /* waits, not for long; 1: it takes no turn any more */
void rs_gpu_thread_forget(struct rs_gpu_thread *thread);    /* in the child of a fork */
struct timespec rs_gpu_after(uint64_t ns);              /* from now, as conditions on the monotonic clock want it */

/* gpus.c: which devices there are, described by who drives them, in any thread. */
struct rs_gpu_about {
    const char *name, *note;    /* note: why its energy is not known */
    uint32_t multiprocessors;
    uint64_t memory_bytes;
    uint8_t uuid[16];
};
void rs_gpu_describe(uint32_t device, const struct rs_gpu_about *about);
struct rs_gpu *rs_gpu_row(uint32_t device);     /* NULL: not described yet */
int rs_gpu_is_used(uint32_t device);            /* there is a record of it */
void rs_gpus_forget(void);
int rs_gpu_is_of(uint32_t device, enum rs_backend backend, uint32_t *index);

#endif
