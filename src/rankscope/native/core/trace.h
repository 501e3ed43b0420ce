/* The trace: every event in a record of its own, in a ring (or until it is full), where --trace asks for it. */
#ifndef RANKSCOPE_TRACE_H
#define RANKSCOPE_TRACE_H

#include "recorder.h"

uint64_t rs_trace_asked_bytes(void);
void rs_trace_begin(uint64_t room_bytes);
void rs_trace_add(const struct rs_thread *thread, uint64_t key, uint64_t start, uint64_t duration, uint64_t bytes,
                  int failed);
void rs_trace_forget(void);

/* Times are those of the key's layer. thread may be NULL. */
RS_HOT void rs_trace(const struct rs_thread *thread, uint64_t key, uint64_t start, uint64_t duration, uint64_t bytes,
                     int failed)
{
    if (RS_UNLIKELY(__atomic_load_n(&rs.tracing, __ATOMIC_RELAXED)))
        rs_trace_add(thread, key, start, duration, bytes, failed);
}

#endif
