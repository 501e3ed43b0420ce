/* oneCCL's operations: a call starts one and gives an event, whose wait or test tells that it is over. */
#include "loaded_objects.h"
#include "messages.h"
#include "oneccl_layer.h"
#include "oneccl_operations.h"
#include "steps.h"
#include "trace.h"

#define MOST_OPEN 4096u
#define BUCKETS 1024u
#define MOST_TYPES 64u
/* Between call and wait less than this part of the time, or of a second: it is as good as one blocking call. */
#define STOOD_STILL 16u
#define AT_ONCE 20000u

/* An operation from its call to its completion. */
struct operation {
    uint64_t start, key, bytes;
    uint64_t event;             /* of a call that asks about one */
    struct rs_collective *record;
    struct rs_message_place message;
    uint32_t number;            /* of the record */
    uint16_t members;
    uint8_t collective, complete;   /* complete: the program waited for it inside the call */
};
_Static_assert(sizeof(struct operation) <= sizeof ((struct rs_frame *)0)->kept, "it lies in the call");

struct open { uint64_t event; struct operation operation; uint32_t next; };

static rs_lock lock;
static struct open *open_ones;      /* from 1 on */
static uint32_t first_free, never_used, heads[BUCKETS];
static uint16_t names[2][NAMED_OPERATIONS];
static uint8_t used;
static uint32_t registered_bytes[MOST_TYPES];   /* of datatypes that the program has made */

static const char *const texts[2][NAMED_OPERATIONS] = {
    {"ccl::allreduce", "ccl::reduce", "ccl::broadcast", "ccl::allgather", "ccl::allgatherv", "ccl::alltoall",
     "ccl::alltoallv", "ccl::reduce_scatter", "ccl::gather", "ccl::scatter", "ccl::barrier", "ccl::send", "ccl::recv",
     "ccl::group_start", "ccl::group_end", "ccl::event::wait", "ccl::event::test"},
    {"onecclAllReduce", "onecclReduce", "onecclBroadcast", "onecclAllGather", "", "onecclAllToAll", "onecclAllToAllV",
     "onecclReduceScatter", "", "onecclScatter", "", "onecclSend", "onecclRecv", "onecclGroupStart", "onecclGroupEnd",
     "", ""}};

int rs_oneccl_recording(void) { return __atomic_load_n(&used, __ATOMIC_RELAXED); }

void rs_oneccl_forget(void)
{
    rs_oneccl_comms_forget();
    rs_memory_free(open_ones, (MOST_OPEN + 1) * sizeof *open_ones);
    open_ones = NULL;
    first_free = never_used = 0;
    memset(heads, 0, sizeof heads);
    memset(names, 0, sizeof names);
    used = 0;
}

static uint16_t name_of(const struct rs_entry *entry)
{
    int is_c = rs_oneccl_is_c(entry);
    uint16_t *name = &names[is_c][entry->operation];
    if (RS_UNLIKELY(!__atomic_load_n(name, __ATOMIC_RELAXED)))
        __atomic_store_n(name, rs_intern(texts[is_c][entry->operation]), __ATOMIC_RELAXED);
    return *name;
}

static uint64_t with_kind(uint64_t key, uint8_t kind) { return key | (uint64_t)kind << 56; }

static struct operation *operation_in(struct rs_frame *call) { return (struct operation *)call->kept; }

/* --- sizes --- */

static uint64_t type_bytes(const struct rs_frame *call)
{
    static const uint8_t cpp[] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 2}, c[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    const struct rs_entry *entry = call->entry;
    if (entry->type == RS_NO_ARGUMENT)
        return entry->element_bytes;
    uint32_t type = (uint32_t)rs_argument(call, entry->type);
    if (rs_oneccl_is_c(entry))
        return type < sizeof c ? c[type] : 0;
    return type < sizeof cpp ? cpp[type] : registered_bytes[type % MOST_TYPES];
}

static void type_made(const struct rs_frame *call)
{
    uint32_t type = (uint32_t)call->results[0];
    uint64_t (*size)(uint32_t) = (uint64_t (*)(uint32_t))rs_find_symbol("_ZN3ccl2v117get_datatype_sizeENS0_8datatypeE");
    if (size)
        RS_SET(registered_bytes[type % MOST_TYPES], (uint32_t)size(type));
}

static uint64_t sum(const uint64_t *begin, const uint64_t *end)
{
    uint64_t total = 0;
    for (; begin && begin < end; begin++)
        total += *begin;
    return total;
}

/* What this rank gives, as for MPI (docs/reference/metrics.md): of operations by parts all of its input. */
static uint64_t bytes_of(const struct rs_frame *call, uint64_t members)
{
    const struct rs_entry *entry = call->entry;
    if (entry->count == RS_NO_ARGUMENT)
        return 0;
    uint64_t count = rs_argument(call, entry->count);
    if (entry->operation == ALLTOALLV) {    /* a vector, in C an array */
        const uint64_t *counts = (const uint64_t *)count;
        count = rs_oneccl_is_c(entry) ? sum(counts, counts + members)
                                      : sum((const uint64_t *)counts[0], (const uint64_t *)counts[1]);
    } else if (entry->operation == ALLTOALL || entry->operation == REDUCE_SCATTER) {
        count *= members;
    }
    return count * type_bytes(call);
}

/* --- the log --- */

static void settle(const struct operation *operation, uint64_t end, uint8_t flags, uint64_t waited)
{
    struct rs_collective *record = operation->record;
    if (operation->message.record && rs_message_is_there(operation->message)) {
        if (flags & RS_COLL_FAILED)
            RS_SET(operation->message.record->flags,
                   (uint8_t)(operation->message.record->flags | RS_MESSAGE_FAILED));
        rs_message_end(operation->message, end, waited);
    }
    if (operation->collective)
        rs_progress_end(rs_ticks(), 0);
    if (!record || rs_log_number(record) != operation->number)
        return;
    flags |= record->flags;
    if (waited) {
        uint64_t inside = record->call_ticks + waited, stay = end - operation->start, between = stay - inside;
        if (between * STOOD_STILL <= stay || between * AT_ONCE <= rs.refresh_ticks) {
            flags = 0;
        } else {
            inside >>= RS_WAITED_SHIFT;
            RS_SET(record->call_ticks, inside > UINT32_MAX ? UINT32_MAX : (uint32_t)inside);
            flags |= RS_COLL_WAITED;
        }
    }
    RS_SET(record->flags, flags);
    __atomic_store_n(&record->end_ticks, end, __ATOMIC_RELEASE);
}

/* Its completion is told by nobody: what is known is when the call returned. */
static void settle_untold(const struct operation *operation)
{
    uint64_t took = operation->record ? operation->record->call_ticks : 0;
    settle(operation, operation->start + took, RS_COLL_ENQUEUED, 0);
}

static void completed(struct rs_thread *thread, const struct operation *operation, uint64_t now, uint64_t waited)
{
    settle(operation, now, 0, waited);
    rs_tally(thread, with_kind(operation->key, RS_KIND_PROGRESS), now - operation->start, operation->bytes, 0);
    rs_trace(thread, with_kind(operation->key, RS_KIND_PROGRESS), operation->start, now - operation->start,
             operation->bytes, 0);
    if (RS_UNLIKELY(rs.phase == RS_PHASE_FIRST_COLLECTIVE) && operation->collective && operation->members > 1) {
        rs_mark_at(RS_MARK_FIRST_COLLECTIVE_BEGIN, "oneCCL", operation->start);
        rs_mark_at(RS_MARK_FIRST_COLLECTIVE_END, "oneCCL", now);
        rs_first_collective_over();
    }
}

/* --- operations whose event has not been waited for --- */

static uint32_t *find(uint64_t event)
{
    uint32_t *link = &heads[(event * 0x9E3779B97F4A7C15u) >> 54];
    while (*link && open_ones[*link].event != event)
        link = &open_ones[*link].next;
    return link;
}

static uint32_t take_slot(void)
{
    if (!open_ones)
        open_ones = rs_memory((MOST_OPEN + 1) * sizeof *open_ones);
    uint32_t slot = open_ones ? first_free : 0;
    if (slot)
        first_free = open_ones[slot].next;
    else if (open_ones && never_used < MOST_OPEN)
        slot = ++never_used;
    return slot;
}

/* 1: it was there, and is no longer. */
static int take_out(uint64_t event, struct operation *operation)
{
    int found = 0;
    if (!event || !__atomic_load_n(&open_ones, __ATOMIC_RELAXED) || !rs_lock_take(&lock))
        return 0;
    uint32_t *link = find(event), slot = *link;
    if (slot) {
        *operation = open_ones[slot].operation;
        *link = open_ones[slot].next;
        open_ones[slot].event = 0;
        open_ones[slot].next = first_free;
        first_free = slot;
        found = 1;
    }
    rs_lock_give(&lock);
    return found;
}

/* The address of an event that was dropped unseen may be that of a new one. */
static void put_in(uint64_t event, const struct operation *operation)
{
    struct operation dropped;
    uint32_t slot = 0;
    if (take_out(event, &dropped))
        settle_untold(&dropped);
    if (rs_lock_take(&lock)) {
        slot = take_slot();
        if (slot) {
            uint32_t *head = &heads[(event * 0x9E3779B97F4A7C15u) >> 54];
            open_ones[slot] = (struct open){event, *operation, *head};
            *head = slot;
        }
        rs_lock_give(&lock);
    }
    if (!slot) {
        rs_count(&rs.file->untracked_requests, 1);
        settle_untold(operation);
    }
}

void rs_oneccl_flush(void)
{
    for (uint32_t slot = 1; open_ones && slot <= never_used; slot++)
        if (open_ones[slot].event)
            settle_untold(&open_ones[slot].operation);
}

/* --- calls --- */

static RS_COLD void first_use(void)
{
    rs_log_open();
    rs_calibrate();
    used = 1;
    if (rs_elf_defines("_ZN3ccl2v19allreduceIN4sycl3_V16bufferIfLi1ENS3_6detail17aligned_allocatorIfEEvEENS0_5eventEEES9_RKT_RSA_mNS0_9reductionERKNS0_12communicatorERKNS0_14allreduce_attrERKSt6vectorIS9_SaIS9_EE"))
        rs_unwrapped_add("ccl:: collectives of sycl::buffer");
}

static void start(struct rs_frame *call, struct rs_thread *thread)
{
    const struct rs_entry *entry = call->entry;
    struct operation *operation = operation_in(call);
    struct rs_oneccl_comm *comm = rs_oneccl_comm_of(call);
    uint16_t group = comm ? comm->id : 0;
    int32_t root = entry->root == RS_NO_ARGUMENT ? -1 : (int32_t)rs_argument(call, entry->root);
    uint64_t bytes = bytes_of(call, comm ? comm->size : 1);
    *operation = (struct operation){
        .start = rs_ticks(), .bytes = bytes, .members = (uint16_t)(comm ? comm->size : 0),
        .key = rs_key(name_of(entry), group, RS_LAYER_ONECCL, rs.phase, rs_size_class(bytes), RS_KIND_CALL),
        .collective = (uint8_t)rs_oneccl_is_collective(entry->operation)};
    if (operation->collective) {
        struct rs_collective filled = {
            .enter_ticks = operation->start, .bytes = bytes, .sequence = comm ? rs_oneccl_next_sequence(comm) : 0,
            .root = root, .name = name_of(entry), .group = group, .thread = (uint16_t)thread->slot, .phase = rs.phase,
            .flags = 0};    /* as long as it is not known what the call gives */
        operation->record = rs_log_enter(thread, &filled);
        operation->number = operation->record ? rs_log_number(operation->record) : 0;
        rs_progress_begin(operation->start, bytes, 0);
    } else if (group) {
        uint8_t flags = (uint8_t)(RS_MESSAGE_NONBLOCKING | (entry->operation == RECV ? RS_MESSAGE_RECEIVE : 0));
        operation->message = rs_message_add(thread, operation->key, flags, root, 0, bytes, operation->start, 0);
    }
}

/* What an event stands for: its object holds the address. */
static uint64_t event_at(uint64_t object) { return object ? *(const uint64_t *)object : 0; }

static void begin_plain(struct rs_frame *call, struct rs_thread *thread)
{
    const struct rs_entry *entry = call->entry;
    struct operation *operation = operation_in(call);
    memset(operation, 0, sizeof *operation);
    operation->start = rs_ticks();
    if (entry->operation < NAMED_OPERATIONS)
        operation->key = rs_key(name_of(entry), 0, RS_LAYER_ONECCL, rs.phase, 0, RS_KIND_CALL);
    if (entry->operation == WAIT || entry->operation == TEST)
        operation->event = event_at(rs_argument(call, 0));
    if (entry->operation == WAIT)
        rs_call_begins(thread, name_of(entry), 0, RS_NO_PEER, RS_NO_PEER, operation->start);
    if ((entry->operation == NEW_COMM || entry->operation == NEW_COMMS || entry->operation == C_NEW_COMM)
        && rs.phase < RS_PHASE_FIRST_COLLECTIVE) {
        rs_set_phase(RS_PHASE_INIT);
        rs_mark_at(RS_MARK_INIT_BEGIN, "oneCCL", operation->start);
    }
}

/* The call of oneCCL's that this one is made in, NULL for one of the program's. */
static struct rs_frame *around(const struct rs_frame *call)
{
    struct rs_frame *outer = call->outer;
    while (outer && outer->entry->layer != call->entry->layer)
        outer = outer->outer;
    return outer;
}

/* Not of a call that oneCCL makes itself: of those only the waits say something of the call around them. */
static void before(struct rs_frame *call)
{
    uint16_t wanted = call->entry->operation;
    struct rs_frame *outer = around(call);
    if (outer) {
        if (wanted == WAIT)
            operation_in(outer)->complete = 1;
        return;
    }
    if (wanted == DROP) {
        struct operation dropped;
        if (take_out(event_at(rs_argument(call, 0)), &dropped))
            settle_untold(&dropped);
        return;
    }
    struct rs_thread *thread = rs_enter();
    if (!thread)
        return;
    if (RS_UNLIKELY(!used))
        first_use();
    if (wanted <= RECV)
        start(call, thread);
    else
        begin_plain(call, thread);
    call->watched = 1;
    thread->depth = 0;      /* what oneCCL asks of an MPI is recorded where it can be seen */
}

/* The call has returned: whether the operation is over is known where it was waited for inside. */
static void started(struct rs_frame *call, struct rs_thread *thread, uint64_t now, int failed)
{
    struct operation *operation = operation_in(call);
    uint64_t took = now - operation->start;
    uint64_t event = call->entry->returns_object && !failed ? event_at((uint64_t)rs_object_built(call)) : 0;
    int over = failed || operation->complete;
    if (operation->record && rs_log_number(operation->record) == operation->number && !over) {
        RS_SET(operation->record->call_ticks, took > UINT32_MAX ? UINT32_MAX : (uint32_t)took);
        RS_SET(operation->record->flags, RS_COLL_NONBLOCKING);
    }
    if (failed)
        settle(operation, now, RS_COLL_FAILED, 0);
    else if (event)
        put_in(event, operation);
    else if (operation->complete || call->entry->returns_object)
        completed(thread, operation, now, 0);
    else
        settle_untold(operation);
}

static void init_over(uint64_t now)
{
    rs_mark_at(RS_MARK_INIT_END, "oneCCL", now);
    if (rs.phase < RS_PHASE_FIRST_COLLECTIVE)
        rs_set_phase(RS_PHASE_FIRST_COLLECTIVE);
}

static void ended(struct rs_frame *call, struct rs_thread *thread, uint64_t now, int failed)
{
    uint16_t wanted = call->entry->operation;
    struct operation begun = *operation_in(call), operation;
    if (wanted == WAIT)
        rs_call_ended(thread);
    if (wanted == NEW_TYPE && !failed)
        type_made(call);
    else if (wanted >= MAIN_STORE && !failed)
        rs_oneccl_comms_made(call);
    if (wanted == NEW_COMM || wanted == NEW_COMMS || wanted == C_NEW_COMM)
        init_over(now);
    int over = wanted == WAIT || (wanted == TEST && !failed && (uint8_t)call->results[0]);
    if (over && take_out(begun.event, &operation)) {
        if (failed)
            settle(&operation, now, RS_COLL_FAILED, 0);
        else
            completed(thread, &operation, now, wanted == WAIT ? now - begun.start : 0);
    }
}

static void after(struct rs_frame *call, int thrown)
{
    uint64_t now = rs_ticks();
    uint16_t wanted = call->entry->operation;
    struct rs_thread *thread = rs.file ? rs_enter() : NULL;
    if (!thread)
        return;
    const struct operation *operation = operation_in(call);
    int failed = thrown || (rs_oneccl_is_c(call->entry) && (int32_t)call->results[0] != 0);
    uint64_t key = operation->key, begin = operation->start, took = now - begin;
    uint64_t bytes = wanted <= RECV && !failed ? operation->bytes : 0;
    if (failed)
        key &= ~((uint64_t)0xFF << 48);     /* nothing was sent: the class of no bytes */
    if (wanted <= RECV)
        started(call, thread, now, failed);
    else
        ended(call, thread, now, failed);
    if (wanted < NAMED_OPERATIONS) {
        rs_tally(thread, key, took, bytes, failed);
        rs_trace(thread, key, begin, took, bytes, failed);
        if (RS_UNLIKELY(rs_step_open))
            rs_step_blocked(begin, now);
    }
    rs_leave(thread, now);
}

/* --- the tables --- */

#if defined(__x86_64__) || defined(__aarch64__)

static const struct rs_entry_layer layer = {before, after};

#define ENTRY(symbol, operation, object, arguments, words, count, type, root, group, bytes)                                \
    {#symbol, NULL, &layer, operation, words, object, arguments, count, type, root, group, bytes, {0}},
__attribute__((visibility("hidden"), used)) struct rs_entry rs_oneccl_entries[] = {
#include "oneccl_functions.h"
};

#define ENTRY(symbol, ...) RS_EXPORTED_STUB(symbol)
__asm__(RS_STUBS_BEGIN(rs_oneccl_entries)
#include "oneccl_functions.h"
        RS_STUBS_END);

#if defined(__GLIBC__)

#define ENTRY(symbol, operation, object, arguments, words, count, type, root, group, bytes)                                \
    {#symbol, NULL, &layer, operation, words, object, arguments, count, type, root, group, bytes, {0}},
__attribute__((visibility("hidden"), used)) struct rs_entry rs_oneccl_c_entries[] = {
#include "oneccl_c_functions.h"
};

#define ENTRY(symbol, ...) RS_EXPORTED_STUB(symbol)
__asm__(RS_STUBS_BEGIN(rs_oneccl_c_entries)
#include "oneccl_c_functions.h"
        RS_STUBS_END);

#define ENTRY(symbol, ...)                                                                                                 \
    extern char rs_stub_##symbol[] __attribute__((visibility("hidden")));                                                  \
    static void *choose_##symbol(void) { return rs_elf_defines(#symbol) ? rs_stub_##symbol : NULL; }                       \
    static struct rs_optional optional_##symbol __attribute__((used, section("rs_optional"))) =                            \
        {rs_stub_##symbol, choose_##symbol};
#include "oneccl_c_functions.h"

#endif
#endif
