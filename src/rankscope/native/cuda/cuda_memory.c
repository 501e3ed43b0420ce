/* Memory: allocations on devices and of pinned host memory, pools and what is taken out of them, and what unified
 * memory moves. */
#include "cuda_layer.h"

#define POOLS 64u

static struct pool { uint64_t address, bytes; uint32_t device; } pools[POOLS];
static uint32_t pools_used;
static int has_managed;             /* unified memory was allocated */

void rs_cuda_memory_forget(void)
{
    memset(pools, 0, sizeof pools);
    pools_used = 0;
    has_managed = 0;
}

/* --- pools --- */

static struct pool *pool_of(uint64_t address, uint32_t device)
{
    for (uint32_t i = 0; i < pools_used; i++)
        if (pools[i].address == address && pools[i].device == device)
            return &pools[i];
    for (uint32_t i = 0; i < pools_used; i++)
        if (!pools[i].bytes) {
            pools[i] = (struct pool){address, 0, device};
            return &pools[i];
        }
    if (pools_used == POOLS)
        return NULL;
    pools[pools_used] = (struct pool){address, 0, device};
    return &pools[pools_used++];
}

/* The driver grows and shrinks a pool by itself: its size is known from each record that names it. */
static void set_pool(struct rs_device *row, uint64_t address, uint64_t bytes)
{
    struct pool *pool = pool_of(address, row->device);
    if (!pool || bytes == pool->bytes)
        return;
    int is_less = bytes < pool->bytes;
    rs_gpu_change(&row->pool_bytes, &row->pool_peak_bytes, is_less ? pool->bytes - bytes : bytes - pool->bytes, is_less);
    pool->bytes = bytes;
}

void rs_cuda_pool(const struct rs_cupti_pool_record *record)
{
    struct rs_device *row = rs_device_row(rs_gpu_device(RS_BACKEND_CUDA, record->deviceId));
    if (!row || record->memoryPoolType != RS_CUPTI_POOL_LOCAL)
        return;
    uint32_t odd = rs_row_begin(&row->seq);
    set_pool(row, record->address, record->memoryPoolOperationType == RS_CUPTI_POOL_DESTROYED ? 0 : record->size);
    rs_row_done(&row->seq, odd);
}

/* --- allocations --- */

static void add_pooled(struct rs_device *row, const struct rs_cupti_memory_record *record, int is_release)
{
    *(is_release ? &row->pool_releases : &row->pool_allocations) += 1;
    rs_gpu_change(&row->pool_used_bytes, &row->pool_used_peak_bytes, record->bytes, is_release);
    if (record->poolType == RS_CUPTI_POOL_LOCAL)
        set_pool(row, record->poolAddress, record->poolSize);
}

void rs_cuda_memory(const struct rs_cupti_memory_record *record)
{
    int is_release = record->memoryOperationType == RS_CUPTI_RELEASE, is_pinned = record->memoryKind < RS_CUPTI_DEVICE;
    if (!is_release && record->memoryOperationType != RS_CUPTI_ALLOCATION)
        return;
    uint32_t device = is_pinned ? UINT32_MAX : rs_gpu_device(RS_BACKEND_CUDA, record->deviceId);
    rs_gpu_add_memory(&(struct rs_gpu_memory){device, (uint8_t)is_release, record->bytes});
    has_managed = has_managed || record->memoryKind == RS_CUPTI_MANAGED;
    struct rs_device *row = record->poolType && !is_pinned ? rs_device_row(device) : NULL;
    if (!row)
        return;
    uint32_t odd = rs_row_begin(&row->seq);
    add_pooled(row, record, is_release);
    rs_row_done(&row->seq, odd);
}

/* --- unified memory --- */

void rs_cuda_unified(const struct rs_cupti_unified_record *record)
{
    if (record->counterKind == RS_CUPTI_CPU_FAULT) {
        rs_cuda.row->cpu_faults++;
        return;
    }
    int is_in = record->counterKind == RS_CUPTI_TO_DEVICE, is_out = record->counterKind == RS_CUPTI_TO_HOST;
    struct rs_device *row = rs_device_row(rs_gpu_device(RS_BACKEND_CUDA, is_in ? record->dstId : record->srcId));
    if (!row)
        return;
    uint32_t odd = rs_row_begin(&row->seq);
    if (is_in || is_out) {
        *(is_in ? &row->migrated_in_bytes : &row->migrated_out_bytes) += record->value;
        row->migrations++;
        row->migration_ns += record->end > record->start ? record->end - record->start : 0;
    } else if (record->counterKind == RS_CUPTI_GPU_FAULT) {
        row->gpu_faults += record->value;
    }
    rs_row_done(&row->seq, odd);
}

/* It is asked for when the first unified memory was allocated: no other program pays for it. */
int rs_cuda_unified_wanted(void) { return has_managed && !rs_cuda.row->unified; }

/* 1: recorded; 2: refused. */
int rs_cuda_unified_select(int enable)
{
    struct rs_cupti_unified_config config[4];
    struct rs_cupti *cupti = &rs_cuda.cupti;
    for (uint32_t i = 0; i < 4; i++)
        config[i] = (struct rs_cupti_unified_config){2, RS_CUPTI_TO_DEVICE + i, 0, (uint32_t)enable};
    if (!enable)
        return cupti->cuptiActivityDisable(RS_CUPTI_UNIFIED);
    if (!cupti->cuptiActivityConfigureUnifiedMemoryCounter
        || cupti->cuptiActivityConfigureUnifiedMemoryCounter(config, 4) != RS_CUPTI_SUCCESS)
        return 2;
    return cupti->cuptiActivityEnable(RS_CUPTI_UNIFIED) == RS_CUPTI_SUCCESS ? 1 : 2;
}
