/* Sums over the events of a trace: lengths by name, how long a GPU was busy with what, the gaps of its streams, and the
 * own time of ranges that lie in each other. src/rankscope/questions/events/sums.py says the same in Python; tests hold
 * the two together. Times are whole nanoseconds and sums exact, so no order of blocks or ranks changes a figure. */
#include <stdint.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

enum { EVERYTHING, COMPUTE_ONLY, COMMUNICATION_ONLY, COPY_ONLY, EITHER, COVERS };
enum { COMPUTE = 0, COMMUNICATION = 1 };        /* of kinds: questions/gpu/activities.py; the others copy */
enum { HOST, NEXT, OTHER, CAUSES };

struct length_sum {
    uint64_t calls;
    int64_t total_ns, min_ns, max_ns;
    uint64_t squares_low, squares_high;         /* sum of squares, in 128 bits */
};

/* The union of intervals that come by their start. */
struct cover { int64_t total_ns, covered_ns; };

struct range_sum {
    uint64_t calls;
    int64_t total_ns, min_ns, max_ns, own_ns;
    uint64_t activities, own_activities;        /* launched inside; launched while it was the innermost one */
    int64_t gpu_ns, own_gpu_ns;
};

static void add_length(struct length_sum *sum, int64_t ns)
{
    unsigned __int128 squares = (unsigned __int128)sum->squares_high << 64 | sum->squares_low;
    squares += (unsigned __int128)((__int128)ns * ns);
    sum->squares_low = (uint64_t)squares;
    sum->squares_high = (uint64_t)(squares >> 64);
    sum->calls++;
    sum->total_ns += ns;
    sum->min_ns = ns < sum->min_ns ? ns : sum->min_ns;
    sum->max_ns = ns > sum->max_ns ? ns : sum->max_ns;
}

/* 0, or -1 where a code has no sum. */
EXPORTED int rankscope_add_lengths(const int32_t *codes, const int64_t *start_ns, const int64_t *end_ns, uint64_t rows,
                                   struct length_sum *sums, uint64_t known)
{
    for (uint64_t i = 0; i < rows; i++) {
        if ((uint64_t)(uint32_t)codes[i] >= known)
            return -1;
        add_length(&sums[codes[i]], end_ns[i] - start_ns[i]);
    }
    return 0;
}

static void cover(struct cover *one, int64_t start_ns, int64_t end_ns)
{
    if (end_ns <= one->covered_ns)
        return;
    one->total_ns += end_ns - (start_ns > one->covered_ns ? start_ns : one->covered_ns);
    one->covered_ns = end_ns;
}

static void cover_kinds(struct cover *covers, uint8_t kind, int64_t start_ns, int64_t end_ns)
{
    int busy_with = kind == COMPUTE ? COMPUTE_ONLY : kind == COMMUNICATION ? COMMUNICATION_ONLY : COPY_ONLY;
    cover(&covers[EVERYTHING], start_ns, end_ns);
    cover(&covers[busy_with], start_ns, end_ns);
    if (busy_with != COPY_ONLY)
        cover(&covers[EITHER], start_ns, end_ns);
}

/* Activities of one device by their start. done_ns: of each stream the furthest end so far, INT64_MIN for none;
 * launch_ns: when the launching call began, negative where that is not known. Gaps go to gap_ns with stream * CAUSES +
 * cause in gap_key. Returns their number, -1 where a stream is not known. */
EXPORTED int64_t rankscope_walk_device(const int64_t *start_ns, const int64_t *end_ns, const uint8_t *kind,
                                       const int32_t *stream, const int64_t *launch_ns, uint64_t rows,
                                       struct cover *covers, int64_t *done_ns, uint64_t streams,
                                       int64_t back_to_back_ns, int64_t *gap_ns, int32_t *gap_key)
{
    int64_t gaps = 0;
    for (uint64_t i = 0; i < rows; i++) {
        if ((uint64_t)(uint32_t)stream[i] >= streams)
            return -1;
        cover_kinds(covers, kind[i], start_ns[i], end_ns[i]);
        int64_t done = done_ns[stream[i]];
        if (done != INT64_MIN && start_ns[i] > done) {
            int64_t length = start_ns[i] - done;
            int cause = launch_ns[i] > done ? HOST : length < back_to_back_ns ? NEXT : OTHER;
            gap_ns[gaps] = length;
            gap_key[gaps++] = stream[i] * CAUSES + cause;
        }
        done_ns[stream[i]] = end_ns[i] > done ? end_ns[i] : done;
    }
    return gaps;
}

struct open_range { int64_t end_ns; int32_t code; };

struct sweep {
    struct open_range *open;    /* by their start; those that others have outlived are still among them */
    uint64_t depth, room;
    int64_t now_ns;
    struct range_sum *sums;
};

/* Gives the time up to a moment to the range that was begun last of those that still go on. */
static void advance(struct sweep *sweep, int64_t until_ns)
{
    while (sweep->depth) {
        struct open_range *last = &sweep->open[sweep->depth - 1];
        if (last->end_ns > until_ns) {
            sweep->sums[last->code].own_ns += until_ns - sweep->now_ns;
            break;
        }
        if (last->end_ns > sweep->now_ns) {
            sweep->sums[last->code].own_ns += last->end_ns - sweep->now_ns;
            sweep->now_ns = last->end_ns;
        }
        sweep->depth--;
    }
    sweep->now_ns = until_ns;
}

static int push(struct sweep *sweep, int64_t end_ns, int32_t code)
{
    if (sweep->depth == sweep->room) {
        uint64_t room = sweep->room ? sweep->room * 2 : 64;
        struct open_range *larger = realloc(sweep->open, room * sizeof *larger);
        if (!larger)
            return 0;
        sweep->open = larger;
        sweep->room = room;
    }
    sweep->open[sweep->depth++] = (struct open_range){end_ns, code};
    return 1;
}

static int open_range(struct sweep *sweep, int64_t start_ns, int64_t end_ns, int32_t code)
{
    struct range_sum *sum = &sweep->sums[code];
    int64_t ns = end_ns - start_ns;
    advance(sweep, start_ns);
    sum->calls++;
    sum->total_ns += ns;
    sum->min_ns = ns < sum->min_ns ? ns : sum->min_ns;
    sum->max_ns = ns > sum->max_ns ? ns : sum->max_ns;
    return push(sweep, end_ns, code);
}

static void launch(struct sweep *sweep, int64_t at_ns, uint64_t activities, int64_t gpu_ns)
{
    advance(sweep, at_ns);
    for (uint64_t i = 0; i < sweep->depth; i++) {
        if (sweep->open[i].end_ns <= at_ns)
            continue;
        sweep->sums[sweep->open[i].code].activities += activities;
        sweep->sums[sweep->open[i].code].gpu_ns += gpu_ns;
    }
    if (sweep->depth) {         /* the last one goes on: advance has taken away those that do not */
        sweep->sums[sweep->open[sweep->depth - 1].code].own_activities += activities;
        sweep->sums[sweep->open[sweep->depth - 1].code].own_gpu_ns += gpu_ns;
    }
}

/* The ranges of one thread by their start, the longest first of those that begin together; and the calls of that thread
 * by their start, each with what it launched. 0, -1 where a code has no sum, -2 without memory. */
EXPORTED int rankscope_sweep_ranges(const int64_t *start_ns, const int64_t *end_ns, const int32_t *codes, uint64_t rows,
                                    const int64_t *call_ns, const int64_t *activities, const int64_t *gpu_ns,
                                    uint64_t calls, struct range_sum *sums, uint64_t known)
{
    struct sweep sweep = {.sums = sums, .now_ns = INT64_MIN};
    int result = 0;
    uint64_t call = 0;
    for (uint64_t i = 0; i < rows && !result; i++) {
        for (; call < calls && call_ns[call] < start_ns[i]; call++)
            launch(&sweep, call_ns[call], (uint64_t)activities[call], gpu_ns[call]);
        if ((uint64_t)(uint32_t)codes[i] >= known)
            result = -1;
        else if (!open_range(&sweep, start_ns[i], end_ns[i], codes[i]))
            result = -2;
    }
    for (; call < calls && !result; call++)
        launch(&sweep, call_ns[call], (uint64_t)activities[call], gpu_ns[call]);
    if (!result)
        advance(&sweep, INT64_MAX);
    free(sweep.open);
    return result;
}
