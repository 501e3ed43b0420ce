/* What CUPTI's records say, into the tallies: kernels by name and stream, copies by direction and size, sets. */
#define _GNU_SOURCE
#include <strings.h>

#include "cuda_layer.h"

#define NAMES 4096u                 /* kernels remembered by where CUPTI keeps their name */

/* The pointer of an unloaded kernel may come back with another name, so the text is compared as well. */
struct kernel_name {
    const char *pointer, *stored;
    uint16_t id;
    uint8_t work;
};
static struct kernel_name *kernel_names;

static const char *const copy_names[] = {
    "[CUDA memcpy]", "[CUDA memcpy HtoD]", "[CUDA memcpy DtoH]", "[CUDA memcpy HtoA]", "[CUDA memcpy AtoH]",
    "[CUDA memcpy AtoA]", "[CUDA memcpy AtoD]", "[CUDA memcpy DtoA]", "[CUDA memcpy DtoD]", "[CUDA memcpy HtoH]",
    "[CUDA memcpy PtoP]",
};
#define COPY_KINDS (sizeof copy_names / sizeof copy_names[0])
#define COPY_PEER (COPY_KINDS - 1)
static uint16_t copy_ids[COPY_KINDS], set_id;

static const char *const communicates[] = {
#define RS_COMMUNICATES(word) word,
#include "communication_kernels.h"
#undef RS_COMMUNICATES
};

void rs_cuda_records_forget(void)
{
    rs_memory_free(kernel_names, NAMES * sizeof *kernel_names);
    kernel_names = NULL;
    memset(copy_ids, 0, sizeof copy_ids);
    set_id = 0;
}

/* Like rs_tally, but the time of a row that found no room is not in ticks: only the call is counted as lost. */
void rs_cuda_tally(struct rs_thread *thread, uint64_t key, uint64_t ns, uint64_t bytes, int failed)
{
    struct rs_tally *row = NULL;
    if (thread) {
        row = thread->cache[rs_cache_slot(key)];
        if (rs_key_of(row) != key)
            row = rs_tally_find(thread, key);
    }
    if (row)
        rs_tally_store(row, ns, bytes, failed);
    else
        rs_tally_lost(0);
}

static int has_word(const char *name, const char *word)
{
    for (const char *at = strcasestr(name, word); at; at = strcasestr(at + 1, word))
        if (at == name || (uint8_t)((at[-1] | 32) - 'a') > 'z' - 'a')
            return 1;
    return 0;
}

static enum rs_work work_of(const char *name)
{
    for (unsigned i = 0; i < sizeof communicates / sizeof communicates[0]; i++)
        if (has_word(name, communicates[i]))
            return RS_WORK_COMMUNICATION;
    return RS_WORK_COMPUTE;
}

static struct kernel_name *kernel_of(const char *name)
{
    static struct kernel_name without_memory;
    struct kernel_name *found = &without_memory;
    if (!kernel_names)
        kernel_names = rs_memory(NAMES * sizeof *kernel_names);
    if (kernel_names)
        found = &kernel_names[((uintptr_t)name * 0x9E3779B97F4A7C15u >> 40) % NAMES];
    if (found->pointer == name && found->stored && !strcmp(found->stored, name))
        return found;
    found->stored = NULL;
    found->id = rs_intern_as(name, &found->stored);
    found->pointer = name;
    found->work = (uint8_t)work_of(name);
    return found;
}

/* 1: it has a start and an end. */
static int is_finished(uint64_t start, uint64_t end)
{
    if (!start || end < start) {
        rs_cuda.row->unfinished++;
        return 0;
    }
    if (start == end)
        rs_cuda.row->instants++;
    return 1;
}

static void add_kernel(const struct rs_cupti_kernel *kernel)
{
    if (!is_finished(kernel->start, kernel->end))
        return;
    const struct kernel_name *name = kernel_of(kernel->name && kernel->name[0] ? kernel->name : "(unnamed kernel)");
    uint16_t group = rs_cuda_stream(kernel->deviceId, kernel->streamId);
    uint64_t key = rs_key(name->id, group, RS_LAYER_GPU, rs.phase, 0, RS_KIND_CALL);
    rs_cuda_tally(rs_cuda.activities, key, kernel->end - kernel->start, 0, 0);
    rs_trace(rs_cuda.activities, key, kernel->start, kernel->end - kernel->start, 0, 0);
    rs_attribution_activity(kernel->correlationId, name->id, 0, kernel->end - kernel->start, 0);
    rs_device_work(kernel->deviceId, kernel->start, kernel->end, (enum rs_work)name->work);
    rs_device_steps_activity(kernel->deviceId, kernel->correlationId, kernel->start, kernel->end,
                             (enum rs_work)name->work, 0, 0);
    rs_windows_kernel(kernel->end - kernel->start);
    if (kernel->graphNodeId)
        rs_windows_stay("CUDA graphs: all is recorded from here on (CUPTI sees nothing of graphs that are made while it is off)");
}

static void add_copy(const struct rs_cupti_memcpy *copy, unsigned direction, uint32_t correlation)
{
    if (!is_finished(copy->start, copy->end))
        return;
    if (direction >= COPY_KINDS)
        direction = 0;
    if (!copy_ids[direction])
        copy_ids[direction] = rs_intern(copy_names[direction]);
    uint16_t group = rs_cuda_stream(copy->deviceId, copy->streamId);
    uint8_t size = rs_size_class(copy->bytes);
    uint64_t key = rs_key(copy_ids[direction], group, RS_LAYER_GPU, rs.phase, size, RS_KIND_CALL);
    rs_cuda_tally(rs_cuda.activities, key, copy->end - copy->start, copy->bytes, 0);
    rs_trace(rs_cuda.activities, key, copy->start, copy->end - copy->start, copy->bytes, 0);
    rs_attribution_activity(correlation, copy_ids[direction], size, copy->end - copy->start, copy->bytes);
    rs_device_work(copy->deviceId, copy->start, copy->end, RS_WORK_COPY);
    rs_device_steps_activity(copy->deviceId, correlation, copy->start, copy->end, RS_WORK_COPY, copy->bytes,
                             copy->srcKind == RS_CUPTI_PAGEABLE || copy->dstKind == RS_CUPTI_PAGEABLE);
}

static void add_memcpy(const struct rs_cupti_memcpy *copy) { add_copy(copy, copy->copyKind, copy->correlationId); }

static void add_peer_copy(const struct rs_cupti_memcpy2 *copy)
{
    add_copy((const struct rs_cupti_memcpy *)copy, COPY_PEER, copy->correlationId);
}

static void add_set(const struct rs_cupti_memset *set)
{
    if (!is_finished(set->start, set->end))
        return;
    if (!set_id)
        set_id = rs_intern("[CUDA memset]");
    uint16_t group = rs_cuda_stream(set->deviceId, set->streamId);
    uint8_t size = rs_size_class(set->bytes);
    uint64_t key = rs_key(set_id, group, RS_LAYER_GPU, rs.phase, size, RS_KIND_CALL);
    rs_cuda_tally(rs_cuda.activities, key, set->end - set->start, set->bytes, 0);
    rs_trace(rs_cuda.activities, key, set->start, set->end - set->start, set->bytes, 0);
    rs_attribution_activity(set->correlationId, set_id, size, set->end - set->start, set->bytes);
    rs_device_work(set->deviceId, set->start, set->end, RS_WORK_COPY);
    rs_device_steps_activity(set->deviceId, set->correlationId, set->start, set->end, RS_WORK_COPY, 0, 0);
}

static void add(const struct rs_cupti_record *record)
{
    switch (record->kind) {
    case RS_CUPTI_CONCURRENT_KERNEL: add_kernel((const struct rs_cupti_kernel *)record); break;
    case RS_CUPTI_MEMCPY: add_memcpy((const struct rs_cupti_memcpy *)record); break;
    case RS_CUPTI_MEMCPY2: add_peer_copy((const struct rs_cupti_memcpy2 *)record); break;
    case RS_CUPTI_MEMSET: add_set((const struct rs_cupti_memset *)record); break;
    case RS_CUPTI_RUNTIME:
    case RS_CUPTI_DRIVER: rs_cuda_call((const struct rs_cupti_api *)record); break;
    case RS_CUPTI_SYNCHRONIZATION: rs_device_steps_wait((const struct rs_cupti_synchronization_record *)record); break;
    case RS_CUPTI_MARKER: rs_cuda_marker((const struct rs_cupti_marker_record *)record); break;
    case RS_CUPTI_MEMORY2: rs_cuda_memory((const struct rs_cupti_memory_record *)record); break;
    case RS_CUPTI_POOL: rs_cuda_pool((const struct rs_cupti_pool_record *)record); break;
    case RS_CUPTI_UNIFIED: rs_cuda_unified((const struct rs_cupti_unified_record *)record); break;
    default: rs_cuda.row->other_kinds++;
    }
}

void rs_cuda_buffer(uint8_t *buffer, size_t valid)
{
    struct rs_cupti_record *record = NULL;
    while (rs_cuda.cupti.cuptiActivityGetNextRecord(buffer, valid, &record) == RS_CUPTI_SUCCESS) {
        rs_cuda.row->records++;
        add(record);
    }
    rs_cuda.row->buffers++;
}
