/* Process groups of torch.distributed, process sets of Horovod, and their collectives: begun by one thread, ended by
 * another. */
#include "messages.h"
#include "nccl_layer.h"
#include "oneccl_layer.h"
#include "steps.h"

#define MOST_GROUPS 512u
#define MOST_OPEN 2048u
#define WINDOW 32u

enum rankscope_backend {
    BACKEND_GLOO = 1, BACKEND_NCCL = 2, BACKEND_OTHER = 3,
    BACKEND_HOROVOD = 4,    /* by a library whose collectives are logged anyway: here they are only counted */
    BACKEND_WAITS_TOLD = 16 /* or'ed: its end is known by the wait for it, and every such wait is told */
};

/* One collective whose number is still young enough to be moved by one that was issued before it. */
struct numbered { uint64_t order; struct rs_collective *record; uint32_t claim, sequence; };

struct process_group {
    struct rs_group *row;
    uint16_t id;
    uint32_t recent_count;
    struct numbered recent[WINDOW];     /* by the order in which they were issued */
};

struct open_collective {
    struct rs_collective *record;
    uint32_t claim, next_free;
    uint64_t begin, bytes;
    uint64_t key;
    uint8_t used, waits_told;
};

static rs_lock lock;
static uint8_t futures;         /* the program asks for futures of collectives: who waits for those does not tell */
static struct process_group *groups;
static uint32_t groups_used;
static struct open_collective *open_ones;
static uint32_t first_free, never_used = 1;

void rs_process_groups_forget(void)
{
    rs_memory_free(groups, MOST_GROUPS * sizeof *groups);
    rs_memory_free(open_ones, MOST_OPEN * sizeof *open_ones);
    groups = NULL;
    open_ones = NULL;
    groups_used = first_free = 0;
    never_used = 1;
}

/* A number for a group, from 1; the same for the same identity. 0: it is not recorded. */
static uint32_t group_of_kind(const char *name, uint64_t identity, uint32_t size, uint32_t my_rank, int guessed,
                              uint32_t kind)
{
    uint32_t number = 0;
    if (!rs_telling() || !rs_lock_take(&lock))
        return 0;
    if (!groups)
        groups = rs_memory(MOST_GROUPS * sizeof *groups);
    for (uint32_t at = 0; groups && at < groups_used && !number; at++)
        number = groups[at].row->identity == identity ? at + 1 : 0;
    if (groups && !number && groups_used < MOST_GROUPS) {
        struct process_group *group = &groups[groups_used];
        group->row = rs_group_row(&group->id);
        if (group->row) {
            group->row->identity = identity;
            group->row->size = size;
            group->row->my_rank = my_rank;
            group->row->name = rs_intern(name);
            group->row->kind = kind;
            group->row->flags = guessed ? RS_GROUP_GUESSED : 0;
            group->row->created_ticks = rs_ticks();
            number = ++groups_used;
        }
    }
    if (!number)
        rs_count(&rs.file->folded_groups, 1);
    rs_lock_give(&lock);
    return number;
}

RS_EXPORT uint32_t rankscope_group(const char *name, uint64_t identity, uint32_t size, uint32_t my_rank, int guessed)
{
    return group_of_kind(name, identity, size, my_rank, guessed, RS_GROUP_PROCESS_GROUP);
}

RS_EXPORT uint32_t rankscope_process_set(const char *name, uint64_t identity, uint32_t size, uint32_t my_rank)
{
    return group_of_kind(name, identity, size, my_rank, 0, RS_GROUP_HOROVOD);
}

/* A better name than the one it was made with: the world's group has that of the mesh dimension it serves. */
RS_EXPORT void rankscope_group_named(uint32_t number, const char *name)
{
    if (rs.file && name && number && number <= groups_used)
        __atomic_store_n(&groups[number - 1].row->name, rs_intern(name), __ATOMIC_RELAXED);
}

RS_EXPORT void rankscope_group_freed(uint32_t number)
{
    if (rs.file && number && number <= groups_used)
        __atomic_store_n(&groups[number - 1].row->freed_ticks, rs_ticks(), __ATOMIC_RELAXED);
}

/* A process that initialised MPI, which a library may do for it, and is alone there: that is no rank of the job. */
static int is_alone_in_mpi(const struct rs_header *file)
{
    return file->rank_source == RS_RANK_MPI && file->world_size == 1;
}

/* What init_process_group or init_rpc was told, where no launcher has said it: the children of mp.spawn. */
RS_EXPORT void rankscope_rank(int32_t rank, int32_t world_size)
{
    if (!rs_telling() || (rs.file->rank_source != RS_RANK_NONE && !is_alone_in_mpi(rs.file)))
        return;
    rs.file->world_size = world_size;
    rs.file->rank_source = RS_RANK_TORCH;
    __atomic_store_n(&rs.file->rank, rank, __ATOMIC_RELEASE);
}

/* --- numbers --- */

static void remember(struct process_group *group, uint32_t at, struct numbered one)
{
    if (group->recent_count == WINDOW) {
        memmove(group->recent, group->recent + 1, (WINDOW - 1) * sizeof one);
        group->recent_count--;
        at -= at ? 1 : 0;
    }
    memmove(group->recent + at + 1, group->recent + at, (group->recent_count - at) * sizeof one);
    group->recent[at] = one;
    group->recent_count++;
}

/* Gloo's threads take up collectives side by side: what was issued first need not begin first. Its place among the
 * others is that of its issue, which is the same on all ranks; those behind it move up by one. */
static uint32_t place_in_order(struct process_group *group, uint64_t order, uint32_t *at)
{
    uint32_t sequence = (uint32_t)++group->row->collectives;
    *at = group->recent_count;
    while (order && *at && group->recent[*at - 1].order > order) {
        struct numbered *later = &group->recent[--*at];
        sequence = later->sequence++;
        if (later->record && rs_log_number(later->record) == later->claim)
            RS_SET(later->record->sequence, later->sequence);
    }
    return sequence;
}

/* --- collectives --- */

static uint32_t take_slot(void)
{
    if (!open_ones)
        open_ones = rs_memory(MOST_OPEN * sizeof *open_ones);
    uint32_t slot = open_ones ? first_free : 0;
    if (slot)
        first_free = open_ones[slot].next_free;
    else if (open_ones && never_used < MOST_OPEN)
        slot = never_used++;
    return slot;
}

static void give_slot(uint32_t slot)
{
    open_ones[slot].used = 0;
    open_ones[slot].next_free = first_free;
    first_free = slot;
}

static RS_COLD void first_collective(void)
{
    rs_log_open();
    rs_calibrate();
    if (rs.phase < RS_PHASE_FIRST_COLLECTIVE)
        rs_set_phase(RS_PHASE_FIRST_COLLECTIVE);
}

static uint8_t layer_of(int backend)
{
    return backend == BACKEND_GLOO ? RS_LAYER_GLOO : backend == BACKEND_HOROVOD ? RS_LAYER_HOROVOD : RS_LAYER_TORCH;
}

static uint32_t begin_locked(struct rs_thread *thread, struct process_group *group, struct rs_collective *filled,
                             uint64_t order, int backend)
{
    uint32_t slot = take_slot(), at = 0;
    int logged = backend != BACKEND_HOROVOD;
    if (group && logged)
        filled->sequence = place_in_order(group, order, &at);
    filled->group = group ? group->id : 0;
    struct rs_collective *record = logged ? rs_log_enter(thread, filled) : NULL;
    uint32_t claim = record ? rs_log_number(record) : 0;
    if (group && logged)
        remember(group, at, (struct numbered){order, record, claim, filled->sequence});
    if (!slot)
        return 0;
    open_ones[slot] = (struct open_collective){
        .record = record, .claim = claim, .begin = filled->enter_ticks, .bytes = filled->bytes, .used = 1,
        .key = rs_key(filled->name, filled->group, layer_of(backend), rs.phase, rs_size_class(filled->bytes), RS_KIND_PROGRESS)};
    return slot;
}

/* Operations of torch that oneCCL carries out are told by oneCCL's own functions. */
static int is_by_oneccl(const char *name) { return !strncmp(name, "xccl:", 5) || !strncmp(name, "ccl:", 4); }

/* The end comes by rankscope_collective_end with the number given here; 0: none will be taken. `order` grows with the
 * issue of the collectives of a process; 0: this is called in the order of their issue. */
RS_EXPORT uint32_t rankscope_collective_begin(const char *name, uint32_t group, uint64_t bytes, int32_t root,
                                              uint64_t order, int backend)
{
    uint8_t waits_told = (backend & BACKEND_WAITS_TOLD) && !__atomic_load_n(&futures, __ATOMIC_RELAXED);
    backend &= ~BACKEND_WAITS_TOLD;
    if (RS_UNLIKELY(!atomic_load_explicit(&rs.enabled, memory_order_relaxed)) && !rs_begin())
        return 0;
    if ((backend == BACKEND_NCCL && rs_nccl_recording()) || (rs_oneccl_recording() && is_by_oneccl(name)))
        return 0;
    if (RS_UNLIKELY(!group || group > groups_used))
        group = rankscope_group("group not known", 0, 0, 0, 1);
    uint64_t now = rs_ticks();
    if (RS_UNLIKELY(!rs.log))
        first_collective();
    rs_mark_at(RS_MARK_FIRST_COLLECTIVE_BEGIN, name, now);
    struct rs_thread *thread = rs_enter();
    if (!thread)
        return 0;
    struct rs_collective filled = {
        .enter_ticks = now, .bytes = bytes, .root = root, .name = rs_intern(name), .thread = (uint16_t)thread->slot,
        .phase = rs.phase, .flags = RS_COLL_NONBLOCKING};
    uint32_t slot = 0;
    if (rs_lock_take(&lock)) {
        struct process_group *known = group && group <= groups_used ? &groups[group - 1] : NULL;
        slot = begin_locked(thread, known, &filled, order, backend);
        if (slot)
            open_ones[slot].waits_told = waits_told;
        rs_lock_give(&lock);
    }
    if (slot)
        rs_progress_begin(now, bytes, waits_told);
    else
        rs_count(&rs.file->untracked_requests, 1);
    rs_leave(thread, now);
    return slot;
}

/* From now on collectives may be waited for by their futures, as communication hooks of DistributedDataParallel do. */
RS_EXPORT void rankscope_futures(void) { __atomic_store_n(&futures, 1, __ATOMIC_RELAXED); }

/* how: 0 completed, 1 failed, 2 the completion is told by nobody. */
RS_EXPORT void rankscope_collective_end(uint32_t slot, int how)
{
    if (!slot || slot >= MOST_OPEN || !rs.file || !rs_lock_take(&lock))
        return;
    uint64_t now = rs_ticks();
    struct open_collective ended = {.used = 0};
    if (open_ones && open_ones[slot].used) {
        ended = open_ones[slot];
        give_slot(slot);
    }
    rs_lock_give(&lock);
    if (!ended.used)
        return;
    rs_progress_end(now, ended.waits_told);
    if (ended.record && rs_log_number(ended.record) == ended.claim) {
        uint8_t flags = how == 1 ? RS_COLL_FAILED : how == 2 ? RS_COLL_ENQUEUED : 0;
        RS_SET(ended.record->flags, (uint8_t)(ended.record->flags | flags));
        __atomic_store_n(&ended.record->end_ticks, now, __ATOMIC_RELEASE);
    }
    struct rs_thread *thread = rs_enter();
    if (thread) {
        rs_tally(thread, ended.key, now - ended.begin, ended.bytes, how == 1);
        rs_leave(thread, now);
    }
    rs_mark_at(RS_MARK_FIRST_COLLECTIVE_END, "", now);
    if (RS_UNLIKELY(rs.phase == RS_PHASE_FIRST_COLLECTIVE))
        rs_first_collective_over();
}

/* --- messages between two ranks --- */

#define ADDRESS_BITS 48     /* of a record, which is one of ours; its number lies above */

/* A send or a receive that was posted at `begin`; its end comes by rankscope_message_end with what is given here. 0: none
 * will be taken. A peer below 0: any. */
RS_EXPORT uint64_t rankscope_message(const char *name, int receive, uint32_t group, int32_t peer, int32_t tag,
                                     uint64_t bytes, uint64_t begin)
{
    struct rs_thread *thread = group ? rs_enter() : NULL;
    if (!thread)
        return 0;
    uint16_t id = group <= groups_used ? groups[group - 1].id : 0;
    uint8_t flags = (uint8_t)(RS_MESSAGE_NONBLOCKING | (receive ? RS_MESSAGE_RECEIVE : 0));
    uint64_t key = rs_key(rs_intern(name), id, RS_LAYER_GLOO, rs.phase, rs_size_class(bytes), RS_KIND_CALL);
    struct rs_message_place place = id ? rs_message_add(thread, key, flags, peer, tag, bytes, begin, 0) : RS_NO_PLACE;
    rs_leave(thread, rs_ticks());
    return place.record ? (uint64_t)(uintptr_t)place.record | (uint64_t)place.number << ADDRESS_BITS : 0;
}

/* The program waited for it from `begin` until now. source: who sent it, where that was not known; else below 0. */
RS_EXPORT void rankscope_message_end(uint64_t message, uint64_t begin, int32_t source)
{
    struct rs_message *record = (struct rs_message *)(uintptr_t)(message & (((uint64_t)1 << ADDRESS_BITS) - 1));
    uint64_t now = rs_ticks();
    if (!rs.file || !record || (uint16_t)__atomic_load_n(&record->number, __ATOMIC_RELAXED) != message >> ADDRESS_BITS)
        return;
    if (source >= 0)
        RS_SET(record->peer, source);
    rs_message_end((struct rs_message_place){record, 0}, now, now - begin);
}
