/* Memory that the program has allocated by Level Zero: where it is, so that copies have a direction. */
#include "ze_layer.h"

struct allocation { uint64_t begin, end; uint32_t device; char kind; };

static struct allocation *all;      /* sorted by where they begin */
static uint32_t used, capacity;

void rs_ze_memory_forget(void)
{
    rs_memory_free(all, capacity * sizeof *all);
    all = NULL;
    used = capacity = 0;
}

/* The first that begins behind it. */
static uint32_t after(uint64_t address)
{
    uint32_t from = 0, to = used;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (all[middle].begin <= address)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static int make_room(void)
{
    if (used < capacity)
        return 1;
    uint32_t larger = capacity ? 2 * capacity : 256;
    struct allocation *more = rs_memory(larger * sizeof *more);
    if (!more)
        return 0;
    if (used)
        memcpy(more, all, used * sizeof *more);
    rs_memory_free(all, capacity * sizeof *all);
    all = more;
    capacity = larger;
    return 1;
}

char rs_ze_memory_kind(const void *pointer)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    uint32_t at = after(address);
    return at && address < all[at - 1].end ? all[at - 1].kind : 'M';
}

static void account(const struct allocation *one, int is_release)
{
    uint64_t bytes = one->end - one->begin;
    struct rs_runtime *row = rs_ze.row;
    if (one->kind == 'H')
        rs_gpu_change(&row->host_bytes, &row->host_peak_bytes, bytes, is_release);
    if (one->kind == 'S')
        rs_gpu_change(&row->shared_bytes, &row->shared_peak_bytes, bytes, is_release);
    if (one->kind == 'S' && one->device == UINT32_MAX)
        return;                     /* it belongs to no device, and is not pinned either */
    rs_gpu_enter();
    rs_gpu_add_memory(&(struct rs_gpu_memory){one->device, (uint8_t)is_release, bytes});
    rs_gpu_leave();
}

static void allocated(ze_handle device, const void *pointer, uint64_t bytes, char kind)
{
    struct rs_ze_device *on = device ? rs_ze_device(device) : NULL;
    struct allocation one = {(uint64_t)(uintptr_t)pointer, (uint64_t)(uintptr_t)pointer + bytes, on ? on->number : UINT32_MAX, kind};
    if (!pointer || !make_room())
        return;
    uint32_t at = after(one.begin);
    memmove(all + at + 1, all + at, (used - at) * sizeof *all);
    all[at] = one;
    used++;
    account(&one, 0);
}

void rs_ze_DEVICE_ALLOCATED(void **arguments, uint64_t begun)
{
    (void)begun;
    allocated(RS_ZE_ARGUMENT(ze_handle, 4), *RS_ZE_ARGUMENT(void **, 5), RS_ZE_ARGUMENT(size_t, 2), 'D');
}

void rs_ze_HOST_ALLOCATED(void **arguments, uint64_t begun)
{
    (void)begun;
    allocated(0, *RS_ZE_ARGUMENT(void **, 4), RS_ZE_ARGUMENT(size_t, 2), 'H');
}

void rs_ze_SHARED_ALLOCATED(void **arguments, uint64_t begun)
{
    (void)begun;
    allocated(RS_ZE_ARGUMENT(ze_handle, 5), *RS_ZE_ARGUMENT(void **, 6), RS_ZE_ARGUMENT(size_t, 3), 'S');
}

/* Before it is freed: afterwards another thread may have been given the same place. */
static void freed(const void *pointer)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    uint32_t at = after(address);
    if (!at || all[at - 1].begin != address)
        return;
    account(&all[at - 1], 1);
    memmove(all + at - 1, all + at, (used - at) * sizeof *all);
    used--;
}

void rs_ze_FREE(void **arguments, uint64_t begun)
{
    (void)begun;
    freed(RS_ZE_ARGUMENT(void *, 1));
}

void rs_ze_FREE_EXT(void **arguments, uint64_t begun)
{
    (void)begun;
    freed(RS_ZE_ARGUMENT(void *, 2));
}
