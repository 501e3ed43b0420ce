/* What devices did and were asked for, into the tallies: kernels by name and stream, copies and sets by name and size,
 * calls by name, memory by device. */
#define _GNU_SOURCE
#include <strings.h>

#include "gpu_layer.h"

#define NAMES 4096u                 /* kernels remembered by where the runtime keeps their name */

/* The pointer of an unloaded kernel may come back with another name, so the text is compared as well. */
struct kernel_name {
    const char *pointer, *stored;
    uint16_t id;
    uint8_t work;
};
static struct kernel_name *kernel_names;

static const char *const communicates[] = {
#define RS_COMMUNICATES(word) word,
#include "communication_kernels.h"
#undef RS_COMMUNICATES
};

void rs_gpu_names_forget(void)
{
    rs_memory_free(kernel_names, NAMES * sizeof *kernel_names);
    kernel_names = NULL;
}

/* Like rs_tally, but the time of a row that found no room is not in ticks: only the call is counted as lost. */
void rs_gpu_tally(struct rs_thread *thread, uint64_t key, uint64_t ns, uint64_t bytes, int failed)
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

/* --- kernels, copies and sets --- */

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
        rs_gpu.row->unfinished++;
        return 0;
    }
    if (start == end)
        rs_gpu.row->instants++;
    return 1;
}

static void add(const struct rs_gpu_work *one, uint16_t name, enum rs_work work)
{
    uint64_t ns = one->end_ns - one->start_ns;
    int is_kernel = one->kind == RS_GPU_KERNEL;
    uint8_t size = is_kernel ? 0 : rs_size_class(one->bytes);
    uint64_t bytes = is_kernel ? 0 : one->bytes;
    uint16_t group = rs_gpu_stream(one->device, one->queue);
    uint64_t key = rs_key(name, group, RS_LAYER_GPU, rs_gpu_phase(one->start_ns), size, RS_KIND_CALL);
    rs_gpu.longest_ns = ns > rs_gpu.longest_ns ? ns : rs_gpu.longest_ns;
    rs_gpu_tally(rs_gpu.activities, key, ns, bytes, 0);
    rs_trace(rs_gpu.activities, key, one->start_ns, ns, bytes, 0);
    rs_attribution_activity(one->correlation, name, size, ns, bytes);
    rs_device_work(one->device, one->start_ns, one->end_ns, work);
    rs_device_steps_activity(one, work);
}

void rs_gpu_add_work(const struct rs_gpu_work *one)
{
    if (!is_finished(one->start_ns, one->end_ns))
        return;
    if (one->kind == RS_GPU_KERNEL) {
        const struct kernel_name *name = kernel_of(one->name && one->name[0] ? one->name : "(unnamed kernel)");
        add(one, name->id, (enum rs_work)name->work);
    } else {
        add(one, one->name_id, RS_WORK_COPY);
    }
}

/* --- calls --- */

void rs_gpu_note_call(const struct rs_gpu_call *call)
{
    rs_attribution_call(call);
    rs_device_steps_call(call);
}

void rs_gpu_add_call(const struct rs_gpu_call *call)
{
    uint64_t key = rs_key(call->name, 0, call->layer, rs_gpu_phase(call->start_ns), 0, RS_KIND_CALL);
    rs_gpu_tally(rs_gpu.activities, key, call->end_ns - call->start_ns, 0, call->failed);
    rs_trace(rs_gpu.activities, key, call->start_ns, call->end_ns - call->start_ns, 0, call->failed);
    rs_gpu_note_call(call);
}

/* --- memory --- */

void rs_gpu_add_memory(const struct rs_gpu_memory *memory)
{
    if (memory->device == UINT32_MAX) {
        rs_gpu_change(&rs_gpu.row->pinned_bytes, &rs_gpu.row->pinned_peak_bytes, memory->bytes, memory->is_release);
        return;
    }
    struct rs_device *row = rs_device_row(memory->device);
    if (!row)
        return;
    uint32_t odd = rs_row_begin(&row->seq);
    *(memory->is_release ? &row->releases : &row->allocations) += 1;
    *(memory->is_release ? &row->released_bytes : &row->allocated_bytes) += memory->bytes;
    rs_gpu_change(&row->current_bytes, &row->peak_bytes, memory->bytes, memory->is_release);
    rs_row_done(&row->seq, odd);
}
