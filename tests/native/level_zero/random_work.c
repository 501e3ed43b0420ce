/* Random command sequences of Level Zero, and what must be recorded of them: random_work SEED SEQUENCES THREADS [END].
 * END: exit (nothing is destroyed), kill (by SIGKILL, when all is done), abandon (by SIGKILL, while devices work), fork
 * (children come and go, and use Level Zero themselves).
 * Prints one line of JSON: the work of each name with its calls, nanoseconds and bytes, the calls of each function with
 * their errors, how much was launched, and how much of it cannot be timed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <level_zero/ze_api.h>

#define DEVICES 4               /* two roots, a tile of each */
#define LISTS 3
#define IMMEDIATE 2
#define EVENTS 8
#define ITEMS 32
#define NAMES 64
#define BUFFERS 4

struct sum { char name[64]; uint64_t calls, ns, bytes, errors; };
struct sums { struct sum all[NAMES * 2]; int used; };
static struct { struct sums work, calls; uint64_t launched, untimed; } truth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ze_driver_handle_t driver;
static ze_context_handle_t context;
static ze_device_handle_t devices[DEVICES];
static const uint64_t ns_per_tick[DEVICES] = {1, 80, 1, 80};
static const char *const kernel_names[] = {"gemm:900", "softmax:130", "ncclDevKernel_AllReduce:2100", "nothing:0", "bad:7"};
#define KERNELS (sizeof kernel_names / sizeof kernel_names[0])

struct item { char name[64]; uint64_t ticks, bytes; ze_event_handle_t event; int is_untimed; };
struct list { ze_command_list_handle_t handle; struct item items[ITEMS]; int used, is_closed; };
struct world {
    unsigned seed;
    struct sums work, calls;
    uint64_t launched, untimed;
    ze_module_handle_t module;
    ze_kernel_handle_t kernels[KERNELS];
    ze_command_queue_handle_t queue[DEVICES];
    ze_command_list_handle_t immediate[DEVICES][IMMEDIATE];
    struct list lists[DEVICES][LISTS];
    ze_event_pool_handle_t pool, shared_pool;
    ze_event_handle_t events[EVENTS], shared[2];
    void *device_buffer[DEVICES], *host_buffer, *unified_buffer, *plain;
};

static struct sum *sum_of(struct sums *sums, const char *name)
{
    for (int i = 0; i < sums->used; i++)
        if (!strcmp(sums->all[i].name, name))
            return &sums->all[i];
    snprintf(sums->all[sums->used].name, sizeof sums->all[0].name, "%s", name);
    return &sums->all[sums->used++];
}

static ze_result_t called(struct world *world, const char *name, ze_result_t result)
{
    struct sum *sum = sum_of(&world->calls, name);
    sum->calls++;
    sum->errors += result != ZE_RESULT_SUCCESS && result != ZE_RESULT_NOT_READY;
    return result;
}
#define CALL(function, ...) called(world, #function, function(__VA_ARGS__))

static unsigned pick(struct world *world, unsigned below) { return (unsigned)rand_r(&world->seed) % below; }

/* --- what ran --- */

static void ran(struct world *world, const struct item *item, int device)
{
    world->launched++;
    if (item->is_untimed) {
        world->untimed++;
        return;
    }
    struct sum *sum = sum_of(&world->work, item->name);
    sum->calls++;
    sum->ns += item->ticks * ns_per_tick[device];
    sum->bytes += item->bytes;
}

static char kind_of(const struct world *world, const void *pointer)
{
    for (int i = 0; i < DEVICES; i++)
        if (pointer == world->device_buffer[i])
            return 'D';
    return pointer == world->host_buffer ? 'H' : pointer == world->unified_buffer ? 'S' : 'M';
}

static void *any_buffer(struct world *world, int device)
{
    void *all[BUFFERS] = {world->device_buffer[device], world->host_buffer, world->unified_buffer, world->plain};
    return all[pick(world, BUFFERS)];
}

/* Appends something, with the event or without; 0: it failed. */
static int append(struct world *world, ze_command_list_handle_t list, int device, ze_event_handle_t event, struct item *item)
{
    static const ze_group_count_t groups = {1, 1, 1};
    static const char zero;
    size_t bytes = pick(world, 4096);
    unsigned what = pick(world, 10);
    *item = (struct item){.event = event};
    if (what < 6) {
        unsigned kernel = pick(world, KERNELS);
        const char *name = kernel_names[kernel];
        snprintf(item->name, sizeof item->name, "%s", name);
        item->ticks = strtoull(strrchr(name, ':') + 1, NULL, 10);
        return (what ? CALL(zeCommandListAppendLaunchKernel, list, world->kernels[kernel], &groups, event, 0, NULL)
                     : CALL(zeCommandListAppendLaunchCooperativeKernel, list, world->kernels[kernel], &groups, event, 0, NULL)) == 0;
    }
    void *to = any_buffer(world, device), *from = any_buffer(world, device);
    item->bytes = bytes;
    item->ticks = 100 + bytes / 16;
    if (what == 6) {
        snprintf(item->name, sizeof item->name, "zeCommandListAppendMemoryFill(%c)", kind_of(world, to));
        return CALL(zeCommandListAppendMemoryFill, list, to, &zero, 1, bytes, event, 0, NULL) == 0;
    }
    if (what == 7) {
        const ze_copy_region_t region = {0, 0, 0, (uint32_t)(bytes % 64) + 1, 2, 0};
        item->bytes = 2 * (bytes % 64 + 1);
        item->ticks = 100 + item->bytes / 16;
        snprintf(item->name, sizeof item->name, "zeCommandListAppendMemoryCopyRegion(%c2%c)", kind_of(world, from), kind_of(world, to));
        return CALL(zeCommandListAppendMemoryCopyRegion, list, to, &region, 64, 0, from, &region, 64, 0, event, 0, NULL) == 0;
    }
    snprintf(item->name, sizeof item->name, "zeCommandListAppendMemoryCopy(%c2%c)", kind_of(world, from), kind_of(world, to));
    return CALL(zeCommandListAppendMemoryCopy, list, pick(world, 20) ? to : NULL, from, bytes, event, 0, NULL) == 0;
}

/* --- sequences --- */

static void immediate(struct world *world, int device)
{
    struct item item;
    ze_event_handle_t event = pick(world, 3) ? NULL : world->events[pick(world, EVENTS)];
    int is_shared = !pick(world, 40);
    if (is_shared)
        event = world->shared[0];
    if (!append(world, world->immediate[device][pick(world, IMMEDIATE)], device, event, &item))
        return;
    item.is_untimed = is_shared;
    ran(world, &item, device);
    if (!event)
        return;
    if (pick(world, 2))
        CALL(zeEventHostSynchronize, event, UINT64_MAX);
    else
        while (CALL(zeEventQueryStatus, event) == ZE_RESULT_NOT_READY)
            continue;
    ze_kernel_timestamp_result_t at;
    if (!is_shared && pick(world, 2) && CALL(zeEventQueryKernelTimestamp, event, &at) == 0
        && (uint32_t)(at.global.kernelEnd - at.global.kernelStart) != (uint32_t)item.ticks)
        abort();
    CALL(zeEventHostReset, event);
}

static void finish(struct world *world, int device)
{
    CALL(zeCommandQueueSynchronize, world->queue[device], UINT64_MAX);
}

static void refill(struct world *world, struct list *list, int device)
{
    int first_event = (int)pick(world, EVENTS), count = 1 + (int)pick(world, 6);
    finish(world, device);
    CALL(zeCommandListReset, list->handle);
    list->used = list->is_closed = 0;
    for (int i = 0; i < count; i++) {
        struct item *item = &list->items[list->used];
        ze_event_handle_t event = pick(world, 4) ? NULL : world->events[(first_event + i) % EVENTS];
        if (!append(world, list->handle, device, event, item))
            continue;
        list->used++;
        if (event && !pick(world, 3)) {         /* the device resets it: nobody can ask */
            CALL(zeCommandListAppendEventReset, list->handle, event);
            item->is_untimed = 1;
        }
        if (!pick(world, 4))
            CALL(zeCommandListAppendBarrier, list->handle, NULL, 0, NULL);
    }
    if (!pick(world, 10)) {                     /* not closed yet */
        CALL(zeCommandQueueExecuteCommandLists, world->queue[device], 1, &list->handle, NULL);
    }
    CALL(zeCommandListClose, list->handle);
    list->is_closed = 1;
}

static void reset_events(struct world *world, struct list *list)
{
    for (int i = 0; i < list->used; i++)
        if (list->items[i].event)
            CALL(zeEventHostReset, list->items[i].event);
}

static void execute(struct world *world, struct list *list, int device)
{
    ze_fence_handle_t fence = NULL;
    const ze_fence_desc_t desc = {ZE_STRUCTURE_TYPE_FENCE_DESC, NULL, 0};
    int runs = 1 + (int)pick(world, 3);
    if (!list->is_closed || !list->used)
        return;
    for (int run = 0; run < runs; run++) {
        int with_fence = !pick(world, 3), has_event = 0;
        for (int i = 0; i < list->used; i++)
            has_event |= list->items[i].event != NULL;
        if (with_fence)
            CALL(zeFenceCreate, world->queue[device], &desc, &fence);
        CALL(zeCommandQueueExecuteCommandLists, world->queue[device], 1, &list->handle, fence);
        for (int i = 0; i < list->used; i++)
            ran(world, &list->items[i], device);
        if (with_fence) {
            CALL(zeFenceHostSynchronize, fence, UINT64_MAX);
            CALL(zeFenceDestroy, fence);
            fence = NULL;
        }
        if (has_event || pick(world, 4)) {      /* else it is executed again while it runs */
            finish(world, device);
            reset_events(world, list);
        }
    }
}

static void allocate(struct world *world, int device)
{
    void *pointer = NULL;
    const ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, NULL, 0, 0};
    const ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, NULL, 0};
    size_t bytes = pick(world, 5) ? 1 + pick(world, 1u << 20) : (size_t)1 << 41;
    switch (pick(world, 3)) {
    case 0: CALL(zeMemAllocDevice, context, &desc, bytes, 1, devices[device], &pointer); break;
    case 1: CALL(zeMemAllocHost, context, &host, bytes, 1, &pointer); break;
    default: CALL(zeMemAllocShared, context, &desc, &host, bytes, 1, pick(world, 2) ? devices[device] : NULL, &pointer);
    }
    if (pointer)
        CALL(zeMemFree, context, pointer);
}

static void renew(struct world *world, int device)
{
    const ze_command_queue_desc_t of_queue = {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, NULL, 0, 0, 0, 0, 0};
    const ze_command_list_desc_t of_list = {ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, NULL, 0, 0};
    const ze_event_desc_t of_event = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, 0, 0, 0};
    finish(world, device);
    unsigned which = pick(world, LISTS);
    struct list *list = &world->lists[device][which];
    switch (pick(world, 3)) {
    case 0:
        CALL(zeCommandListDestroy, list->handle);
        *list = (struct list){0};
        CALL(zeCommandListCreate, context, devices[device], &of_list, &list->handle);
        break;
    case 1:
        CALL(zeCommandQueueDestroy, world->queue[device]);
        CALL(zeCommandQueueCreate, context, devices[device], &of_queue, &world->queue[device]);
        break;
    default:
        for (int i = 0; i < DEVICES; i++)       /* lists may have it */
            for (int j = 0; j < LISTS; j++) {
                finish(world, i);
                CALL(zeCommandListReset, world->lists[i][j].handle);
                world->lists[i][j].used = world->lists[i][j].is_closed = 0;
            }
        CALL(zeEventDestroy, world->events[which]);
        CALL(zeEventCreate, world->pool, &of_event, &world->events[which]);
    }
}

static void sequence(struct world *world)
{
    int device = (int)pick(world, DEVICES), steps = 1 + (int)pick(world, 8);
    for (int i = 0; i < steps; i++) {
        struct list *list = &world->lists[device][pick(world, LISTS)];
        switch (pick(world, 8)) {
        case 0: refill(world, list, device); break;
        case 1: case 2: execute(world, list, device); break;
        case 3: allocate(world, device); break;
        case 4: if (!pick(world, 8)) renew(world, device); break;
        default: immediate(world, device);
        }
    }
    if (!pick(world, 3))
        finish(world, device);
}

/* --- beginning and ending --- */

static void begin(struct world *world)
{
    const ze_command_queue_desc_t of_queue = {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, NULL, 0, 0, 0, 0, 0};
    const ze_command_list_desc_t of_list = {ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, NULL, 0, 0};
    const ze_module_desc_t of_module = {ZE_STRUCTURE_TYPE_MODULE_DESC, NULL, 0, 0, NULL, NULL, NULL};
    const ze_event_pool_desc_t of_pool = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, EVENTS};
    const ze_event_pool_desc_t of_shared = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_IPC, 2};
    const ze_device_mem_alloc_desc_t of_memory = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, NULL, 0, 0};
    const ze_host_mem_alloc_desc_t host = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, NULL, 0};
    CALL(zeModuleCreate, context, devices[0], &of_module, &world->module, NULL);
    for (unsigned i = 0; i < KERNELS; i++) {
        const ze_kernel_desc_t of_kernel = {ZE_STRUCTURE_TYPE_KERNEL_DESC, NULL, 0, kernel_names[i]};
        CALL(zeKernelCreate, world->module, &of_kernel, &world->kernels[i]);
    }
    for (int i = 0; i < DEVICES; i++) {
        CALL(zeCommandQueueCreate, context, devices[i], &of_queue, &world->queue[i]);
        for (int j = 0; j < IMMEDIATE; j++)
            CALL(zeCommandListCreateImmediate, context, devices[i], &of_queue, &world->immediate[i][j]);
        for (int j = 0; j < LISTS; j++)
            CALL(zeCommandListCreate, context, devices[i], &of_list, &world->lists[i][j].handle);
        CALL(zeMemAllocDevice, context, &of_memory, 4096, 1, devices[i], &world->device_buffer[i]);
    }
    CALL(zeMemAllocHost, context, &host, 4096, 1, &world->host_buffer);
    CALL(zeMemAllocShared, context, &of_memory, &host, 4096, 1, devices[0], &world->unified_buffer);
    world->plain = malloc(4096);
    CALL(zeEventPoolCreate, context, &of_pool, 0, NULL, &world->pool);
    CALL(zeEventPoolCreate, context, &of_shared, 0, NULL, &world->shared_pool);
    for (uint32_t i = 0; i < EVENTS; i++) {
        const ze_event_desc_t of_event = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, i, 0, 0};
        CALL(zeEventCreate, world->pool, &of_event, &world->events[i]);
        if (i < 2)
            CALL(zeEventCreate, world->shared_pool, &of_event, &world->shared[i]);
    }
}

/* What is on an immediate list ends before this does. */
static void drain(struct world *world, ze_command_list_handle_t list, int device)
{
    static const ze_group_count_t groups = {1, 1, 1};
    struct item item = {.name = "nothing:0"};
    CALL(zeCommandListAppendLaunchKernel, list, world->kernels[3], &groups, world->events[0], 0, NULL);
    ran(world, &item, device);
    CALL(zeEventHostSynchronize, world->events[0], UINT64_MAX);
    CALL(zeEventHostReset, world->events[0]);
}

static void end(struct world *world, int destroys)
{
    for (int i = 0; i < DEVICES; i++) {
        finish(world, i);
        for (int j = 0; j < IMMEDIATE; j++)
            drain(world, world->immediate[i][j], i);
    }
    for (int i = 0; destroys && i < DEVICES; i++) {
        for (int j = 0; j < LISTS; j++)
            CALL(zeCommandListDestroy, world->lists[i][j].handle);
        for (int j = 0; j < IMMEDIATE; j++)
            CALL(zeCommandListDestroy, world->immediate[i][j]);
        CALL(zeCommandQueueDestroy, world->queue[i]);
        CALL(zeMemFree, context, world->device_buffer[i]);
    }
    for (int i = 0; destroys && i < EVENTS; i++)
        CALL(zeEventDestroy, world->events[i]);
    if (destroys)
        CALL(zeEventPoolDestroy, world->pool);
}

static void join(struct sums *into, const struct sums *from)
{
    for (int i = 0; i < from->used; i++) {
        struct sum *sum = sum_of(into, from->all[i].name);
        sum->calls += from->all[i].calls;
        sum->ns += from->all[i].ns;
        sum->bytes += from->all[i].bytes;
        sum->errors += from->all[i].errors;
    }
}

static int sequences, destroys = 1, forks, abandons;

static void child(void)
{
    ze_event_pool_handle_t pool;
    const ze_event_pool_desc_t desc = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
    zeEventPoolCreate(context, &desc, 0, NULL, &pool);
    _exit(0);
}

static void *work(void *argument)
{
    struct world *world = argument;
    begin(world);
    for (int i = 0; i < sequences; i++) {
        sequence(world);
        if (forks && i % 50 == 0) {
            pid_t pid = fork();
            if (!pid)
                child();
            waitpid(pid, NULL, 0);
        }
    }
    if (!abandons)
        end(world, destroys);
    pthread_mutex_lock(&lock);
    join(&truth.work, &world->work);
    join(&truth.calls, &world->calls);
    truth.launched += world->launched;
    truth.untimed += world->untimed;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void print(const char *key, const struct sums *sums)
{
    printf("\"%s\": {", key);
    for (int i = 0; i < sums->used; i++)
        printf("%s\"%s\": [%lu, %lu, %lu, %lu]", i ? ", " : "", sums->all[i].name, sums->all[i].calls, sums->all[i].ns,
               sums->all[i].bytes, sums->all[i].errors);
    printf("}, ");
}

int main(int count, char **values)
{
    static struct world worlds[16];
    pthread_t threads[16];
    struct world *world = &worlds[0];
    uint32_t one = 1, two = 2;
    if (count < 4)
        return 2;
    int many = atoi(values[3]);
    const char *how = count > 4 ? values[4] : "";
    const ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    sequences = atoi(values[2]);
    destroys = !strcmp(how, "") || !strcmp(how, "fork");
    forks = !strcmp(how, "fork");
    abandons = !strcmp(how, "abandon");
    if (CALL(zeInit, 0) != 0 || CALL(zeDriverGet, &one, &driver) != 0)
        return 3;
    CALL(zeDeviceGet, driver, &two, devices);
    for (int i = 0; i < 2; i++) {
        one = 1;
        CALL(zeDeviceGetSubDevices, devices[i], &one, &devices[2 + i]);
    }
    CALL(zeContextCreate, driver, &desc, &context);
    for (int i = 0; i < many; i++) {
        worlds[i].seed = (unsigned)atoi(values[1]) * 16 + (unsigned)i;
        pthread_create(&threads[i], NULL, work, &worlds[i]);
    }
    for (int i = 0; i < many; i++)
        pthread_join(threads[i], NULL);
    world = &(struct world){0};
    if (destroys)
        CALL(zeContextDestroy, context);
    join(&truth.calls, &world->calls);
    printf("{");
    print("work", &truth.work);
    print("calls", &truth.calls);
    printf("\"launched\": %lu, \"untimed\": %lu}\n", truth.launched, truth.untimed);
    fflush(stdout);
    if (!strcmp(how, "kill") || abandons)
        raise(SIGKILL);
    return 0;
}
