/* What the files of the GPU layer share. Everything here happens under rs_gpu.lock. */
#ifndef RANKSCOPE_GPU_LAYER_H
#define RANKSCOPE_GPU_LAYER_H

#include "gpu.h"
#include "trace.h"

/* gpu.c */
uint8_t rs_gpu_phase(uint64_t at_ns);
uint64_t rs_gpu_patience_ns(void);

/* work.c */
void rs_gpu_tally(struct rs_thread *thread, uint64_t key, uint64_t ns, uint64_t bytes, int failed);
void rs_gpu_names_forget(void);

/* streams.c */
uint16_t rs_gpu_stream(uint32_t device, uint32_t stream);
uint16_t rs_gpu_domain(const char *name);
struct rs_thread *rs_gpu_thread(uint32_t tid);
void rs_gpu_streams_forget(void);

/* markers.c */
void rs_gpu_markers_cut(void);
void rs_gpu_markers_forget(void);

/* range_nodes.c */
uint16_t rs_range_node(uint16_t around, uint16_t domain, uint16_t name);
void rs_range_nodes_forget(void);

/* lanes.c */
void rs_lane_start(uint32_t tid, uint32_t id, uint64_t at_ns, uint16_t name, uint16_t domain);
void rs_lane_end(uint32_t tid, uint32_t id, uint64_t at_ns);
int rs_lane_call(const struct rs_gpu_call *call);
struct rs_thread *rs_lane_thread(uint8_t number);
void rs_lane_hurry(uint8_t number);
void rs_lanes_settle(uint64_t before_ns);
void rs_lanes_forget(void);

/* attribution.c */
int rs_attribution_begin(void);
void rs_attribution_call(const struct rs_gpu_call *call);
void rs_attribution_activity(uint32_t correlation, uint16_t name, uint8_t size, uint64_t ns, uint64_t bytes);
void rs_attribution_settle(uint64_t before_ns);
void rs_attribution_cut(void);
void rs_attribution_forget(void);
void rs_range_known(uint32_t correlation, uint8_t lane, uint16_t node);
void rs_range_tally(struct rs_thread *thread, uint8_t layer, uint16_t name, uint16_t node, uint8_t size, uint64_t ns,
                    uint64_t bytes, int failed);

/* timelines.c */
void rs_device_work(uint32_t device, uint64_t start_ns, uint64_t end_ns, enum rs_work work);
void rs_device_settle(uint64_t before_ns);
void rs_devices_cut(void);
void rs_devices_forget(void);

/* What the device does between two moments, in order. 0: what it did at the first one is forgotten. */
typedef void (*rs_device_visit)(void *context, uint64_t from_ns, uint64_t to_ns, uint64_t doing);
int rs_device_walk(uint32_t device, uint64_t from_ns, uint64_t to_ns, rs_device_visit visit, void *context);

/* device_steps.c */
void rs_device_steps_call(const struct rs_gpu_call *call);
void rs_device_steps_activity(const struct rs_gpu_work *one, enum rs_work work);
void rs_device_steps_settle(uint64_t now_ns, int is_last);
void rs_device_steps_take(void);
void rs_device_steps_forget(void);

/* gpus.c */
void rs_gpu_used(uint32_t device);

#endif
