/* The log of point-to-point messages: each thread has a ring of its own, because MPI orders the messages of a thread and
 * nothing else. A ring needs no lock, and its records lie in the order of posting. */
#ifndef RANKSCOPE_MESSAGES_H
#define RANKSCOPE_MESSAGES_H

#include "recorder.h"

/* A record and its number (low 32 bits), which tells whether the place is still its own. */
struct rs_message_place { struct rs_message *record; uint32_t number; };
#define RS_NO_PLACE (struct rs_message_place){NULL, 0}

/* Records of the lap before are given up so many at a time, which takes less than one by one. */
#define RS_MESSAGES_GIVEN_UP 64u

int rs_messages_make_room(struct rs_thread *thread);
void rs_message_after(struct rs_thread *thread, uint16_t group, uint8_t flags, int any, int32_t peer, int32_t tag);

_Static_assert(sizeof(struct rs_message) == 64 && offsetof(struct rs_message, tag) == offsetof(struct rs_message, peer) + 4
                   && offsetof(struct rs_message, flags) == offsetof(struct rs_message, name) + 7
                   && offsetof(struct rs_message, source_tag) == offsetof(struct rs_message, source) + 4
                   && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "rs_message_add writes these as words");

static inline uint64_t rs_two(int32_t low, int32_t high) { return (uint32_t)low | (uint64_t)(uint32_t)high << 32; }

/* With whom and with what tag, and how much. */
struct rs_envelope { int32_t peer, tag; uint64_t bytes; };

/* key: of the tally of the call, the flags in the place of its kind. end_ticks 0: under way. received: of combined calls. */
RS_HOT struct rs_message_place rs_message_write(struct rs_thread *thread, uint64_t key, uint8_t flags, struct rs_envelope sent,
                                                uint64_t begin, uint64_t end, struct rs_envelope received)
{
    uint64_t claim = thread->messages_written;
    if (RS_UNLIKELY(!(claim % RS_MESSAGES_GIVEN_UP)) && !rs_messages_make_room(thread))
        return RS_NO_PLACE;
    struct rs_message *record = &thread->messages[claim & thread->messages_mask];   /* its number is 0 */
    thread->messages_written = claim + 1;
    RS_SET(record->begin_ticks, begin);
    RS_SET(record->end_ticks, end);
    RS_SET(record->bytes, sent.bytes);
    RS_SET(record->peer, sent.peer);
    RS_SET(record->tag, sent.tag);
    if (flags & RS_MESSAGE_COMBINED) {
        RS_SET(record->source, received.peer);
        RS_SET(record->source_tag, received.tag);
        RS_SET(record->waited_ticks, received.bytes);
    }
    RS_SET_WORD(record->name, key | (uint64_t)flags << 56);
    __atomic_store_n(&record->number, claim + 1, __ATOMIC_RELEASE);
    return (struct rs_message_place){record, (uint32_t)(claim + 1)};
}

RS_HOT struct rs_message_place rs_message_add(struct rs_thread *thread, uint64_t key, uint8_t flags, int32_t peer,
                                              int32_t tag, uint64_t bytes, uint64_t begin, uint64_t end)
{
    struct rs_envelope sent = {peer, tag, bytes};
    return rs_message_write(thread, key, flags, sent, begin, end, sent);
}

static inline int rs_message_is_there(struct rs_message_place place)
{
    return (uint32_t)__atomic_load_n(&place.record->number, __ATOMIC_RELAXED) == place.number;
}

/* What the status of a receive says: its record is still there. */
static inline void rs_message_told(struct rs_message_place place, int32_t peer, int32_t tag, uint64_t bytes)
{
    RS_SET(place.record->bytes, bytes);
    RS_SET_WORD(place.record->peer, rs_two(peer, tag));
}

/* One that was under way is complete, and its record still there. */
static inline void rs_message_end(struct rs_message_place place, uint64_t now, uint64_t waited)
{
    RS_SET(place.record->waited_ticks, waited);
    __atomic_store_n(&place.record->end_ticks, now, __ATOMIC_RELEASE);
}

#endif
