/* Which devices the process uses, as who drives them describes them. */
#include "gpu_layer.h"

#define MOST_GPUS 64u

static rs_lock lock;
static struct rs_chunk *rows;
static struct { struct rs_gpu *row; uint8_t is_used; } gpus[MOST_GPUS];

void rs_gpus_forget(void)
{
    rows = NULL;
    memset(gpus, 0, sizeof gpus);
}

/* There is a record of it. Records are read where the driver must not be asked for more. */
void rs_gpu_used(uint32_t device)
{
    if (device < MOST_GPUS)
        __atomic_store_n(&gpus[device].is_used, 1, __ATOMIC_RELAXED);
}

int rs_gpu_is_used(uint32_t device) { return device < MOST_GPUS && __atomic_load_n(&gpus[device].is_used, __ATOMIC_RELAXED); }

struct rs_gpu *rs_gpu_row(uint32_t device)
{
    return device < MOST_GPUS ? __atomic_load_n(&gpus[device].row, __ATOMIC_ACQUIRE) : NULL;
}

static struct rs_gpu *new_row(uint32_t device, const struct rs_gpu_about *about)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_GPUS, .row_bytes = sizeof(struct rs_gpu), .chunk_bytes = RS_PAGE};
    struct rs_gpu *row = rs_row_place(&rows, like, sizeof *row);
    if (!row)
        return NULL;
    row->device = device;
    row->name = about->name && about->name[0] ? rs_intern(about->name) : 0;
    row->note = about->note && about->note[0] ? rs_intern(about->note) : 0;
    row->multiprocessors = about->multiprocessors;
    row->memory_bytes = about->memory_bytes;
    memcpy(row->uuid, about->uuid, sizeof row->uuid);
    rs_row_publish(rows, 1);
    return row;
}

void rs_gpu_describe(uint32_t device, const struct rs_gpu_about *about)
{
    if (device >= MOST_GPUS || rs_gpu_row(device) || !rs.file || !rs_lock_take(&lock))
        return;
    if (!gpus[device].row)
        __atomic_store_n(&gpus[device].row, new_row(device, about), __ATOMIC_RELEASE);
    rs_lock_give(&lock);
}
