/* Work given to the ranges in which it was launched: an activity has the correlation id of the call that
 * launched it, and the call has a thread and a start. Until its call is placed in a range, an activity waits. */
#include "gpu_layer.h"

#define KNOWN (1u << 18)            /* calls of which the range is remembered, by correlation id */
#define WAITING (1u << 15)          /* activities that wait; a power of two */
#define EARLY 1024u                 /* activities kept while there is no range: the news of the first may come after them */
#define MOST_ROWS 16384u            /* 1 MiB of the file */
#define PATIENCE 7u                 /* flushes after which nobody asks for the call of an activity any more */

enum state { UNKNOWN = 0, TO_COME = 1, PLACED = 2 };
struct known { uint32_t correlation; uint16_t node; uint8_t lane, state; };
struct activity { uint64_t ns, bytes; uint32_t correlation, flush; uint16_t name; uint8_t size; };

static struct known *known;
static struct activity *waiting;
static struct activity early[EARLY];
static uint64_t first, end, early_seen;     /* of the rings: they count on */
static uint32_t flushes, rows_used;
static uint32_t last_before;        /* the newest call seen before there were ranges */
static int has_ranges;

void rs_attribution_forget(void)
{
    rs_memory_free(known, KNOWN * sizeof *known);
    rs_memory_free(waiting, WAITING * sizeof *waiting);
    known = NULL;
    waiting = NULL;
    first = end = early_seen = 0;
    flushes = rows_used = last_before = 0;
    has_ranges = 0;
}

/* From the first range on, calls and activities are kept. 0: there is no room for that, or there are no calls. */
int rs_attribution_begin(void)
{
    if (has_ranges || rs_gpu.row->api == RS_CUDA_API_NONE)
        return has_ranges;
    if (!known)
        known = rs_memory(KNOWN * sizeof *known);
    if (!waiting)
        waiting = rs_memory(WAITING * sizeof *waiting);
    has_ranges = known && waiting;
    uint64_t kept = early_seen < EARLY ? early_seen : EARLY;
    for (uint64_t at = early_seen - kept; has_ranges && at < early_seen; at++) {
        const struct activity *one = &early[at % EARLY];
        rs_attribution_activity(one->correlation, one->name, one->size, one->ns, one->bytes);
    }
    return has_ranges;
}

/* Too many rows would leave none to what is counted anyway: then a range has one row for all the rest. */
void rs_range_tally(struct rs_thread *thread, uint8_t layer, uint16_t name, uint16_t node, uint8_t size, uint64_t ns,
                    uint64_t bytes, int failed)
{
    static const char rest[] = "(other work)";
    uint64_t key = rs_key(name, node, layer, rs.phase, size, RS_KIND_CALL);
    if (thread && rs_key_of(thread->cache[rs_cache_slot(key)]) != key && rows_used >= MOST_ROWS) {
        key = rs_key(rs_intern(rest), node, layer, 0, 0, RS_KIND_CALL);
        rs_gpu.row->folded_work++;
    }
    uint32_t before = thread ? thread->index_used : 0;
    rs_gpu_tally(thread, key, ns, bytes, failed);
    if (thread)
        rows_used += thread->index_used - before;
}

/* --- calls --- */

void rs_attribution_call(const struct rs_gpu_call *call)
{
    uint32_t id = call->correlation;
    if (RS_LIKELY(!has_ranges)) {
        if (id > last_before)
            last_before = id;
        return;
    }
    int lane = rs_lane_call(call);
    struct known *entry = &known[id % KNOWN];
    /* the driver's call inside a runtime call may have the same id: the first one to come is as good */
    if (lane >= 0 && id && entry->correlation != id)
        *entry = (struct known){id, 0, (uint8_t)lane, TO_COME};
}

void rs_range_known(uint32_t correlation, uint8_t lane, uint16_t node)
{
    struct known *entry = &known[correlation % KNOWN];
    if (entry->correlation == correlation && entry->state == TO_COME)
        *entry = (struct known){correlation, node, lane, PLACED};
}

/* --- activities --- */

static enum state state_of(const struct activity *one)
{
    const struct known *entry = &known[one->correlation % KNOWN];
    return entry->correlation == one->correlation ? (enum state)entry->state : UNKNOWN;
}

static void give(const struct activity *one)
{
    const struct known *entry = &known[one->correlation % KNOWN];
    if (entry->node)
        rs_range_tally(rs_lane_thread(entry->lane), RS_LAYER_IN_RANGE_GPU, one->name, entry->node, one->size, one->ns,
                       one->bytes, 0);
}

/* Nothing is missing where the call came before there were ranges. Whether it did is known only after a while: calls of
 * one thread may be told after later ones of another. */
static void give_up(const struct activity *one)
{
    if (one->correlation > last_before)
        rs_gpu.row->unattributed++;
}

/* Those at the head whose call is placed, or was waited for in vain. */
static void drain(int is_last)
{
    for (; first < end; first++) {
        const struct activity *one = &waiting[first % WAITING];
        enum state state = state_of(one);
        if (state == PLACED)
            give(one);
        else if (is_last || (state == UNKNOWN && flushes - one->flush >= PATIENCE))
            give_up(one);
        else
            return;
    }
}

static void make_room(void)
{
    const struct activity *oldest = &waiting[first % WAITING];
    if (state_of(oldest) == TO_COME)
        rs_lane_hurry(known[oldest->correlation % KNOWN].lane);
    drain(0);
    if (end - first == WAITING) {
        give_up(&waiting[first % WAITING]);
        first++;
    }
}

void rs_attribution_activity(uint32_t correlation, uint16_t name, uint8_t size, uint64_t ns, uint64_t bytes)
{
    struct activity one = {ns, bytes, correlation, flushes, name, size};
    if (!correlation)
        return;
    if (RS_LIKELY(!has_ranges)) {
        early[early_seen++ % EARLY] = one;
        return;
    }
    enum state state = state_of(&one);
    if (state == PLACED)
        give(&one);
    if (state == PLACED)
        return;
    if (end - first == WAITING)
        make_room();
    waiting[end++ % WAITING] = one;
}

/* After a flush: everything launched before then is placed. */
void rs_attribution_settle(uint64_t before_ns)
{
    if (!has_ranges)
        return;
    flushes++;
    rs_lanes_settle(before_ns);
    drain(before_ns == UINT64_MAX);
}

/* Recording pauses: correlation ids begin anew, and ranges that are open now end unseen. */
void rs_attribution_cut(void)
{
    rs_attribution_settle(UINT64_MAX);
    rs_lanes_forget();
    if (known)
        memset(known, 0, KNOWN * sizeof *known);
    first = end = early_seen = 0;
    last_before = 0;
}
