/* What the files of the CUDA layer share. Everything but starting and stopping happens in CUPTI's buffer callback,
 * under the lock of the GPU layer. */
#ifndef RANKSCOPE_CUDA_LAYER_H
#define RANKSCOPE_CUDA_LAYER_H

#include "cupti.h"
#include "gpu.h"

#define RS_CUDA_FLUSH_NS 300000000u     /* a kill loses what has come since, and what was under way at the time */

enum rs_cuda_life { RS_CUDA_NOT_STARTED = 0, RS_CUDA_STARTED = 1, RS_CUDA_OVER = 2 };
struct rs_cuda_layer {
    struct rs_cupti cupti;
    struct rs_cuda *row;            /* that of the GPU layer; NULL: not recording */
    uint64_t offset_ns;             /* from CUPTI's clock to that of the process, where another backend came first */
    atomic_int life;                /* enum rs_cuda_life; over: records are no longer looked at */
    atomic_int others;              /* another client of CUPTI has come */
    atomic_int is_waiting;          /* to be attached: contexts made and kernels loaded under CUPTI stay slower by 3 % without it */
};
extern struct rs_cuda_layer rs_cuda __attribute__((visibility("hidden")));

/* cuda_library.c */
enum rs_found { RS_FOUND = 0, RS_FOUND_NONE = 1, RS_FOUND_OLD = 2 };
enum rs_found rs_cupti_find(struct rs_cupti *cupti, uint32_t *version, char *path, size_t size, int open_it);

/* cuda.c: called at the end of the process and in the child of a fork */
void rs_cuda_finish(void);
void rs_cuda_ending(void);     /* before it is known whether the process has anything to tell */
void rs_cuda_forget(void);
int rs_cuda_is_own(uint32_t tid);      /* the thread is ours: what it asks the driver is none of the program's calls */

/* cuda_attach.c */
int rs_cuda_attach(int with_waits, char *note, size_t size);    /* 1: kernels are recorded; the note says what is not */
int rs_cuda_is_attached(void);
int rs_cuda_can_detach(void);
int rs_cuda_detach(struct rs_gpu_thread *thread, int has_steps);    /* waits in that thread until somebody has done it */
uint64_t rs_cuda_detached(void);
int rs_cuda_may_interrupt(void);                /* 1: CUPTI can be taken off without steps, too */
void rs_cuda_ask_no_more(void);
int rs_cuda_has_nvtx(void);
int rs_cuda_hold(void);
void rs_cuda_let_go(void);
void rs_cuda_attach_forget(void);

/* cuda_windows.c: whether to record now, so that it costs no more than it may */
enum rs_turn { RS_TURN_STAY = 0, RS_TURN_OPEN = 1, RS_TURN_CLOSE = 2 };
void rs_windows_begin(int may_pause);
uint64_t rs_windows_seen_steps(void);
int rs_windows_wanted(void);
int rs_windows_may_pause(void);
int rs_windows_has_steps(void);
int rs_windows_first(void);
void rs_windows_stay(const char *why);
uint64_t rs_windows_turn_ns(void);
enum rs_turn rs_windows_turn(uint64_t now_ns);
void rs_windows_opened(uint64_t now_ns);
void rs_windows_closed(uint64_t now_ns);
void rs_windows_switched(uint64_t now_ns, uint64_t took_ns);
void rs_windows_step(uint64_t begin_ns, uint64_t end_ns, int is_rest);
void rs_windows_kernel(uint64_t ns);
void rs_windows_device_step(uint64_t ns, uint64_t launching_ns);
void rs_windows_forget(void);

/* cuda_records.c */
void rs_cuda_buffer(uint8_t *buffer, size_t valid);
void rs_cuda_records_forget(void);

/* cuda_calls.c */
enum rs_cuda_api rs_cuda_api_asked(void);
enum rs_cuda_api rs_cuda_calls_select(enum rs_cuda_api asked, int enable);
void rs_cuda_call(const struct rs_cupti_api *record, struct rs_gpu_call *call);
void rs_cuda_calls_forget(void);

/* nvml.c */
void rs_gpu_known(uint32_t device);
int rs_gpu_has_context(void);
void rs_gpus_sample(int is_last);
void rs_cuda_gpus_forget(void);

/* cuda_memory.c */
void rs_cuda_memory(const struct rs_cupti_memory_record *record);
void rs_cuda_pool(const struct rs_cupti_pool_record *record);
void rs_cuda_unified(const struct rs_cupti_unified_record *record);
int rs_cuda_unified_wanted(void);
int rs_cuda_unified_select(int enable);
void rs_cuda_memory_forget(void);

/* cuda_neighbours.c */
enum rs_chained { RS_CHAINED_NONE, RS_CHAINED_BESIDE, RS_CHAINED_CLIENT };     /* CLIENT: of CUPTI, which has one */
enum rs_chained rs_cuda_chain(int *result, char *note, size_t size);
int rs_nvtx_chain(void *get_export_table);
void rs_cuda_neighbour_note(int was_called);

#endif
