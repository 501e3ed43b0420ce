/* A ring of the latest moments at which the loop's thread began to do something else. That thread writes, and the one
 * that collects what the GPUs did reads, without a lock: what was overwritten meanwhile is counted as lost. */
#include "steps.h"

#define MOMENTS (1u << 15)          /* some thousand steps */

static struct rs_moment *ring;
static uint64_t written;

void rs_host_log_forget(void)
{
    rs_memory_free(ring, MOMENTS * sizeof *ring);
    ring = NULL;
    written = 0;
}

void rs_host_note(const struct rs_moment *moment)
{
    struct rs_moment *there = __atomic_load_n(&ring, __ATOMIC_RELAXED);
    if (!there) {
        there = rs_memory(MOMENTS * sizeof *there);
        if (!there)
            return;
        __atomic_store_n(&ring, there, __ATOMIC_RELEASE);
    }
    struct rs_moment *place = &there[written % MOMENTS];
    __atomic_store_n(&place->ticks, moment->ticks, __ATOMIC_RELAXED);
    __atomic_store_n(&place->step, moment->step, __ATOMIC_RELAXED);
    __atomic_store_n(&place->part, moment->part, __ATOMIC_RELAXED);
    __atomic_store_n(&place->doing, moment->doing, __ATOMIC_RELAXED);
    __atomic_store_n(&written, written + 1, __ATOMIC_RELEASE);
}

/* 0: there is none. */
int rs_host_next(uint64_t *next, struct rs_moment *moment, uint64_t *lost)
{
    for (;;) {
        uint64_t end = __atomic_load_n(&written, __ATOMIC_ACQUIRE);
        const struct rs_moment *there = __atomic_load_n(&ring, __ATOMIC_ACQUIRE);
        if (!there || *next >= end)
            return 0;
        if (end - *next >= MOMENTS) {   /* the oldest one may be being overwritten */
            *lost += end - *next - MOMENTS / 2;
            *next = end - MOMENTS / 2;
        }
        const struct rs_moment *place = &there[*next % MOMENTS];
        moment->ticks = __atomic_load_n(&place->ticks, __ATOMIC_RELAXED);
        moment->step = __atomic_load_n(&place->step, __ATOMIC_RELAXED);
        moment->part = __atomic_load_n(&place->part, __ATOMIC_RELAXED);
        moment->doing = __atomic_load_n(&place->doing, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&written, __ATOMIC_RELAXED) - *next >= MOMENTS)
            continue;
        ++*next;
        return 1;
    }
}
