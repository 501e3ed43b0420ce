/* What the wrappers share: numbers for functions, the notes they leave, how they are exported. */
#ifndef RANKSCOPE_MPI_WRAPPERS_H
#define RANKSCOPE_MPI_WRAPPERS_H

#include "mpi_requests.h"
#include "mpi_words.h"
#include "steps.h"
#include "trace.h"

#define ENTRY(name) ENTRY_(name)
#define ENTRY_(name) F_##name,
enum rs_mpi_function {
#include "mpi_every_kind.h"
    RS_MPI_FUNCTIONS
};
#undef ENTRY
#undef ENTRY_

/* An error class every MPI has a meaning for: the function is not in the loaded MPI. */
#define RS_MPI_MISSING 16

/* What a wrapper calls; NULL: not looked up yet, or to be chosen anew for every call (rs_mpi_resolve). */
extern void *rs_mpi_real[RS_MPI_FUNCTIONS] __attribute__((visibility("hidden")));
extern uint16_t rs_mpi_name[RS_MPI_FUNCTIONS] __attribute__((visibility("hidden")));
void rs_mpi_in_step(uint64_t ticks);
void rs_mpi_first_collective(void);
void *rs_mpi_resolve(enum rs_mpi_function function);
void *rs_mpi_pass_on(enum rs_mpi_function function, const void *caller);
struct rs_thread *rs_mpi_enter_slow(void);
uint16_t rs_mpi_intern(enum rs_mpi_function function);
struct rs_thread *rs_paused_thread(void);
void rs_collective_sized(struct rs_logged logged, uint64_t bytes);

static inline uint16_t rs_mpi_name_of(enum rs_mpi_function function)
{
    uint16_t name = __atomic_load_n(&rs_mpi_name[function], __ATOMIC_RELAXED);
    return RS_LIKELY(name) ? name : rs_mpi_intern(function);
}

static inline uint64_t rs_mpi_key(enum rs_mpi_function function, const struct rs_mpi_group *group, uint8_t kind)
{
    return rs_key(rs_mpi_name_of(function), group->id, RS_LAYER_MPI, rs.phase, 0, kind);
}

static inline uint64_t rs_key_sized(uint64_t key, uint64_t bytes) { return key | (uint64_t)rs_size_class(bytes) << 48; }

uint64_t rs_note_unlike(struct rs_thread *thread, enum rs_mpi_function function, const struct rs_mpi_group *group,
                        uint64_t bytes, uint64_t ticks, int failed);

/* Never 0. */
static inline uint64_t rs_alike_what(enum rs_mpi_function function, const struct rs_mpi_group *group)
{
    return (uint64_t)group->id << 32 | (uint64_t)function << 8 | (uint64_t)1 << 63 | rs.phase;
}

/* Gives the key of its tally. */
RS_HOT uint64_t rs_note(struct rs_thread *thread, enum rs_mpi_function function, const struct rs_mpi_group *group,
                        uint64_t bytes, uint64_t enter, uint64_t leave, int failed)
{
    const struct rs_alike *alike = &thread->alike[function % RS_ALIKE];
    uint64_t key;
    if (RS_LIKELY(alike->what == rs_alike_what(function, group) && alike->bytes == bytes)) {
        key = rs_key_of(alike->row);
        rs_tally_store(alike->row, leave - enter, bytes, failed);
    } else {
        key = rs_note_unlike(thread, function, group, bytes, leave - enter, failed);
    }
    rs_trace(thread, key, enter, leave - enter, bytes, failed);
    if (RS_UNLIKELY(rs_step_open))
        rs_mpi_in_step(leave - enter);
    return key;
}

/* Of what rs_note has given: it is about no group that is known. */
static inline int rs_key_is_groupless(uint64_t key) { return !(key & (uint64_t)0xFFFF << 16); }

/* --- messages --- */

/* A send or a receive of an envelope that is known. Nothing goes to or comes from MPI_PROC_NULL, which is negative. */
RS_HOT struct rs_message_place rs_message_note(struct rs_thread *thread, uint64_t key, uint8_t flags, int32_t peer,
                                               int32_t tag, uint64_t bytes, uint64_t enter, uint64_t end)
{
    if (RS_UNLIKELY(peer < 0 || rs_key_is_groupless(key)))
        return RS_NO_PLACE;
    return rs_message_add(thread, key, flags, peer, tag, bytes, enter, end);
}

/* A send and a receive by one call. */
RS_HOT void rs_message_combined(struct rs_thread *thread, uint64_t key, int32_t peer, int32_t tag, uint64_t bytes,
                                const void *status, uint64_t enter, uint64_t leave)
{
    if (RS_LIKELY(!rs_key_is_groupless(key)))
        rs_message_write(thread, key, RS_MESSAGE_COMBINED, (struct rs_envelope){peer, tag, bytes}, enter, leave,
                         rs_status_read(status));
}

/* A receive that is under way: of any sender, perhaps, and of a size that is known at completion. */
RS_HOT struct rs_message_place rs_message_posted(struct rs_thread *thread, uint64_t key, int32_t peer, int32_t tag,
                                                 uint64_t enter)
{
    if (RS_UNLIKELY(rs_key_is_groupless(key)))
        return RS_NO_PLACE;
    return rs_message_add(thread, key, RS_MESSAGE_RECEIVE | RS_MESSAGE_NONBLOCKING, peer, tag, 0, enter, 0);
}

void rs_message_failed(struct rs_thread *thread, enum rs_mpi_function function, const struct rs_mpi_group *group,
                       uint8_t flags, int32_t peer, int32_t tag, uint64_t enter, uint64_t leave);
void rs_message_failed_both(struct rs_thread *thread, enum rs_mpi_function function, const struct rs_mpi_group *group,
                            int32_t peer, int32_t tag, int32_t source, int32_t source_tag, uint64_t enter, uint64_t leave);
void rs_message_received(struct rs_thread *thread, uint64_t probed, const void *status, uint64_t bytes, uint64_t now);
struct rs_message_place rs_message_receiving(struct rs_thread *thread, uint64_t probed);

/* --- collectives --- */

RS_HOT struct rs_logged rs_collective_enter(struct rs_thread *thread, enum rs_mpi_function function,
                                                   struct rs_mpi_group *group, uint64_t bytes, int32_t root,
                                                   uint8_t flags, uint64_t enter)
{
    uint64_t sequence = group->row->collectives + 1;
    __atomic_store_n(&group->row->collectives, sequence, __ATOMIC_RELAXED);
    struct rs_collective filled = {
        .enter_ticks = enter, .bytes = bytes, .sequence = (uint32_t)sequence, .root = root,
        .name = rs_mpi_name_of(function), .group = group->id, .thread = (uint16_t)thread->slot,
        .phase = rs.phase, .flags = flags};
    struct rs_logged logged = {rs_log_enter(thread, &filled), 0};
    if (logged.record)
        logged.number = rs_log_number(logged.record);
    return logged;
}

static inline void rs_collective_flag(struct rs_collective *record, uint8_t flag)
{
    RS_SET(record->flags, (uint8_t)(__atomic_load_n(&record->flags, __ATOMIC_RELAXED) | flag));
}

/* Another thread may have taken the place in the ring meanwhile. */
static inline void rs_collective_end(struct rs_logged logged, uint64_t now, int failed)
{
    struct rs_collective *record = logged.record;
    if (RS_UNLIKELY(!record || rs_log_number(record) != logged.number))
        return;
    if (RS_UNLIKELY(failed))
        rs_collective_flag(record, RS_COLL_FAILED);
    __atomic_store_n(&record->end_ticks, now, __ATOMIC_RELEASE);
}

static inline void rs_collective_started(struct rs_logged logged, uint64_t call_ticks, uint64_t now, int failed)
{
    if (!logged.record || rs_log_number(logged.record) != logged.number)
        return;
    RS_SET(logged.record->call_ticks, call_ticks > UINT32_MAX ? UINT32_MAX : (uint32_t)call_ticks);
    if (failed)
        rs_collective_end(logged, now, failed);
}

/* A nonblocking one is complete: what the program stood still for it is the starting call and this. */
static inline void rs_collective_completed(struct rs_logged logged, uint64_t now, uint64_t waited)
{
    struct rs_collective *record = logged.record;
    if (waited && record && rs_log_number(record) == logged.number) {
        uint64_t inside = (__atomic_load_n(&record->call_ticks, __ATOMIC_RELAXED) + waited) >> RS_WAITED_SHIFT;
        RS_SET(record->call_ticks, inside > UINT32_MAX ? UINT32_MAX : (uint32_t)inside);
        rs_collective_flag(record, RS_COLL_WAITED);
    }
    rs_collective_end(logged, now, 0);
}

static inline void rs_collective_seen(const struct rs_mpi_group *group)
{
    if (RS_UNLIKELY(rs.phase == RS_PHASE_FIRST_COLLECTIVE) && group->size > 1)
        rs_mpi_first_collective();
}

/* --- how a wrapper gets its name --- */

/* PMPI_X is ours too: the Fortran bindings of Open MPI (and part of MPICH's) call it, as do layers in front of us. */
#define EXPORT_ALWAYS(fn, n)                                                                      \
    RS_EXPORT int MPI_##fn(ARGS_##n) __attribute__((alias("wrap_" #fn)));                         \
    static int profiled_##fn(ARGS_##n)                                                            \
    {                                                                                             \
        int (*real)(ARGS_##n) = (int (*)(ARGS_##n))rs_mpi_pass_on(F_##fn, __builtin_return_address(0)); \
        return real ? real(PASS_##n) : wrap_##fn(PASS_##n);                                       \
    }                                                                                             \
    RS_EXPORT int PMPI_##fn(ARGS_##n) __attribute__((alias("profiled_" #fn)));

/* A name that must not be there where the loaded MPI has no such function: see mpi_exports.c. */
#if defined(__GLIBC__)
#define EXPORT_IF_PRESENT(fn, n)                                                                  \
    EXPORT_ALWAYS(fn, n)                                                                          \
    static void *choose_##fn(void) { return rs_elf_defines("PMPI_" #fn) ? (void *)wrap_##fn : NULL; } \
    static void *choose_profiled_##fn(void)                                                       \
    {                                                                                             \
        return rs_elf_defines("PMPI_" #fn) ? (void *)profiled_##fn : NULL;                        \
    }                                                                                             \
    static struct rs_optional optional_##fn[2] __attribute__((used, section("rs_optional"))) =    \
        {{(void *)wrap_##fn, choose_##fn}, {(void *)profiled_##fn, choose_profiled_##fn}};
#else
#define EXPORT_IF_PRESENT(fn, n)
#endif

/* The opening of every wrapper. */
#define OPEN(fn, n)                                                                               \
    struct rs_thread *thread;                                                                     \
    int (*real)(ARGS_##n) =                                                                       \
        (int (*)(ARGS_##n))__atomic_load_n(&rs_mpi_real[F_##fn], __ATOMIC_RELAXED);               \
    if (RS_LIKELY(real != NULL)) {                                                                \
        thread = rs_enter();                                                                      \
    } else {                                                                                      \
        real = (int (*)(ARGS_##n))rs_mpi_resolve(F_##fn);                                         \
        if (!real)                                                                                \
            return RS_MPI_MISSING;                                                                \
        thread = rs_mpi_enter_slow();                                                             \
    }

#define TIMED(n)                                                                                  \
    uint64_t enter = rs_ticks();                                                                  \
    int failed = real(PASS_##n);                                                                  \
    uint64_t leave = rs_ticks();

/* The same of a call that may wait for another rank. */
#define TIMED_WAITING(fn, n, group_id, peer, tag)                                                 \
    uint64_t enter = rs_ticks();                                                                  \
    rs_call_begins(thread, rs_mpi_name_of(F_##fn), group_id, peer, tag, enter);                   \
    int failed = real(PASS_##n);                                                                  \
    uint64_t leave = rs_ticks();                                                                  \
    rs_call_ended(thread);

#define CLOSE                                                                                     \
    rs_leave(thread, leave);                                                                      \
    return failed;

/* The way through where nothing is recorded; while paused, calls are counted and collectives keep their numbers. */
#define PASS_ON(n)                                                                                \
    if (RS_UNLIKELY(!thread)) {                                                                   \
        rs_paused_thread();                                                                       \
        return real(PASS_##n);                                                                    \
    }
#define PASS_ON_COLLECTIVE(n, known_word, group_word)                                             \
    if (RS_UNLIKELY(!thread)) {                                                                   \
        if (!(thread = rs_paused_thread()))                                                       \
            return real(PASS_##n);                                                                \
        struct rs_mpi_group *counted = known_word;                                                \
        int failed = real(PASS_##n);                                                              \
        if (!failed && counted == rs_group_none())                                                \
            counted = group_word;                                                                 \
        counted->row->collectives++;                                                              \
        return failed;                                                                            \
    }

/* A collective on a group that the recorder does not know yet: it is logged when the MPI has taken the handle. Until
 * then who looks sees the call that the thread is in. known_word and group_word: the group, without asking for it and
 * with. Needs bytes_word, its bytes, in the same two ways. */
#define COLLECTIVE_CALL(fn, n, known_word, group_word, known_bytes, bytes_word, root, flags)      \
    int unsure = 0;                                                                               \
    struct rs_mpi_group *group = known_word;                                                      \
    uint64_t bytes = known_bytes;                                                                 \
    uint64_t enter = rs_ticks();                                                                  \
    struct rs_logged logged = RS_NOT_LOGGED;                                                      \
    if (RS_LIKELY(group != rs_group_none()))                                                      \
        logged = rs_collective_enter(thread, F_##fn, group, bytes, root,                          \
                                     (uint8_t)((flags) | (unsure ? RS_COLL_UNSIZED : 0)), enter); \
    else                                                                                          \
        rs_call_begins(thread, rs_mpi_name_of(F_##fn), 0, RS_NO_PEER, RS_NO_PEER, enter);         \
    int failed = real(PASS_##n);                                                                  \
    uint64_t leave = rs_ticks();                                                                  \
    if (RS_UNLIKELY(failed))                                                                      \
        bytes = 0;                                                                                \
    if (RS_UNLIKELY(group == rs_group_none())) {                                                  \
        rs_call_ended(thread);                                                                    \
        if (!failed) {                                                                            \
            group = group_word;                                                                   \
            bytes = bytes_word;                                                                   \
            if (group != rs_group_none())                                                         \
                logged = rs_collective_enter(thread, F_##fn, group, bytes, root, flags, enter);   \
        }                                                                                         \
    } else if (RS_UNLIKELY(unsure) && !failed) {                                                  \
        bytes = bytes_word;                                                                       \
        rs_collective_sized(logged, bytes);                                                       \
    }

#endif
