/* One ring for all threads. Who has the number n from the common counter owns place n mod capacity as soon as its mark
 * is BUSY, and gives it back with a mark that says in which lap it was filled: a reader sees whole records only, and
 * a process that is killed leaves every record but those it was writing. */
#include <stdlib.h>

#include "trace.h"

#define LEAST_BYTES (64u << 10)
#define MOST_BYTES (1u << 30)
#define BUSY 1u                 /* a lap of 0, which no finished record has */
#define MOST_DURATION (((uint64_t)1 << 48) - 1)

enum tracing { OFF = 0, WANTED = 1, OPEN = 2, NO_ROOM = 3 };

static rs_lock open_lock;
static struct rs_event *ring;
static uint64_t capacity, room;

/* RANKSCOPE_TRACE_BYTES, in whole pages; 0 where no trace is wanted. */
uint64_t rs_trace_asked_bytes(void)
{
    const char *text = getenv("RANKSCOPE_TRACE_BYTES");
    char *end;
    uint64_t bytes = text ? strtoull(text, &end, 10) : 0;
    if (!bytes || *end)
        return 0;
    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
    return (bytes + sizeof(struct rs_chunk) + RS_PAGE - 1) / RS_PAGE * RS_PAGE;
}

/* room_bytes: what the file has for it, which a limit on file sizes may have made less than what was asked for. */
void rs_trace_begin(uint64_t room_bytes)
{
    const char *keep = getenv("RANKSCOPE_TRACE_KEEP");
    rs.file->trace_keep = keep && !strcmp(keep, "oldest") ? RS_KEEP_OLDEST : RS_KEEP_NEWEST;
    room = room_bytes;
    rs.tracing = WANTED;
}

void rs_trace_forget(void)
{
    ring = NULL;
    capacity = room = 0;
    rs.tracing = OFF;
}

static void put(struct rs_event *event, const struct rs_thread *thread, uint64_t key, uint64_t start, uint64_t duration,
                uint64_t bytes, int failed)
{
    uint8_t kind = (uint8_t)(key >> 56) == RS_KIND_PROGRESS ? RS_EVENT_PROGRESS : 0;
    RS_SET(event->start_ticks, start);
    RS_SET(event->bytes, bytes);
    RS_SET(event->duration_low, (uint32_t)duration);
    RS_SET(event->name, (uint16_t)key);
    RS_SET(event->group, (uint16_t)(key >> 16));
    RS_SET(event->thread, thread ? (uint16_t)thread->slot : 0);
    RS_SET(event->layer, (uint8_t)(key >> 32));
    RS_SET(event->flags, (uint8_t)((uint8_t)(key >> 40) | kind | (failed ? RS_EVENT_FAILED : 0)));
}

static uint32_t mark_of(uint64_t laps_before, uint64_t duration)
{
    return (uint32_t)(laps_before % 0xFFFF + 1) << 16 | (uint32_t)(duration >> 32);
}

/* 1: the place is ours. It is not where a thread that the others have overtaken by a whole lap still fills it in. */
static int take(struct rs_event *event)
{
    uint32_t mark = __atomic_load_n(&event->mark, __ATOMIC_RELAXED);
    return mark != BUSY
           && __atomic_compare_exchange_n(&event->mark, &mark, BUSY, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* What a record costs, its share of a page's first touch included: measured on places that nobody has used yet. */
static void calibrate(struct rs_event *fresh, uint64_t places)
{
    enum { ROUNDS = 8, CALLS = RS_PAGE / sizeof(struct rs_event) };
    uint64_t best = UINT64_MAX, scratch = 0;
    for (uint64_t round = 0; round < ROUNDS && (round + 1) * CALLS <= places; round++) {
        uint64_t begin = rs_ticks();
        for (uint64_t call = 0; call < CALLS; call++) {
            struct rs_event *event = &fresh[round * CALLS + call];
            __atomic_fetch_add(&scratch, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&scratch, 1, __ATOMIC_RELAXED);
            take(event);
            put(event, NULL, 0, 0, 0, 0, 0);
            __atomic_store_n(&event->mark, 0, __ATOMIC_RELEASE);
        }
        uint64_t took = (rs_ticks() - begin) * 1000 / CALLS;
        if (took < best)
            best = took;
    }
    rs.file->trace_cost_milliticks = best == UINT64_MAX ? 0 : best;
}

static void open_locked(void)
{
    struct rs_chunk *chunk = NULL;
    if (room > sizeof *chunk)
        chunk = rs_chunk_new(RS_CHUNK_TRACE, 0, sizeof(struct rs_event), room);
    if (!chunk) {
        __atomic_store_n(&rs.tracing, NO_ROOM, __ATOMIC_RELEASE);
        return;
    }
    capacity = (room - sizeof *chunk) / sizeof(struct rs_event);
    ring = (struct rs_event *)(chunk + 1);
    calibrate(ring, capacity);
    __atomic_store_n(&rs.file->trace_capacity, capacity, __ATOMIC_RELAXED);
    __atomic_store_n(&chunk->rows, (uint32_t)capacity, __ATOMIC_RELEASE);
    __atomic_store_n(&rs.tracing, OPEN, __ATOMIC_RELEASE);
}

/* At the first event, not at load: most processes of a job never have one, and the space is taken all at once. */
static int is_open(void)
{
    uint8_t state = __atomic_load_n(&rs.tracing, __ATOMIC_ACQUIRE);
    if (RS_UNLIKELY(state == WANTED) && rs_lock_take(&open_lock)) {
        if (__atomic_load_n(&rs.tracing, __ATOMIC_ACQUIRE) == WANTED)
            open_locked();
        rs_lock_give(&open_lock);
        state = __atomic_load_n(&rs.tracing, __ATOMIC_ACQUIRE);
    }
    return state == OPEN;
}

void rs_trace_add(const struct rs_thread *thread, uint64_t key, uint64_t start, uint64_t duration, uint64_t bytes,
                  int failed)
{
    struct rs_header *file = rs.file;
    if (!file)
        return;
    int open = is_open();
    rs_count(&file->trace_events[(key >> 32) % RS_TRACE_LAYERS], 1);
    uint64_t number = __atomic_fetch_add(&file->trace_written, 1, __ATOMIC_RELAXED);
    if (!open || (number >= capacity && file->trace_keep == RS_KEEP_OLDEST))
        return;
    uint64_t laps_before = number < capacity ? 0 : number / capacity;
    struct rs_event *event = &ring[number - laps_before * capacity];
    if (!take(event))
        return;
    duration = duration > MOST_DURATION ? MOST_DURATION : duration;
    put(event, thread, key, start, duration, bytes, failed);
    __atomic_store_n(&event->mark, mark_of(laps_before, duration), __ATOMIC_RELEASE);
}
