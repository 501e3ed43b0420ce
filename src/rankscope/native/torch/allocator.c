/* The caching allocator of torch, as Python reads it about once a second. */
#include "cuda_layer.h"
#include "steps.h"

#define ROWS 512u

static struct rs_chunk *ring;
static uint64_t written;

void rs_allocator_forget(void)
{
    ring = NULL;
    written = 0;
    rs_cuda_gpus_forget();
    rs_gpus_forget();
}

/* Called with the interpreter's lock: by one thread at a time. */
RS_EXPORT void rankscope_allocator(uint32_t device, uint64_t allocated, uint64_t allocated_peak, uint64_t reserved,
                                   uint64_t reserved_peak, uint64_t split, uint64_t retries, uint64_t ooms)
{
    if (!rs_telling())
        return;
    if (!ring) {
        ring = rs_chunk_new(RS_CHUNK_ALLOCATOR, 0, sizeof(struct rs_allocator),
                            sizeof(struct rs_chunk) + ROWS * sizeof(struct rs_allocator));
        if (!ring)
            return;
        __atomic_store_n(&ring->rows, ROWS, __ATOMIC_RELEASE);
    }
    rs_gpu_known(device);
    struct rs_allocator *row = (struct rs_allocator *)(ring + 1) + written++ % ROWS;
    __atomic_store_n(&row->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->device = device;
    row->ticks = rs_ticks();
    row->allocated_bytes = allocated;
    row->allocated_peak_bytes = allocated_peak;
    row->reserved_bytes = reserved;
    row->reserved_peak_bytes = reserved_peak;
    row->split_bytes = split;
    row->retries = retries;
    row->ooms = ooms;
    __atomic_store_n(&row->number, (uint32_t)rs_step_number(), __ATOMIC_RELEASE);
}
