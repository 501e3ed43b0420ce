/* Rings of messages, and what is kept of the messages that a ring holds no longer: how many there were of each envelope,
 * so that those that it does hold keep their numbers. */
#include "messages.h"

#define MOST_RINGS 16u
#define LATER_RINGS_SHARE 8u    /* most programs send from one thread: rings of the others are smaller */
#define LEAST_RECORDS 16u
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
RS_COLD int rs_messages_open(struct rs_thread *thread)
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

static struct rs_overwritten *row_of(struct rs_thread *thread, uint64_t envelope, uint64_t key)
{
    if (!thread->overwritten && !open_table(thread))
        return NULL;
    for (uint32_t at = rs_envelope_row(envelope, key);; at = (at + 1) % RS_ENVELOPES) {
        struct rs_overwritten *row = &thread->overwritten[at];
        if (row->key == key && rs_word_at(&row->peer) == envelope)
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

/* An envelope that has no row yet, or one that lies further on, or is not known. The negative ranks of a combined call are
 * no wildcards, because the status has told who it was: one half of it was with MPI_PROC_NULL. */
void rs_message_gone_slow(struct rs_thread *thread, uint64_t envelope, uint64_t key, int combined)
{
    int known = (int32_t)envelope >= 0 && (int64_t)envelope >= 0;
    if (combined && (int32_t)envelope < 0)
        return;
    count(thread, known ? envelope : ANY_ENVELOPE, key, 1);
}

RS_COLD void rs_message_overwrite_oddly(struct rs_thread *thread, const struct rs_message *record, uint64_t key)
{
    if (record->flags & RS_MESSAGE_CANCELLED)
        return;
    if (record->flags & RS_MESSAGE_FAILED) {
        count(thread, ANY_ENVELOPE, key, 1);
        return;
    }
    int combined = record->flags & RS_MESSAGE_COMBINED;
    rs_message_gone_slow(thread, rs_word_at(&record->peer), key, combined);
    if (combined)
        rs_message_gone_slow(thread, rs_word_at(&record->source), key | RS_MESSAGE_IS_RECEIVE, 1);
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
