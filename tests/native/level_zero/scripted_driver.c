/* A driver of Level Zero without a device: work takes as many ticks of the device's timer as its name or size says.
 * Two devices of two tiles: the first one's timer has 64 bits and ticks every nanosecond, the second one's 32 bits and
 * 12.5 MHz. A kernel "name:500" takes 500 ticks, a copy or fill 100 ticks and one for every 16 bytes. What is on one
 * queue or immediate list runs one after the other, in real time; whoever waits for it waits. A kernel whose name begins
 * with "bad" cannot be appended, and an allocation of more than 2^40 bytes fails. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_ddi.h>

#define EXPORT __attribute__((visibility("default")))
#define NEVER UINT64_MAX

struct device { uint32_t ns_per_tick, bits, tiles, tile, is_tile; struct device *part[2]; char name[32]; };
struct stream { struct device *device; atomic_uint_least64_t free_at; int is_synchronous; };    /* ticks, of all 64 bits */
struct event { atomic_uint_least64_t start, end; struct device *device; };
struct pool { uint32_t flags; };
struct kernel { char name[64]; uint64_t ticks; };
enum what { WORK, SIGNAL, RESET, QUERY };
struct command { enum what what; uint64_t ticks; struct event **asked; uint32_t asked_count; ze_kernel_timestamp_result_t *into; struct event *signal; struct event *wait[4]; uint32_t waits; };
struct list { struct stream *stream; struct device *device; struct command *commands; uint32_t used, capacity; int is_closed; };
struct fence { atomic_uint_least64_t end; struct device *device; };

static struct device all[6];
static int a_driver;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t ticks_of(const struct device *device) { return now_ns() / device->ns_per_tick; }
static uint64_t told(const struct device *device, uint64_t ticks) { return device->bits == 64 ? ticks : ticks & 0xFFFFFFFFu; }

static void set_up(void)
{
    for (int i = 0; i < 2; i++) {
        struct device *root = &all[i];
        *root = (struct device){i ? 80 : 1, i ? 32 : 64, 2, 0, 0, {&all[2 + 2 * i], &all[3 + 2 * i]}, ""};
        snprintf(root->name, sizeof root->name, "scripted device %d", i);
        for (uint32_t j = 0; j < 2; j++) {
            *root->part[j] = *root;
            root->part[j]->tiles = 0;
            root->part[j]->tile = j;
            root->part[j]->is_tile = 1;
        }
    }
}

static void wait_until(const struct device *device, uint64_t ticks)
{
    while (ticks_of(device) < ticks) {
        uint64_t ns = (ticks - ticks_of(device)) * device->ns_per_tick;
        if (ns > 100000 && ns < 1000000000u)
            nanosleep(&(struct timespec){0, (long)(ns - 50000)}, NULL);
    }
}

/* --- running --- */

static uint64_t run(struct stream *stream, const struct command *command)
{
    uint64_t start = ticks_of(stream->device), free_at = atomic_load(&stream->free_at);
    start = free_at > start ? free_at : start;
    for (uint32_t i = 0; i < command->waits; i++) {
        uint64_t end = atomic_load(&command->wait[i]->end);
        start = end != NEVER && end > start ? end : start;
    }
    uint64_t end = start + command->ticks;
    for (uint32_t i = 0; command->what == QUERY && i < command->asked_count; i++) {
        const struct event *event = command->asked[i];
        command->into[i].global.kernelStart = told(stream->device, atomic_load(&event->start));
        command->into[i].global.kernelEnd = told(stream->device, atomic_load(&event->end));
    }
    if (command->what == RESET) {
        atomic_store(&command->signal->end, NEVER);
    } else if (command->signal) {
        command->signal->device = stream->device;
        atomic_store(&command->signal->start, start);
        atomic_store(&command->signal->end, end);
    }
    atomic_store(&stream->free_at, end);
    return end;
}

static ze_result_t append(ze_command_list_handle_t handle, struct command command, ze_event_handle_t signal, uint32_t waits,
                          ze_event_handle_t *wait)
{
    struct list *list = (struct list *)handle;
    command.signal = (struct event *)signal;
    command.waits = waits < 4 ? waits : 4;
    for (uint32_t i = 0; i < command.waits; i++)
        command.wait[i] = (struct event *)wait[i];
    if (list->is_closed)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (list->stream) {
        run(list->stream, &command);
        if (list->stream->is_synchronous)
            wait_until(list->stream->device, atomic_load(&list->stream->free_at));
        return ZE_RESULT_SUCCESS;
    }
    if (list->used == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 16;
        list->commands = realloc(list->commands, list->capacity * sizeof *list->commands);
    }
    list->commands[list->used++] = command;
    return ZE_RESULT_SUCCESS;
}

/* --- driver and devices --- */

static ze_result_t ZE_APICALL init(ze_init_flags_t flags)
{
    (void)flags;
    if (!all[0].ns_per_tick)
        set_up();
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL driver_get(uint32_t *count, ze_driver_handle_t *drivers)
{
    if (drivers && *count)
        drivers[0] = (ze_driver_handle_t)&a_driver;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL driver_version(ze_driver_handle_t driver, ze_api_version_t *version)
{
    (void)driver;
    *version = ZE_API_VERSION_CURRENT;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL driver_properties(ze_driver_handle_t driver, ze_driver_properties_t *properties)
{
    (void)driver;
    properties->driverVersion = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL extension_address(ze_driver_handle_t driver, const char *name, void **address)
{
    (void)driver;
    *address = (void *)driver_version;
    return strncmp(name, "zex", 3) ? ZE_RESULT_ERROR_INVALID_ARGUMENT : ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL device_get(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *devices)
{
    (void)driver;
    uint32_t asked = devices ? *count : 0;
    for (uint32_t i = 0; i < 2 && i < asked; i++)
        devices[i] = (ze_device_handle_t)&all[i];
    *count = asked && asked < 2 ? asked : 2;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL device_parts(ze_device_handle_t handle, uint32_t *count, ze_device_handle_t *devices)
{
    const struct device *device = (const struct device *)handle;
    uint32_t asked = devices ? *count : 0;
    for (uint32_t i = 0; i < device->tiles && i < asked; i++)
        devices[i] = (ze_device_handle_t)device->part[i];
    *count = asked && asked < device->tiles ? asked : device->tiles;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL device_properties(ze_device_handle_t handle, ze_device_properties_t *properties)
{
    const struct device *device = (const struct device *)handle;
    properties->type = ZE_DEVICE_TYPE_GPU;
    properties->flags = device->is_tile ? ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE : 0;
    properties->subdeviceId = device->tile;
    properties->numSlices = 4;
    properties->numSubslicesPerSlice = 8;
    properties->timerResolution = properties->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? 1000000000u / device->ns_per_tick : device->ns_per_tick;
    properties->timestampValidBits = properties->kernelTimestampValidBits = device->bits;
    memset(properties->uuid.id, 0, sizeof properties->uuid.id);
    properties->uuid.id[0] = (uint8_t)(1 + (device - all));
    memcpy(properties->name, device->name, sizeof device->name);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL device_memory(ze_device_handle_t device, uint32_t *count, ze_device_memory_properties_t *properties)
{
    (void)device;
    if (properties && *count)
        properties[0].totalSize = 1u << 30;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL device_clock(ze_device_handle_t device, uint64_t *host, uint64_t *ticks)
{
    *host = now_ns();
    *ticks = told((struct device *)device, ticks_of((struct device *)device));
    return ZE_RESULT_SUCCESS;
}

static void *one(size_t bytes) { return calloc(1, bytes); }

static ze_result_t ZE_APICALL context_create(ze_driver_handle_t driver, const ze_context_desc_t *desc, ze_context_handle_t *context)
{
    (void)driver, (void)desc;
    *context = one(8);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL context_destroy(ze_context_handle_t context)
{
    free(context);
    return ZE_RESULT_SUCCESS;
}

/* --- queues, lists, fences --- */

static struct stream *new_stream(ze_device_handle_t device, const ze_command_queue_desc_t *desc)
{
    struct stream *stream = one(sizeof *stream);
    stream->device = (struct device *)device;
    stream->is_synchronous = desc && desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    return stream;
}

static ze_result_t ZE_APICALL queue_create(ze_context_handle_t context, ze_device_handle_t device,
                                           const ze_command_queue_desc_t *desc, ze_command_queue_handle_t *queue)
{
    (void)context;
    *queue = (ze_command_queue_handle_t)new_stream(device, desc);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL queue_destroy(ze_command_queue_handle_t queue)
{
    free(queue);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL queue_execute(ze_command_queue_handle_t queue, uint32_t count, ze_command_list_handle_t *lists,
                                            ze_fence_handle_t fence)
{
    struct stream *stream = (struct stream *)queue;
    for (uint32_t i = 0; i < count; i++)
        if (!((struct list *)lists[i])->is_closed)
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < ((struct list *)lists[i])->used; j++)
            run(stream, &((struct list *)lists[i])->commands[j]);
    if (fence) {
        ((struct fence *)fence)->device = stream->device;
        atomic_store(&((struct fence *)fence)->end, atomic_load(&stream->free_at));
    }
    if (stream->is_synchronous)
        wait_until(stream->device, atomic_load(&stream->free_at));
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL queue_synchronize(ze_command_queue_handle_t queue, uint64_t timeout)
{
    struct stream *stream = (struct stream *)queue;
    if (!timeout && ticks_of(stream->device) < atomic_load(&stream->free_at))
        return ZE_RESULT_NOT_READY;
    wait_until(stream->device, atomic_load(&stream->free_at));
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL list_create(ze_context_handle_t context, ze_device_handle_t device,
                                          const ze_command_list_desc_t *desc, ze_command_list_handle_t *list)
{
    (void)context, (void)desc;
    struct list *made = one(sizeof *made);
    made->device = (struct device *)device;
    *list = (ze_command_list_handle_t)made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL list_create_immediate(ze_context_handle_t context, ze_device_handle_t device,
                                                    const ze_command_queue_desc_t *desc, ze_command_list_handle_t *list)
{
    list_create(context, device, NULL, list);
    ((struct list *)*list)->stream = new_stream(device, desc);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL list_destroy(ze_command_list_handle_t handle)
{
    struct list *list = (struct list *)handle;
    for (uint32_t i = 0; i < list->used; i++)
        free(list->commands[i].asked);
    free(list->commands);
    free(list->stream);
    free(list);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL list_close(ze_command_list_handle_t list)
{
    ((struct list *)list)->is_closed = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL list_reset(ze_command_list_handle_t list)
{
    ((struct list *)list)->is_closed = 0;
    ((struct list *)list)->used = 0;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL append_barrier(ze_command_list_handle_t list, ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait)
{
    return append(list, (struct command){.what = SIGNAL}, event, waits, wait);
}

static ze_result_t ZE_APICALL append_signal(ze_command_list_handle_t list, ze_event_handle_t event)
{
    return append(list, (struct command){.what = SIGNAL}, event, 0, NULL);
}

static ze_result_t ZE_APICALL append_wait(ze_command_list_handle_t list, uint32_t waits, ze_event_handle_t *wait)
{
    return append(list, (struct command){.what = SIGNAL}, NULL, waits, wait);
}

static ze_result_t ZE_APICALL append_reset(ze_command_list_handle_t list, ze_event_handle_t event)
{
    return append(list, (struct command){.what = RESET}, event, 0, NULL);
}

static ze_result_t ZE_APICALL append_query(ze_command_list_handle_t list, uint32_t count, ze_event_handle_t *events, void *into,
                                           const size_t *offsets, ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait)
{
    struct command command = {.what = QUERY, .asked_count = count, .into = into};
    (void)offsets;
    command.asked = malloc(count * sizeof *command.asked);
    memcpy(command.asked, events, count * sizeof *command.asked);
    return append(list, command, event, waits, wait);
}

static ze_result_t ZE_APICALL append_kernel(ze_command_list_handle_t list, ze_kernel_handle_t kernel, const ze_group_count_t *groups,
                                            ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait)
{
    (void)groups;
    const struct kernel *which = (const struct kernel *)kernel;
    if (!strncmp(which->name, "bad", 3))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return append(list, (struct command){.what = WORK, .ticks = which->ticks}, event, waits, wait);
}

static uint64_t moved(size_t bytes) { return 100 + bytes / 16; }

static ze_result_t ZE_APICALL append_copy(ze_command_list_handle_t list, void *to, const void *from, size_t bytes,
                                          ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait)
{
    if (!to || !from)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return append(list, (struct command){.what = WORK, .ticks = moved(bytes)}, event, waits, wait);
}

static ze_result_t ZE_APICALL append_fill(ze_command_list_handle_t list, void *to, const void *pattern, size_t length, size_t bytes,
                                          ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait)
{
    (void)to, (void)pattern, (void)length;
    return append(list, (struct command){.what = WORK, .ticks = moved(bytes)}, event, waits, wait);
}

static ze_result_t ZE_APICALL append_region(ze_command_list_handle_t list, void *to, const ze_copy_region_t *region, uint32_t p1,
                                            uint32_t p2, const void *from, const ze_copy_region_t *region2, uint32_t p3,
                                            uint32_t p4, ze_event_handle_t event, uint32_t waits, ze_event_handle_t *wait)
{
    (void)to, (void)p1, (void)p2, (void)from, (void)region2, (void)p3, (void)p4;
    size_t bytes = (size_t)region->width * (region->height ? region->height : 1) * (region->depth ? region->depth : 1);
    return append(list, (struct command){.what = WORK, .ticks = moved(bytes)}, event, waits, wait);
}

static ze_result_t ZE_APICALL fence_create(ze_command_queue_handle_t queue, const ze_fence_desc_t *desc, ze_fence_handle_t *fence)
{
    (void)desc;
    struct fence *made = one(sizeof *made);
    made->device = ((struct stream *)queue)->device;
    atomic_store(&made->end, NEVER);
    *fence = (ze_fence_handle_t)made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL fence_destroy(ze_fence_handle_t fence)
{
    free(fence);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL fence_query(ze_fence_handle_t handle)
{
    struct fence *fence = (struct fence *)handle;
    uint64_t end = atomic_load(&fence->end);
    return end != NEVER && ticks_of(fence->device) >= end ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

static ze_result_t ZE_APICALL fence_synchronize(ze_fence_handle_t handle, uint64_t timeout)
{
    struct fence *fence = (struct fence *)handle;
    if (atomic_load(&fence->end) == NEVER || !timeout)
        return fence_query(handle);
    wait_until(fence->device, atomic_load(&fence->end));
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL fence_reset(ze_fence_handle_t fence)
{
    atomic_store(&((struct fence *)fence)->end, NEVER);
    return ZE_RESULT_SUCCESS;
}

/* --- events --- */

static ze_result_t ZE_APICALL pool_create(ze_context_handle_t context, const ze_event_pool_desc_t *desc, uint32_t count,
                                          ze_device_handle_t *devices, ze_event_pool_handle_t *pool)
{
    (void)context, (void)count, (void)devices;
    if ((desc->flags & ZE_EVENT_POOL_FLAG_IPC) && (desc->flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP))
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    struct pool *made = one(sizeof *made);
    made->flags = desc->flags;
    *pool = (ze_event_pool_handle_t)made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL pool_destroy(ze_event_pool_handle_t pool)
{
    free(pool);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL event_create(ze_event_pool_handle_t pool, const ze_event_desc_t *desc, ze_event_handle_t *event)
{
    (void)desc, (void)pool;
    struct event *made = one(sizeof *made);
    made->device = (((struct pool *)pool)->flags & ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP) ? &all[0] : NULL;
    atomic_store(&made->end, NEVER);
    *event = (ze_event_handle_t)made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL event_destroy(ze_event_handle_t event)
{
    free(event);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL event_query(ze_event_handle_t handle)
{
    struct event *event = (struct event *)handle;
    uint64_t end = atomic_load(&event->end);
    return end != NEVER && ticks_of(event->device) >= end ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

static ze_result_t ZE_APICALL event_synchronize(ze_event_handle_t handle, uint64_t timeout)
{
    struct event *event = (struct event *)handle;
    uint64_t end = atomic_load(&event->end);
    if (end == NEVER || !timeout)
        return event_query(handle);
    wait_until(event->device, end);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL event_reset(ze_event_handle_t event)
{
    atomic_store(&((struct event *)event)->end, NEVER);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL event_signal(ze_event_handle_t handle)
{
    struct event *event = (struct event *)handle;
    event->device = event->device ? event->device : &all[0];
    atomic_store(&event->end, 0);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL event_timestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t *result)
{
    struct event *event = (struct event *)handle;
    if (event_query(handle) != ZE_RESULT_SUCCESS)
        return ZE_RESULT_NOT_READY;
    result->global.kernelStart = result->context.kernelStart = told(event->device, atomic_load(&event->start));
    result->global.kernelEnd = result->context.kernelEnd = told(event->device, atomic_load(&event->end));
    return ZE_RESULT_SUCCESS;
}

/* --- modules, kernels, memory --- */

static ze_result_t ZE_APICALL module_create(ze_context_handle_t context, ze_device_handle_t device, const ze_module_desc_t *desc,
                                            ze_module_handle_t *module, ze_module_build_log_handle_t *log)
{
    (void)context, (void)device, (void)desc, (void)log;
    *module = one(8);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL module_destroy(ze_module_handle_t module)
{
    free(module);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL kernel_create(ze_module_handle_t module, const ze_kernel_desc_t *desc, ze_kernel_handle_t *kernel)
{
    (void)module;
    struct kernel *made = one(sizeof *made);
    const char *colon = strrchr(desc->pKernelName, ':');
    snprintf(made->name, sizeof made->name, "%s", desc->pKernelName);
    made->ticks = colon ? strtoull(colon + 1, NULL, 10) : 1000;
    *kernel = (ze_kernel_handle_t)made;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL kernel_destroy(ze_kernel_handle_t kernel)
{
    free(kernel);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL kernel_group_size(ze_kernel_handle_t kernel, uint32_t x, uint32_t y, uint32_t z)
{
    (void)kernel, (void)x, (void)y, (void)z;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t allocate(size_t bytes, void **pointer)
{
    *pointer = bytes <= (size_t)1 << 40 ? malloc(bytes < 4096 ? bytes : 4096) : NULL;
    return *pointer ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

static ze_result_t ZE_APICALL mem_device(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t bytes,
                                         size_t alignment, ze_device_handle_t device, void **pointer)
{
    (void)context, (void)desc, (void)alignment, (void)device;
    return allocate(bytes, pointer);
}

static ze_result_t ZE_APICALL mem_host(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t bytes,
                                       size_t alignment, void **pointer)
{
    (void)context, (void)desc, (void)alignment;
    return allocate(bytes, pointer);
}

static ze_result_t ZE_APICALL mem_shared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc,
                                         const ze_host_mem_alloc_desc_t *host, size_t bytes, size_t alignment,
                                         ze_device_handle_t device, void **pointer)
{
    (void)context, (void)desc, (void)host, (void)alignment, (void)device;
    return allocate(bytes, pointer);
}

static ze_result_t ZE_APICALL mem_free(ze_context_handle_t context, void *pointer)
{
    (void)context;
    free(pointer);
    return ZE_RESULT_SUCCESS;
}

/* --- tables --- */

#define TABLE(name, type) EXPORT ze_result_t ZE_APICALL name(ze_api_version_t version, type *table); \
    EXPORT ze_result_t ZE_APICALL name(ze_api_version_t version, type *table)
/* The loader wants all tables, also those of which it is asked for nothing. */
EXPORT ze_result_t ZE_APICALL empty_table(ze_api_version_t version, void *table);
EXPORT ze_result_t ZE_APICALL empty_table(ze_api_version_t version, void *table)
{
    (void)version, (void)table;
    return ZE_RESULT_SUCCESS;
}
#define EMPTY_TABLE(name) __asm__(".globl " #name "\n.type " #name ", @function\n.set " #name ", empty_table");

TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t) { (void)version; table->pfnInit = init; return 0; }
TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t)
{
    (void)version;
    table->pfnGet = driver_get;
    table->pfnGetApiVersion = driver_version;
    table->pfnGetProperties = driver_properties;
    table->pfnGetExtensionFunctionAddress = extension_address;
    return 0;
}
TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t)
{
    (void)version;
    table->pfnGet = device_get;
    table->pfnGetSubDevices = device_parts;
    table->pfnGetProperties = device_properties;
    table->pfnGetMemoryProperties = device_memory;
    table->pfnGetGlobalTimestamps = device_clock;
    return 0;
}
TABLE(zeGetContextProcAddrTable, ze_context_dditable_t)
{
    (void)version;
    table->pfnCreate = context_create;
    table->pfnDestroy = context_destroy;
    return 0;
}
TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
{
    (void)version;
    table->pfnCreate = queue_create;
    table->pfnDestroy = queue_destroy;
    table->pfnExecuteCommandLists = queue_execute;
    table->pfnSynchronize = queue_synchronize;
    return 0;
}
TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t)
{
    (void)version;
    table->pfnCreate = list_create;
    table->pfnCreateImmediate = list_create_immediate;
    table->pfnDestroy = list_destroy;
    table->pfnClose = list_close;
    table->pfnReset = list_reset;
    table->pfnAppendBarrier = append_barrier;
    table->pfnAppendSignalEvent = append_signal;
    table->pfnAppendWaitOnEvents = append_wait;
    table->pfnAppendEventReset = append_reset;
    table->pfnAppendQueryKernelTimestamps = append_query;
    table->pfnAppendLaunchKernel = append_kernel;
    table->pfnAppendLaunchCooperativeKernel = append_kernel;
    table->pfnAppendMemoryCopy = append_copy;
    table->pfnAppendMemoryFill = append_fill;
    table->pfnAppendMemoryCopyRegion = append_region;
    return 0;
}
TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t)
{
    (void)version;
    table->pfnCreate = fence_create;
    table->pfnDestroy = fence_destroy;
    table->pfnHostSynchronize = fence_synchronize;
    table->pfnQueryStatus = fence_query;
    table->pfnReset = fence_reset;
    return 0;
}
TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t)
{
    (void)version;
    table->pfnCreate = pool_create;
    table->pfnDestroy = pool_destroy;
    return 0;
}
TABLE(zeGetEventProcAddrTable, ze_event_dditable_t)
{
    (void)version;
    table->pfnCreate = event_create;
    table->pfnDestroy = event_destroy;
    table->pfnHostSignal = event_signal;
    table->pfnHostSynchronize = event_synchronize;
    table->pfnQueryStatus = event_query;
    table->pfnHostReset = event_reset;
    table->pfnQueryKernelTimestamp = event_timestamp;
    return 0;
}
TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t)
{
    (void)version;
    table->pfnCreate = module_create;
    table->pfnDestroy = module_destroy;
    return 0;
}
TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t)
{
    (void)version;
    table->pfnCreate = kernel_create;
    table->pfnDestroy = kernel_destroy;
    table->pfnSetGroupSize = kernel_group_size;
    return 0;
}
TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t)
{
    (void)version;
    table->pfnAllocDevice = mem_device;
    table->pfnAllocHost = mem_host;
    table->pfnAllocShared = mem_shared;
    table->pfnFree = mem_free;
    return 0;
}

EMPTY_TABLE(zeGetDeviceExpProcAddrTable)
EMPTY_TABLE(zeGetEventExpProcAddrTable)
EMPTY_TABLE(zeGetFabricEdgeExpProcAddrTable)
EMPTY_TABLE(zeGetFabricVertexExpProcAddrTable)
EMPTY_TABLE(zeGetImageExpProcAddrTable)
EMPTY_TABLE(zeGetImageProcAddrTable)
EMPTY_TABLE(zeGetKernelExpProcAddrTable)
EMPTY_TABLE(zeGetModuleBuildLogProcAddrTable)
EMPTY_TABLE(zeGetPhysicalMemProcAddrTable)
EMPTY_TABLE(zeGetSamplerProcAddrTable)
EMPTY_TABLE(zeGetVirtualMemProcAddrTable)
EMPTY_TABLE(zesGetDeviceProcAddrTable)
EMPTY_TABLE(zesGetDiagnosticsProcAddrTable)
EMPTY_TABLE(zesGetDriverProcAddrTable)
EMPTY_TABLE(zesGetEngineProcAddrTable)
EMPTY_TABLE(zesGetFabricPortProcAddrTable)
EMPTY_TABLE(zesGetFanProcAddrTable)
EMPTY_TABLE(zesGetFirmwareProcAddrTable)
EMPTY_TABLE(zesGetFrequencyProcAddrTable)
EMPTY_TABLE(zesGetLedProcAddrTable)
EMPTY_TABLE(zesGetMemoryProcAddrTable)
EMPTY_TABLE(zesGetPerformanceFactorProcAddrTable)
EMPTY_TABLE(zesGetPowerProcAddrTable)
EMPTY_TABLE(zesGetPsuProcAddrTable)
EMPTY_TABLE(zesGetRasProcAddrTable)
EMPTY_TABLE(zesGetSchedulerProcAddrTable)
EMPTY_TABLE(zesGetStandbyProcAddrTable)
EMPTY_TABLE(zesGetTemperatureProcAddrTable)
EMPTY_TABLE(zetGetCommandListProcAddrTable)
EMPTY_TABLE(zetGetContextProcAddrTable)
EMPTY_TABLE(zetGetDebugProcAddrTable)
EMPTY_TABLE(zetGetDeviceProcAddrTable)
EMPTY_TABLE(zetGetKernelProcAddrTable)
EMPTY_TABLE(zetGetMetricGroupExpProcAddrTable)
EMPTY_TABLE(zetGetMetricGroupProcAddrTable)
EMPTY_TABLE(zetGetMetricProcAddrTable)
EMPTY_TABLE(zetGetMetricQueryPoolProcAddrTable)
EMPTY_TABLE(zetGetMetricQueryProcAddrTable)
EMPTY_TABLE(zetGetMetricStreamerProcAddrTable)
EMPTY_TABLE(zetGetModuleProcAddrTable)
EMPTY_TABLE(zetGetTracerExpProcAddrTable)
