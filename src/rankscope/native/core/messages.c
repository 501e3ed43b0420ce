/* Rings of messages, and what is kept of the messages that a ring holds no longer: how many there were of each envelope,
 * so that those that it does hold keep their numbers. */
#include "messages.h"

#define MOST_RINGS 16u
#define LATER_RINGS_SHARE 8u    /* most programs send from one thread: rings of the others are smaller */
#define LEAST_RECORDS (2 * RS_MESSAGES_GIVEN_UP)
#define RS_ENVELOPES 4096u
#define MOST_ENVELOPES (RS_ENVELOPES / 4 * 3)

static uint64_t capacity_of(uint32_t ring)
{
    uint64_t records = ring ? rs.message_capacity / LATER_RINGS_SHARE : rs.message_capacity;
    return records && records < LEAST_RECORDS ? LEAST_RECORDS : records;
}

static RS_COLD void *refuse(struct rs_thread *thread)
{
    thread->messages_refused = 1;
    rs_count(&rs.file->lost_messages, 1);
    return NULL;
}

/* Taken at a thread's first message: most threads send none. */
static RS_COLD int open_ring(struct rs_thread *thread)
{
    if (!rs.message_capacity || !rs.file)
        return 0;
    if (thread->messages_refused)
        return refuse(thread) != NULL;
    uint32_t ring = __atomic_fetch_add(&rs.message_rings, 1, __ATOMIC_RELAXED);
    uint64_t records = capacity_of(ring), row_bytes = sizeof(struct rs_message);
    struct rs_chunk *chunk = ring < MOST_RINGS
        ? rs_chunk_new(RS_CHUNK_MESSAGES, thread->slot, (uint32_t)row_bytes, sizeof *chunk + records * row_bytes) : NULL;
    if (!chunk)
        return refuse(thread) != NULL;
    chunk->rows = (uint32_t)records;
    thread->messages_mask = records - 1;
    thread->messages_written = 0;
    thread->messages = (struct rs_message *)(chunk + 1);
    return 1;
}

/* --- what is overwritten --- */

static struct rs_overwritten *open_table(struct rs_thread *thread)
{
    if (thread->overwritten_refused)
        return NULL;
    uint64_t row_bytes = sizeof(struct rs_overwritten);
    struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_OVERWRITTEN, thread->slot, (uint32_t)row_bytes,
                                          sizeof *chunk + RS_ENVELOPES * row_bytes);
    thread->overwritten_refused = !chunk;
    if (!chunk)
        return NULL;
    chunk->rows = RS_ENVELOPES;
    return thread->overwritten = (struct rs_overwritten *)(chunk + 1);
}

static inline uint64_t word_at(const void *place) { return __atomic_load_n((const rs_word *)place, __ATOMIC_RELAXED); }

static inline uint32_t place_of(uint64_t envelope, uint64_t key)
{
    return (uint32_t)(((envelope ^ key) * 0x9E3779B97F4A7C15u) >> 52);
}

static struct rs_overwritten *row_of(struct rs_thread *thread, uint64_t envelope, uint64_t key)
{
    if (!thread->overwritten && !open_table(thread))
        return NULL;    /* for one that was given up and is complete in another thread */
    for (uint32_t at = place_of(envelope, key);; at = (at + 1) % RS_ENVELOPES) {
        struct rs_overwritten *row = &thread->overwritten[at];
        if (row->key == key && word_at(&row->peer) == envelope)
            return row;
        if (row->key)
            continue;
        if (thread->envelopes_used >= MOST_ENVELOPES)
            return NULL;
        thread->envelopes_used++;
        RS_SET_WORD(row->peer, envelope);
        __atomic_store_n(&row->key, key, __ATOMIC_RELEASE);
        return row;
    }
}

static void count(struct rs_thread *thread, uint64_t envelope, uint64_t key, int64_t by)
{
    struct rs_overwritten *row = row_of(thread, envelope, key);
    if (row)
        RS_SET(row->messages, row->messages + by);
    else
        rs_count(&rs.file->lost_envelopes, 1);
}

static uint64_t key_of(uint16_t group, int receive)
{
    return (uint64_t)group << 16 | (uint64_t)(receive ? RS_MESSAGE_RECEIVE : 0) << 56 | 1;
}

#define ANY_ENVELOPE rs_two(RS_NO_PEER, RS_NO_PEER)

/* Negative ranks are wildcards that nobody has told yet; not those of a combined call, whose status has told who it was:
 * one half of it was with MPI_PROC_NULL. */
static void count_slowly(struct rs_thread *thread, uint64_t envelope, uint64_t key, int combined)
{
    int known = (int32_t)envelope >= 0 && (int64_t)envelope >= 0;
    if (!combined || (int32_t)envelope >= 0)
        count(thread, known ? envelope : ANY_ENVELOPE, key, 1);
}

static inline void count_one(struct rs_thread *thread, uint64_t envelope, uint64_t key, int combined)
{
    struct rs_overwritten *row = &thread->overwritten[place_of(envelope, key)];
    if (RS_LIKELY(row->key == key && word_at(&row->peer) == envelope))
        RS_SET(row->messages, row->messages + 1);
    else
        count_slowly(thread, envelope, key, combined);
}

static RS_COLD void count_failed(struct rs_thread *thread, const struct rs_message *record)
{
    if (!(record->flags & RS_MESSAGE_CANCELLED))
        count(thread, ANY_ENVELOPE, key_of(record->group, record->flags & RS_MESSAGE_RECEIVE), 1);
}

#define FLAG(name) ((uint64_t)RS_MESSAGE_##name << 56)

static void give_up(struct rs_thread *thread, struct rs_message *record)
{
    for (uint32_t i = 0; i < RS_MESSAGES_GIVEN_UP; i++, record++) {
        uint64_t word = word_at(&record->name), key = (word & ((uint64_t)0xFFFF << 16 | FLAG(RECEIVE))) | 1;
        if (RS_UNLIKELY(word & (FLAG(FAILED) | FLAG(CANCELLED)))) {
            count_failed(thread, record);
        } else {
            count_one(thread, word_at(&record->peer), key, (word & FLAG(COMBINED)) != 0);
            if (word & FLAG(COMBINED))
                count_one(thread, word_at(&record->source), key | FLAG(RECEIVE), 1);
        }
        __atomic_store_n(&record->number, 0, __ATOMIC_RELEASE);
    }
}

/* Called with every so many messages, the first one among them. */
int rs_messages_make_room(struct rs_thread *thread)
{
    uint64_t claim = thread->messages_written;
    if (!thread->messages && !open_ring(thread))
        return 0;
    if (claim <= thread->messages_mask)
        return 1;
    struct rs_message *first = &thread->messages[claim & thread->messages_mask];
    if (thread->overwritten || open_table(thread)) {
        give_up(thread, first);
    } else {
        rs_count(&rs.file->lost_envelopes, RS_MESSAGES_GIVEN_UP);
        for (uint32_t i = 0; i < RS_MESSAGES_GIVEN_UP; i++)
            __atomic_store_n(&first[i].number, 0, __ATOMIC_RELEASE);
    }
    return 1;
}

/* One that is complete only now, after its record was overwritten. `any`: it was counted as one of any envelope, because
 * nobody knew it. One that was cancelled had been counted as if it were sent or received: that is in doubt for good. */
RS_COLD void rs_message_after(struct rs_thread *thread, uint16_t group, uint8_t flags, int any, int32_t peer, int32_t tag)
{
    uint64_t key = key_of(group, flags & RS_MESSAGE_RECEIVE);
    if (flags & RS_MESSAGE_CANCELLED) {
        count(thread, ANY_ENVELOPE, key, any ? -1 : 1);
    } else if (any && peer >= 0 && tag >= 0) {
        count(thread, ANY_ENVELOPE, key, -1);
        count(thread, rs_two(peer, tag), key, 1);
    }
}
