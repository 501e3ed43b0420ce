/* Streams (queues, and immediate lists) and what was handed to them, for who hands it over: ze_lists.c. */
#ifndef RANKSCOPE_ZE_STREAMS_H
#define RANKSCOPE_ZE_STREAMS_H

#include "ze_layer.h"

struct rs_ze_list;

/* place: in its list; readout: where the device has written its times down, NULL: its event tells them */
struct rs_ze_record { struct rs_ze_item item; uint64_t launched; struct rs_ze_list *list; struct rs_ze_readout *readout; uint32_t place; uint8_t is_immediate; };

struct rs_ze_stream {
    ze_handle handle;
    struct rs_ze_device *device;
    uint32_t number, slot, capacity;
    struct rs_ze_record *records;             /* a ring: first and end count on */
    uint64_t first, end;
};

static inline struct rs_ze_record *rs_ze_record_at(const struct rs_ze_stream *stream, uint64_t at)
{
    return &stream->records[at & (stream->capacity - 1)];
}

struct rs_ze_stream *rs_ze_new_stream(ze_handle handle, struct rs_ze_device *device);    /* NULL: no room */
void rs_ze_free_stream(struct rs_ze_stream *stream);
void rs_ze_launch(struct rs_ze_stream *stream, struct rs_ze_list *list, const struct rs_ze_item *item, uint32_t place, uint64_t launched,
                  int is_immediate);
void rs_ze_stream_collect(struct rs_ze_stream *stream, int is_synced, int is_all);
void rs_ze_give_up(struct rs_ze_stream *stream, const struct rs_ze_list *list, ze_handle context);
void rs_ze_streams_give_up(ze_handle context);
void rs_ze_untimed(struct rs_ze_record *record);
void rs_ze_overtake(ze_handle event);           /* it is about to be reset or signalled anew */
void rs_ze_stream_release(ze_handle event);     /* no record needs it any more */
void rs_ze_streams_forget(void);

#endif
