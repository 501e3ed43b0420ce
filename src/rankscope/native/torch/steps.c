/* Steps: the time of the thread that runs the training loop, shared out among parts, from one optimizer step to the
 * next. docs/reference/steps.md has the rules. */
#include "steps.h"

#define MOST_NESTED 32
#define MOST_OPTIMIZERS 256

uint8_t rs_step_open;

/* All but `told` and `optimizer` belong to the owner, the thread that came first. */
static struct {
    const struct rs_thread *owner;
    struct rs_sample sums;              /* up to date until sums.ticks */
    uint64_t gap_ticks, gap_blocked_ticks;      /* outside every part, not yet known to be forward or other */
    uint64_t told_blocked_ticks;        /* blocked since exposure is watched, as whoever waited has told */
    uint8_t nested[MOST_NESTED];
    uint32_t depth, beyond;             /* beyond: entered deeper than there is room for */
    uint32_t optimizers_open, backwards_open;
    uint64_t closure_ticks, closure_blocked_ticks;      /* the optimizer's so far that are forward if backward follows */

    uint64_t number;                    /* of the step written last */
    struct rs_sample begin, end;        /* of that step */
    uint32_t flags, written_flags;      /* of the step that goes on, of the one written last */
    uint64_t stepped[MOST_OPTIMIZERS];  /* optimizers of the step written last */
    uint32_t stepped_count;
    uint64_t optimizer;                 /* that steps now; 0: not told */
    uint8_t told;                       /* the program tells the ends itself */
    uint8_t doing;                      /* enum rs_doing, for the log */
    uint32_t compiling;
} loop;

static uint64_t gc_begin_ticks;

/* Whether steps end with an optimizer's; the child of a fork has those that its parent made. */
static _Atomic(enum rs_may_step) optimizers;

void rs_steps_forget(void)
{
    memset(&loop, 0, sizeof loop);
    rs_step_open = 0;
    gc_begin_ticks = 0;
    rs_host_log_forget();
    rs_step_ring_forget();
    rs_progress_forget();
    rs_flops_forget();
    rs_allocator_forget();
}

static int is_owner(void) { return rs_self && loop.owner == rs_self; }

uint32_t rs_loop_tid(void)
{
    const struct rs_thread *owner = __atomic_load_n(&loop.owner, __ATOMIC_ACQUIRE);
    return owner ? owner->row->tid : 0;
}

uint64_t rs_step_number(void) { return loop.number + 1; }

/* From now on the thread does what it says now; `as_well`: of this moment only. */
static void note(uint64_t now, uint8_t as_well)
{
    if (!rs.gpu)
        return;
    uint8_t part = loop.depth ? loop.nested[loop.depth - 1] : RS_NO_PART;
    rs_host_note(&(struct rs_moment){now, (uint32_t)loop.number, part, loop.doing | as_well});
}

static int in_optimizer(void) { return loop.depth && loop.nested[loop.depth - 1] == RS_PART_OPTIMIZER; }

static void advance(uint64_t now)
{
    uint64_t since = now > loop.sums.ticks ? now - loop.sums.ticks : 0;
    if (loop.depth)
        loop.sums.part_ticks[loop.nested[loop.depth - 1]] += since;
    else
        loop.gap_ticks += since;
    if (in_optimizer())
        loop.closure_ticks += since;
    loop.sums.ticks += since;
}

static void settle_gap(uint8_t part)
{
    loop.sums.part_ticks[part] += loop.gap_ticks;
    loop.sums.blocked_ticks[part] += loop.gap_blocked_ticks;
    loop.gap_ticks = loop.gap_blocked_ticks = 0;
}

/* An optimizer that is given a closure (Lightning's always are) runs forward and backward within its step. */
static void settle_closure(void)
{
    if (in_optimizer()) {
        loop.sums.part_ticks[RS_PART_OPTIMIZER] -= loop.closure_ticks;
        loop.sums.part_ticks[RS_PART_FORWARD] += loop.closure_ticks;
        loop.sums.blocked_ticks[RS_PART_OPTIMIZER] -= loop.closure_blocked_ticks;
        loop.sums.blocked_ticks[RS_PART_FORWARD] += loop.closure_blocked_ticks;
    }
    loop.closure_ticks = loop.closure_blocked_ticks = 0;
}

/* What the thread did from here on belongs to another part. Waits in C++ (buckets and buffers of DDP, functional
 * collectives) are seen by nobody: of what the thread stood still, all that was not told is added to the part. */
static void end_exposure(uint64_t now)
{
    uint64_t untold = rs_exposure_end(now, loop.told_blocked_ticks);
    loop.told_blocked_ticks = 0;
    if (in_optimizer())
        loop.closure_blocked_ticks += untold;
    if (loop.depth)
        loop.sums.blocked_ticks[loop.nested[loop.depth - 1]] += untold;
    else
        loop.gap_blocked_ticks += untold;
}

/* Who waits for data or writes a checkpoint does not wait for a collective that happens to be in progress. */
static void begin_exposure(void)
{
    uint8_t part = loop.depth ? loop.nested[loop.depth - 1] : RS_NO_PART;
    if (part != RS_PART_DATA && part != RS_PART_CHECKPOINT)
        rs_exposure_begin();
}

/* What only other threads know, and may know of a later moment already: of that time the rest is the next step's. */
static void complete(struct rs_sample *sums)
{
    struct rs_in_progress now = rs_progress_now(sums->ticks);
    uint64_t most_covered = loop.end.covered_ticks + (sums->ticks - loop.end.ticks);
    sums->progress_ticks = now.progress_ticks;
    sums->covered_ticks = now.covered_ticks < most_covered ? now.covered_ticks : most_covered;
    sums->collectives = now.collectives;
    sums->collective_bytes = now.bytes;
}

static int open_first(uint64_t now)
{
    if (!rs_telling() || loop.owner)
        return is_owner();
    struct rs_thread *thread = rs_self ? rs_self : rs_thread_start();
    const struct rs_thread *nobody = NULL;
    if (!thread || !__atomic_compare_exchange_n(&loop.owner, &nobody, thread, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return 0;
    loop.sums.ticks = now;
    complete(&loop.sums);
    rs_ask_system(now, 1);
    loop.end = loop.sums;
    rs_mark_at(RS_MARK_FIRST_STEP_BEGIN, "", now);
    if (rs.phase != RS_PHASE_FIRST_COLLECTIVE)  /* that is still to come, and has a phase of its own */
        rs_set_phase(RS_PHASE_FIRST_STEP);
    __atomic_store_n(&rs_step_open, 1, __ATOMIC_RELAXED);
    return 1;
}

/* One that was not told may have been this one. */
static int stepped_already(uint64_t optimizer)
{
    for (uint32_t i = 0; i < loop.stepped_count; i++)
        if (loop.stepped[i] == optimizer || !loop.stepped[i])
            return 1;
    return loop.stepped_count == MOST_OPTIMIZERS;
}

static uint32_t flags_of(void)
{
    uint32_t flags = loop.written_flags | (loop.number <= RS_WARMUP_STEPS ? RS_STEP_WARMUP : 0) | (loop.told ? RS_STEP_TOLD : 0);
    uint64_t backwards = loop.end.backwards - loop.begin.backwards;
    uint64_t optimizer_steps = loop.end.optimizer_steps - loop.begin.optimizer_steps;
    return flags | (optimizer_steps && backwards > optimizer_steps ? RS_STEP_ACCUMULATED : 0);
}

/* `more`: the step written last goes on, for another of its optimizers has stepped. */
static void end_step(int more)
{
    complete(&loop.sums);
    rs_ask_system(loop.sums.ticks, 0);
    if (!more) {
        loop.begin = loop.end;
        loop.number++;
        loop.stepped_count = 0;
        loop.written_flags = 0;
    }
    loop.end = loop.sums;
    loop.written_flags |= loop.flags;
    loop.flags = 0;
    rs_step_write(loop.number, flags_of(), &loop.begin, &loop.end);
    note(loop.end.ticks, RS_DOING_ENDED);
    rs_cuda_step_ended();
    rs_flops_step(loop.number, more);
    if (loop.number == 1 && !more) {
        rs_mark_at(RS_MARK_FIRST_STEP_END, "", loop.end.ticks);
        __atomic_store_n(&rs_step_open, 2, __ATOMIC_RELAXED);
        /* a whole step without a collective: the ranks send messages to each other, or are alone */
        if (rs.phase == RS_PHASE_FIRST_STEP || rs.phase == RS_PHASE_FIRST_COLLECTIVE)
            rs_set_phase(RS_PHASE_STEADY);
    }
}

static void optimizer_ended(void)
{
    uint64_t optimizer = loop.optimizer;
    loop.optimizer = 0;
    atomic_store_explicit(&optimizers, RS_STEPS_TRAINING, memory_order_relaxed);
    loop.sums.optimizer_steps++;
    if (loop.told)
        return;
    end_step(optimizer && loop.number && loop.stepped_count && !stepped_already(optimizer));
    if (loop.stepped_count < MOST_OPTIMIZERS)
        loop.stepped[loop.stepped_count++] = optimizer;
}

/* Without an optimizer, a run of backward is all that tells one step from the next. */
static void backward_ended(void)
{
    if (loop.told || rs_steps_may_come() != RS_STEPS_PERHAPS || loop.depth)
        return;
    loop.flags |= RS_STEP_BY_BACKWARD;
    end_step(0);
}

void rs_part_enter(uint8_t part, uint64_t now)
{
    if (part >= RS_PARTS || !open_first(now))
        return;
    if (loop.depth == MOST_NESTED) {
        loop.beyond++;
        return;
    }
    advance(now);
    end_exposure(now);
    if (!loop.depth)
        settle_gap(part == RS_PART_BACKWARD ? RS_PART_FORWARD : RS_PART_OTHER);
    if (part == RS_PART_BACKWARD)
        settle_closure();
    loop.nested[loop.depth++] = part;
    begin_exposure();
    loop.optimizers_open += part == RS_PART_OPTIMIZER;
    if (part == RS_PART_OPTIMIZER && loop.optimizers_open == 1)
        loop.closure_ticks = loop.closure_blocked_ticks = 0;
    if (part == RS_PART_BACKWARD && !loop.backwards_open++)
        loop.sums.backwards++;
    note(now, 0);
}

/* Ranges may end in another order than they began. */
static int take_out(uint8_t part)
{
    uint32_t at = loop.depth;
    while (at && loop.nested[at - 1] != part)
        at--;
    if (!at)
        return 0;
    memmove(&loop.nested[at - 1], &loop.nested[at], loop.depth - at);
    loop.depth--;
    return 1;
}

void rs_part_leave(uint8_t part, uint64_t now)
{
    if (part >= RS_PARTS || !is_owner())
        return;
    if (loop.beyond) {
        loop.beyond--;
        return;
    }
    advance(now);
    end_exposure(now);
    int taken = take_out(part);
    begin_exposure();
    if (!taken)
        return;
    loop.backwards_open -= part == RS_PART_BACKWARD;
    if (part == RS_PART_BACKWARD)
        loop.closure_ticks = loop.closure_blocked_ticks = 0;
    note(now, 0);
    if (part == RS_PART_BACKWARD && !loop.backwards_open)
        backward_ended();
    if (part == RS_PART_OPTIMIZER && !--loop.optimizers_open)
        optimizer_ended();
}

/* Inside a part it is blocked time of that part; outside, a part of its own. */
void rs_step_blocked(uint64_t begin, uint64_t end)
{
    if (!is_owner())
        return;
    note(begin, RS_DOING_BLOCKED);
    note(end, 0);
    loop.told_blocked_ticks += end - begin;
    if (!loop.depth) {
        advance(begin);
        loop.sums.part_ticks[RS_PART_COMMUNICATION] += end > loop.sums.ticks ? end - loop.sums.ticks : 0;
        loop.sums.blocked_ticks[RS_PART_COMMUNICATION] += end > loop.sums.ticks ? end - loop.sums.ticks : 0;
        loop.sums.ticks = end > loop.sums.ticks ? end : loop.sums.ticks;
    } else {
        loop.sums.blocked_ticks[loop.nested[loop.depth - 1]] += end - begin;
        loop.closure_blocked_ticks += in_optimizer() ? end - begin : 0;
    }
}

/* A step ends here, in whatever part. */
static void settle(uint64_t now)
{
    advance(now);
    end_exposure(now);
    begin_exposure();
    loop.closure_ticks = loop.closure_blocked_ticks = 0;
    if (!loop.depth)
        settle_gap(RS_PART_OTHER);
}

/* A compiled program that is a whole step is started. */
void rs_step_program_begins(uint64_t now)
{
    if (rs_telling())
        rs_part_enter(RS_PART_COMPUTE, now);
}

/* The step ends here, for the program may run on while the next is prepared. */
void rs_step_program_ended(uint64_t now)
{
    rs_part_leave(RS_PART_COMPUTE, now);
    if (!is_owner() || loop.told || loop.sums.optimizer_steps)
        return;
    settle(now);
    end_step(0);
}

/* --- for Python and for the program itself --- */

/* Which optimizer steps now: two of the same class have the same name. */
RS_EXPORT void rankscope_optimizer(uint64_t identity)
{
    if (is_owner() && loop.optimizers_open)
        loop.optimizer = identity;
}

/* made 0: who calls this will tell of every optimizer that is made; 1: one was. */
RS_EXPORT void rankscope_optimizers(int made)
{
    enum rs_may_step none = RS_STEPS_NONE;
    if (made)
        atomic_store_explicit(&optimizers, RS_STEPS_TRAINING, memory_order_relaxed);
    else
        atomic_compare_exchange_strong(&optimizers, &none, RS_STEPS_PERHAPS);
}

enum rs_may_step rs_steps_may_come(void) { return atomic_load_explicit(&optimizers, memory_order_relaxed); }

/* A gradient scaler, or an engine in its own step, has left out a step: what would have been one ends here, or with the
 * engine's. */
RS_EXPORT void rankscope_optimizer_skipped(uint64_t identity)
{
    if (!is_owner())
        return;
    loop.flags |= RS_STEP_SKIPPED;
    loop.optimizer = identity;
    if (loop.optimizers_open)
        return;
    settle(rs_ticks());
    optimizer_ended();
}

/* Where the first step began if nothing else has told it. */
static uint64_t earliest(void)
{
    return rs.file->mpi_started_ticks ? rs.file->mpi_started_ticks : rs.file->loaded.ticks;
}

/* The program says that a step ends here; from the first time on only it says so. */
RS_EXPORT void rankscope_step(void)
{
    uint64_t now = rs_ticks();
    if (!rs_telling() || !open_first(loop.owner ? now : earliest()))
        return;
    loop.told = 1;
    settle(now);
    end_step(0);
}

/* A program that is recorded in parts, as cells of a notebook: what lies between them belongs to no step. */
RS_EXPORT void rankscope_pause(int paused)
{
    if (!rs.file)
        return;
    atomic_store(&rs.enabled, !paused);
    if (paused || !is_owner())
        return;
    loop.gap_ticks = loop.gap_blocked_ticks = loop.told_blocked_ticks = 0;
    loop.sums.ticks = rs_ticks();
    complete(&loop.sums);
    rs_ask_system(loop.sums.ticks, 1);
    loop.end = loop.sums;
}

RS_EXPORT void rankscope_gc(int begins)
{
    uint64_t now = rs_ticks();
    if (!is_owner())
        return;
    loop.doing = (uint8_t)(begins ? loop.doing | RS_DOING_GC : loop.doing & ~RS_DOING_GC);
    note(now, 0);
    if (begins) {
        gc_begin_ticks = now;
    } else if (gc_begin_ticks) {
        loop.sums.gc_ticks += now - gc_begin_ticks;
        loop.sums.gc_runs++;
        gc_begin_ticks = 0;
    }
}

/* torch compiles a model, or a part of it, in this thread. */
RS_EXPORT void rankscope_compiling(int begins)
{
    rs_flops_compiling();
    if (!is_owner() || (!begins && !loop.compiling))
        return;
    loop.compiling += begins ? 1 : -1u;
    loop.doing = (uint8_t)(loop.compiling ? loop.doing | RS_DOING_COMPILE : loop.doing & ~RS_DOING_COMPILE);
    note(rs_ticks(), 0);
}

RS_EXPORT uint64_t rankscope_ticks(void) { return rs_recording() ? rs_ticks() : 0; }

/* This thread issues a collective. It has not waited for those in progress, then: whoever issues several (the reducer of
 * DistributedDataParallel, a broadcast of buffers) waits after the last, and all other waits are told. */
RS_EXPORT void rankscope_collective_issued(void)
{
    if (!is_owner())
        return;
    loop.told_blocked_ticks = 0;
    rs_exposure_anew(rs_ticks());
}

/* A wait for a collective that began at `begin` (rankscope_ticks) and ends now. */
RS_EXPORT void rankscope_blocked(uint64_t begin)
{
    if (begin && rs_step_open)
        rs_step_blocked(begin, rs_ticks());
}
