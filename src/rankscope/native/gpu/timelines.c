/* How long each GPU was busy, with what, and idle: exact unions of intervals, whatever the order in which they come.
 *
 * CUPTI, for one, delivers a buffer for each launching thread, so the kernels of autograd's thread come hundreds of
 * milliseconds after later ones of the main thread. Each device therefore has a timeline of its latest past: a sorted row of
 * boundaries, each saying what the device does from there on. An activity is laid over it, and the sums change by what
 * it covers that nothing covered before. The row is a gap buffer: activities of one buffer lie close together, so the
 * gap moves little. The past is forgotten when rs_device_settle says so, or sooner where the boundaries would be too
 * many; what then still comes for it is counted as late. docs/reference/metrics.md has the formulas. */
#include "gpu_layer.h"

#define DEVICES 64u
#define FIRST_BOUNDARIES 4096u
#define MOST_BOUNDARIES (1u << 20)      /* 16 MiB: 10 s of 50,000 kernels a second */

/* From at_ns on, until the next boundary, the device does this: bits of 1 << enum rs_work, 0: idle. Two neighbours
 * never say the same. */
struct boundary { uint64_t at_ns; uint64_t doing; };

struct timeline {
    struct rs_device *row;
    struct boundary *all;
    uint32_t capacity, left, right;     /* in use: [0, left) and [right, capacity) */
    uint64_t begins_ns;                 /* what lies before is forgotten */
    uint64_t watched_ns, first_ns, last_ns;     /* of times of recording that are over; of the one that goes on */
};

static struct timeline *timelines[DEVICES];
static struct rs_chunk *rows;

static void free_timeline(struct timeline *timeline)
{
    if (timeline)
        rs_memory_free(timeline->all, timeline->capacity * sizeof *timeline->all);
    rs_memory_free(timeline, sizeof *timeline);
}

void rs_devices_forget(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        free_timeline(timelines[i]);
        timelines[i] = NULL;
    }
    rows = NULL;
}

static struct rs_device *new_row(uint32_t device)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_DEVICES, .row_bytes = sizeof(struct rs_device), .chunk_bytes = RS_PAGE};
    struct rs_device *row = rs_row_place(&rows, like, sizeof *row);
    if (!row)
        return NULL;
    row->device = device;
    rs_row_publish(rows, 1);
    rs_gpu_used(device);
    return row;
}

static struct timeline *new_timeline(uint32_t device)
{
    struct timeline *timeline = rs_memory(sizeof *timeline);
    if (!timeline)
        return NULL;
    timeline->capacity = timeline->right = FIRST_BOUNDARIES;
    timeline->all = rs_memory(FIRST_BOUNDARIES * sizeof *timeline->all);
    timeline->row = timeline->all ? new_row(device) : NULL;
    if (!timeline->row) {
        free_timeline(timeline);
        return NULL;
    }
    return timeline;
}

static struct timeline *timeline_of(uint32_t device)
{
    if (device >= DEVICES)
        return NULL;
    if (!timelines[device])
        timelines[device] = new_timeline(device);
    return timelines[device];
}

struct rs_device *rs_device_row(uint32_t device)
{
    struct timeline *timeline = timeline_of(device);
    return timeline ? timeline->row : NULL;
}

uint64_t rs_gpu_busiest(uint64_t *last_ns)
{
    uint64_t busy_ns = 0;
    if (last_ns)
        *last_ns = 0;
    for (uint32_t i = 0; i < DEVICES; i++)
        if (timelines[i] && timelines[i]->row->busy_ns >= busy_ns) {
            busy_ns = timelines[i]->row->busy_ns;
            if (last_ns)
                *last_ns = timelines[i]->row->last_ns;
        }
    return busy_ns;
}

/* --- the gap buffer --- */

static int has_next(const struct timeline *timeline) { return timeline->right < timeline->capacity; }

/* Everything before at_ns to the left of the gap, the rest to its right. */
static void move_gap(struct timeline *timeline, uint64_t at_ns)
{
    struct boundary *all = timeline->all;
    if (timeline->left && all[timeline->left - 1].at_ns >= at_ns) {
        uint32_t from = 0, to = timeline->left - 1;     /* the first that is not before lies in [from, to] */
        while (from < to) {
            uint32_t middle = from + (to - from) / 2;
            if (all[middle].at_ns < at_ns)
                from = middle + 1;
            else
                to = middle;
        }
        uint32_t moved = timeline->left - from;
        timeline->left -= moved;
        timeline->right -= moved;
        memmove(all + timeline->right, all + timeline->left, moved * sizeof *all);
    } else if (has_next(timeline) && all[timeline->right].at_ns < at_ns) {
        uint32_t from = timeline->right + 1, to = timeline->capacity;
        while (from < to) {
            uint32_t middle = from + (to - from) / 2;
            if (all[middle].at_ns < at_ns)
                from = middle + 1;
            else
                to = middle;
        }
        uint32_t moved = from - timeline->right;
        memmove(all + timeline->left, all + timeline->right, moved * sizeof *all);
        timeline->left += moved;
        timeline->right += moved;
    }
}

/* Begins the timeline later, with something the device does: an idle time before that is complete. */
static void forget_first(struct timeline *timeline, uint32_t count)
{
    struct boundary *all = timeline->all;
    move_gap(timeline, UINT64_MAX);
    while (count < timeline->left && !all[count].doing)
        count++;
    if (!count || count >= timeline->left)
        return;
    timeline->begins_ns = all[count].at_ns;
    timeline->left -= count;
    memmove(all, all + count, timeline->left * sizeof *all);
}

static void grow(struct timeline *timeline)
{
    uint32_t capacity = timeline->capacity * 2;
    struct boundary *more = rs_memory(capacity * sizeof *more);
    if (!more)
        return;
    uint32_t behind = timeline->capacity - timeline->right;
    memcpy(more, timeline->all, timeline->left * sizeof *more);
    memcpy(more + capacity - behind, timeline->all + timeline->right, behind * sizeof *more);
    rs_memory_free(timeline->all, timeline->capacity * sizeof *more);
    timeline->all = more;
    timeline->capacity = capacity;
    timeline->right = capacity - behind;
}

static void make_room(struct timeline *timeline)
{
    if (timeline->right - timeline->left < 2 && timeline->capacity < MOST_BOUNDARIES)
        grow(timeline);
    if (timeline->right - timeline->left < 2)
        forget_first(timeline, timeline->capacity / 4);
}

static uint64_t last_doing(const struct timeline *timeline)
{
    return timeline->left ? timeline->all[timeline->left - 1].doing : 0;
}

static void put(struct timeline *timeline, uint64_t at_ns, uint64_t doing)
{
    if (last_doing(timeline) != doing)
        timeline->all[timeline->left++] = (struct boundary){at_ns, doing};
}

/* --- the sums --- */

static void count_gap(struct rs_device *row, uint64_t ns, int sign)
{
    uint32_t class = 0;
    if (!ns)
        return;
    for (uint64_t bound_ns = 1000; class < RS_GAP_CLASSES - 1 && ns >= bound_ns; bound_ns *= 10)
        class++;
    row->gaps[class] += (uint64_t)sign;
    row->gap_ns[class] += (uint64_t)sign * ns;
}

/* Of an idle time, a part becomes busy. It is a gap where something was done before it and after it. */
static void split_gap(const struct timeline *timeline, uint64_t from_ns, uint64_t to_ns)
{
    int has_before = timeline->left > 0, has_after = has_next(timeline);
    uint64_t idle_from = has_before ? timeline->all[timeline->left - 1].at_ns : 0;
    uint64_t idle_to = has_after ? timeline->all[timeline->right].at_ns : 0;
    if (has_before && has_after)
        count_gap(timeline->row, idle_to - idle_from, -1);
    if (has_before)
        count_gap(timeline->row, from_ns - idle_from, 1);
    if (has_after)
        count_gap(timeline->row, idle_to - to_ns, 1);
}

static void add_time(struct rs_device *row, uint64_t before, uint64_t bit, uint64_t ns)
{
    const uint64_t both = 1u << RS_WORK_COMPUTE | 1u << RS_WORK_COMMUNICATION;
    uint64_t *sums[] = {&row->compute_ns, &row->communication_ns, &row->copy_ns};
    if (before & bit)
        return;
    *sums[__builtin_ctzll(bit)] += ns;
    if (!before)
        row->busy_ns += ns;
    if (((before | bit) & both) == both && (bit & both))
        row->hidden_ns += ns;
}

/* From start to end the device does this as well. Boundaries are taken from the right of the gap and put to its left
 * with what they say now; at most two more come than go. */
static void lay_over(struct timeline *timeline, uint64_t start_ns, uint64_t end_ns, uint64_t bit)
{
    move_gap(timeline, start_ns);
    uint64_t before = last_doing(timeline);
    for (uint64_t at_ns = start_ns; at_ns < end_ns;) {
        if (has_next(timeline) && timeline->all[timeline->right].at_ns == at_ns)
            before = timeline->all[timeline->right++].doing;
        uint64_t to_ns = end_ns;
        if (has_next(timeline) && timeline->all[timeline->right].at_ns < end_ns)
            to_ns = timeline->all[timeline->right].at_ns;
        if (!before) {
            /* The idle time begins at its own boundary: where that was just taken, it has to be there again. */
            if (last_doing(timeline))
                put(timeline, at_ns, 0);
            split_gap(timeline, at_ns, to_ns);
            if (timeline->left && timeline->all[timeline->left - 1].at_ns == at_ns)
                timeline->left--;
        }
        add_time(timeline->row, before, bit, to_ns - at_ns);
        put(timeline, at_ns, before | bit);
        at_ns = to_ns;
    }
    if (has_next(timeline) && timeline->all[timeline->right].at_ns == end_ns) {
        if (timeline->all[timeline->right].doing == last_doing(timeline))
            timeline->right++;
    } else {
        put(timeline, end_ns, before);
    }
}

void rs_device_work(uint32_t device, uint64_t start_ns, uint64_t end_ns, enum rs_work work)
{
    struct timeline *timeline = timeline_of(device);
    if (!timeline)
        return;
    struct rs_device *row = timeline->row;
    make_room(timeline);
    uint32_t odd = rs_row_begin(&row->seq);
    if (!row->activities || start_ns < row->first_ns)
        row->first_ns = start_ns;
    if (end_ns > row->last_ns)
        row->last_ns = end_ns;
    if (!timeline->first_ns || start_ns < timeline->first_ns)
        timeline->first_ns = start_ns;
    if (end_ns > timeline->last_ns)
        timeline->last_ns = end_ns;
    row->watched_ns = timeline->watched_ns + (timeline->last_ns - timeline->first_ns);
    row->activities++;
    if (start_ns < timeline->begins_ns) {
        uint64_t known_ns = end_ns < timeline->begins_ns ? end_ns : timeline->begins_ns;
        row->late++;
        row->late_ns += known_ns - start_ns;
        start_ns = known_ns;
    }
    if (start_ns < end_ns)
        lay_over(timeline, start_ns, end_ns, (uint64_t)1 << work);
    rs_row_done(&row->seq, odd);
}

int rs_device_walk(uint32_t device, uint64_t from_ns, uint64_t to_ns, rs_device_visit visit, void *context)
{
    struct timeline *timeline = device < DEVICES ? timelines[device] : NULL;
    if (!timeline)
        return 0;
    move_gap(timeline, from_ns);
    uint64_t at_ns = from_ns, doing = last_doing(timeline);
    for (uint32_t i = timeline->right; at_ns < to_ns; i++) {
        const struct boundary *next = i < timeline->capacity ? &timeline->all[i] : NULL;
        uint64_t until_ns = next && next->at_ns < to_ns ? next->at_ns : to_ns;
        if (until_ns > at_ns)
            visit(context, at_ns, until_ns, doing);
        at_ns = until_ns;
        if (next)
            doing = next->doing;
    }
    return from_ns >= timeline->begins_ns;
}

/* Nothing more is expected of what lies before. */
void rs_device_settle(uint64_t before_ns)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct timeline *timeline = timelines[i];
        if (!timeline)
            continue;
        move_gap(timeline, before_ns);
        forget_first(timeline, timeline->left);
    }
}

/* Nothing is recorded from here on: what comes later is no end of an idle time that began before. */
void rs_devices_cut(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        struct timeline *timeline = timelines[i];
        if (!timeline)
            continue;
        timeline->left = 0;
        timeline->right = timeline->capacity;
        timeline->begins_ns = timeline->row->last_ns;
        timeline->watched_ns = timeline->row->watched_ns;
        timeline->first_ns = timeline->last_ns = 0;
    }
}
