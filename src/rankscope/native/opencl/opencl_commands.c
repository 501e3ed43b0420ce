/* Commands in queues. Each has an event, the program's or one of ours, of which we hold a reference until the device's times
 * can be read: after calls that wait, after every so many commands, once a second, and at the end. Nothing is waited for,
 * and the driver is never asked while a lock of ours is held: it may call the program's functions, or ours. */
#include "opencl_layer.h"

#define SLAB 1024u
#define SLABS 1024u                 /* a million commands under way: what comes then is counted, not followed */
#define KERNELS 4096u
#define FIRST_DRAIN 64u

static const struct { uint8_t kind; const char *name; } works[RS_CL_WORKS] = {
    [RS_CL_KERNEL] = {RS_GPU_KERNEL, "(unnamed kernel)"},       [RS_CL_NATIVE] = {RS_GPU_KERNEL, "(native kernel)"},
    [RS_CL_COPY] = {RS_GPU_COPY, "[OpenCL memcpy]"},            [RS_CL_HTOD] = {RS_GPU_COPY, "[OpenCL memcpy HtoD]"},
    [RS_CL_DTOH] = {RS_GPU_COPY, "[OpenCL memcpy DtoH]"},       [RS_CL_DTOD] = {RS_GPU_COPY, "[OpenCL memcpy DtoD]"},
    [RS_CL_SET] = {RS_GPU_SET, "[OpenCL memset]"},              [RS_CL_MAP] = {RS_GPU_COPY, "[OpenCL memory map]"},
    [RS_CL_UNMAP] = {RS_GPU_COPY, "[OpenCL memory unmap]"},     [RS_CL_MIGRATE] = {RS_GPU_COPY, "[OpenCL memory migrate]"},
};

/* A kernel made later may lie where one was that is gone: rs_cl_kernel_made forgets the old name. */
static struct { word handle; const char *name; } kernels[KERNELS];
static uint16_t work_ids[RS_CL_WORKS];
static struct rs_cl_command *free_commands, *slabs[SLABS];
static uint32_t slabs_used;

void rs_cl_commands_forget(void)
{
    for (uint32_t i = 0; i < slabs_used; i++) {
        rs_memory_free(slabs[i], SLAB * sizeof **slabs);
        slabs[i] = NULL;
    }
    slabs_used = 0;
    free_commands = NULL;
    memset(kernels, 0, sizeof kernels);
    memset(work_ids, 0, sizeof work_ids);
}

/* --- names and sizes --- */

static unsigned kernel_place(word kernel) { return (unsigned)((kernel * 0x9E3779B97F4A7C15u >> 40) % KERNELS); }

void rs_cl_kernel_made(word kernel)
{
    if (!rs_lock_take(&rs_cl_lock))
        return;
    if (kernels[kernel_place(kernel)].handle == kernel)
        kernels[kernel_place(kernel)].handle = 0;
    rs_lock_give(&rs_cl_lock);
}

static const char *kernel_name(word kernel)
{
    char name[2048] = "";
    const char *stored = NULL;
    if (rs_lock_take(&rs_cl_lock)) {
        if (kernels[kernel_place(kernel)].handle == kernel)
            stored = kernels[kernel_place(kernel)].name;
        rs_lock_give(&rs_cl_lock);
    }
    if (stored)
        return stored;
    if (RS_CL_ASK(clGetKernelInfo, kernel, RS_CL_KERNEL_FUNCTION_NAME, sizeof name, (word)name, 0) == RS_CL_SUCCESS && name[0])
        rs_intern_as(name, &stored);
    if (stored && rs_lock_take(&rs_cl_lock)) {
        kernels[kernel_place(kernel)].handle = kernel;
        kernels[kernel_place(kernel)].name = stored;
        rs_lock_give(&rs_cl_lock);
    }
    return stored ? stored : works[RS_CL_KERNEL].name;
}

static uint64_t volume(const size_t *region) { return region ? (uint64_t)region[0] * region[1] * region[2] : 0; }

static uint64_t bytes_of(const struct rs_cl_function *function, const word *arguments)
{
    word value = arguments[function->size_at];
    size_t pixel = 1;
    switch (function->size) {
    case RS_CL_SIZE: return value;
    case RS_CL_REGION: return volume((const size_t *)value);
    case RS_CL_PIXELS:
    case RS_CL_PIXELS_OF_2:
        RS_CL_ASK(clGetImageInfo, arguments[function->size == RS_CL_PIXELS ? 1 : 2], RS_CL_IMAGE_ELEMENT_BYTES, sizeof pixel,
                  (word)&pixel, 0);
        return volume((const size_t *)value) * pixel;
    default: return 0;
    }
}

/* --- what is under way --- */

static struct rs_cl_command *new_command(void)
{
    if (!free_commands && slabs_used < SLABS) {
        struct rs_cl_command *more = rs_memory(SLAB * sizeof *more);
        for (uint32_t i = 0; more && i < SLAB; i++) {
            more[i].next = free_commands;
            free_commands = &more[i];
        }
        if (more)
            slabs[slabs_used++] = more;
    }
    struct rs_cl_command *command = free_commands;
    if (command)
        free_commands = command->next;
    return command;
}

static int append(struct rs_cl_queue *queue, const struct rs_cl_command *like)
{
    if (!rs_lock_take(&rs_cl_lock))
        return 0;
    struct rs_cl_command *command = new_command();
    if (command) {
        *command = *like;
        *(queue->first ? &queue->last->next : &queue->first) = command;
        queue->last = command;
        queue->pending++;
    }
    rs_lock_give(&rs_cl_lock);
    return command != NULL;
}

void rs_cl_command_add(struct rs_cl_queue *queue, const struct rs_cl_function *function, const word *arguments, word event,
                       uint64_t begin_ticks, uint64_t end_ticks)
{
    enum rs_cl_work work = function->work;
    struct rs_cl_command command = {.event = event, .begin_ticks = begin_ticks, .end_ticks = end_ticks,
                                    .kind = works[work].kind, .bytes = bytes_of(function, arguments)};
    if (!work_ids[work])
        work_ids[work] = rs_intern(works[work].name);
    command.name_id = work_ids[work];
    command.kernel = work == RS_CL_KERNEL ? kernel_name(arguments[1]) : works[work].name;
    rs_count(&rs_cl_runtime->launched, 1);
    if (!append(queue, &command)) {
        RS_CL_ASK(clReleaseEvent, event);
        rs_count(&rs_cl_runtime->untimed, 1);
    } else if (queue->pending >= queue->drain_at) {
        rs_cl_drain(queue, 0);
        uint32_t left = queue->pending;     /* commands that wait for long are not asked again and again */
        queue->drain_at = left + (left > FIRST_DRAIN ? left : FIRST_DRAIN);
    }
}

int rs_cl_holds(word event)
{
    const struct rs_cl_queue *queue;
    int holds = 0;
    if (!rs_lock_take(&rs_cl_lock))
        return 0;
    for (uint32_t at = 0; !holds && (queue = rs_cl_next_queue(&at));)
        for (const struct rs_cl_command *one = queue->first; one && !holds; one = one->next)
            holds = one->event == event;
    rs_lock_give(&rs_cl_lock);
    return holds;
}

/* --- reading their times --- */

static uint64_t time_of(word event, uint32_t which)
{
    uint64_t at = 0;
    int status = RS_CL_ASK(clGetEventProfilingInfo, event, which, sizeof at, (word)&at, 0);
    return status == RS_CL_SUCCESS ? at : 0;
}

/* 1: it is over; its times are 0 where it failed. */
static int is_over(struct rs_cl_command *command)
{
    int32_t status = 1;
    if (RS_CL_ASK(clGetEventInfo, command->event, RS_CL_EVENT_STATUS, sizeof status, (word)&status, 0) != RS_CL_SUCCESS)
        status = -1;
    if (status > 0)
        return 0;
    if (status == 0) {
        command->start = time_of(command->event, RS_CL_TIME_START);
        command->end = time_of(command->event, RS_CL_TIME_END);
        command->queued = time_of(command->event, RS_CL_TIME_QUEUED);
    }
    return 1;
}

/* Under rs_gpu.lock. */
static void tell(const struct rs_cl_queue *queue, const struct rs_cl_command *command)
{
    uint64_t begin_ns = rs_gpu_ns_of(command->begin_ticks), end_ns = rs_gpu_ns_of(command->end_ticks);
    uint64_t now_ns = rs_gpu_ns_of(rs_ticks());
    if (command->queued)
        rs_cl_device_clock(queue->device, (int64_t)(command->queued - end_ns), (int64_t)(command->queued - begin_ns), now_ns);
    else if (command->start)    /* at least it began after the call, and is over now */
        rs_cl_device_clock(queue->device, (int64_t)(command->end - now_ns), (int64_t)(command->start - begin_ns), now_ns);
    struct rs_gpu_work work = {.kind = command->kind, .device = queue->device, .queue = queue->number,
                               .launched_ns = begin_ns, .bytes = command->bytes, .name = command->kernel,
                               .name_id = command->name_id};
    if (command->start && command->end >= command->start) {
        work.start_ns = rs_cl_device_to_host(queue->device, command->start);
        work.end_ns = work.start_ns + (command->end - command->start);
        rs_gpu_add_work(&work);
    }
    rs_count(work.start_ns ? &rs_cl_runtime->timed : &rs_cl_runtime->untimed, 1);
}

static void tell_all(const struct rs_cl_queue *queue, struct rs_cl_command *done)
{
    if (!done)
        return;
    rs_gpu_enter();
    if (rs_gpu.row && rs_gpu_has_rate())
        for (const struct rs_cl_command *one = done; one; one = one->next)
            tell(queue, one);
    rs_gpu_leave();
    struct rs_cl_command *last = done;
    for (; last->next; last = last->next)
        RS_CL_ASK(clReleaseEvent, last->event);
    RS_CL_ASK(clReleaseEvent, last->event);
    if (rs_lock_take(&rs_cl_lock)) {
        last->next = free_commands;
        free_commands = done;
        rs_lock_give(&rs_cl_lock);
    }
}

static struct rs_cl_command *take(struct rs_cl_queue *queue)
{
    struct rs_cl_command *all = NULL;
    if (rs_lock_take(&rs_cl_lock)) {
        all = queue->first;
        queue->first = queue->last = NULL;
        rs_lock_give(&rs_cl_lock);
    }
    return all;
}

/* Before those that have come meanwhile. */
static void give_back(struct rs_cl_queue *queue, struct rs_cl_command *first, struct rs_cl_command *last, uint32_t told)
{
    if (!rs_lock_take(&rs_cl_lock))
        return;
    if (first) {
        last->next = queue->first;
        if (!queue->first)
            queue->last = last;
        queue->first = first;
    }
    queue->pending -= told;
    rs_lock_give(&rs_cl_lock);
}

/* is_last: what is not over will never be known. In an ordered queue nothing is over before what stands before it. */
void rs_cl_drain(struct rs_cl_queue *queue, int is_last)
{
    int before = 0, is_blocked = 0;
    uint32_t told = 0;
    struct rs_cl_command *done = NULL, **done_end = &done, *left = NULL, *left_last = NULL, *next;
    if (!atomic_compare_exchange_strong(&queue->is_draining, &before, 1))
        return;
    for (struct rs_cl_command *one = take(queue); one; one = next) {
        next = one->next;
        one->next = NULL;
        if ((is_blocked || !is_over(one)) && !is_last) {
            is_blocked = !queue->is_unordered;
            *(left ? &left_last->next : &left) = one;
            left_last = one;
        } else {
            *done_end = one;
            done_end = &one->next;
            told++;
        }
    }
    give_back(queue, left, left_last, told);
    tell_all(queue, done);
    atomic_store(&queue->is_draining, 0);
}

void rs_cl_drain_all(int is_last)
{
    struct rs_cl_queue *queue;
    for (uint32_t at = 0; (queue = rs_cl_next_queue(&at));)
        if (__atomic_load_n(&queue->first, __ATOMIC_RELAXED))
            rs_cl_drain(queue, is_last);
}
