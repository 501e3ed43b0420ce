/* What the files of the CUDA layer share. Everything but starting and stopping happens in CUPTI's buffer callback,
 * under rs_cuda.lock. */
#ifndef RANKSCOPE_CUDA_LAYER_H
#define RANKSCOPE_CUDA_LAYER_H

#include <pthread.h>

#include "cupti.h"
#include "recorder.h"
#include "trace.h"

struct rs_cuda_layer {
    struct rs_cupti cupti;
    struct rs_cuda *row;            /* NULL: not recording */
    struct rs_thread *activities;   /* the slot of what has no thread: GPU activities, API calls */
    pthread_mutex_t lock;
};
extern struct rs_cuda_layer rs_cuda __attribute__((visibility("hidden")));

/* What a device does, as far as its time is told apart. */
enum rs_work { RS_WORK_COMPUTE = 0, RS_WORK_COMMUNICATION = 1, RS_WORK_COPY = 2 };

/* cuda_library.c */
enum rs_found { RS_FOUND = 0, RS_FOUND_NONE = 1, RS_FOUND_OLD = 2 };
enum rs_found rs_cupti_find(struct rs_cupti *cupti, uint32_t *version, char *path, size_t size, int open_it);

/* cuda.c: called at the end of the process and in the child of a fork */
void rs_cuda_finish(void);
uint64_t rs_cuda_note_now(void);
void rs_cuda_forget(void);

/* cuda_windows.c: whether to record now, so that it costs no more than it may */
enum rs_turn { RS_TURN_STAY = 0, RS_TURN_OPEN = 1, RS_TURN_CLOSE = 2 };
int rs_windows_begin(void);
int rs_windows_wanted(void);
int rs_windows_may_pause(void);
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
void rs_cuda_tally(struct rs_thread *thread, uint64_t key, uint64_t ns, uint64_t bytes, int failed);

/* cuda_groups.c */
uint16_t rs_cuda_stream(uint32_t device, uint32_t stream);
uint16_t rs_cuda_domain(const char *name);
struct rs_thread *rs_cuda_thread(uint32_t tid);
void rs_cuda_groups_forget(void);

/* cuda_ranges.c */
void rs_cuda_marker(const struct rs_cupti_marker_record *marker);
void rs_cuda_ranges_cut(void);
void rs_cuda_ranges_forget(void);

/* cuda_nodes.c */
uint16_t rs_range_node(uint16_t around, uint16_t domain, uint16_t name);
void rs_range_nodes_forget(void);

/* cuda_lanes.c */
void rs_lane_start(uint32_t tid, uint32_t id, uint64_t at_ns, uint16_t name, uint16_t domain);
void rs_lane_end(uint32_t tid, uint32_t id, uint64_t at_ns);
int rs_lane_call(const struct rs_cupti_api *record, uint16_t name, int failed);
struct rs_thread *rs_lane_thread(uint8_t number);
void rs_lane_hurry(uint8_t number);
void rs_lanes_settle(uint64_t before_ns);
void rs_lanes_forget(void);

/* cuda_attribution.c */
int rs_attribution_begin(void);
void rs_attribution_call(const struct rs_cupti_api *call, uint16_t name, int failed);
void rs_attribution_activity(uint32_t correlation, uint16_t name, uint8_t size, uint64_t ns, uint64_t bytes);
void rs_attribution_settle(uint64_t before_ns);
void rs_attribution_cut(void);
void rs_attribution_forget(void);
void rs_range_known(uint32_t correlation, uint8_t lane, uint16_t node);
void rs_range_tally(struct rs_thread *thread, uint8_t layer, uint16_t name, uint16_t node, uint8_t size, uint64_t ns,
                    uint64_t bytes, int failed);

/* cuda_calls.c */
enum rs_cuda_api rs_cuda_api_asked(void);
enum rs_cuda_api rs_cuda_calls_select(enum rs_cuda_api asked, int enable);
void rs_cuda_call(const struct rs_cupti_api *call);
void rs_cuda_calls_forget(void);

/* cuda_devices.c */
void rs_device_work(uint32_t device, uint64_t start_ns, uint64_t end_ns, enum rs_work work);
struct rs_device *rs_device_row(uint32_t device);
void rs_device_settle(uint64_t before_ns);
void rs_devices_cut(void);
void rs_devices_forget(void);

/* What the device does between two moments, in order. 0: what it did at the first one is forgotten. */
typedef void (*rs_device_visit)(void *context, uint64_t from_ns, uint64_t to_ns, uint64_t doing);
int rs_device_walk(uint32_t device, uint64_t from_ns, uint64_t to_ns, rs_device_visit visit, void *context);

/* gpus.c */
void rs_gpu_used(uint32_t device);
void rs_gpu_known(uint32_t device);
void rs_gpus_sample(int is_last);
void rs_gpus_forget(void);

/* cuda_steps.c */
void rs_device_steps_call(const struct rs_cupti_api *call, uint16_t name);
void rs_device_steps_wait(const struct rs_cupti_synchronization_record *wait);
void rs_device_steps_activity(uint32_t device, uint32_t correlation, uint64_t start_ns, uint64_t end_ns,
                              enum rs_work work, uint64_t bytes, int is_pageable);
void rs_device_steps_settle(uint64_t now_ns, int is_last);
uint64_t rs_device_steps_now(void);
void rs_device_steps_open(uint64_t now_ns);
void rs_device_steps_close(void);
void rs_device_steps_forget(void);

/* cuda_memory.c */
void rs_cuda_memory(const struct rs_cupti_memory_record *record);
void rs_cuda_pool(const struct rs_cupti_pool_record *record);
void rs_cuda_unified(const struct rs_cupti_unified_record *record);
int rs_cuda_unified_wanted(void);
int rs_cuda_unified_select(int enable);
void rs_cuda_memory_forget(void);

#endif
