/* How long each GPU was busy, with what, and idle: the union of intervals, summed up as they come and in constant
 * memory. Records come nearly in the order of their starts: a window of them is kept sorted, and what leaves it
 * goes into the sums. docs/metrics.md has the formula and what an activity that comes too late can change. */
#include "cuda_layer.h"

#define DEVICES 64u
#define WINDOW 4096u

struct activity { uint64_t start_ns, end_ns; enum rs_work work; };

enum { UNION_ALL = 3, UNION_BOTH = 4, UNIONS = 5 };    /* the first three are those of rs_work; both: not the copies */

struct lane {
    struct rs_device *row;
    uint32_t waiting, is_unordered;     /* activities in the window, and whether they are not in the order of starts */
    uint64_t last_start_ns;
    uint64_t until_ns[UNIONS];          /* how far each union reaches */
    uint64_t both_ns;
    struct activity window[WINDOW];
};

static struct lane *lanes[DEVICES];
static struct rs_chunk *rows;

void rs_devices_forget(void)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        rs_memory_free(lanes[i], sizeof *lanes[i]);
        lanes[i] = NULL;
    }
    rows = NULL;
}

static struct rs_device *new_row(uint32_t device)
{
    if (!rows || (rows->rows + 1) * sizeof(struct rs_device) > rows->chunk_bytes - sizeof *rows)
        rows = rs_chunk_new(RS_CHUNK_DEVICES, 0, sizeof(struct rs_device), RS_PAGE);
    if (!rows)
        return NULL;
    struct rs_device *row = (struct rs_device *)(rows + 1) + rows->rows;
    row->device = device;
    __atomic_store_n(&rows->rows, rows->rows + 1, __ATOMIC_RELEASE);
    return row;
}

static struct lane *lane_of(uint32_t device)
{
    if (device >= DEVICES)
        return NULL;
    if (!lanes[device]) {
        struct lane *lane = rs_memory(sizeof *lane);
        if (!lane || !(lane->row = new_row(device))) {
            rs_memory_free(lane, sizeof *lane);
            return NULL;
        }
        lanes[device] = lane;
    }
    return lanes[device];
}

struct rs_device *rs_device_row(uint32_t device)
{
    struct lane *lane = lane_of(device);
    return lane ? lane->row : NULL;
}

/* --- unions --- */

static uint64_t extend(uint64_t *until_ns, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t from_ns = start_ns > *until_ns ? start_ns : *until_ns;
    if (end_ns <= from_ns)
        return 0;
    *until_ns = end_ns;
    return end_ns - from_ns;
}

static void add_gap(struct rs_device *row, uint64_t ns)
{
    uint32_t class = 0;
    for (uint64_t bound_ns = 1000; class < RS_GAP_CLASSES - 1 && ns >= bound_ns; bound_ns *= 10)
        class++;
    row->gaps[class]++;
    row->gap_ns[class] += ns;
}

static void add_times(struct lane *lane, const struct activity *one)
{
    struct rs_device *row = lane->row;
    uint64_t *sums[] = {&row->compute_ns, &row->communication_ns, &row->copy_ns};
    *sums[one->work] += extend(&lane->until_ns[one->work], one->start_ns, one->end_ns);
    row->busy_ns += extend(&lane->until_ns[UNION_ALL], one->start_ns, one->end_ns);
    if (one->work != RS_WORK_COPY)
        lane->both_ns += extend(&lane->until_ns[UNION_BOTH], one->start_ns, one->end_ns);
    row->hidden_ns = row->compute_ns + row->communication_ns - lane->both_ns;
}

static void settle(struct lane *lane, const struct activity *one)
{
    struct rs_device *row = lane->row;
    rs_device_begin(row);
    if (!row->activities || one->start_ns < row->first_ns)
        row->first_ns = one->start_ns;
    if (one->start_ns < lane->last_start_ns) {
        uint64_t before_ns = one->end_ns < lane->last_start_ns ? one->end_ns : lane->last_start_ns;
        row->late++;
        row->late_ns += before_ns - one->start_ns;
    } else {
        if (row->activities && one->start_ns > lane->until_ns[UNION_ALL])
            add_gap(row, one->start_ns - lane->until_ns[UNION_ALL]);
        lane->last_start_ns = one->start_ns;
    }
    add_times(lane, one);
    if (one->end_ns > row->last_ns)
        row->last_ns = one->end_ns;
    row->activities++;
    rs_device_done(row);
}

/* --- the window --- */

/* Where the run of rising starts ends that begins at `at`. */
static uint32_t end_of_run(const struct activity *all, uint32_t at, uint32_t used)
{
    for (at++; at < used && all[at].start_ns >= all[at - 1].start_ns; at++)
        continue;
    return at < used ? at : used;
}

/* Two neighbouring runs into one; gives where the second one ends. */
static uint32_t merge_two(const struct activity *from, struct activity *to, uint32_t at, uint32_t used)
{
    uint32_t first_end = end_of_run(from, at, used), next = first_end;
    uint32_t next_end = first_end < used ? end_of_run(from, first_end, used) : used;
    for (uint32_t place = at; place < next_end; place++) {
        int takes_first = at < first_end && (next == next_end || from[at].start_ns <= from[next].start_ns);
        to[place] = from[takes_first ? at++ : next++];
    }
    return next_end;
}

/* Records come in a few runs, one of each buffer: merging them costs less than a heap does. */
static void put_in_order(struct lane *lane)
{
    static struct activity scratch[WINDOW];
    struct activity *from = lane->window, *to = scratch;
    for (uint32_t runs = lane->is_unordered ? 2 : 1; runs > 1;) {
        runs = 0;
        for (uint32_t at = 0; at < lane->waiting; runs++)
            at = merge_two(from, to, at, lane->waiting);
        struct activity *merged = to;
        to = from;
        from = merged;
    }
    if (from != lane->window)
        memcpy(lane->window, from, lane->waiting * sizeof *from);
    lane->is_unordered = 0;
}

static void settle_first(struct lane *lane, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        settle(lane, &lane->window[i]);
    lane->waiting -= count;
    memmove(lane->window, lane->window + count, lane->waiting * sizeof lane->window[0]);
}

void rs_device_work(uint32_t device, uint64_t start_ns, uint64_t end_ns, enum rs_work work)
{
    struct lane *lane = lane_of(device);
    if (!lane)
        return;
    if (lane->waiting == WINDOW) {
        put_in_order(lane);
        settle_first(lane, WINDOW / 2);
    }
    if (lane->waiting && start_ns < lane->window[lane->waiting - 1].start_ns)
        lane->is_unordered = 1;
    lane->window[lane->waiting++] = (struct activity){start_ns, end_ns, work};
}

/* Everything that began before then: so a kill loses little, and so the end is complete. */
void rs_device_settle(uint64_t before_ns)
{
    for (uint32_t i = 0; i < DEVICES; i++) {
        uint32_t ready = 0;
        if (!lanes[i] || !lanes[i]->waiting)
            continue;
        put_in_order(lanes[i]);
        while (ready < lanes[i]->waiting && lanes[i]->window[ready].start_ns < before_ns)
            ready++;
        settle_first(lanes[i], ready);
    }
}
