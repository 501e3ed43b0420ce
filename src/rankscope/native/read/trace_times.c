/* Times of trace records on the Unix clock, and what of them there is by layer: rank_files/trace.py has the same in
 * Python. The arithmetic is that of rank_files/clock.py, bit by bit. */
#include <stdint.h>

#include "layout.h"

#define EXPORTED __attribute__((visibility("default")))
#define LAP 0x10000u
#define FURTHEST 2305843009213693952.0          /* 2^61 */
#define NO_FRACTION 4503599627370496.0          /* 2^52: above it a double has none */

/* A clock: the Unix time of one of its moments, and how long one of its units lasts. */
struct clock { int64_t origin, origin_unix_ns; double ns_per_unit; };

struct kept { int64_t events, first_ns, last_ns; };

struct most { uint32_t name, group, phase, layer; };

static int64_t unix_ns(const struct clock *clock, uint64_t moment)
{
    double moved = (double)(int64_t)(moment - (uint64_t)clock->origin) * clock->ns_per_unit;
    moved = moved < -FURTHEST ? -FURTHEST : moved > FURTHEST ? FURTHEST : moved;
    return (int64_t)moved + clock->origin_unix_ns;
}

/* Halves go to the even one, without a library of mathematics. */
static int64_t rounded(double value)
{
    value = value > FURTHEST ? FURTHEST : value;
    return (int64_t)(value < NO_FRACTION ? (value + NO_FRACTION) - NO_FRACTION : value);
}

static void note(struct kept *kept, struct most *most, const struct rs_event *row, int64_t start_ns, int64_t end_ns)
{
    uint32_t phase = row->flags & 15u;
    most->name = row->name > most->name ? row->name : most->name;
    most->group = row->group > most->group ? row->group : most->group;
    most->phase = phase > most->phase ? phase : most->phase;
    most->layer = row->layer > most->layer ? row->layer : most->layer;
    if (row->layer >= RS_TRACE_LAYERS)
        return;
    struct kept *one = &kept[row->layer];
    one->events++;
    one->first_ns = start_ns < one->first_ns ? start_ns : one->first_ns;
    one->last_ns = end_ns > one->last_ns ? end_ns : one->last_ns;
}

/* clocks: of the layers in ticks, of those in CUPTI's nanoseconds (bits of in_ns). Copied rows, finished ones only.
 * kept: RS_TRACE_LAYERS of them. */
EXPORTED void rankscope_trace_times(const struct rs_event *rows, uint64_t count, const struct clock *clocks,
                                    uint64_t in_ns, int64_t *start_ns, int64_t *end_ns, struct kept *kept,
                                    struct most *most)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct rs_event *row = &rows[i];
        const struct clock *clock = &clocks[row->layer < 64 && in_ns >> row->layer & 1];
        uint64_t duration = row->duration_low + ((uint64_t)(row->mark & (LAP - 1)) << 32);
        start_ns[i] = unix_ns(clock, row->start_ticks);
        end_ns[i] = start_ns[i] + rounded((double)duration * clock->ns_per_unit);
        note(kept, most, row, start_ns[i], end_ns[i]);
    }
}
