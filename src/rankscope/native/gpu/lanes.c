/* Which ranges each thread had open at which time, so that a call made then can be given to them. Records come in
 * any order: starts and ends of ranges wait, sorted, and calls wait, until what may still come is younger than they
 * are (or until there is no more room to wait). docs/reference/metrics.md says what comes too late for that. */
#include "gpu_layer.h"

#define LANES 64u
#define EVENTS 8192u                /* starts and ends that wait */
#define CHANGES 16384u              /* how far back it is known what was open; a power of two */
#define CALLS 16384u                /* calls that wait; a power of two */
#define DEPTH 64u
#define LAST_NS (UINT64_MAX / 2)    /* no clock says more */

struct event { uint64_t at_ns; uint32_t id; uint16_t name, domain; uint8_t is_end; };
struct open { uint64_t start_ns; uint32_t id; uint16_t name, domain, node, first_node; };
struct change { uint64_t at_ns; uint16_t node; };
struct call { uint64_t start_ns, ns; uint32_t correlation; uint16_t name; uint8_t failed; };

struct lane {
    uint32_t tid;
    uint8_t number;
    struct rs_thread *thread;
    uint64_t settled_ns;            /* what was open is known up to here */
    uint32_t waiting, depth;
    uint64_t changes, cursor, first_call, calls_end;    /* of rings: they count on */
    struct open stack[DEPTH];
    struct event events[EVENTS];    /* a heap, the earliest first */
    struct change log[CHANGES];
    struct call calls[CALLS];
};

static struct lane *lanes[LANES];
static uint32_t lanes_used;

void rs_lanes_forget(void)
{
    for (uint32_t i = 0; i < lanes_used; i++) {
        rs_memory_free(lanes[i], sizeof *lanes[i]);
        lanes[i] = NULL;
    }
    lanes_used = 0;
}

static struct lane *lane_of(uint32_t tid)
{
    static uint32_t last;
    if (last < lanes_used && lanes[last]->tid == tid)
        return lanes[last];
    for (last = 0; last < lanes_used; last++)
        if (lanes[last]->tid == tid)
            return lanes[last];
    struct lane *lane = lanes_used < LANES ? rs_memory(sizeof *lane) : NULL;
    if (!lane)
        return NULL;
    lane->tid = tid;
    lane->number = (uint8_t)lanes_used;
    lanes[lanes_used++] = lane;
    return lane;
}

/* Only a thread with something in a range needs rows. */
static struct rs_thread *thread_of(struct lane *lane)
{
    if (!lane->thread)
        lane->thread = rs_gpu_thread(lane->tid);
    return lane->thread;
}

struct rs_thread *rs_lane_thread(uint8_t number) { return thread_of(lanes[number]); }

/* --- what is open --- */

/* Of equal times: in the order of the ranges, and each starts before it ends. */
static int is_before(const struct event *one, const struct event *other)
{
    if (one->at_ns != other->at_ns)
        return one->at_ns < other->at_ns;
    return one->id != other->id ? one->id < other->id : one->is_end < other->is_end;
}

static void note_change(struct lane *lane, uint64_t at_ns)
{
    if (lane->changes && at_ns < lane->log[(lane->changes - 1) % CHANGES].at_ns)
        at_ns = lane->log[(lane->changes - 1) % CHANGES].at_ns;
    uint16_t node = lane->depth ? lane->stack[lane->depth - 1].node : 0;
    lane->log[lane->changes++ % CHANGES] = (struct change){at_ns, node};
}

static void open_range(struct lane *lane, const struct event *event)
{
    if (lane->depth == DEPTH) {
        rs_gpu.row->folded_nodes++;
        return;
    }
    uint16_t around = lane->depth ? lane->stack[lane->depth - 1].node : 0;
    uint16_t node = rs_range_node(around, event->domain, event->name);
    lane->stack[lane->depth++] = (struct open){event->at_ns, event->id, event->name, event->domain, node, node};
    note_change(lane, event->at_ns);
}

/* Ranges of several domains, and those of nvtxRangeStart, may overlap: what began inside the one that ends goes on
 * without it. */
static void end_range(struct lane *lane, const struct event *event)
{
    uint32_t at = lane->depth;
    while (at && lane->stack[at - 1].id != event->id)
        at--;
    if (!at--)
        return;
    struct open ended = lane->stack[at];
    lane->depth--;
    for (uint32_t i = at; i < lane->depth; i++) {
        struct open *next = &lane->stack[i];
        *next = lane->stack[i + 1];
        next->node = rs_range_node(i ? lane->stack[i - 1].node : 0, next->domain, next->name);
    }
    uint64_t ns = event->at_ns > ended.start_ns ? event->at_ns - ended.start_ns : 0;
    rs_range_tally(thread_of(lane), RS_LAYER_IN_RANGE_NVTX, ended.name, ended.first_node, 0, ns, 0, 0);
    note_change(lane, event->at_ns);
}

static struct event take_earliest(struct lane *lane)
{
    struct event earliest = lane->events[0], one = lane->events[--lane->waiting];
    uint32_t at = 0, child;
    while ((child = 2 * at + 1) < lane->waiting) {
        if (child + 1 < lane->waiting && is_before(&lane->events[child + 1], &lane->events[child]))
            child++;
        if (!is_before(&lane->events[child], &one))
            break;
        lane->events[at] = lane->events[child];
        at = child;
    }
    lane->events[at] = one;
    return earliest;
}

/* The node that was open then; 0: none, or nobody knows any more. */
static uint16_t node_at(struct lane *lane, uint64_t at_ns)
{
    uint64_t oldest = lane->changes > CHANGES ? lane->changes - CHANGES : 0, from = oldest, to = lane->changes;
    if (lane->cursor >= from && lane->cursor < to && lane->log[lane->cursor % CHANGES].at_ns <= at_ns) {
        from = lane->cursor;
        if (from + 1 == to || lane->log[(from + 1) % CHANGES].at_ns > at_ns)
            return lane->log[from % CHANGES].node;
    }
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if (lane->log[middle % CHANGES].at_ns <= at_ns)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == oldest) {
        rs_gpu.row->unplaced_calls += oldest > 0;
        return 0;
    }
    lane->cursor = from - 1;
    return lane->log[lane->cursor % CHANGES].node;
}

/* --- settling --- */

static void place_call(struct lane *lane, const struct call *call)
{
    uint16_t node = node_at(lane, call->start_ns);
    if (node)
        rs_range_tally(thread_of(lane), RS_LAYER_IN_RANGE_API, call->name, node, 0, call->ns, 0, call->failed);
    rs_range_known(call->correlation, lane->number, node);
}

static void settle(struct lane *lane, uint64_t before_ns)
{
    while (lane->waiting && lane->events[0].at_ns < before_ns) {
        struct event event = take_earliest(lane);
        if (event.is_end)
            end_range(lane, &event);
        else
            open_range(lane, &event);
    }
    if (before_ns > lane->settled_ns)
        lane->settled_ns = before_ns;
    while (lane->first_call < lane->calls_end && lane->calls[lane->first_call % CALLS].start_ns < before_ns)
        place_call(lane, &lane->calls[lane->first_call++ % CALLS]);
}

void rs_lanes_settle(uint64_t before_ns)
{
    for (uint32_t i = 0; i < lanes_used; i++)
        settle(lanes[i], before_ns);
}

/* Makes room: the older half of the calls that wait, though what was open then may not all be known yet. */
static void settle_half(struct lane *lane)
{
    uint64_t half = lane->first_call + CALLS / 2;
    while (lane->first_call < half)
        settle(lane, lane->calls[lane->first_call % CALLS].start_ns + 1);
}

/* All calls of the lane that are known, because somebody cannot wait longer. */
void rs_lane_hurry(uint8_t number)
{
    struct lane *lane = lanes[number];
    while (lane->first_call < lane->calls_end)
        settle(lane, lane->calls[lane->first_call % CALLS].start_ns + 1);
}

/* --- what comes --- */

static void wait(struct lane *lane, struct event event)
{
    if (event.at_ns > LAST_NS)
        return;
    if (event.at_ns < lane->settled_ns)
        rs_gpu.row->late_markers++;
    while (lane->waiting >= EVENTS)
        settle(lane, lane->events[0].at_ns + 1);
    uint32_t at = lane->waiting++;
    for (; at && is_before(&event, &lane->events[(at - 1) / 2]); at = (at - 1) / 2)
        lane->events[at] = lane->events[(at - 1) / 2];
    lane->events[at] = event;
}

void rs_lane_start(uint32_t tid, uint32_t id, uint64_t at_ns, uint16_t name, uint16_t domain)
{
    struct lane *lane = lane_of(tid);
    if (lane)
        wait(lane, (struct event){at_ns, id, name, domain, 0});
}

void rs_lane_end(uint32_t tid, uint32_t id, uint64_t at_ns)
{
    struct lane *lane = lane_of(tid);
    if (lane)
        wait(lane, (struct event){at_ns, id, 0, 0, 1});
}

/* The number of the lane in which the call waits, or -1. */
int rs_lane_call(const struct rs_gpu_call *call)
{
    struct lane *lane = lane_of(call->tid);
    if (!lane || call->start_ns > LAST_NS) {
        rs_gpu.row->unplaced_calls++;
        return -1;
    }
    if (lane->calls_end - lane->first_call == CALLS)
        settle_half(lane);
    lane->calls[lane->calls_end++ % CALLS] = (struct call){
        call->start_ns, call->end_ns - call->start_ns, call->correlation, call->name, (uint8_t)(call->failed != 0)};
    return lane->number;
}
