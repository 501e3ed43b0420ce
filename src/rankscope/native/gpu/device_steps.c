/* Steps on the devices' clock: each step that the loop's thread has ended is shared out, for every device it used, among
 * compute, communication, copies and idle time, and the idle time among what that thread did meanwhile.
 *
 * The host runs ahead of the device, so a kernel belongs to the step in which it was launched. Correlation ids count
 * the calls of all threads: each step remembers the lowest one of its calls, and a kernel belongs to the last step
 * whose lowest id is not above its own. A step begins on the device where the last kernel of the step before ended.
 * Calls and activities come late and in any order: a step is settled some time after its end, when activities of a
 * later one are known, and once more, with those after it, where another activity of it comes later still (CUPTI keeps
 * a thread's records as long as one of them is under way). docs/reference/metrics.md has the definitions. */
#include "gpu_layer.h"
#include "steps.h"

#define STEPS 4096u                 /* ended ones that wait to be settled, or may have to be once more; a power of two */
#define USED_DEVICES 8u             /* of one process that are told apart by step */
#define MOMENTS (1u << 16)          /* what the thread did, back to the oldest step that waits; a power of two */
#define SYNCS (1u << 14)            /* calls that wait for the device; a power of two */
#define FIRST_WAITING (1u << 12)    /* activities that wait for their step to be known */
#define MOST_WAITING (1u << 19)
#define LONGEST_NS 10000000000u     /* without activities of a later step, one waits no longer than this */
#define STARTING_NS 3000u           /* a gap that is shorter is none that the host could have filled */
#define MOST_ROWS 16384u
#define LEAST_ROWS 64u
#define SHARE_OF_FILE 8u

struct work {                       /* of one step on one device */
    uint64_t last_kernel_ns, last_ns;
    uint64_t copy_bytes, pageable_bytes, kernel_ns;
    uint32_t kernels, copies;
    uint64_t begins_ns, ends_ns;    /* on the device, since it is settled; ends_ns 0: it is not */
    uint64_t row;                   /* where that was written, from 1 on; 0: nowhere */
    int has_changed;                /* since then */
};

struct step {
    uint64_t begin_ns, end_ns;      /* of the thread */
    uint32_t number, first_id;      /* first_id 0: no call is known */
    uint32_t sync_calls;
    uint64_t sync_ns;
    struct work of[USED_DEVICES];
};

struct state { uint64_t at_ns; uint8_t part, doing; };
struct span { uint64_t start_ns, end_ns; };
struct activity { uint64_t start_ns, end_ns, bytes, launched_ns; uint32_t correlation; uint8_t place, work, is_pageable; };

static struct step *steps;          /* [settled, ended): wait; ended: the one that goes on */
static uint64_t settled, ended;
static uint64_t first_kept;         /* of this time of recording */
static struct state *states;
static uint64_t states_end, host_next, lost_moments;
static struct span *syncs;
static uint64_t syncs_end;
static struct activity *waiting;
static uint32_t waiting_used, waiting_capacity;
static uint32_t devices[USED_DEVICES], devices_used;    /* by place */
static struct {                                         /* of each of them, by place */
    uint64_t begins_ns;                                 /* where its next step begins; 0: not known yet */
    uint64_t state, sync;                               /* the first ones that may matter to it */
    uint64_t once_more;                                 /* the first settled step that has changed, and 1; 0: none has */
} on[USED_DEVICES];
static uint64_t known_from_ns;                          /* of what lies before, something was overwritten unread */
static uint64_t given_last;                             /* the step of the activity before: the next is near it */
static uint64_t latest_step_seen;                       /* of which an activity is known */
static uint64_t opened_ns;                              /* recording began anew: nothing is known of steps before */
static int has_ids;                                     /* calls are told, and not only asked for */
static int has_launches;                                /* activities say themselves when they were launched */
static struct rs_chunk *rows;
static uint64_t rows_written;
static int refused;

void rs_device_steps_forget(void)
{
    rs_memory_free(steps, STEPS * sizeof *steps);
    rs_memory_free(states, MOMENTS * sizeof *states);
    rs_memory_free(syncs, SYNCS * sizeof *syncs);
    rs_memory_free(waiting, waiting_capacity * sizeof *waiting);
    steps = NULL;
    states = NULL;
    syncs = NULL;
    waiting = NULL;
    rows = NULL;
    settled = ended = states_end = host_next = lost_moments = syncs_end = latest_step_seen = rows_written = 0;
    known_from_ns = given_last = opened_ns = first_kept = 0;
    waiting_used = waiting_capacity = devices_used = 0;
    refused = has_ids = has_launches = 0;
    memset(on, 0, sizeof on);
}

static int has_steps(void) { return __atomic_load_n(&rs_step_open, __ATOMIC_RELAXED) != 0; }

static struct step *step_at(uint64_t index) { return &steps[index % STEPS]; }

/* --- what the loop's thread did --- */

static void end_step(const struct rs_moment *moment, uint64_t at_ns)
{
    struct step *before = ended > settled ? step_at(ended - 1) : NULL, *open = step_at(ended);
    if (before && before->number == moment->step) {     /* it went on: what came since then was part of it */
        if (!before->first_id)
            before->first_id = open->first_id;
        before->sync_calls += open->sync_calls;
        before->sync_ns += open->sync_ns;
        before->end_ns = at_ns;
        if (rs_gpu.step_seen)
            rs_gpu.step_seen(open->begin_ns, at_ns, 1);
    } else {
        open->end_ns = at_ns;
        open->number = moment->step;
        if (ended && rs_gpu.step_seen)
            rs_gpu.step_seen(open->begin_ns, at_ns, 0);
        ended++;
        if (ended - settled == STEPS) {                 /* thousands of steps a second: the oldest is given up */
            known_from_ns = step_at(settled)->end_ns;
            settled++;
        }
    }
    *step_at(ended) = (struct step){.begin_ns = at_ns};
}

static void take_moments(void)
{
    struct rs_moment moment;
    if (!steps)
        steps = rs_memory(STEPS * sizeof *steps);
    if (!states)
        states = rs_memory(MOMENTS * sizeof *states);
    if (!steps || !states || !rs_gpu_has_rate())
        return;
    for (uint64_t lost = lost_moments; rs_host_next(&host_next, &moment, &lost_moments); lost = lost_moments) {
        uint64_t at_ns = rs_gpu_ns_of(moment.ticks);
        if (lost != lost_moments)
            known_from_ns = at_ns;
        uint64_t last_ns = states_end ? states[(states_end - 1) % MOMENTS].at_ns : 0;
        if (at_ns < last_ns)
            at_ns = last_ns;
        if (!states_end)
            *step_at(ended) = (struct step){.begin_ns = at_ns};
        states[states_end++ % MOMENTS] = (struct state){at_ns, moment.part, moment.doing & ~RS_DOING_ENDED};
        if (moment.doing & RS_DOING_ENDED)
            end_step(&moment, at_ns);
    }
}

static enum rs_idle cause_of(uint64_t index)
{
    const struct state *state = &states[index % MOMENTS];
    if (state->doing & RS_DOING_GC)
        return RS_IDLE_GC;
    if (state->doing & RS_DOING_COMPILE)
        return RS_IDLE_COMPILE;
    if (state->doing & RS_DOING_BLOCKED || state->part == RS_PART_COMMUNICATION)
        return RS_IDLE_BLOCKED;
    if (state->part == RS_PART_DATA)
        return RS_IDLE_DATA;
    if (state->part == RS_PART_CHECKPOINT)
        return RS_IDLE_CHECKPOINT;
    if (state->part < RS_PARTS && state->part != RS_PART_OTHER)
        return RS_IDLE_LAUNCH;
    /* what comes before a backward is the forward that nobody told */
    for (index++; index < states_end && states[index % MOMENTS].part == RS_NO_PART; index++)
        continue;
    int is_forward = index < states_end && states[index % MOMENTS].part == RS_PART_BACKWARD;
    return is_forward ? RS_IDLE_LAUNCH : RS_IDLE_PYTHON;
}

/* --- what the device did in a step --- */

/* Whole nanoseconds until the end: thousands of short pieces would vanish in a float. */
struct sharing { uint64_t compute_ns, hidden_ns, exposed_ns, copy_ns, idle_ns[RS_IDLES], state, sync; };

/* The thread did one thing from one moment to the other, but for the calls in which it waited for a device. */
static void share_state(struct sharing *sharing, enum rs_idle cause, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t rest_ns = to_ns - from_ns;
    int may_wait = cause == RS_IDLE_LAUNCH || cause == RS_IDLE_PYTHON;
    while (sharing->sync < syncs_end && syncs[sharing->sync % SYNCS].end_ns <= from_ns)
        sharing->sync++;
    for (uint64_t i = sharing->sync; may_wait && i < syncs_end && syncs[i % SYNCS].start_ns < to_ns; i++) {
        const struct span *call = &syncs[i % SYNCS];
        uint64_t begin = call->start_ns > from_ns ? call->start_ns : from_ns;
        uint64_t end = call->end_ns < to_ns ? call->end_ns : to_ns;
        if (end <= begin)
            continue;
        uint64_t ns = end - begin < rest_ns ? end - begin : rest_ns;
        sharing->idle_ns[RS_IDLE_SYNC] += ns;
        rest_ns -= ns;
    }
    sharing->idle_ns[cause] += rest_ns;
}

static void share_idle(struct sharing *sharing, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t oldest = states_end > MOMENTS ? states_end - MOMENTS : 0;
    uint64_t oldest_sync = syncs_end > SYNCS ? syncs_end - SYNCS : 0;
    if (sharing->state < oldest)
        sharing->state = oldest;
    if (sharing->sync < oldest_sync)
        sharing->sync = oldest_sync;
    while (sharing->state + 1 < states_end && states[(sharing->state + 1) % MOMENTS].at_ns <= from_ns)
        sharing->state++;
    for (uint64_t at_ns = from_ns, i = sharing->state; at_ns < to_ns; i++) {
        uint64_t begins = i < states_end ? states[i % MOMENTS].at_ns : UINT64_MAX;
        if (i == sharing->state && begins > at_ns) {    /* before the first that is known */
            uint64_t until = begins < to_ns ? begins : to_ns;
            sharing->idle_ns[RS_IDLE_UNKNOWN] += until - at_ns;
            at_ns = until;
        }
        uint64_t until = i + 1 < states_end ? states[(i + 1) % MOMENTS].at_ns : UINT64_MAX;
        if (until > to_ns)
            until = to_ns;
        if (until > at_ns) {
            share_state(sharing, cause_of(i), at_ns, until);
            at_ns = until;
        }
    }
}

static void share(void *context, uint64_t from_ns, uint64_t to_ns, uint64_t doing)
{
    struct sharing *sharing = context;
    uint64_t ns = to_ns - from_ns;
    int computes = (doing >> RS_WORK_COMPUTE) & 1, communicates = (doing >> RS_WORK_COMMUNICATION) & 1;
    if (computes)
        sharing->compute_ns += ns;
    if (computes && communicates)
        sharing->hidden_ns += ns;
    if (!computes && communicates)
        sharing->exposed_ns += ns;
    if (doing == 1u << RS_WORK_COPY)
        sharing->copy_ns += ns;
    if (!doing && ns < STARTING_NS)
        sharing->idle_ns[RS_IDLE_DEVICE] += ns;
    else if (!doing)
        share_idle(sharing, from_ns, to_ns);
}

/* --- writing --- */

static struct rs_chunk *make_ring(void)
{
    uint64_t most = rs.file->bound_bytes / SHARE_OF_FILE / sizeof(struct rs_device_step), count = LEAST_ROWS;
    struct rs_chunk *chunk = NULL;
    while (2 * count <= most && 2 * count <= MOST_ROWS)
        count *= 2;
    for (; !chunk && count >= LEAST_ROWS; count /= 2) {
        uint64_t bytes = sizeof(struct rs_chunk) + count * sizeof(struct rs_device_step);
        chunk = rs_chunk_new(RS_CHUNK_DEVICE_STEPS, 0, sizeof(struct rs_device_step), bytes);
        if (chunk)
            __atomic_store_n(&chunk->rows, (uint32_t)count, __ATOMIC_RELEASE);
    }
    return chunk;
}

/* In its old place, where it is written once more and has not been overwritten. Returns the place. */
static uint64_t write_row(const struct rs_device_step *row, uint64_t old_place)
{
    if (!rows && !refused && !(rows = make_ring()))
        refused = 1;
    if (!rows || (old_place && rows_written - old_place >= rows->rows))
        return 0;
    uint64_t at = old_place ? old_place : ++rows_written;
    struct rs_device_step *place = (struct rs_device_step *)(rows + 1) + (at - 1) % rows->rows;
    uint32_t number = row->number;
    __atomic_store_n(&place->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy((char *)place + sizeof number, (const char *)row + sizeof number, sizeof *row - sizeof number);
    __atomic_store_n(&place->number, number, __ATOMIC_RELEASE);
    return at;
}

static uint64_t end_on_device(const struct step *step, const struct work *work, uint64_t begin_ns)
{
    uint64_t end_ns = work->last_kernel_ns ? work->last_kernel_ns : work->last_ns ? work->last_ns : step->end_ns;
    return end_ns < begin_ns ? begin_ns : end_ns;
}

static void write_step(uint32_t place, struct step *step, struct sharing *sharing)
{
    struct work *work = &step->of[place];
    uint64_t begin_ns = work->begins_ns, end_ns = work->ends_ns;
    struct rs_device_step row = {.number = step->number, .device = (uint16_t)devices[place], .begin_ns = begin_ns, .end_ns = end_ns};
    row.copy_bytes = work->copy_bytes;
    row.pageable_bytes = work->pageable_bytes;
    row.kernel_ns = (float)work->kernel_ns;
    row.kernels = work->kernels;
    row.copies = work->copies;
    row.sync_ns = (float)step->sync_ns;
    row.sync_calls = step->sync_calls;
    if (!rs_device_walk(devices[place], begin_ns, end_ns, share, sharing) || begin_ns <= known_from_ns)
        row.flags |= RS_DEVICE_STEP_CUT;
    if (!has_ids && !has_launches)
        row.flags |= RS_DEVICE_STEP_BY_TIME | (rs_gpu.has_no_waits ? RS_DEVICE_STEP_NO_WAITS : 0);
    row.compute_ns = (float)sharing->compute_ns;
    row.hidden_ns = (float)sharing->hidden_ns;
    row.exposed_ns = (float)sharing->exposed_ns;
    row.copy_ns = (float)sharing->copy_ns;
    for (uint32_t i = 0; i < RS_IDLES; i++)
        row.idle_ns[i] = (float)sharing->idle_ns[i];
    work->row = write_row(&row, work->row);
}

static void settle_on(uint32_t place, struct step *step)
{
    struct work *work = &step->of[place];
    struct sharing sharing = {.state = on[place].state, .sync = on[place].sync};
    int is_begin_known = on[place].begins_ns || !opened_ns;
    uint64_t begin_ns = on[place].begins_ns ? on[place].begins_ns : step->begin_ns;
    on[place].begins_ns = end_on_device(step, work, begin_ns);
    if (!is_begin_known)
        return;
    work->begins_ns = begin_ns;
    work->ends_ns = on[place].begins_ns;
    write_step(place, step, &sharing);
    if (rs_gpu.device_step_seen)
        rs_gpu.device_step_seen(work->ends_ns - begin_ns, sharing.idle_ns[RS_IDLE_LAUNCH] + sharing.idle_ns[RS_IDLE_PYTHON]);
    on[place].state = sharing.state;
    on[place].sync = sharing.sync;
}

/* What the thread did at that moment, which is before what was looked at last. */
static struct sharing sharing_from(uint32_t place, uint64_t from_ns)
{
    uint64_t state = on[place].state, sync = on[place].sync;
    uint64_t oldest = states_end > MOMENTS ? states_end - MOMENTS : 0, oldest_sync = syncs_end > SYNCS ? syncs_end - SYNCS : 0;
    while (state > oldest && states[state % MOMENTS].at_ns > from_ns)
        state--;
    while (sync > oldest_sync && syncs[(sync - 1) % SYNCS].end_ns > from_ns)
        sync--;
    return (struct sharing){.state = state, .sync = sync};
}

/* Settled steps of which something came later, and those after them that begin elsewhere now. */
static void settle_once_more(void)
{
    for (uint32_t place = 0; place < devices_used; place++) {
        uint64_t first = on[place].once_more, ends_ns = 0;
        on[place].once_more = 0;
        for (uint64_t i = first - 1; first && i < settled; i++) {
            struct step *step = step_at(i);
            struct work *work = &step->of[place];
            if (!work->ends_ns)
                continue;               /* its begin was not known */
            if (work->has_changed || (ends_ns && work->begins_ns != ends_ns)) {
                work->begins_ns = ends_ns ? ends_ns : work->begins_ns;
                work->ends_ns = end_on_device(step, work, work->begins_ns);
                work->has_changed = 0;
                struct sharing sharing = sharing_from(place, work->begins_ns);
                if (work->row)
                    write_step(place, step, &sharing);
            }
            ends_ns = work->ends_ns;
        }
        if (ends_ns)
            on[place].begins_ns = ends_ns;
    }
}

/* --- activities and calls --- */

static int has_lower_id(uint64_t index, uint32_t correlation)
{
    uint32_t first_id = step_at(index)->first_id;
    return first_id && (int32_t)(correlation - first_id) >= 0;
}

static uint64_t oldest_kept(void)
{
    uint64_t in_ring = ended >= STEPS ? ended - STEPS + 1 : 0;
    return in_ring > first_kept ? in_ring : first_kept;
}

/* The step in which a call with this id was made: the last one that has a lower one. Looked for from the last on. */
static uint64_t step_of_id(uint32_t correlation)
{
    uint64_t oldest = oldest_kept(), i = given_last < oldest ? oldest : given_last > ended ? ended : given_last;
    for (uint64_t next = i + 1; next <= ended; next++) {
        if (has_lower_id(next, correlation))
            i = next;
        else if (step_at(next)->first_id)
            break;
    }
    while (i > oldest && !has_lower_id(i, correlation))
        i--;
    return given_last = i;
}

/* The first that ended after that moment. */
static uint64_t step_at_ns(uint64_t at_ns)
{
    uint64_t from = oldest_kept(), to = ended;
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if (step_at(middle)->end_ns <= at_ns)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static int place_of(uint32_t device)
{
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i] == device)
            return (int)i;
    if (devices_used == USED_DEVICES)
        return -1;
    devices[devices_used] = device;
    return (int)devices_used++;
}

static void note_once_more(uint64_t index, uint32_t place)
{
    if (index >= settled)
        return;
    step_at(index)->of[place].has_changed = 1;
    if (!on[place].once_more || index + 1 < on[place].once_more)
        on[place].once_more = index + 1;
}

static void give(const struct activity *one)
{
    uint64_t index = one->launched_ns              ? step_at_ns(one->launched_ns)
                     : has_ids && one->correlation ? step_of_id(one->correlation)
                                                   : step_at_ns(one->start_ns);
    struct work *work = &step_at(index)->of[one->place];
    has_launches |= one->launched_ns != 0;
    note_once_more(index, one->place);
    if (index > latest_step_seen)
        latest_step_seen = index;
    if (one->end_ns > work->last_ns)
        work->last_ns = one->end_ns;
    if (one->work == RS_WORK_COPY) {
        work->copies++;
        work->copy_bytes += one->bytes;
        work->pageable_bytes += one->is_pageable ? one->bytes : 0;
        return;
    }
    if (one->end_ns > work->last_kernel_ns)
        work->last_kernel_ns = one->end_ns;
    work->kernels++;
    work->kernel_ns += one->end_ns - one->start_ns;
}

static void give_before(uint64_t before_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < waiting_used; i++) {
        if (waiting[i].end_ns < before_ns)
            give(&waiting[i]);
        else
            waiting[kept++] = waiting[i];
    }
    waiting_used = kept;
}

static int make_room(void)
{
    if (waiting_used < waiting_capacity)
        return 1;
    uint32_t capacity = waiting_capacity ? 2 * waiting_capacity : FIRST_WAITING;
    struct activity *more = capacity <= MOST_WAITING ? rs_memory(capacity * sizeof *more) : NULL;
    if (!more) {
        if (steps && waiting_used)
            give_before(UINT64_MAX);        /* too early for some: better than not at all */
        return waiting_used < waiting_capacity;
    }
    if (waiting_used)
        memcpy(more, waiting, waiting_used * sizeof *more);
    rs_memory_free(waiting, waiting_capacity * sizeof *waiting);
    waiting = more;
    waiting_capacity = capacity;
    return 1;
}

void rs_device_steps_activity(const struct rs_gpu_work *one, enum rs_work work)
{
    int place;
    if (!has_steps() || (place = place_of(one->device)) < 0 || !make_room())
        return;
    uint64_t bytes = one->kind == RS_GPU_COPY ? one->bytes : 0;
    waiting[waiting_used++] = (struct activity){one->start_ns, one->end_ns, bytes, one->launched_ns, one->correlation,
                                                (uint8_t)place, (uint8_t)work, one->is_pageable};
}

/* A call of the driver inside one of the runtime is the same wait. */
static void add_sync(struct span call, uint64_t index)
{
    struct step *step = step_at(index);
    struct span *last;
    for (uint32_t place = 0; place < devices_used; place++)
        note_once_more(index, place);
    if (!syncs)
        syncs = rs_memory(SYNCS * sizeof *syncs);
    if (!syncs)
        return;
    last = syncs_end ? &syncs[(syncs_end - 1) % SYNCS] : NULL;
    if (last && call.start_ns >= last->start_ns && call.end_ns <= last->end_ns)
        return;
    if (last && last->start_ns >= call.start_ns && last->end_ns <= call.end_ns) {
        step->sync_ns += (call.end_ns - call.start_ns) - (last->end_ns - last->start_ns);
        *last = call;
        return;
    }
    syncs[syncs_end++ % SYNCS] = call;
    step->sync_calls++;
    step->sync_ns += call.end_ns - call.start_ns;
}

void rs_device_steps_call(const struct rs_gpu_call *call)
{
    if (!has_steps())
        return;
    take_moments();
    if (!steps || !states_end)
        return;
    uint64_t index = step_at_ns(call->start_ns);
    struct step *step = step_at(index);
    uint32_t id = call->correlation;
    if (id && (!step->first_id || (int32_t)(id - step->first_id) < 0))
        step->first_id = id;
    has_ids |= id != 0;
    if (call->waits && call->tid == rs_loop_tid())
        add_sync((struct span){call->start_ns, call->end_ns}, index);
}

void rs_gpu_add_wait(uint64_t start_ns, uint64_t end_ns)
{
    if (!has_steps() || !start_ns || end_ns <= start_ns)
        return;
    take_moments();
    if (steps && states_end)
        add_sync((struct span){start_ns, end_ns}, step_at_ns(start_ns));
}

/* --- settling --- */

static void settle_step(struct step *step)
{
    if (step->begin_ns < opened_ns)
        return;
    for (uint32_t place = 0; place < devices_used; place++)
        settle_on(place, step);
}

void rs_device_steps_settle(uint64_t now_ns, int is_last)
{
    if (!has_steps() || !now_ns)
        return;
    take_moments();
    if (!steps || !states_end)
        return;
    uint64_t patience_ns = rs_gpu_patience_ns();
    give_before(is_last ? UINT64_MAX : now_ns > patience_ns ? now_ns - patience_ns : 0);
    settle_once_more();
    for (; settled < ended; settled++) {
        struct step *step = step_at(settled);
        int is_over = settled + 1 < ended && now_ns - step->end_ns >= patience_ns;
        int is_known = latest_step_seen > settled || now_ns - step->end_ns >= LONGEST_NS;
        if (!is_last && !(is_over && is_known))
            return;
        settle_step(step);
    }
}

/* --- times of recording --- */

/* What the thread did until now becomes known. */
void rs_device_steps_take(void)
{
    if (has_steps())
        take_moments();
}

/* Recording begins anew. The step that goes on is not whole, and the one after it does not know its begin. */
void rs_device_steps_open(uint64_t now_ns)
{
    if (steps)
        step_at(ended)->first_id = 0;
    settled = given_last = latest_step_seen = first_kept = ended;
    waiting_used = 0;
    has_ids = has_launches = 0;
    opened_ns = known_from_ns = now_ns;
    for (uint32_t place = 0; place < devices_used; place++)
        on[place].begins_ns = on[place].once_more = 0;
}

/* Recording ends here: told are the steps after which the device has come to the next but one. */
void rs_device_steps_close(void)
{
    if (!has_steps() || !steps || !states_end)
        return;
    give_before(UINT64_MAX);
    settle_once_more();
    for (; settled < ended; settled++)
        if (settled + 1 < latest_step_seen)
            settle_step(step_at(settled));
}
