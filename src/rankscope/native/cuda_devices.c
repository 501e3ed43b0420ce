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
    uint32_t waiting;                   /* activities in the window: a heap, the earliest start first */
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

static void sift_up(struct activity *heap, uint32_t at)
{
    struct activity one = heap[at];
    for (; at && heap[(at - 1) / 2].start_ns > one.start_ns; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = one;
}

static void sift_down(struct activity *heap, uint32_t used)
{
    struct activity one = heap[0];
    uint32_t at = 0, child;
    while ((child = 2 * at + 1) < used) {
        if (child + 1 < used && heap[child + 1].start_ns < heap[child].start_ns)
            child++;
        if (heap[child].start_ns >= one.start_ns)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = one;
}

static void settle_earliest(struct lane *lane)
{
    struct activity one = lane->window[0];
    lane->window[0] = lane->window[--lane->waiting];
    if (lane->waiting)
        sift_down(lane->window, lane->waiting);
    settle(lane, &one);
}

void rs_device_work(uint32_t device, uint64_t start_ns, uint64_t end_ns, enum rs_work work)
{
    struct lane *lane = lane_of(device);
    if (!lane)
        return;
    if (lane->waiting == WINDOW)
        settle_earliest(lane);
    lane->window[lane->waiting] = (struct activity){start_ns, end_ns, work};
    sift_up(lane->window, lane->waiting++);
}

/* Everything that began before then: so a kill loses little, and so the end is complete. */
void rs_device_settle(uint64_t before_ns)
{
    for (uint32_t i = 0; i < DEVICES; i++)
        while (lanes[i] && lanes[i]->waiting && lanes[i]->window[0].start_ns < before_ns)
            settle_earliest(lanes[i]);
}
