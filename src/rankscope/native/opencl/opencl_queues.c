/* Queues. Device times need CL_QUEUE_PROFILING_ENABLE, which is switched on where the program has not done so; all that a
 * program can ask is answered as without us. */
#include "opencl_layer.h"

#define BUCKETS 256u
#define SLAB 64u                    /* queues made room for at a time */
#define SLABS 256u

rs_lock rs_cl_lock;
static struct rs_cl_queue *buckets[BUCKETS], *free_queues, *slabs[SLABS];
static uint32_t slabs_used, numbers[64];    /* queues of each device so far */

void rs_cl_queues_forget(void)
{
    for (uint32_t i = 0; i < slabs_used; i++) {
        rs_memory_free(slabs[i], SLAB * sizeof **slabs);
        slabs[i] = NULL;
    }
    memset(buckets, 0, sizeof buckets);
    memset(numbers, 0, sizeof numbers);
    free_queues = NULL;
    slabs_used = 0;
}

static struct rs_cl_queue **bucket_of(word handle) { return &buckets[(handle * 0x9E3779B97F4A7C15u >> 40) % BUCKETS]; }

struct rs_cl_queue *rs_cl_next_queue(uint32_t *at)
{
    uint32_t number = (*at)++;
    return number / SLAB < __atomic_load_n(&slabs_used, __ATOMIC_ACQUIRE) ? &slabs[number / SLAB][number % SLAB] : NULL;
}

/* A queue that is released may still have commands; the program knows it no longer, so that it stays while it is used. */
struct rs_cl_queue *rs_cl_queue_of(word handle)
{
    if (!rs_lock_take(&rs_cl_lock))
        return NULL;
    struct rs_cl_queue *queue = *bucket_of(handle);
    while (queue && queue->handle != handle)
        queue = queue->next;
    rs_lock_give(&rs_cl_lock);
    return queue;
}

static void make_room(void)
{
    struct rs_cl_queue *more = slabs_used < SLABS ? rs_memory(SLAB * sizeof *more) : NULL;
    for (uint32_t i = 0; more && i < SLAB; i++) {
        more[i].next = free_queues;
        free_queues = &more[i];
    }
    if (more) {
        slabs[slabs_used] = more;
        __atomic_store_n(&slabs_used, slabs_used + 1, __ATOMIC_RELEASE);
    }
}

/* Those whose last commands are known now can be used again. */
static void take_back(void)
{
    struct rs_cl_queue *queue;
    for (uint32_t at = 0; (queue = rs_cl_next_queue(&at));)
        if (queue->is_used && !queue->handle && !queue->first && !atomic_load(&queue->is_draining)) {
            memset(queue, 0, sizeof *queue);
            queue->next = free_queues;
            free_queues = queue;
        }
}

static void unlink_queue(word handle)
{
    struct rs_cl_queue **place = bucket_of(handle), *queue;
    while ((queue = *place) && queue->handle != handle)
        place = &queue->next;
    if (queue) {
        *place = queue->next;
        queue->handle = 0;
    }
}

static void add_queue(word handle, uint32_t device, uint64_t asked, int is_profiled, const uint64_t *array, uint32_t length)
{
    if (!rs_lock_take(&rs_cl_lock))
        return;
    unlink_queue(handle);       /* of one whose end we have not seen */
    if (!free_queues)
        take_back();
    if (!free_queues)
        make_room();
    struct rs_cl_queue *queue = free_queues;
    if (queue) {
        free_queues = queue->next;
        *queue = (struct rs_cl_queue){.handle = handle, .device = device, .references = 1, .is_used = 1,
                                      .is_profiled = (uint8_t)is_profiled,
                                      .is_hidden = is_profiled && !(asked & RS_CL_QUEUE_PROFILING),
                                      .is_unordered = (asked & RS_CL_QUEUE_OUT_OF_ORDER) != 0, .drain_at = 64};
        queue->number = device < 64 ? numbers[device]++ : 0;
        queue->has_array = array != NULL;
        queue->array_used = (uint8_t)length;
        if (array)
            memcpy(queue->array, array, length * sizeof *array);
        queue->next = *bucket_of(handle);
        *bucket_of(handle) = queue;
    }
    rs_lock_give(&rs_cl_lock);
}

/* --- making them --- */

/* A list of pairs that ends with 0, with profiling among the properties. 0: it is too long, or a queue on the device. */
static uint32_t with_profiling(const uint64_t *list, uint64_t *changed, uint32_t room, uint64_t *asked)
{
    uint32_t used = 0;
    int has_properties = 0;
    *asked = 0;
    for (; list && list[used]; used += 2) {
        if (used + 5 > room)
            return 0;
        changed[used] = list[used];
        changed[used + 1] = list[used + 1];
        if (list[used] == RS_CL_QUEUE_PROPERTIES) {
            *asked = list[used + 1];
            changed[used + 1] |= RS_CL_QUEUE_PROFILING;
            has_properties = 1;
        }
    }
    if (*asked & RS_CL_QUEUE_ON_DEVICE)
        return 0;
    if (!has_properties) {
        changed[used] = RS_CL_QUEUE_PROPERTIES;
        changed[used + 1] = RS_CL_QUEUE_PROFILING;
    }
    changed[used + (has_properties ? 0 : 2)] = 0;
    return list ? used + 1 : 1;
}

/* Some devices have no profiling: then the program gets what it asked for. */
static word create_profiled(enum rs_cl_place place, word *arguments, word properties, int *is_profiled)
{
    word tried[] = {arguments[0], arguments[1], properties, arguments[3]};
    word queue = rs_cl_forward(place, tried);
    *is_profiled = queue != 0;
    return queue ? queue : rs_cl_forward(place, arguments);
}

word rs_cl_create_queue(enum rs_cl_place place, word *arguments)
{
    uint64_t changed[32], asked = 0;
    const uint64_t *list = place == RS_CL_clCreateCommandQueue ? NULL : (const uint64_t *)arguments[2];
    uint32_t length = 0;
    int is_profiled = 0;
    word properties = (word)changed;
    if (place == RS_CL_clCreateCommandQueue) {
        asked = arguments[2];
        properties = arguments[2] | RS_CL_QUEUE_PROFILING;
    } else if (!(length = with_profiling(list, changed, 32, &asked))) {
        return rs_cl_forward(place, arguments);
    }
    if (!rs_cl_begin())
        return rs_cl_forward(place, arguments);
    word queue = create_profiled(place, arguments, properties, &is_profiled);
    if (queue)
        add_queue(queue, rs_cl_device_of(arguments[1]), asked, is_profiled, list, list ? length : 0);
    return queue;
}

void rs_cl_queue_retained(word handle)
{
    struct rs_cl_queue *queue = rs_cl_queue_of(handle);
    if (queue)
        __atomic_fetch_add(&queue->references, 1, __ATOMIC_RELAXED);
}

void rs_cl_queue_released(word handle)
{
    struct rs_cl_queue *queue = rs_cl_queue_of(handle);
    if (!queue || __atomic_sub_fetch(&queue->references, 1, __ATOMIC_RELAXED) || !rs_lock_take(&rs_cl_lock))
        return;
    unlink_queue(handle);
    rs_lock_give(&rs_cl_lock);
}

/* --- what the program may ask --- */

static int32_t answer_array(const struct rs_cl_queue *queue, const word *arguments)
{
    size_t bytes = queue->array_used * sizeof *queue->array;
    if (arguments[3] && arguments[2] < bytes)
        return RS_CL_INVALID_VALUE;
    if (arguments[3])
        memcpy((void *)arguments[3], queue->array, bytes);
    if (arguments[4])
        *(size_t *)arguments[4] = bytes;
    return RS_CL_SUCCESS;
}

word rs_cl_queue_info(word *arguments)
{
    const struct rs_cl_queue *queue = rs_cl_queue_of(arguments[0]);
    uint32_t name = (uint32_t)arguments[1];
    word result = rs_cl_forward(RS_CL_clGetCommandQueueInfo, arguments);
    if (!queue || !queue->is_hidden)
        return result;
    if (name == RS_CL_QUEUE_PROPERTIES && (int32_t)result == RS_CL_SUCCESS && arguments[3])
        *(uint64_t *)arguments[3] &= ~(uint64_t)RS_CL_QUEUE_PROFILING;
    /* a driver that does not know arrays says so; one that does must not show ours */
    if (name == RS_CL_QUEUE_PROPERTIES_ARRAY
        && ((int32_t)result == RS_CL_SUCCESS || (arguments[3] && rs_cl_forward(RS_CL_clGetCommandQueueInfo, (const word[]){
                arguments[0], arguments[1], 0, 0, arguments[4]}) == RS_CL_SUCCESS)))
        return (word)(uint32_t)answer_array(queue, arguments);
    return result;
}

/* Of OpenCL 1.0, long deprecated. */
word rs_cl_set_queue_property(word *arguments)
{
    struct rs_cl_queue *queue = rs_cl_queue_of(arguments[0]);
    word result = rs_cl_forward(RS_CL_clSetCommandQueueProperty, arguments);
    if (!queue || (int32_t)result != RS_CL_SUCCESS)
        return result;
    if (queue->is_hidden && arguments[3])
        *(uint64_t *)arguments[3] &= ~(uint64_t)RS_CL_QUEUE_PROFILING;
    if (arguments[1] & RS_CL_QUEUE_PROFILING) {
        queue->is_profiled = (uint32_t)arguments[2] != 0;
        queue->is_hidden = 0;
    }
    return result;
}

word rs_cl_profiling_info(word *arguments)
{
    word handle = 0;
    const struct rs_cl_queue *queue = NULL;
    if (rs_cl_is_on() && RS_CL_ASK(clGetEventInfo, arguments[0], RS_CL_EVENT_COMMAND_QUEUE, sizeof handle, (word)&handle, 0)
                             == RS_CL_SUCCESS)
        queue = rs_cl_queue_of(handle);
    if (queue && queue->is_hidden)
        return (word)(uint32_t)RS_CL_PROFILING_INFO_NOT_AVAILABLE;
    return rs_cl_forward(RS_CL_clGetEventProfilingInfo, arguments);
}
