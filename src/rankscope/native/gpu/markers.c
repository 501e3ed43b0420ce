/* Ranges of NVTX and its like: each comes as two records, its start (with its name) and its end, in either order and
 * from any thread. */
#include "gpu_layer.h"

#define OPEN_RANGES 16384u          /* places; three quarters are used */
#define MOST_NAMES 2048u            /* a name that counts something ("step 17") must not fill the file */

struct open_range {
    uint64_t timestamp;
    struct rs_thread *thread;
    uint32_t id, tid;
    uint16_t name, group;
    uint8_t used, is_end;
};

static struct open_range *open_ranges;
static uint8_t known[8192];         /* a bit per string id: it is the name of a range */
static uint32_t names_used;

void rs_gpu_markers_forget(void)
{
    rs_memory_free(open_ranges, OPEN_RANGES * sizeof *open_ranges);
    open_ranges = NULL;
    memset(known, 0, sizeof known);
    names_used = 0;
}

/* What is open now ends unseen. */
void rs_gpu_markers_cut(void)
{
    rs_memory_free(open_ranges, OPEN_RANGES * sizeof *open_ranges);
    open_ranges = NULL;
    rs_gpu.row->open_ranges = 0;
}

static uint32_t home_of(uint32_t id) { return (id * 2654435769u) >> 18; }

static struct open_range *place_of(uint32_t id)
{
    if (!open_ranges)
        open_ranges = rs_memory(OPEN_RANGES * sizeof *open_ranges);
    if (!open_ranges)
        return NULL;
    uint32_t at = home_of(id);
    while (open_ranges[at].used && open_ranges[at].id != id)
        at = (at + 1) % OPEN_RANGES;
    return &open_ranges[at];
}

/* What stands behind the freed place moves up, so that searches need no marks for what was. */
static void remove_range(struct open_range *range)
{
    uint32_t hole = (uint32_t)(range - open_ranges);
    for (uint32_t at = (hole + 1) % OPEN_RANGES; open_ranges[at].used; at = (at + 1) % OPEN_RANGES) {
        uint32_t home = home_of(open_ranges[at].id);
        if ((at - home) % OPEN_RANGES >= (at - hole) % OPEN_RANGES) {
            open_ranges[hole] = open_ranges[at];
            hole = at;
        }
    }
    open_ranges[hole].used = 0;
    rs_gpu.row->open_ranges--;
}

static uint16_t name_of(const char *text)
{
    const char *name = text && text[0] ? text : "<unnamed>";
    if (names_used < MOST_NAMES) {
        uint16_t id = rs_intern(name);
        if (!(known[id >> 3] & 1 << (id & 7))) {
            known[id >> 3] |= (uint8_t)(1 << (id & 7));
            names_used++;
        }
        return id;
    }
    rs_gpu.row->folded_ranges++;
    return rs_intern("(ranges of other names)");
}

static void count(struct rs_thread *thread, uint16_t name, uint16_t group, uint64_t start_ns, uint64_t ns)
{
    uint64_t key = rs_key(name, group, RS_LAYER_NVTX, rs_gpu_phase(start_ns), 0, RS_KIND_CALL);
    rs_gpu_tally(thread, key, ns, 0, 0);
    rs_trace(thread, key, start_ns, ns, 0, 0);
}

static void start_in_lane(const struct rs_gpu_marker *marker, uint16_t name, uint16_t domain)
{
    if (rs_attribution_begin())
        rs_lane_start(marker->tid, marker->id, marker->at_ns, name, domain);
}

static void keep(struct open_range *range, const struct rs_gpu_marker *marker, struct rs_thread *thread)
{
    range->timestamp = marker->at_ns;
    range->id = marker->id;
    range->used = 1;
    range->is_end = marker->kind == RS_MARKER_END;
    if (!range->is_end) {
        range->thread = thread;
        range->tid = marker->tid;
        range->name = name_of(marker->name);
        range->group = rs_gpu_domain(marker->domain);
        start_in_lane(marker, range->name, range->group);
    }
    rs_gpu.row->open_ranges++;
}

static uint64_t between(uint64_t start, uint64_t end) { return end > start ? end - start : 0; }

static void end_in_lane(uint32_t tid, uint32_t id, uint64_t at_ns)
{
    if (rs_attribution_begin())
        rs_lane_end(tid, id, at_ns);
}

static void end_range(struct open_range *range, const struct rs_gpu_marker *marker)
{
    count(range->thread, range->name, range->group, range->timestamp, between(range->timestamp, marker->at_ns));
    end_in_lane(range->tid, range->id, marker->at_ns);
    remove_range(range);
}

/* Its end came first, from another thread's buffer. */
static void start_ended_range(struct open_range *range, const struct rs_gpu_marker *marker,
                              struct rs_thread *thread)
{
    uint16_t name = name_of(marker->name), domain = rs_gpu_domain(marker->domain);
    count(thread, name, domain, marker->at_ns, between(marker->at_ns, range->timestamp));
    start_in_lane(marker, name, domain);
    end_in_lane(marker->tid, range->id, range->timestamp);
    remove_range(range);
}

void rs_gpu_add_marker(const struct rs_gpu_marker *marker)
{
    struct rs_thread *thread = rs_gpu_thread(marker->tid);
    if (marker->kind == RS_MARKER_INSTANT) {
        count(thread, name_of(marker->name), rs_gpu_domain(marker->domain), marker->at_ns, 0);
        return;
    }
    struct open_range *range = place_of(marker->id);
    if (range && range->used && !range->is_end && marker->kind == RS_MARKER_END) {
        end_range(range, marker);
    } else if (range && range->used && range->is_end && marker->kind == RS_MARKER_START) {
        start_ended_range(range, marker, thread);
    } else if (range && !range->used && rs_gpu.row->open_ranges < OPEN_RANGES * 3 / 4) {
        keep(range, marker, thread);
    } else {
        rs_gpu.row->lost_ranges++;
    }
}
