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
#define FLAG(name) ((uint64_t)RS_MESSAGE_##name << 56)

/* What of a record says in which row it is counted; two that are alike are counted together. */
struct sort { uint64_t word, peer, source; };
#define SORT_BITS ((uint64_t)0xFFFF << 16 | FLAG(RECEIVE) | FLAG(FAILED) | FLAG(CANCELLED) | FLAG(COMBINED))

static inline struct sort sort_of(const struct rs_message *record)
{
    uint64_t word = word_at(&record->name) & SORT_BITS;
    return (struct sort){word, word_at(&record->peer), word & FLAG(COMBINED) ? word_at(&record->source) : 0};
}

static inline int is_like(const struct rs_message *record, struct sort sort, uint64_t source_bits)
{
    return !(((word_at(&record->name) & SORT_BITS) ^ sort.word) | (word_at(&record->peer) ^ sort.peer)
             | ((word_at(&record->source) ^ sort.source) & source_bits));
}

/* Negative ranks are wildcards that nobody has told yet; not those of a combined call, whose status has told who it was:
 * one half of it was with MPI_PROC_NULL. */
static void count_half(struct rs_thread *thread, uint64_t envelope, uint64_t key, int combined, int64_t messages)
{
    int known = (int32_t)envelope >= 0 && (int64_t)envelope >= 0;
    if (!combined || (int32_t)envelope >= 0)
        count(thread, known ? envelope : ANY_ENVELOPE, key, messages);
}

static void count_sort(struct rs_thread *thread, struct sort sort, int64_t messages)
{
    uint64_t key = (sort.word & ((uint64_t)0xFFFF << 16 | FLAG(RECEIVE))) | 1;
    int combined = (sort.word & FLAG(COMBINED)) != 0;
    if (sort.word & FLAG(CANCELLED))
        return;
    if (sort.word & FLAG(FAILED)) {
        count(thread, ANY_ENVELOPE, key, messages);
        return;
    }
    count_half(thread, sort.peer, key, combined, messages);
    if (combined)
        count_half(thread, sort.source, key | FLAG(RECEIVE), 1, messages);
}

/* After how many records the same one comes again: programs repeat themselves. */
#define LONGEST_PERIOD 8u

static uint32_t period_of(const struct rs_message *records)
{
    struct sort first = sort_of(records);
    uint64_t source_bits = first.word & FLAG(COMBINED) ? ~(uint64_t)0 : 0;
    uint32_t period = 1;
    while (period < LONGEST_PERIOD && !is_like(&records[period], first, source_bits))
        period++;
    return period;
}

/* Two words of a record at a time. Another thread may write one of them meanwhile, in which a receive is complete: each
 * word is as it was before or after, and that is all the words one by one could promise. */
typedef uint64_t rs_words __attribute__((vector_size(16), aligned(8), may_alias));
_Static_assert(offsetof(struct rs_message, name) == offsetof(struct rs_message, peer) + 8
                   && offsetof(struct rs_message, source) == offsetof(struct rs_message, waited_ticks) + 8, "two words each");

/* All that come `period` apart are of the sort of the first. Gives them up: their numbers are 0 from now on. */
__attribute__((no_sanitize("thread")))
static inline int are_alike(struct rs_message *records, uint32_t first, uint32_t period, struct sort sort)
{
    struct rs_message *record = records + first, *end = records + RS_MESSAGES_GIVEN_UP;
    rs_words like = {sort.peer, sort.word}, like_source = {0, sort.source};
    rs_words sent = {0, 0}, received = {0, 0};      /* in what they differ: no branch, and nothing to wait for */
#pragma GCC unroll 4
    for (; record < end; record += period) {
        sent |= *(const rs_words *)&record->peer ^ like;
        received |= *(const rs_words *)&record->waited_ticks ^ like_source;
        __atomic_store_n(&record->number, 0, __ATOMIC_RELEASE);
    }
    return !((sent[1] & SORT_BITS) | sent[0] | (sort.word & FLAG(COMBINED) ? received[1] : 0));
}

static void give_up(struct rs_thread *thread, struct rs_message *records)
{
    uint32_t period = period_of(records);
    for (uint32_t first = 0; first < period; first++) {
        struct sort sort = sort_of(&records[first]);
        if (RS_LIKELY(period == 1 ? are_alike(records, 0, 1, sort) : are_alike(records, first, period, sort))) {
            count_sort(thread, sort, (RS_MESSAGES_GIVEN_UP - first + period - 1) / period);
            continue;
        }
        for (uint32_t i = first; i < RS_MESSAGES_GIVEN_UP; i += period)
            count_sort(thread, sort_of(&records[i]), 1);
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
