/* Ticks: the cheapest clock that is safe on this machine. rs_anchor_now() ties it to the others. */
#ifndef RANKSCOPE_CLOCK_H
#define RANKSCOPE_CLOCK_H

#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "layout.h"

extern uint32_t rs_tick_source __attribute__((visibility("hidden")));

static inline uint64_t rs_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t rs_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(rs_tick_source == RS_TICKS_TSC, 1))
        return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(rs_tick_source == RS_TICKS_CNTVCT, 1)) {
        uint64_t value;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
    }
#endif
    return rs_clock_ns(CLOCK_MONOTONIC);
}

void rs_clock_choose(void);
int rs_clock_rejected(void);
struct rs_anchor rs_anchor_now(void);

#endif
