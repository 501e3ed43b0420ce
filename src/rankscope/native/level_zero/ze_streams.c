/* What was handed to devices, from the call that did so until the device tells when it ran: records in the row of a stream
 * (a queue, or an immediate list), each with the event that it signals: the program's, else one of ours. An event tells its
 * times on the host once it is signalled, until it is reset or signalled anew: records are collected when the program
 * synchronises, before it resets, destroys or executes anew what they need, and once a second. What could not be asked in
 * time is counted as untimed. */
#include "ze_streams.h"

#define FIRST_RECORDS 1024u             /* a power of two */
#define MOST_RECORDS (1u << 20)
#define COLLECT_EVERY 256u              /* records that wait, after which somebody looks without being told to */
#define STREAMS 4096u

static struct rs_ze_map waiting;        /* the program's events that records need: slot + 1 << 48 | place in the row */
static struct rs_ze_stream *streams[STREAMS];
static uint32_t streams_used;

/* --- collecting --- */

void rs_ze_untimed(struct rs_ze_record *record)
{
    record->item.flags |= RS_ZE_DONE;
    rs_ze.row->untimed++;
}

/* An event of ours that has told its times: an immediate list's is free again, a regular list's is that of its next run. */
static void release(const struct rs_ze_record *record)
{
    if (!(record->item.flags & RS_ZE_OURS))
        return;
    rs_ze.loader.zeEventHostReset(record->item.event);
    if (record->is_immediate)
        rs_ze_event_give(record->item.context, record->item.event);
}

static void tell(const struct rs_ze_stream *stream, const struct rs_ze_record *record, const struct rs_ze_kernel_timestamp *at)
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

static int settle_written(const struct rs_ze_stream *stream, struct rs_ze_record *record)
{
    if (!rs_ze_readout_is_done(record->readout))
        return 0;
    struct rs_ze_kernel_timestamp at = *rs_ze_readout_take(record->readout, record->place);
    if (record->item.flags & RS_ZE_UNTIMED) {
        rs_ze_untimed(record);
        return 1;
    }
    tell(stream, record, &at);
    record->item.flags |= RS_ZE_DONE;
    return 1;
}

/* 0: the device is not done with it. Between begin_telling and end_telling. */
static int settle(struct rs_ze_stream *stream, struct rs_ze_record *record, int is_synced)
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
    rs_ze_untimed(record);
    return 1;
}

/* 0: nothing can be told yet. */
static int begin_telling(const struct rs_ze_stream *stream)
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

void rs_ze_stream_collect(struct rs_ze_stream *stream, int is_synced, int is_all)
{
    if (stream->first == stream->end || !begin_telling(stream))
        return;
    while (stream->first < stream->end && settle(stream, rs_ze_record_at(stream, stream->first), is_synced))
        stream->first++;
    for (uint64_t at = stream->first; is_all && at < stream->end; at++)
        settle(stream, rs_ze_record_at(stream, at), is_synced);
    end_telling();
}

static int settle_one(struct rs_ze_stream *stream, struct rs_ze_record *record)
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
            rs_ze_stream_collect(streams[i], is_last, is_last);
}

/* Of what still waits: nobody can ask for it any more. */
void rs_ze_give_up(struct rs_ze_stream *stream, const struct rs_ze_list *list, ze_handle context)
{
    for (uint64_t at = stream->first; at < stream->end; at++) {
        struct rs_ze_record *record = rs_ze_record_at(stream, at);
        if (record->item.flags & RS_ZE_DONE || (list && record->list != list) || (context && record->item.context != context))
            continue;
        if (!(record->item.flags & RS_ZE_OURS))
            rs_ze_map_take(&waiting, record->item.event);
        else if (!context && !record->readout)
            release(record);
        rs_ze_untimed(record);
    }
    rs_ze_stream_collect(stream, 0, 0);
}

/* --- streams --- */

struct rs_ze_stream *rs_ze_new_stream(ze_handle handle, struct rs_ze_device *device)
{
    uint32_t slot = 0;
    while (slot < streams_used && streams[slot])
        slot++;
    struct rs_ze_stream *stream = device && slot < STREAMS ? rs_memory(sizeof *stream) : NULL;
    if (!stream)
        return NULL;
    *stream = (struct rs_ze_stream){.handle = handle, .device = device, .number = ++device->streams, .slot = slot};
    streams[slot] = stream;
    streams_used = slot == streams_used ? streams_used + 1 : streams_used;
    return stream;
}

void rs_ze_free_stream(struct rs_ze_stream *stream)
{
    if (!stream)
        return;
    rs_ze_stream_collect(stream, 1, 1);
    rs_ze_give_up(stream, NULL, 0);
    streams[stream->slot] = NULL;
    rs_memory_free(stream->records, stream->capacity * sizeof *stream->records);
    rs_memory_free(stream, sizeof *stream);
}

static int make_room(struct rs_ze_stream *stream)
{
    if (stream->end - stream->first < stream->capacity)
        return 1;
    rs_ze_stream_collect(stream, 0, 1);
    if (stream->end - stream->first < stream->capacity / 2)
        return 1;
    uint32_t capacity = stream->capacity ? 2 * stream->capacity : FIRST_RECORDS;
    struct rs_ze_record *more = capacity <= MOST_RECORDS ? rs_memory(capacity * sizeof *more) : NULL;
    if (!more)
        return stream->end - stream->first < stream->capacity;
    for (uint64_t at = stream->first; at < stream->end; at++)
        more[at & (capacity - 1)] = *rs_ze_record_at(stream, at);
    rs_memory_free(stream->records, stream->capacity * sizeof *more);
    stream->records = more;
    stream->capacity = capacity;
    return 1;
}

void rs_ze_overtake(ze_handle event)
{
    uint64_t where = rs_ze_map_get(&waiting, event), at = where & (((uint64_t)1 << 48) - 1);
    struct rs_ze_stream *stream = where ? streams[(where >> 48) - 1] : NULL;
    if (!stream || at < stream->first || at >= stream->end)
        return;
    struct rs_ze_record *record = rs_ze_record_at(stream, at);
    if (!settle_one(stream, record)) {
        rs_ze_map_take(&waiting, event);
        rs_ze_untimed(record);
    }
}

void rs_ze_launch(struct rs_ze_stream *stream, struct rs_ze_list *list, const struct rs_ze_item *item, uint32_t place, uint64_t launched,
                  int is_immediate)
{
    __atomic_store_n(&rs_ze.row->launched, rs_ze.row->launched + 1, __ATOMIC_RELAXED);
    if (!make_room(stream)) {
        rs_ze.row->untimed++;
        return;
    }
    int is_programs = !(item->flags & (RS_ZE_OURS | RS_ZE_UNTIMED));
    if (is_programs)
        rs_ze_overtake(item->event);          /* signalled once more: what it told before is gone */
    struct rs_ze_record *record = rs_ze_record_at(stream, stream->end);
    *record = (struct rs_ze_record){.item = *item, .launched = launched, .list = list, .place = place, .is_immediate = is_immediate};
    if (is_programs && !rs_ze_map_put(&waiting, item->event, ((uint64_t)stream->slot + 1) << 48 | stream->end))
        record->item.flags |= RS_ZE_UNTIMED;
    stream->end++;
    if ((stream->end & (COLLECT_EVERY - 1)) == 0)
        rs_ze_stream_collect(stream, 0, 0);
}

void rs_ze_SYNCED(void **arguments, uint64_t begun)
{
    (void)begun;
    uint64_t where = rs_ze_map_get(&waiting, RS_ZE_ARGUMENT(ze_handle, 0)), at = where & (((uint64_t)1 << 48) - 1);
    struct rs_ze_stream *stream = where ? streams[(where >> 48) - 1] : NULL;
    if (stream && at >= stream->first && at < stream->end)
        settle_one(stream, rs_ze_record_at(stream, at));
}

void rs_ze_stream_release(ze_handle event) { rs_ze_map_take(&waiting, event); }

void rs_ze_streams_give_up(ze_handle context)
{
    for (uint32_t i = 0; i < streams_used; i++)
        if (streams[i])
            rs_ze_give_up(streams[i], NULL, context);
}

void rs_ze_streams_forget(void)
{
    for (uint32_t i = 0; i < streams_used; i++)
        if (streams[i]) {
            rs_memory_free(streams[i]->records, streams[i]->capacity * sizeof *streams[i]->records);
            rs_memory_free(streams[i], sizeof *streams[i]);
            streams[i] = NULL;
        }
    streams_used = 0;
    rs_ze_map_free(&waiting);
}
