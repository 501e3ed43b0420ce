/* System calls of the program: seen, executed, counted. Off unless RANKSCOPE_IMPORTS asks for it. */
#ifndef RANKSCOPE_CALLS_LAYER_H
#define RANKSCOPE_CALLS_LAYER_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

#define RS_CALLS_CACHE 64u

/* What a thread is doing, as far as its system calls are concerned. calls_raw.c knows the offsets. */
struct rs_calls_thread {
    volatile uint8_t selector;      /* read by the kernel at each call: 1 traps */
    volatile uint8_t armed;
    uint8_t cause;                  /* enum rs_cause */
    uint8_t sigsys_blocked;         /* the program believes so */
    uint32_t own;                   /* depth inside the recorder's own work, whose calls are not the program's */
    uint32_t module;
    uint32_t counting;              /* a call: a handler of the program may interrupt that, and fork */
    uint64_t return_to;             /* a vfork's: see calls_spawn.c */
    uint64_t spill[6];
    uint64_t called_from;           /* not 0: the call that was trapped there has not been made yet */
    uint32_t cancelled;             /* while `counting`: to be told again afterwards */
    struct rs_system_call *cache[RS_CALLS_CACHE];
};

/* Exported: the library of wrappers uses it too. */
extern __thread struct rs_calls_thread rankscope_calls_thread __attribute__((tls_model("initial-exec")));

/* One call that has returned (or will not return). */
struct rs_call {
    long number;
    long arguments[6];
    long result;                    /* as the kernel gives it: -errno */
    uint64_t ticks;
    int in_loader;                  /* made by the dynamic loader */
    int taken_back;                 /* counted before it was known how it ends */
};

extern volatile int rankscope_calls_counting;  /* not 0: calls are counted */

static inline void rs_own_enter(void)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    self->own++;
    self->selector = 0;
}

static inline void rs_own_leave(void)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (--self->own == 0 && self->armed)
        self->selector = 1;
}

/* A lock that is only tried for: its holder may be what we have interrupted. */
static inline int rs_calls_try(volatile int *busy)
{
    for (int spin = 0; spin < 2000; spin++)
        if (!__atomic_exchange_n(busy, 1, __ATOMIC_ACQUIRE))
            return 1;
    return 0;
}

static inline void rs_calls_done(volatile int *busy) { __atomic_store_n(busy, 0, __ATOMIC_RELEASE); }

/* calls.c */
void rs_calls_begin(int forked);    /* at load and in the child of a fork, once there is a file */
void rs_calls_forget(void);         /* in that child, before */
void rs_calls_enter_phase(uint8_t phase);
void rs_calls_stand_aside(const char *why);
void rs_calls_say(const char *note);    /* unless there is another */
void rs_calls_count(struct rs_calls_thread *self, const struct rs_call *call);
void rankscope_calls_add(struct rs_calls_thread *self, const struct rs_call *call);
const char *rs_calls_own_folder(void);

/* calls_table.c */
int rs_calls_table_open(void);
void rs_calls_table_forget(void);
void rs_calls_row_add(struct rs_calls_thread *self, uint64_t key, const struct rs_call *call);

/* calls_files.c: what a call is about */
enum rs_about { RS_ABOUT_NOTHING = 0, RS_ABOUT_PATH, RS_ABOUT_PATH_AT, RS_ABOUT_DESCRIPTOR, RS_ABOUT_MAPPING };
enum rs_about rs_call_about(const struct rs_call *call);
const char *rs_call_path(const struct rs_call *call);   /* NULL where it names none */
int rs_call_is_own(const struct rs_call *call);         /* of files of the recorder */
uint16_t rs_call_mount(const struct rs_call *call);     /* string id of "type place" */
void rs_call_opened(const struct rs_call *call, uint16_t mount, int own);
void rs_mounts_read(void);
void rs_mounts_forget(void);

/* calls_paths.c */
int rs_paths_open(void);
void rs_paths_forget(void);
void rs_path_add(uint32_t module, uint8_t cause, const struct rs_call *call);

/* calls_dispatch.c */
int rs_dispatch_arm(const char **why_not);
void rs_dispatch_disarm_here(void);
int rs_dispatch_is_ours(uintptr_t address);     /* code of this library */
void rs_dispatch_filtered(void);    /* the same, and no thread makes a call of its own for it from now on */

/* calls_signals.c: calls that change what signals do; 1 if the call is done, its result in *result */
int rs_signal_call(struct rs_calls_thread *self, void *context, const struct rs_call *call, long *result);
void rs_signal_cancel_again(struct rs_calls_thread *self);
void rs_signal_pass_on(int signal, void *info, void *context);

/* calls_spawn.c: calls that make processes and threads; 1 if it has seen to it */
void rs_spawn_prepare(void);
int rs_spawn_call(struct rs_calls_thread *self, void *context, const struct rs_call *call);

/* calls_start.c: what the dynamic loader did before us, from a second start of it that is stopped before the program */
void rs_loader_replay(void);

/* calls_raw.c */
long rankscope_raw(long number, long a, long b, long c, long d, long e, long f);
long rs_raw_call(long number, long a, long b, long c, long d, long e, long f);  /* and the trapped call is made */
void rs_raw_entry(void);
void rs_raw_restorer(void);
void rs_raw_vfork(void);
long rs_raw_clone(long number, long a, long b, long c, long d, long e, long f);
extern char rs_raw_begin[], rs_raw_end[], rs_raw_entered[], rs_raw_made[], rs_raw_told[];

#endif
