/* Whether the program calls the driver itself, as Triton and Numba do. A launch through the runtime is a call of
 * the runtime and, inside it, one of the driver: recording both costs twice. So the driver's are recorded only once
 * there are activities whose correlation id no call of the runtime had. */
#include "cuda_layer.h"

#define SEEN 16384u                 /* calls remembered, by correlation id */
#define SUSPECTS 32u

static uint32_t seen[SEEN];
static struct { uint32_t correlation, flush; } suspects[SUSPECTS];
static uint32_t suspects_used, flushes;
static uint64_t without_call;       /* activities so far that came without a call before them */
static int is_watched;

void rs_direct_forget(void)
{
    memset(seen, 0, sizeof seen);
    suspects_used = flushes = 0;
    without_call = 0;
    is_watched = 0;
}

void rs_direct_watch(int on) { is_watched = on; }

void rs_direct_call(uint32_t correlation)
{
    if (is_watched)
        seen[correlation % SEEN] = correlation;
}

/* Where a later call has taken the place, nobody knows. */
static int has_no_call(uint32_t correlation) { return (int32_t)(correlation - seen[correlation % SEEN]) > 0; }

void rs_direct_activity(uint32_t correlation)
{
    if (!is_watched || !correlation || RS_LIKELY(!has_no_call(correlation)))
        return;
    without_call++;
    if (suspects_used < SUSPECTS) {
        suspects[suspects_used].correlation = correlation;
        suspects[suspects_used++].flush = flushes;
    }
}

/* After a flush. 1: a whole flush later there still is no call, so the driver's calls are needed. */
int rs_direct_found(void)
{
    uint32_t kept = 0;
    int found = 0;
    if (!is_watched)
        return 0;
    for (uint32_t i = 0; i < suspects_used; i++) {
        if (!has_no_call(suspects[i].correlation))
            continue;
        found = found || flushes - suspects[i].flush >= 1;
        suspects[kept++] = suspects[i];
    }
    suspects_used = kept;
    flushes++;
    if (found)
        rs_cuda.row->direct_launches = without_call;
    else if (!kept)
        without_call = 0;
    return found;
}
