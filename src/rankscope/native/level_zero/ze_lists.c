/* Lists, and what the program appends to them: work appended to an immediate list runs at once; a regular list's, each time
 * the list is executed. Either way it becomes a record in the row of its stream. */
#include "steps.h"
#include "ze_streams.h"

#define SPARE 16u

struct rs_ze_list {
    ze_handle handle, context;
    struct rs_ze_device *device;
    struct rs_ze_stream *stream;              /* an immediate one's own; else where it was executed last */
    uint8_t is_immediate, is_late;
    uint32_t desc[2];                   /* the group of queues it is for, and flags */
    uint64_t from, until;               /* its last execution's records there */
    struct rs_ze_readout *readouts;
    ze_handle spare[SPARE];             /* events of ours for what is appended next, by whoever appends */
    uint32_t spare_used;
    struct rs_ze_item *items;
    uint32_t used, capacity;
};

static struct rs_ze_map lists, queues;
static struct rs_ze_map kernels;        /* their names */
/* --- appending --- */

/* The list that this thread used last, without a lock: no other thread may destroy it while this one appends to it. */
static __thread struct { ze_handle handle; struct rs_ze_list *list; uint64_t generation; } latest;
static atomic_uint_least64_t generation = 1;    /* of the lists that there are */

static struct rs_ze_list *list_of(ze_handle handle)
{
    uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
    if (RS_UNLIKELY(latest.handle != handle || latest.generation != now)) {
        latest.list = (struct rs_ze_list *)(uintptr_t)rs_ze_map_get(&lists, handle);
        latest.handle = handle;
        latest.generation = now;
    }
    return latest.list;
}

static void refill(struct rs_ze_list *list)
{
    ze_handle event = 0;
    while (list->spare_used < SPARE && (event = rs_ze_event_take(list->context)))
        list->spare[list->spare_used++] = event;
}

static void return_spare(struct rs_ze_list *list)
{
    while (list->spare_used)
        rs_ze_event_give(list->context, list->spare[--list->spare_used]);
}

/* Without a lock, most of the time. */
int rs_ze_inject(ze_handle handle, ze_handle *event)
{
    if (RS_UNLIKELY(latest.handle != handle || latest.generation != atomic_load_explicit(&generation, memory_order_acquire)
                    || !latest.list || !latest.list->spare_used)) {
        rs_ze_enter();
        struct rs_ze_list *list = list_of(handle);
        if (list)
            refill(list);
        rs_ze_leave();
    }
    struct rs_ze_list *list = latest.list;
    *event = list && list->spare_used ? list->spare[--list->spare_used] : 0;
    return *event != 0;
}

static void keep(struct rs_ze_list *list, const struct rs_ze_item *item)
{
    if (list->used == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 16;
        struct rs_ze_item *more = rs_memory(capacity * sizeof *more);
        if (!more)
            return;
        if (list->used)
            memcpy(more, list->items, list->used * sizeof *more);
        rs_memory_free(list->items, list->capacity * sizeof *more);
        list->items = more;
        list->capacity = capacity;
    }
    list->items[list->used++] = *item;
}

void rs_ze_appended(ze_handle handle, struct rs_ze_item *item, uint64_t begun, int failed)
{
    struct rs_ze_list *list = list_of(handle);
    if (!list)
        return;
    item->context = list->context;
    if (failed) {
        if (item->flags & RS_ZE_OURS)
            rs_ze_event_give(list->context, item->event);
        return;
    }
    if (!item->event || (!(item->flags & RS_ZE_OURS) && rs_ze_event_is_untimeable(item->event)))
        item->flags |= RS_ZE_UNTIMED;
    if (!list->is_immediate)
        keep(list, item);
    else if (list->stream)
        rs_ze_launch(list->stream, list, item, 0, begun, 1);
}

/* --- lists and queues --- */

static struct rs_ze_list *new_list(ze_handle handle, ze_handle context, ze_handle device)
{
    struct rs_ze_list *list = rs_memory(sizeof *list);
    if (!list)
        return NULL;
    *list = (struct rs_ze_list){.handle = handle, .context = context, .device = rs_ze_device(device)};
    if (!rs_ze_map_put(&lists, handle, (uint64_t)(uintptr_t)list)) {
        rs_memory_free(list, sizeof *list);
        return NULL;
    }
    atomic_fetch_add(&generation, 1);
    return list;
}

void rs_ze_LIST_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    const struct rs_ze_list_desc *desc = RS_ZE_ARGUMENT(const struct rs_ze_list_desc *, 2);
    struct rs_ze_list *list = new_list(*RS_ZE_ARGUMENT(ze_handle *, 3), RS_ZE_ARGUMENT(ze_handle, 0), RS_ZE_ARGUMENT(ze_handle, 1));
    if (!list || !desc)
        return;
    list->desc[0] = desc->commandQueueGroupOrdinal;
    list->desc[1] = desc->flags;
}

void rs_ze_IMMEDIATE_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle handle = *RS_ZE_ARGUMENT(ze_handle *, 3);
    struct rs_ze_list *list = new_list(handle, RS_ZE_ARGUMENT(ze_handle, 0), RS_ZE_ARGUMENT(ze_handle, 1));
    if (!list)
        return;
    list->is_immediate = 1;
    list->stream = rs_ze_new_stream(handle, list->device);
}

/* The device no longer uses it: what it has still to tell, it tells now. */
static void empty(struct rs_ze_list *list)
{
    if (list->stream && !list->is_immediate) {
        rs_ze_stream_collect(list->stream, 0, 1);
        rs_ze_give_up(list->stream, list, 0);
    }
    rs_ze_readouts_drop(&list->readouts);
    list->from = list->until = 0;
    for (uint32_t i = 0; i < list->used; i++)
        if (list->items[i].flags & RS_ZE_OURS) {
            rs_ze.loader.zeEventHostReset(list->items[i].event);
            rs_ze_event_give(list->context, list->items[i].event);
        }
    list->used = 0;
}

void rs_ze_LIST_RESET(void **arguments, uint64_t begun)
{
    (void)begun;
    struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)rs_ze_map_get(&lists, RS_ZE_ARGUMENT(ze_handle, 0));
    if (list)
        empty(list);
}

static void free_list(struct rs_ze_list *list)
{
    rs_memory_free(list->items, list->capacity * sizeof *list->items);
    rs_memory_free(list, sizeof *list);
}

void rs_ze_LIST_DESTROYED(void **arguments, uint64_t begun)
{
    (void)begun;
    struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)rs_ze_map_take(&lists, RS_ZE_ARGUMENT(ze_handle, 0));
    if (!list)
        return;
    atomic_fetch_add(&generation, 1);
    empty(list);
    return_spare(list);
    if (list->is_immediate)
        rs_ze_free_stream(list->stream);
    free_list(list);
}

void rs_ze_QUEUE_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle handle = *RS_ZE_ARGUMENT(ze_handle *, 3);
    struct rs_ze_stream *stream = rs_ze_new_stream(handle, rs_ze_device(RS_ZE_ARGUMENT(ze_handle, 1)));
    if (stream && !rs_ze_map_put(&queues, handle, (uint64_t)(uintptr_t)stream))
        rs_ze_free_stream(stream);
}

static int leave_stream(void *context, uint64_t key, uint64_t value)
{
    struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)value;
    (void)key;
    if (list->stream == context && !list->is_immediate) {
        list->stream = NULL;
        list->from = list->until = 0;
    }
    return 0;
}

void rs_ze_QUEUE_DESTROYED(void **arguments, uint64_t begun)
{
    (void)begun;
    struct rs_ze_stream *stream = (struct rs_ze_stream *)(uintptr_t)rs_ze_map_take(&queues, RS_ZE_ARGUMENT(ze_handle, 0));
    if (!stream)
        return;
    rs_ze_free_stream(stream);
    rs_ze_map_walk(&lists, leave_stream, stream);
}

/* --- executing --- */

static struct rs_ze_stream *stream_of(ze_handle queue_or_list)
{
    struct rs_ze_stream *stream = (struct rs_ze_stream *)(uintptr_t)rs_ze_map_get(&queues, queue_or_list);
    struct rs_ze_list *list = stream ? NULL : (struct rs_ze_list *)(uintptr_t)rs_ze_map_get(&lists, queue_or_list);
    return list && list->is_immediate ? list->stream : stream;
}

/* How much of its last execution waits to be told. */
static uint32_t unread_of(const struct rs_ze_list *list)
{
    uint32_t unread = 0;
    for (uint64_t at = list->from > list->stream->first ? list->from : list->stream->first; at < list->until; at++)
        unread += !(rs_ze_record_at(list->stream, at)->item.flags & RS_ZE_DONE);
    return unread;
}

/* The device writes it down before the list is executed again, else nobody can tell it. */
static void overtake_list(struct rs_ze_list *list, struct rs_ze_readout *readout)
{
    list->is_late = !readout;
    for (uint64_t at = list->from > list->stream->first ? list->from : list->stream->first; at < list->until; at++) {
        struct rs_ze_record *record = rs_ze_record_at(list->stream, at);
        if (record->list != list || record->item.flags & RS_ZE_DONE)
            continue;
        if (!(record->item.flags & RS_ZE_OURS))
            rs_ze_stream_release(record->item.event);
        record->readout = readout;
        list->is_late |= !(record->item.flags & RS_ZE_OURS);
        if (!readout)
            rs_ze_untimed(record);
    }
}

/* On another queue it would come too early. */
static struct rs_ze_readout *readout_of(struct rs_ze_list *list, const struct rs_ze_stream *stream, uint32_t unread)
{
    if (stream != list->stream || list->until - list->from != list->used)
        return NULL;
    struct rs_ze_readout *one = rs_ze_readout(&list->readouts, list->context, list->device->handle, list->desc, list->items, list->used);
    if (one)
        rs_ze_readout_begin(one, unread);
    return one;
}

#define MOST_EXECUTED 32u

/* Its events will be signalled again: what they have told until then must be known. */
void rs_ze_EXECUTE(void **arguments, uint64_t begun)
{
    static __thread ze_handle executed[2 * MOST_EXECUTED];
    (void)begun;
    const ze_handle *handles = RS_ZE_ARGUMENT(const ze_handle *, 2);
    uint32_t count = RS_ZE_ARGUMENT(uint32_t, 1), used = 0;
    struct rs_ze_stream *stream = stream_of(RS_ZE_ARGUMENT(ze_handle, 0));
    for (uint32_t i = 0; handles && i < count; i++) {
        struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)rs_ze_map_get(&lists, handles[i]);
        struct rs_ze_readout *readout = NULL;
        if (list && list->stream && !list->is_immediate) {
            list->is_late = 0;
            rs_ze_stream_collect(list->stream, 0, 1);
            uint32_t unread = unread_of(list);
            if (unread) {
                readout = count <= MOST_EXECUTED ? readout_of(list, stream, unread) : NULL;
                overtake_list(list, readout);
            }
        }
        if (readout)
            executed[used++] = rs_ze_readout_list(readout);
        if (count <= MOST_EXECUTED)
            executed[used++] = handles[i];
    }
    if (used <= count)
        return;
    RS_ZE_ARGUMENT(uint32_t, 1) = used;
    RS_ZE_ARGUMENT(const ze_handle *, 2) = executed;
}

void rs_ze_EXECUTED(void **arguments, uint64_t begun)
{
    const ze_handle *handles = RS_ZE_ARGUMENT(const ze_handle *, 2);
    struct rs_ze_stream *stream = stream_of(RS_ZE_ARGUMENT(ze_handle, 0));
    uint64_t before = stream ? stream->end : 0;
    for (uint32_t i = 0; stream && handles && i < RS_ZE_ARGUMENT(uint32_t, 1); i++) {
        struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)rs_ze_map_get(&lists, handles[i]);
        if (!list || list->is_immediate)
            continue;
        if (list->stream == stream && list->from >= before && list->until > list->from)
            overtake_list(list, NULL);          /* twice in one call: the first time is over by now, untold */
        uint64_t from = stream->end;
        for (uint32_t j = 0; j < list->used; j++) {
            struct rs_ze_item item = list->items[j];
            item.flags |= list->is_late ? RS_ZE_LATE : 0;
            rs_ze_launch(stream, list, &item, j, begun, 0);
        }
        list->stream = stream;
        list->from = from;
        list->until = stream->end;
    }
}

/* --- waiting --- */

void rs_ze_WAITED(void **arguments, uint64_t begun)
{
    uint64_t now = rs_ticks();
    struct rs_ze_stream *stream = stream_of(RS_ZE_ARGUMENT(ze_handle, 0));
    if (stream)
        rs_ze_stream_collect(stream, 1, 1);
    rs_ze_collect(0);
    if (!rs_step_open || !rs_self || rs_self->row->tid != rs_loop_tid())
        return;
    rs_gpu_enter();
    if (rs_gpu.row && rs_gpu_has_rate())
        rs_gpu_add_wait(rs_gpu_ns_of(begun), rs_gpu_ns_of(now));
    rs_gpu_leave();
}

/* --- events of the program --- */

void rs_ze_EVENT_RESET(void **arguments, uint64_t begun)
{
    (void)begun;
    rs_ze_overtake(RS_ZE_ARGUMENT(ze_handle, 0));
}

/* By the device, when it comes to it: what signalled the event before in this list has nobody to tell. */
void rs_ze_EVENT_RESET_APPENDED(void **arguments, uint64_t begun)
{
    (void)begun;
    struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)rs_ze_map_get(&lists, RS_ZE_ARGUMENT(ze_handle, 0));
    ze_handle event = RS_ZE_ARGUMENT(ze_handle, 1);
    if (list && list->is_immediate)
        rs_ze_overtake(event);
    for (uint32_t i = 0; list && !list->is_immediate && i < list->used; i++)
        if (list->items[i].event == event)
            list->items[i].flags |= RS_ZE_UNTIMED;
}

/* --- contexts and kernels --- */

static int lose_spare(void *context, uint64_t key, uint64_t value)
{
    struct rs_ze_list *list = (struct rs_ze_list *)(uintptr_t)value;
    (void)key;
    if (list->context == *(ze_handle *)context)
        list->spare_used = 0;
    return 0;
}

void rs_ze_CONTEXT_DESTROYED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle context = RS_ZE_ARGUMENT(ze_handle, 0);
    rs_ze_collect(1);
    rs_ze_streams_give_up(context);
    rs_ze_map_walk(&lists, lose_spare, &context);
    rs_ze_events_drop(context);
}

void rs_ze_KERNEL_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    const struct rs_ze_kernel_desc *desc = RS_ZE_ARGUMENT(const struct rs_ze_kernel_desc *, 1);
    const char *stored = NULL;
    if (desc && desc->pKernelName)
        rs_intern_as(desc->pKernelName, &stored);
    rs_ze_map_put(&kernels, *RS_ZE_ARGUMENT(ze_handle *, 2), (uint64_t)(uintptr_t)stored);
}

void rs_ze_KERNEL_DESTROYED(void **arguments, uint64_t begun)
{
    (void)begun;
    rs_ze_map_take(&kernels, RS_ZE_ARGUMENT(ze_handle, 0));
}

const char *rs_ze_kernel_name(ze_handle kernel) { return (const char *)(uintptr_t)rs_ze_map_get(&kernels, kernel); }

static int drop_list(void *context, uint64_t key, uint64_t value)
{
    (void)context, (void)key;
    rs_ze_readouts_forget(&((struct rs_ze_list *)(uintptr_t)value)->readouts);
    free_list((struct rs_ze_list *)(uintptr_t)value);
    return 0;
}

void rs_ze_lists_forget(void)
{
    atomic_fetch_add(&generation, 1);
    rs_ze_map_walk(&lists, drop_list, NULL);
    rs_ze_streams_forget();
    struct rs_ze_map *maps[] = {&lists, &queues, &kernels};
    for (unsigned i = 0; i < sizeof maps / sizeof maps[0]; i++)
        rs_ze_map_free(maps[i]);
}
