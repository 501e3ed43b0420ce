/* CUPTI's records, converted to those that all backends share. */
#include "cuda_layer.h"

static const char *const copy_names[] = {
    "[CUDA memcpy]", "[CUDA memcpy HtoD]", "[CUDA memcpy DtoH]", "[CUDA memcpy HtoA]", "[CUDA memcpy AtoH]",
    "[CUDA memcpy AtoA]", "[CUDA memcpy AtoD]", "[CUDA memcpy DtoA]", "[CUDA memcpy DtoD]", "[CUDA memcpy HtoH]",
    "[CUDA memcpy PtoP]",
};
#define COPY_KINDS (sizeof copy_names / sizeof copy_names[0])
#define COPY_PEER (COPY_KINDS - 1)
static uint16_t copy_ids[COPY_KINDS], set_id;

void rs_cuda_records_forget(void)
{
    memset(copy_ids, 0, sizeof copy_ids);
    set_id = 0;
}

/* On the clock of the process; what CUPTI does not tell stays 0. */
static uint64_t at(uint64_t cupti_ns) { return cupti_ns ? cupti_ns + rs_cuda.offset_ns : 0; }

static void add_kernel(const struct rs_cupti_kernel *kernel)
{
    rs_gpu_add_work(&(struct rs_gpu_work){
        .kind = RS_GPU_KERNEL, .device = rs_gpu_device(RS_BACKEND_CUDA, kernel->deviceId), .queue = kernel->streamId,
        .correlation = kernel->correlationId, .start_ns = at(kernel->start), .end_ns = at(kernel->end),
        .name = kernel->name});
    if (!kernel->start || kernel->end < kernel->start)
        return;
    rs_windows_kernel(kernel->end - kernel->start);
    if (kernel->graphNodeId)
        rs_windows_stay("CUDA graphs: all is recorded from here on (CUPTI sees nothing of graphs that are made while it is off)");
}

static void add_copy(const struct rs_cupti_memcpy *copy, unsigned direction, uint32_t correlation)
{
    if (direction >= COPY_KINDS)
        direction = 0;
    if (!copy_ids[direction])
        copy_ids[direction] = rs_intern(copy_names[direction]);
    rs_gpu_add_work(&(struct rs_gpu_work){
        .kind = RS_GPU_COPY, .device = rs_gpu_device(RS_BACKEND_CUDA, copy->deviceId), .queue = copy->streamId,
        .is_pageable = copy->srcKind == RS_CUPTI_PAGEABLE || copy->dstKind == RS_CUPTI_PAGEABLE,
        .correlation = correlation, .start_ns = at(copy->start), .end_ns = at(copy->end), .bytes = copy->bytes,
        .name_id = copy_ids[direction]});
}

static void add_memcpy(const struct rs_cupti_memcpy *copy) { add_copy(copy, copy->copyKind, copy->correlationId); }

static void add_peer_copy(const struct rs_cupti_memcpy2 *copy)
{
    add_copy((const struct rs_cupti_memcpy *)copy, COPY_PEER, copy->correlationId);
}

static void add_set(const struct rs_cupti_memset *set)
{
    if (!set_id)
        set_id = rs_intern("[CUDA memset]");
    rs_gpu_add_work(&(struct rs_gpu_work){
        .kind = RS_GPU_SET, .device = rs_gpu_device(RS_BACKEND_CUDA, set->deviceId), .queue = set->streamId,
        .correlation = set->correlationId, .start_ns = at(set->start), .end_ns = at(set->end), .bytes = set->bytes,
        .name_id = set_id});
}

/* Where calls are not recorded, who waited for the device is not said: it is taken for the loop's thread. */
static void add_wait(const struct rs_cupti_synchronization_record *wait)
{
    if (rs_cuda.row->api == RS_CUDA_API_NONE && wait->type != RS_CUPTI_STREAM_WAITS)
        rs_gpu_add_wait(at(wait->start), at(wait->end));
}

static void add_marker(const struct rs_cupti_marker_record *marker)
{
    uint8_t kind = marker->flags & RS_CUPTI_INSTANTANEOUS ? RS_MARKER_INSTANT
                   : marker->flags & RS_CUPTI_START       ? RS_MARKER_START
                   : marker->flags & RS_CUPTI_END         ? RS_MARKER_END
                                                          : 0;
    if (kind)
        rs_gpu_add_marker(&(struct rs_gpu_marker){
            kind, marker->id, marker->objectKind == RS_CUPTI_OBJECT_THREAD ? marker->threadId : 0, at(marker->timestamp),
            marker->name, marker->domain});
}

static void add_call(const struct rs_cupti_api *record)
{
    struct rs_gpu_call call;
    if (rs_cuda_is_own(record->threadId))
        return;
    if (!record->start || record->end < record->start) {
        rs_cuda.row->unfinished++;
        return;
    }
    rs_cuda_call(record, &call);
    call.start_ns = at(record->start);
    call.end_ns = at(record->end);
    rs_gpu_add_call(&call);
}

static void add(const struct rs_cupti_record *record)
{
    switch (record->kind) {
    case RS_CUPTI_CONCURRENT_KERNEL: add_kernel((const struct rs_cupti_kernel *)record); break;
    case RS_CUPTI_MEMCPY: add_memcpy((const struct rs_cupti_memcpy *)record); break;
    case RS_CUPTI_MEMCPY2: add_peer_copy((const struct rs_cupti_memcpy2 *)record); break;
    case RS_CUPTI_MEMSET: add_set((const struct rs_cupti_memset *)record); break;
    case RS_CUPTI_RUNTIME:
    case RS_CUPTI_DRIVER: add_call((const struct rs_cupti_api *)record); break;
    case RS_CUPTI_SYNCHRONIZATION: add_wait((const struct rs_cupti_synchronization_record *)record); break;
    case RS_CUPTI_MARKER: add_marker((const struct rs_cupti_marker_record *)record); break;
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
