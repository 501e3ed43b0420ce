/* NCCL's operations: enqueued by a thread of the program, run by a kernel, watched by NCCL's proxy thread, which tells
 * when each channel of the kernel has begun and ended. An operation lives in a slot from the first to the last of it. */
#include <stdio.h>
#include <stdlib.h>

#include "messages.h"
#include "nccl_layer.h"
#include "trace.h"

#define SLOTS RS_NCCL_SLOTS

/* Two lines of the cache: what the thread that enqueues writes, and what comes of it. */
struct operation {
    rs_lock lock;
    uint32_t number;                    /* of its record */
    uint64_t generation;                /* this, comm, thread and busy are read without the lock, too */
    struct rs_nccl_comm *comm;
    uint64_t key, bytes, start_ticks;
    struct rs_collective *record;
    uint16_t full_name;                 /* with algorithm and protocol */
    uint8_t busy, enqueued, collective, kernel_told;
    uint16_t thread;                    /* that has started it */
    struct came {
        uint32_t channels, begun, ended;    /* channels: how many there will be, 0 if not known */
        uint64_t first_ticks, last_ticks;   /* first channel begun, last channel ended */
        uint64_t gpu_start_ns, gpu_end_ns;
        struct rs_message_place message;    /* of a point-to-point operation */
    } came;
};
_Static_assert(sizeof(struct operation) == 128 && offsetof(struct operation, came) == 64, "two lines of the cache");

static struct operation slots[SLOTS] __attribute__((aligned(128)));
static void *theirs_of[SLOTS] __attribute__((aligned(64)));     /* what the job's own plugin calls each, or NULL */

/* What every operation asks for, in one line of the cache and in a page that is in use anyway. */
static struct {
    atomic_uint_least64_t next_slot;
    void *said_again;                           /* by the job's own plugin, while an operation was called so */
    atomic_uint libraries;                      /* how often NCCL may have been loaded anew */
    atomic_int mode_chosen __attribute__((aligned(64)));
    atomic_uint_least64_t ticks_per_second;     /* to put times of the GPU beside ours */
} shared __attribute__((aligned(64))) RS_FORKED_DATA = {.mode_chosen = -1};

/* RANKSCOPE_NCCL: kernels (default), calls: without events of kernels, none. */
enum rs_nccl_mode rs_nccl_mode(void)
{
    int mode = atomic_load_explicit(&shared.mode_chosen, memory_order_relaxed);
    if (!rs_telling())
        return RS_NCCL_NONE;
    if (mode >= 0)
        return (enum rs_nccl_mode)mode;
    const char *asked = getenv("RANKSCOPE_NCCL");
    mode = RS_NCCL_KERNELS;
    if (asked && !strcmp(asked, "calls"))
        mode = RS_NCCL_CALLS;
    if (asked && !strcmp(asked, "none"))
        mode = RS_NCCL_NONE;
    atomic_store_explicit(&shared.mode_chosen, mode, memory_order_relaxed);
    return (enum rs_nccl_mode)mode;
}

/* --- handles --- */

/* The highest bit stays free: nccl_neighbour.c has a use for it. */
#define GENERATION(number) ((number) & 0x7FFFFFFFFFFFu)

static void *handle_of(const struct operation *operation, uint64_t generation, uintptr_t what)
{
    return (void *)((uintptr_t)GENERATION(generation) << 16 | (uintptr_t)(operation - slots) << 2 | what);
}

/* Slots are taken in turn: whether the slot of a handle has been another operation's since, without a look at it. */
static int is_long_over(uintptr_t number)
{
    uint64_t taken = ((number >> 16) - 1) * SLOTS + (number >> 2 & (SLOTS - 1));
    return atomic_load_explicit(&shared.next_slot, memory_order_relaxed) - taken > SLOTS;
}

/* The operation of a handle, locked; NULL where it is over. */
RS_HOT struct operation *hold(void *handle, uintptr_t what)
{
    uintptr_t number = (uintptr_t)handle;
    if (RS_UNLIKELY(!number || (number & 3) != what))
        return NULL;
    struct operation *operation = &slots[rs_nccl_slot(handle)];
    if (RS_UNLIKELY(!rs_lock_take(&operation->lock)))
        return NULL;
    if (RS_LIKELY(operation->busy && GENERATION(operation->generation) == number >> 16))
        return operation;
    rs_lock_give(&operation->lock);
    return NULL;
}

/* Whether something may still come of it: its slot is that of the same operation. */
int rs_nccl_is_under_way(void *handle)
{
    uintptr_t number = (uintptr_t)handle;
    if (!rs.file || !(number & 3) || is_long_over(number))
        return 0;
    const struct operation *operation = &slots[rs_nccl_slot(handle)];
    return __atomic_load_n(&operation->busy, __ATOMIC_RELAXED)
        && GENERATION(__atomic_load_n(&operation->generation, __ATOMIC_RELAXED)) == number >> 16;
}

/* --- the job's own plugin --- */

/* The operation of the slot where it is under way and theirs is what it is called, else NULL. */
RS_HOT const struct operation *called(unsigned at, const void *theirs)
{
    const struct operation *operation = &slots[at & (SLOTS - 1)];
    int is_called = __atomic_load_n(&theirs_of[at & (SLOTS - 1)], __ATOMIC_RELAXED) == theirs;
    return is_called && __atomic_load_n(&operation->busy, __ATOMIC_ACQUIRE) ? operation : NULL;
}

/* It may be another's meanwhile. */
static void *handle_called(const struct operation *operation, const void *theirs)
{
    uint64_t generation = __atomic_load_n(&operation->generation, __ATOMIC_ACQUIRE);
    return called((unsigned)(operation - slots), theirs) ? handle_of(operation, generation, RS_NCCL_TASK) : NULL;
}

int rs_nccl_is_called(void *handle, void *theirs)
{
    return __atomic_load_n(&theirs_of[rs_nccl_slot(handle)], __ATOMIC_RELAXED) == theirs;
}

/* Before the slot is seen to be taken. A plugin may call all alike; those are told apart in another way, for which NCCL
 * gets no handle of theirs (nccl_neighbour.c). */
RS_HOT void call_it(struct rs_nccl_words *last, unsigned at, void *theirs)
{
    if (RS_UNLIKELY(theirs && called(at - 1, theirs)))
        RS_SET(shared.said_again, theirs);
    if (RS_UNLIKELY(theirs == __atomic_load_n(&shared.said_again, __ATOMIC_RELAXED)))
        theirs = NULL;
    RS_SET(theirs_of[at & (SLOTS - 1)], theirs);
    if (RS_UNLIKELY(!theirs))
        return;
    if (RS_LIKELY(!last->to_stop++))
        last->next_to_stop = at;
}

/* NCCL starts the operations of a launch one after the other, and then stops them in the same thread and order; between
 * them are those of other threads. */
static RS_COLD const struct operation *find_to_stop(const struct rs_thread *thread, unsigned from, const void *theirs)
{
    for (unsigned at = from; at != from + SLOTS; at++) {
        const struct operation *operation = called(at, theirs);
        if (operation && __atomic_load_n(&operation->thread, __ATOMIC_RELAXED) == (uint16_t)thread->slot)
            return operation;
    }
    return NULL;
}

void *rs_nccl_to_stop(void *theirs)
{
    struct rs_thread *thread = rs_self;
    struct rs_nccl_words *last = thread ? &thread->nccl : NULL;
    if (!last || !last->to_stop || !theirs)
        return NULL;
    const struct operation *operation = called(last->next_to_stop, theirs);
    if (RS_UNLIKELY(!operation) && !(operation = find_to_stop(thread, last->next_to_stop, theirs)))
        return NULL;
    last->next_to_stop = (uint32_t)(operation - slots) + 1;
    last->to_stop--;
    return handle_called(operation, theirs);
}

static const struct operation *called_on(const struct rs_nccl_comm *comm, unsigned at, const void *theirs)
{
    const struct operation *operation = called(at, theirs);
    return operation && __atomic_load_n(&operation->comm, __ATOMIC_RELAXED) == comm ? operation : NULL;
}

/* Mostly it is that of the channel before or the one behind it; those of one launch come in any order. */
void *rs_nccl_parent(void *context, void *theirs)
{
    const unsigned near = 64;
    struct rs_nccl_comm *comm = rs_nccl_comm(context);
    if (!comm || !theirs)
        return NULL;
    unsigned last = __atomic_load_n(&comm->looked_up, __ATOMIC_RELAXED);
    const struct operation *found = called_on(comm, last, theirs);
    if (!found)
        found = called_on(comm, last + 1, theirs);
    for (unsigned at = last - near; !found && at != last - near + SLOTS; at++)
        found = called_on(comm, at, theirs);
    if (!found)
        return NULL;
    RS_SET(comm->looked_up, (uint32_t)(found - slots));
    return handle_called(found, theirs);
}

/* --- names and sizes --- */

/* The number in the name is the type's bits. NCCL 2.28 has no name for ncclUint8, the only type that is "Unknown". */
static uint64_t type_bytes(const char *datatype)
{
    uint64_t bits = 0;
    if (!datatype)
        return 0;
    for (; *datatype && !(*datatype >= '0' && *datatype <= '9'); datatype++)
        ;
    for (; *datatype >= '0' && *datatype <= '9'; datatype++)
        bits = bits * 10 + (uint64_t)(*datatype - '0');
    return bits >= 8 ? bits / 8 : 1;
}

static int has_root(const char *func)
{
    return !strcmp(func, "Broadcast") || !strcmp(func, "Reduce") || !strcmp(func, "Gather") || !strcmp(func, "Scatter");
}

static uint16_t intern_joined(const char *func, const char *algo, const char *proto)
{
    const char *parts[] = {"nccl", func, algo[0] ? " " : "", algo, proto[0] ? " " : "", proto};
    char text[128];
    size_t used = 0;
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t length = strnlen(parts[i], sizeof text - 1 - used);
        memcpy(text + used, parts[i], length);
        used += length;
    }
    text[used] = 0;
    return rs_intern(text);
}

static const char *given(const char *text) { return text ? text : ""; }

/* A thread's operations mostly resemble the one before. NCCL's words are constants: where they lie says which they are,
 * until the library may have been loaded anew. */
static RS_COLD void read_words(struct rs_nccl_words *words, const struct rs_nccl_task *task, unsigned library)
{
    const char *func = given(task->func), *algo = given(task->algo), *proto = given(task->proto);
    *words = (struct rs_nccl_words){
        .next_to_stop = words->next_to_stop, .to_stop = words->to_stop,     /* of whatever words */
        .func = task->func, .datatype = task->datatype, .algo = task->algo, .proto = task->proto, .library = library,
        .name = intern_joined(func, "", ""), .full = intern_joined(func, algo, proto),
        .type_bytes = (uint32_t)type_bytes(task->datatype), .has_root = (uint8_t)has_root(func),
        .is_send = !strcmp(func, "Send"), .is_receive = !strcmp(func, "Recv")};
}

static const struct rs_nccl_words *words_of(struct rs_thread *thread, const struct rs_nccl_task *task)
{
    struct rs_nccl_words *last = &thread->nccl;
    unsigned library = atomic_load_explicit(&shared.libraries, memory_order_relaxed);
    if (RS_UNLIKELY(last->library != library || last->func != task->func || last->datatype != task->datatype
                    || last->algo != task->algo || last->proto != task->proto))
        read_words(last, task, library);
    return last;
}

static uint64_t with_kind(uint64_t key, uint8_t kind) { return key | (uint64_t)kind << 56; }

/* The same operation counted by algorithm and protocol. */
static uint64_t algo_key(const struct operation *operation)
{
    uint64_t others = operation->key & ~(0xFFFFu | (uint64_t)0xFF << 32);
    return others | operation->full_name | (uint64_t)RS_LAYER_NCCL_ALGO << 32;
}

/* --- the log --- */

static int still_ours(const struct operation *operation)
{
    return operation->record && rs_log_number(operation->record) == operation->number;
}

static void log_enqueued(struct rs_thread *thread, struct operation *operation, uint16_t group, uint32_t sequence,
                         int32_t root)
{
    struct rs_collective filled = {
        .enter_ticks = operation->start_ticks, .bytes = operation->bytes, .sequence = sequence, .root = root,
        .name = (uint16_t)operation->key, .group = group, .thread = (uint16_t)thread->slot, .phase = (uint8_t)(operation->key >> 40),
        .flags = RS_COLL_NONBLOCKING};
    operation->record = rs_log_enter(thread, &filled);
    operation->number = operation->record ? rs_log_number(operation->record) : 0;
}

/* NCCL matches what two ranks send each other on a communicator in the order of their calls: there are no tags. */
static __attribute__((noinline)) void log_message(struct rs_thread *thread, struct operation *operation,
                                                  const struct rs_nccl_words *words, int32_t peer)
{
    uint8_t flags = (uint8_t)(RS_MESSAGE_NONBLOCKING | (words->is_receive ? RS_MESSAGE_RECEIVE : 0));
    if ((words->is_receive || words->is_send) && peer >= 0 && (uint16_t)(operation->key >> 16))
        operation->came.message = rs_message_add(thread, operation->key, flags, peer, 0, operation->bytes,
                                            operation->start_ticks, 0);
}

/* From here on the record speaks of the device. */
static void log_begun(const struct operation *operation)
{
    if (operation->came.message.record && rs_message_is_there(operation->came.message))
        RS_SET(operation->came.message.record->begin_ticks, operation->came.first_ticks);
    if (!still_ours(operation))
        return;
    uint64_t queued = operation->came.first_ticks - operation->start_ticks;
    RS_SET(operation->record->call_ticks, queued > UINT32_MAX ? UINT32_MAX : (uint32_t)queued);
    RS_SET(operation->record->flags, RS_COLL_NONBLOCKING | RS_COLL_DEVICE);
    RS_SET(operation->record->enter_ticks, operation->came.first_ticks);
}

static void log_ended(const struct operation *operation, uint64_t now)
{
    if (operation->came.message.record && rs_message_is_there(operation->came.message))
        rs_message_end(operation->came.message, now, now - operation->came.first_ticks);
    if (still_ours(operation))
        __atomic_store_n(&operation->record->end_ticks, now, __ATOMIC_RELEASE);
}

/* Nobody will tell when it ends: what is known is when it had been enqueued. */
static void log_unfollowed(struct operation *operation, uint64_t now)
{
    uint64_t took = now - operation->start_ticks;
    operation->came.message = RS_NO_PLACE;
    if (!still_ours(operation))
        return;
    RS_SET(operation->record->call_ticks, took > UINT32_MAX ? UINT32_MAX : (uint32_t)took);
    RS_SET(operation->record->flags, RS_COLL_NONBLOCKING | RS_COLL_ENQUEUED);
    log_ended(operation, now);
}

/* --- operations --- */

/* By the GPU's own clock where that makes sense, else as the proxy thread saw it. */
static uint64_t device_ticks(const struct operation *operation)
{
    uint64_t seen = operation->came.last_ticks - operation->came.first_ticks;
    uint64_t rate = atomic_load_explicit(&shared.ticks_per_second, memory_order_relaxed);
    if (!rate || !operation->came.gpu_start_ns || operation->came.gpu_end_ns < operation->came.gpu_start_ns)
        return seen;
    double ticks = (double)(operation->came.gpu_end_ns - operation->came.gpu_start_ns) * 1e-9 * (double)rate;
    return ticks <= (double)(operation->came.last_ticks - operation->start_ticks) ? (uint64_t)ticks : seen;
}

/* Counts the operation and frees its slot. Called with the slot locked. */
static void finish(struct rs_thread *thread, struct operation *operation)
{
    uint64_t in_progress = operation->came.last_ticks - operation->start_ticks;
    log_ended(operation, operation->came.last_ticks);
    rs_tally(thread, with_kind(operation->key, RS_KIND_PROGRESS), in_progress, operation->bytes, 0);
    rs_trace(thread, with_kind(operation->key, RS_KIND_PROGRESS), operation->start_ticks, in_progress,
             operation->bytes, 0);
    rs_tally(thread, with_kind(algo_key(operation), RS_KIND_PROGRESS), device_ticks(operation), operation->bytes, 0);
    RS_SET(operation->busy, 0);
}

static int is_over(const struct operation *operation)
{
    return operation->came.ended && operation->enqueued && operation->came.channels
        && operation->came.ended >= operation->came.channels;
}

/* As far as can be told: all channels that have begun have ended. */
static int looks_over(const struct operation *operation)
{
    return operation->busy && operation->enqueued && operation->came.begun && operation->came.ended == operation->came.begun;
}

/* One that is still in use after so many others was left by its kernel. */
static RS_COLD void give_up(struct rs_thread *thread, struct operation *operation)
{
    if (looks_over(operation))
        finish(thread, operation);
    else
        rs_count(&rs.file->untracked_requests, 1);
}

/* Slots are taken in turn. */
static struct operation *take_slot(struct rs_thread *thread, struct rs_nccl_comm *comm, void *theirs)
{
    uint64_t number = atomic_fetch_add_explicit(&shared.next_slot, 1, memory_order_relaxed);
    struct operation *operation = &slots[number & (SLOTS - 1)];
    if (!rs_lock_take(&operation->lock))
        return NULL;
    if (RS_UNLIKELY(operation->busy))
        give_up(thread, operation);
    RS_SET(operation->generation, number / SLOTS + 1);  /* also where one before could not have it */
    RS_SET(operation->comm, comm);
    RS_SET(operation->thread, (uint16_t)thread->slot);
    call_it(&thread->nccl, (unsigned)number, theirs);
    __atomic_store_n(&operation->busy, 1, __ATOMIC_RELEASE);
    return operation;
}

/* An operation is about to start: what it will be written to was used long ago, or by the proxy's thread, and comes
 * while somebody else is at work. Addresses that are none do no harm. */
RS_NCCL_PATH void rs_nccl_expect(void *context)
{
    const struct operation *next = &slots[atomic_load_explicit(&shared.next_slot, memory_order_relaxed) & (SLOTS - 1)];
    const struct rs_nccl_comm *comm = rs_nccl_comm(context);
    const struct rs_thread *thread = rs_self;
    const struct rs_collective *record = &rs.log[__atomic_load_n(&rs.file->log_written, __ATOMIC_RELAXED)
                                                 & (rs.log_capacity - 1)];
    if (RS_UNLIKELY(!comm || !thread))
        return;
    __builtin_prefetch(next, 1);
    __builtin_prefetch(&next->came, 1);
    __builtin_prefetch(&theirs_of[next - slots], 1);
    __builtin_prefetch(&comm->row->collectives, 1);
    __builtin_prefetch(record, 1);
    __builtin_prefetch((const char *)(record + 1) - 1, 1);
    __builtin_prefetch(&thread->solo, 1);
    __builtin_prefetch(thread->nccl.row, 1);
}

static uint8_t phase_now(void) { return __atomic_load_n(&rs.phase, __ATOMIC_RELAXED); }

static void set_rate(void)
{
    struct rs_anchor now = rs_anchor_now(), then = rs.file->loaded;
    uint64_t ns = now.monotonic_ns - then.monotonic_ns;
    if (ns)
        atomic_store_explicit(&shared.ticks_per_second, (uint64_t)((double)(now.ticks - then.ticks) / (double)ns * 1e9),
                              memory_order_relaxed);
}

/* Before the first operation on any communicator. */
void rs_nccl_prepare(void)
{
    static rs_lock lock;
    atomic_fetch_add_explicit(&shared.libraries, 1, memory_order_relaxed);
    if (!rs_lock_take(&lock))
        return;
    if (!rs.log) {
        rs_log_open();
        rs_calibrate();
    }
    set_rate();
    if (phase_now() < RS_PHASE_FIRST_COLLECTIVE)
        rs_set_phase(RS_PHASE_FIRST_COLLECTIVE);
    rs_lock_give(&lock);
}

static void *start(struct rs_thread *thread, struct rs_nccl_comm *comm, const struct rs_nccl_task *task, uint64_t now)
{
    uint32_t sequence = RS_LIKELY(task->collective) ? rs_nccl_next_sequence(comm) : 0;
    struct operation *operation = take_slot(thread, comm, task->theirs);
    if (RS_UNLIKELY(!operation)) {
        rs_count(&rs.file->untracked_requests, 1);
        return NULL;
    }
    uint16_t group = __atomic_load_n(&comm->group, __ATOMIC_ACQUIRE);
    const struct rs_nccl_words *words = words_of(thread, task);
    uint64_t bytes = task->count * words->type_bytes;
    operation->bytes = bytes;
    operation->key = rs_key(words->name, group, RS_LAYER_NCCL, phase_now(), rs_size_class(bytes), RS_KIND_CALL);
    operation->full_name = words->full;
    operation->enqueued = 0;
    operation->collective = task->collective;
    operation->kernel_told = task->has_kernel & comm->kernels_told;
    operation->start_ticks = now;
    operation->record = NULL;
    operation->came = (struct came){.channels = task->channels};
    if (RS_LIKELY(task->collective))
        log_enqueued(thread, operation, group, sequence, words->has_root ? task->root : -1);
    else
        log_message(thread, operation, words, task->peer);
    thread->nccl.row = thread->cache[rs_cache_slot(operation->key)];
    __builtin_prefetch(thread->nccl.row, 1);    /* its stop comes next */
    void *handle = handle_of(operation, operation->generation, RS_NCCL_TASK);
    rs_lock_give(&operation->lock);
    return handle;
}

RS_NCCL_PATH void *rs_nccl_task_start(void *context, const struct rs_nccl_task *task)
{
    struct rs_nccl_comm *comm = RS_LIKELY(rs.file != NULL) ? rs_nccl_comm(context) : NULL;
    if (RS_UNLIKELY(!comm))
        return NULL;
    uint64_t now = rs_ticks();
    struct rs_thread *thread = rs_enter();
    if (RS_UNLIKELY(!thread)) {
        if (task->collective)
            rs_nccl_next_sequence(comm);    /* the other ranks count it */
        return NULL;
    }
    rs_nccl_comm_identify(comm, task->comm);
    void *handle = start(thread, comm, task, now);
    rs_leave(thread, now);
    return handle;
}

static void enqueued(struct rs_thread *thread, struct operation *operation, uint64_t now)
{
    uint64_t took = now - operation->start_ticks;
    operation->enqueued = 1;
    rs_tally(thread, operation->key, took, operation->bytes, 0);
    rs_trace(thread, operation->key, operation->start_ticks, took, operation->bytes, 0);
    if (RS_UNLIKELY(phase_now() == RS_PHASE_FIRST_COLLECTIVE) && operation->collective)
        rs_set_phase(RS_PHASE_STEADY);
    if (RS_LIKELY(operation->kernel_told))
        return;
    rs_tally(thread, algo_key(operation), took, operation->bytes, 0);
    log_unfollowed(operation, now);
    RS_SET(operation->busy, 0);
}

static void channel_ended(struct operation *operation, uint64_t now)
{
    operation->came.ended++;
    operation->came.last_ticks = now;
    if (!operation->came.channels && operation->came.ended == operation->came.begun)
        log_ended(operation, now);
}

RS_NCCL_PATH void rs_nccl_stop(void *handle)
{
    uint64_t now = rs_ticks();
    uintptr_t what = (uintptr_t)handle & 3;
    struct rs_thread *thread = RS_LIKELY(rs.file && handle) ? rs_enter() : NULL;
    if (RS_UNLIKELY(!thread))
        return;
    struct operation *operation = hold(handle, what);
    if (RS_LIKELY(operation != NULL)) {
        if (RS_LIKELY(what == RS_NCCL_TASK && !operation->enqueued))
            enqueued(thread, operation, now);
        else if (what == RS_NCCL_CHANNEL)
            channel_ended(operation, now);
        if (RS_UNLIKELY(operation->busy && is_over(operation)))
            finish(thread, operation);
        rs_lock_give(&operation->lock);
    }
    rs_leave(thread, now);
}

/* The kernels of a communicator run one after the other: the one before is over, even where NCCL did not say how many
 * channels it would have. */
static void settle(void *before)
{
    struct rs_thread *thread = before ? rs_enter() : NULL;
    if (!thread)
        return;
    struct operation *operation = hold(before, RS_NCCL_TASK);
    if (operation) {
        if (looks_over(operation))
            finish(thread, operation);
        rs_lock_give(&operation->lock);
    }
    rs_leave(thread, rs_ticks());
}

void *rs_nccl_channel_start(void *task, uint64_t gpu_ns)
{
    void *before = NULL;
    struct operation *operation = rs.file ? hold(task, RS_NCCL_TASK) : NULL;
    if (!operation)
        return NULL;
    if (!operation->came.begun++) {
        operation->came.first_ticks = rs_ticks();
        before = __atomic_exchange_n(&operation->comm->running, task, __ATOMIC_RELAXED);
        log_begun(operation);
    }
    if (gpu_ns && (!operation->came.gpu_start_ns || gpu_ns < operation->came.gpu_start_ns))
        operation->came.gpu_start_ns = gpu_ns;
    void *handle = handle_of(operation, operation->generation, RS_NCCL_CHANNEL);
    rs_lock_give(&operation->lock);
    settle(before);
    return handle;
}

void rs_nccl_channel_gpu_end(void *channel, uint64_t gpu_ns)
{
    struct operation *operation = rs.file ? hold(channel, RS_NCCL_CHANNEL) : NULL;
    if (!operation)
        return;
    if (gpu_ns > operation->came.gpu_end_ns)
        operation->came.gpu_end_ns = gpu_ns;
    rs_lock_give(&operation->lock);
}

/* comm NULL: of all. */
void rs_nccl_flush(const struct rs_nccl_comm *comm)
{
    uint64_t used = atomic_load_explicit(&shared.next_slot, memory_order_relaxed);
    struct rs_thread *thread = used ? rs_enter() : NULL;
    for (uint32_t i = 0; thread && i < SLOTS && i < used; i++) {
        if (!rs_lock_take(&slots[i].lock))
            continue;
        if (looks_over(&slots[i]) && (!comm || slots[i].comm == comm))
            finish(thread, &slots[i]);
        rs_lock_give(&slots[i].lock);
    }
    if (thread)
        rs_leave(thread, rs_ticks());
}

void rs_nccl_forget(void)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint64_t generation = slots[i].generation;
        if (generation)
            slots[i] = (struct operation){.generation = generation};
    }
    rs_nccl_comms_forget();
    rs_nccl_neighbour_forget();
}
