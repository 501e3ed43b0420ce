/* What the program hands to devices, from the call that does so until the device tells when it ran.
 *
 * Work appended to an immediate list runs at once; a regular list's, each time the list is executed. Either way it becomes
 * a record in the row of its stream (a queue, or an immediate list), with the event that it signals: the program's, else
 * one of ours. An event tells its times on the host once it is signalled, until it is reset or signalled anew: records
 * are collected when the program synchronises, before it resets, destroys or executes anew what they need, and once a
 * second. What could not be asked in time is counted as untimed. */
#include "steps.h"
#include "ze_layer.h"

#define FIRST_RECORDS 1024u             /* a power of two */
#define MOST_RECORDS (1u << 20)
#define COLLECT_EVERY 256u              /* records that wait, after which somebody looks without being told to */
#define STREAMS 4096u
#define SPARE 16u

/* place: in its list; readout: where the device has written its times down, NULL: its event tells them */
struct record { struct rs_ze_item item; uint64_t launched; struct list *list; struct rs_ze_readout *readout; uint32_t place; };

struct stream {
    ze_handle handle;
    struct rs_ze_device *device;
    uint32_t number, slot, capacity;
    struct record *records;             /* a ring: first and end count on */
    uint64_t first, end;
};

struct list {
    ze_handle handle, context;
    struct rs_ze_device *device;
    struct stream *stream;              /* an immediate one's own; else where it was executed last */
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
static struct rs_ze_map waiting;        /* the program's events that records need: slot + 1 << 48 | place in the row */
static struct rs_ze_map untimeable;     /* pools and events without timestamps */
static struct rs_ze_map kernels;        /* their names */
static struct stream *streams[STREAMS];
static uint32_t streams_used;

static struct record *record_at(const struct stream *stream, uint64_t at) { return &stream->records[at & (stream->capacity - 1)]; }

/* --- collecting --- */

static void untimed(struct record *record)
{
    record->item.flags |= RS_ZE_DONE;
    rs_ze.row->untimed++;
}

/* An event of ours that has told its times: an immediate list's is free again, a regular list's is that of its next run. */
static void release(const struct record *record)
{
    if (!(record->item.flags & RS_ZE_OURS))
        return;
    rs_ze.loader.zeEventHostReset(record->item.event);
    if (record->list->is_immediate)
        rs_ze_event_give(record->item.context, record->item.event);
}

static void tell(const struct stream *stream, const struct record *record, const struct rs_ze_kernel_timestamp *at)
{
    const struct rs_ze_item *item = &record->item;
    struct rs_gpu_work work = {.kind = item->kind, .is_pageable = (item->flags & RS_ZE_PAGEABLE) != 0,
                               .device = stream->device->number, .queue = stream->number, .bytes = item->bytes,
                               .name = item->name, .name_id = item->name_id};
    work.launched_ns = rs_gpu_ns_of(record->launched);
    rs_ze_device_times(stream->device, at, &work.start_ns, &work.end_ns);
    rs_gpu_add_work(&work);
    rs_ze.row->timed++;
}

static int settle_written(const struct stream *stream, struct record *record)
{
    if (!rs_ze_readout_is_done(record->readout))
        return 0;
    struct rs_ze_kernel_timestamp at = *rs_ze_readout_take(record->readout, record->place);
    if (record->item.flags & RS_ZE_UNTIMED) {
        untimed(record);
        return 1;
    }
    tell(stream, record, &at);
    record->item.flags |= RS_ZE_DONE;
    return 1;
}

/* 0: the device is not done with it. Between begin_telling and end_telling. */
static int settle(struct stream *stream, struct record *record, int is_synced)
{
    struct rs_ze_kernel_timestamp at = {.kernelStart = UINT64_MAX, .kernelEnd = UINT64_MAX};
    if (record->item.flags & RS_ZE_DONE)
        return 1;
    if (record->readout)
        return settle_written(stream, record);
    if (!(record->item.flags & RS_ZE_UNTIMED)) {
        uint32_t result = record->item.flags & RS_ZE_LATE && !is_synced
                              ? RS_ZE_NOT_READY
                              : rs_ze.loader.zeEventQueryKernelTimestamp(record->item.event, &at);
        if (result == RS_ZE_NOT_READY || (result == RS_ZE_SUCCESS && at.kernelEnd == UINT64_MAX))
            return 0;
        if (!(record->item.flags & RS_ZE_OURS))
            rs_ze_map_take(&waiting, record->item.event);
        if (result == RS_ZE_SUCCESS) {
            tell(stream, record, &at);
            release(record);
            record->item.flags |= RS_ZE_DONE;
            return 1;
        }
        release(record);
    }
    untimed(record);
    return 1;
}

/* 0: nothing can be told yet. */
static int begin_telling(const struct stream *stream)
{
    rs_gpu_enter();
    if (rs_gpu.row && rs_gpu_has_rate()) {
        rs_ze_device_compare(stream->device);
        return 1;
    }
    rs_gpu_leave();
    return 0;
}

static void end_telling(void) { rs_gpu_leave(); }

static void collect(struct stream *stream, int is_synced, int is_all)
{
    if (stream->first == stream->end || !begin_telling(stream))
        return;
    while (stream->first < stream->end && settle(stream, record_at(stream, stream->first), is_synced))
        stream->first++;
    for (uint64_t at = stream->first; is_all && at < stream->end; at++)
        settle(stream, record_at(stream, at), is_synced);
    end_telling();
}

static int settle_one(struct stream *stream, struct record *record)
{
    if (!begin_telling(stream))
        return 0;
    int is_done = settle(stream, record, 0);
    end_telling();
    return is_done;
}

void rs_ze_collect(int is_last)
{
    for (uint32_t i = 0; i < streams_used; i++)
        if (streams[i])
            collect(streams[i], is_last, is_last);
}

/* Of what still waits: nobody can ask for it any more. */
static void give_up(struct stream *stream, const struct list *list, ze_handle context)
{
    for (uint64_t at = stream->first; at < stream->end; at++) {
        struct record *record = record_at(stream, at);
        if (record->item.flags & RS_ZE_DONE || (list && record->list != list) || (context && record->item.context != context))
            continue;
        if (!(record->item.flags & RS_ZE_OURS))
            rs_ze_map_take(&waiting, record->item.event);
        else if (!context && !record->readout)
            release(record);
        untimed(record);
    }
    collect(stream, 0, 0);
}

/* --- streams --- */

static struct stream *new_stream(ze_handle handle, struct rs_ze_device *device)
{
    uint32_t slot = 0;
    while (slot < streams_used && streams[slot])
        slot++;
    struct stream *stream = device && slot < STREAMS ? rs_memory(sizeof *stream) : NULL;
    if (!stream)
        return NULL;
    *stream = (struct stream){.handle = handle, .device = device, .number = ++device->streams, .slot = slot};
    streams[slot] = stream;
    streams_used = slot == streams_used ? streams_used + 1 : streams_used;
    return stream;
}

static void free_stream(struct stream *stream)
{
    if (!stream)
        return;
    collect(stream, 1, 1);
    give_up(stream, NULL, 0);
    streams[stream->slot] = NULL;
    rs_memory_free(stream->records, stream->capacity * sizeof *stream->records);
    rs_memory_free(stream, sizeof *stream);
}

static int make_room(struct stream *stream)
{
    if (stream->end - stream->first < stream->capacity)
        return 1;
    collect(stream, 0, 1);
    if (stream->end - stream->first < stream->capacity / 2)
        return 1;
    uint32_t capacity = stream->capacity ? 2 * stream->capacity : FIRST_RECORDS;
    struct record *more = capacity <= MOST_RECORDS ? rs_memory(capacity * sizeof *more) : NULL;
    if (!more)
        return stream->end - stream->first < stream->capacity;
    for (uint64_t at = stream->first; at < stream->end; at++)
        more[at & (capacity - 1)] = *record_at(stream, at);
    rs_memory_free(stream->records, stream->capacity * sizeof *more);
    stream->records = more;
    stream->capacity = capacity;
    return 1;
}

static void overtake(ze_handle event)
{
    uint64_t where = rs_ze_map_get(&waiting, event), at = where & (((uint64_t)1 << 48) - 1);
    struct stream *stream = where ? streams[(where >> 48) - 1] : NULL;
    if (!stream || at < stream->first || at >= stream->end)
        return;
    struct record *record = record_at(stream, at);
    if (!settle_one(stream, record)) {
        rs_ze_map_take(&waiting, event);
        untimed(record);
    }
}

static void launch(struct stream *stream, struct list *list, const struct rs_ze_item *item, uint32_t place, uint64_t launched)
{
    __atomic_store_n(&rs_ze.row->launched, rs_ze.row->launched + 1, __ATOMIC_RELAXED);
    if (!make_room(stream)) {
        rs_ze.row->untimed++;
        return;
    }
    int is_programs = !(item->flags & (RS_ZE_OURS | RS_ZE_UNTIMED));
    if (is_programs)
        overtake(item->event);          /* signalled once more: what it told before is gone */
    struct record *record = record_at(stream, stream->end);
    *record = (struct record){*item, launched, list, NULL, place};
    if (is_programs && !rs_ze_map_put(&waiting, item->event, ((uint64_t)stream->slot + 1) << 48 | stream->end))
        record->item.flags |= RS_ZE_UNTIMED;
    stream->end++;
    if ((stream->end & (COLLECT_EVERY - 1)) == 0)
        collect(stream, 0, 0);
}

/* --- appending --- */

/* The list that this thread used last, without a lock: no other thread may destroy it while this one appends to it. */
static __thread struct { ze_handle handle; struct list *list; uint64_t generation; } latest;
static atomic_uint_least64_t generation = 1;    /* of the lists that there are */

static struct list *list_of(ze_handle handle)
{
    uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
    if (RS_UNLIKELY(latest.handle != handle || latest.generation != now)) {
        latest.list = (struct list *)(uintptr_t)rs_ze_map_get(&lists, handle);
        latest.handle = handle;
        latest.generation = now;
    }
    return latest.list;
}

static void refill(struct list *list)
{
    ze_handle event = 0;
    while (list->spare_used < SPARE && (event = rs_ze_event_take(list->context)))
        list->spare[list->spare_used++] = event;
}

static void return_spare(struct list *list)
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
        struct list *list = list_of(handle);
        if (list)
            refill(list);
        rs_ze_leave();
    }
    struct list *list = latest.list;
    *event = list && list->spare_used ? list->spare[--list->spare_used] : 0;
    return *event != 0;
}

static void keep(struct list *list, const struct rs_ze_item *item)
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
    struct list *list = list_of(handle);
    if (!list)
        return;
    item->context = list->context;
    if (failed) {
        if (item->flags & RS_ZE_OURS)
            rs_ze_event_give(list->context, item->event);
        return;
    }
    if (!item->event || (!(item->flags & RS_ZE_OURS) && rs_ze_map_get(&untimeable, item->event)))
        item->flags |= RS_ZE_UNTIMED;
    if (!list->is_immediate)
        keep(list, item);
    else if (list->stream)
        launch(list->stream, list, item, 0, begun);
}

/* --- lists and queues --- */

static struct list *new_list(ze_handle handle, ze_handle context, ze_handle device)
{
    struct list *list = rs_memory(sizeof *list);
    if (!list)
        return NULL;
    *list = (struct list){.handle = handle, .context = context, .device = rs_ze_device(device)};
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
    struct list *list = new_list(*RS_ZE_ARGUMENT(ze_handle *, 3), RS_ZE_ARGUMENT(ze_handle, 0), RS_ZE_ARGUMENT(ze_handle, 1));
    if (!list || !desc)
        return;
    list->desc[0] = desc->commandQueueGroupOrdinal;
    list->desc[1] = desc->flags;
}

void rs_ze_IMMEDIATE_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle handle = *RS_ZE_ARGUMENT(ze_handle *, 3);
    struct list *list = new_list(handle, RS_ZE_ARGUMENT(ze_handle, 0), RS_ZE_ARGUMENT(ze_handle, 1));
    if (!list)
        return;
    list->is_immediate = 1;
    list->stream = new_stream(handle, list->device);
}

/* The device no longer uses it: what it has still to tell, it tells now. */
static void empty(struct list *list)
{
    if (list->stream && !list->is_immediate) {
        collect(list->stream, 0, 1);
        give_up(list->stream, list, 0);
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
    struct list *list = (struct list *)(uintptr_t)rs_ze_map_get(&lists, RS_ZE_ARGUMENT(ze_handle, 0));
    if (list)
        empty(list);
}

static void free_list(struct list *list)
{
    rs_memory_free(list->items, list->capacity * sizeof *list->items);
    rs_memory_free(list, sizeof *list);
}

void rs_ze_LIST_DESTROYED(void **arguments, uint64_t begun)
{
    (void)begun;
    struct list *list = (struct list *)(uintptr_t)rs_ze_map_take(&lists, RS_ZE_ARGUMENT(ze_handle, 0));
    if (!list)
        return;
    atomic_fetch_add(&generation, 1);
    empty(list);
    return_spare(list);
    if (list->is_immediate)
        free_stream(list->stream);
    free_list(list);
}

void rs_ze_QUEUE_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle handle = *RS_ZE_ARGUMENT(ze_handle *, 3);
    struct stream *stream = new_stream(handle, rs_ze_device(RS_ZE_ARGUMENT(ze_handle, 1)));
    if (stream && !rs_ze_map_put(&queues, handle, (uint64_t)(uintptr_t)stream))
        free_stream(stream);
}

static int leave_stream(void *context, uint64_t key, uint64_t value)
{
    struct list *list = (struct list *)(uintptr_t)value;
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
    struct stream *stream = (struct stream *)(uintptr_t)rs_ze_map_take(&queues, RS_ZE_ARGUMENT(ze_handle, 0));
    if (!stream)
        return;
    free_stream(stream);
    rs_ze_map_walk(&lists, leave_stream, stream);
}

/* --- executing --- */

static struct stream *stream_of(ze_handle queue_or_list)
{
    struct stream *stream = (struct stream *)(uintptr_t)rs_ze_map_get(&queues, queue_or_list);
    struct list *list = stream ? NULL : (struct list *)(uintptr_t)rs_ze_map_get(&lists, queue_or_list);
    return list && list->is_immediate ? list->stream : stream;
}

/* How much of its last execution waits to be told. */
static uint32_t unread_of(const struct list *list)
{
    uint32_t unread = 0;
    for (uint64_t at = list->from > list->stream->first ? list->from : list->stream->first; at < list->until; at++)
        unread += !(record_at(list->stream, at)->item.flags & RS_ZE_DONE);
    return unread;
}

/* The device writes it down before the list is executed again, else nobody can tell it. */
static void overtake_list(struct list *list, struct rs_ze_readout *readout)
{
    list->is_late = !readout;
    for (uint64_t at = list->from > list->stream->first ? list->from : list->stream->first; at < list->until; at++) {
        struct record *record = record_at(list->stream, at);
        if (record->list != list || record->item.flags & RS_ZE_DONE)
            continue;
        if (!(record->item.flags & RS_ZE_OURS))
            rs_ze_map_take(&waiting, record->item.event);
        record->readout = readout;
        list->is_late |= !(record->item.flags & RS_ZE_OURS);
        if (!readout)
            untimed(record);
    }
}

/* On another queue it would come too early. */
static struct rs_ze_readout *readout_of(struct list *list, const struct stream *stream, uint32_t unread)
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
    struct stream *stream = stream_of(RS_ZE_ARGUMENT(ze_handle, 0));
    for (uint32_t i = 0; handles && i < count; i++) {
        struct list *list = (struct list *)(uintptr_t)rs_ze_map_get(&lists, handles[i]);
        struct rs_ze_readout *readout = NULL;
        if (list && list->stream && !list->is_immediate) {
            list->is_late = 0;
            collect(list->stream, 0, 1);
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
    struct stream *stream = stream_of(RS_ZE_ARGUMENT(ze_handle, 0));
    uint64_t before = stream ? stream->end : 0;
    for (uint32_t i = 0; stream && handles && i < RS_ZE_ARGUMENT(uint32_t, 1); i++) {
        struct list *list = (struct list *)(uintptr_t)rs_ze_map_get(&lists, handles[i]);
        if (!list || list->is_immediate)
            continue;
        if (list->stream == stream && list->from >= before && list->until > list->from)
            overtake_list(list, NULL);          /* twice in one call: the first time is over by now, untold */
        uint64_t from = stream->end;
        for (uint32_t j = 0; j < list->used; j++) {
            struct rs_ze_item item = list->items[j];
            item.flags |= list->is_late ? RS_ZE_LATE : 0;
            launch(stream, list, &item, j, begun);
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
    struct stream *stream = stream_of(RS_ZE_ARGUMENT(ze_handle, 0));
    if (stream)
        collect(stream, 1, 1);
    rs_ze_collect(0);
    if (!rs_step_open || !rs_self || rs_self->row->tid != rs_loop_tid())
        return;
    rs_gpu_enter();
    if (rs_gpu.row && rs_gpu_has_rate())
        rs_gpu_add_wait(rs_gpu_ns_of(begun), rs_gpu_ns_of(now));
    rs_gpu_leave();
}

void rs_ze_SYNCED(void **arguments, uint64_t begun)
{
    (void)begun;
    uint64_t where = rs_ze_map_get(&waiting, RS_ZE_ARGUMENT(ze_handle, 0)), at = where & (((uint64_t)1 << 48) - 1);
    struct stream *stream = where ? streams[(where >> 48) - 1] : NULL;
    if (stream && at >= stream->first && at < stream->end)
        settle_one(stream, record_at(stream, at));
}

/* --- events of the program --- */

void rs_ze_EVENT_RESET(void **arguments, uint64_t begun)
{
    (void)begun;
    overtake(RS_ZE_ARGUMENT(ze_handle, 0));
}

/* By the device, when it comes to it: what signalled the event before in this list has nobody to tell. */
void rs_ze_EVENT_RESET_APPENDED(void **arguments, uint64_t begun)
{
    (void)begun;
    struct list *list = (struct list *)(uintptr_t)rs_ze_map_get(&lists, RS_ZE_ARGUMENT(ze_handle, 0));
    ze_handle event = RS_ZE_ARGUMENT(ze_handle, 1);
    if (list && list->is_immediate)
        overtake(event);
    for (uint32_t i = 0; list && !list->is_immediate && i < list->used; i++)
        if (list->items[i].event == event)
            list->items[i].flags |= RS_ZE_UNTIMED;
}

/* All events of the program tell timestamps, but those that other processes share, which cannot. */
void rs_ze_POOL_CREATE(void **arguments, uint64_t begun)
{
    static __thread struct rs_ze_event_pool_desc timed;
    (void)begun;
    const struct rs_ze_event_pool_desc *asked = RS_ZE_ARGUMENT(const struct rs_ze_event_pool_desc *, 1);
    if (!asked || asked->flags & (RS_ZE_POOL_IPC | RS_ZE_POOL_TIMESTAMP))
        return;
    timed = *asked;
    timed.flags |= RS_ZE_POOL_TIMESTAMP;
    RS_ZE_ARGUMENT(const struct rs_ze_event_pool_desc *, 1) = &timed;
}

void rs_ze_POOL_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle pool = *RS_ZE_ARGUMENT(ze_handle *, 4);
    if (RS_ZE_ARGUMENT(const struct rs_ze_event_pool_desc *, 1)->flags & RS_ZE_POOL_TIMESTAMP)
        rs_ze_map_take(&untimeable, pool);
    else
        rs_ze_map_put(&untimeable, pool, 1);
}

void rs_ze_POOL_OPENED(void **arguments, uint64_t begun)
{
    (void)begun;
    rs_ze_map_put(&untimeable, *RS_ZE_ARGUMENT(ze_handle *, 2), 1);
}

void rs_ze_EVENT_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle event = *RS_ZE_ARGUMENT(ze_handle *, 2);
    if (rs_ze_map_get(&untimeable, RS_ZE_ARGUMENT(ze_handle, 0)))
        rs_ze_map_put(&untimeable, event, 1);
    else
        rs_ze_map_take(&untimeable, event);
}

/* --- contexts and kernels --- */

static int lose_spare(void *context, uint64_t key, uint64_t value)
{
    struct list *list = (struct list *)(uintptr_t)value;
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
    for (uint32_t i = 0; i < streams_used; i++)
        if (streams[i])
            give_up(streams[i], NULL, context);
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
    rs_ze_readouts_forget(&((struct list *)(uintptr_t)value)->readouts);
    free_list((struct list *)(uintptr_t)value);
    return 0;
}

void rs_ze_lists_forget(void)
{
    atomic_fetch_add(&generation, 1);
    rs_ze_map_walk(&lists, drop_list, NULL);
    for (uint32_t i = 0; i < streams_used; i++)
        if (streams[i]) {
            rs_memory_free(streams[i]->records, streams[i]->capacity * sizeof *streams[i]->records);
            rs_memory_free(streams[i], sizeof *streams[i]);
            streams[i] = NULL;
        }
    streams_used = 0;
    struct rs_ze_map *maps[] = {&lists, &queues, &waiting, &untimeable, &kernels};
    for (unsigned i = 0; i < sizeof maps / sizeof maps[0]; i++)
        rs_ze_map_free(maps[i]);
}
