/* What the files of the ROCm layer share. rocprofiler-sdk calls us in the threads that call HIP, HSA and ROCTx, and
 * delivers what devices did in buffers, from a thread of its own. */
#ifndef RANKSCOPE_ROCM_LAYER_H
#define RANKSCOPE_ROCM_LAYER_H

#include "gpu.h"
#include "rocprofiler.h"

struct rs_rocm_layer {
    struct rs_rocp sdk;
    struct rs_runtime *row;         /* not NULL while it is on */
    struct rs_rocp_handle context, buffer;
    uint32_t version;
    int64_t offset_ns;              /* rocprofiler's clock less that of the process */
};
extern struct rs_rocm_layer rs_rocm __attribute__((visibility("hidden")));

/* rocm.c */
int rs_rocm_is_on(void);
void rs_rocm_finish(void);
void rs_rocm_forget(void);

/* rocm_calls.c: 0: the SDK refused */
int rs_rocm_calls_begin(char *note, size_t size);
void rs_rocm_calls_forget(void);
const char *rs_rocm_kernel(uint64_t kernel);

/* rocm_records.c */
int rs_rocm_records_begin(char *note, size_t size);
void rs_rocm_buffer(struct rs_rocp_handle context, struct rs_rocp_handle buffer, struct rs_rocp_header **headers, size_t count,
                    void *data, uint64_t dropped);
void rs_rocm_records_forget(void);

#endif
