/* Which clock can be trusted here. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "clock.h"

uint32_t rs_tick_source __attribute__((section("rs_forked"))) = RS_TICKS_MONOTONIC;

#if defined(__x86_64__)
/* The kernel drops the TSC as a clock source when it finds it unstable or unequal between sockets. */
static int kernel_rejected_tsc(void)
{
    char name[16] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, name, sizeof name - 1);
    close(fd);
    return got > 0 && (!strncmp(name, "hpet", 4) || !strncmp(name, "acpi_pm", 7) || !strncmp(name, "jiffies", 7));
}

static int tsc_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
}
#endif

void rs_clock_choose(void)
{
#if defined(__x86_64__)
    if (tsc_is_invariant())
        rs_tick_source = RS_TICKS_TSC;
#elif defined(__aarch64__)
    rs_tick_source = RS_TICKS_CNTVCT;
#endif
}

/* 1: ticks are nanoseconds from now on. Asked when a file is made, because it costs calls that most processes can do
 * without; a forked child's parent has asked, or nobody. */
int rs_clock_rejected(void)
{
#if defined(__x86_64__)
    if (rs_tick_source == RS_TICKS_TSC && kernel_rejected_tsc()) {
        rs_tick_source = RS_TICKS_MONOTONIC;
        return 1;
    }
#endif
    return 0;
}

/* The tightest of a few tries: a preemption between two of the readings would bend the rate. */
struct rs_anchor rs_anchor_now(void)
{
    struct rs_anchor best = {0, 0, 0};
    uint64_t best_width = UINT64_MAX;
    for (int try = 0; try < 4; try++) {
        uint64_t before = rs_ticks();
        uint64_t monotonic_ns = rs_clock_ns(CLOCK_MONOTONIC);
        uint64_t realtime_ns = rs_clock_ns(CLOCK_REALTIME);
        uint64_t after = rs_ticks();
        if (after - before < best_width) {
            best_width = after - before;
            best.ticks = before + (after - before) / 2;
            best.monotonic_ns = monotonic_ns;
            best.realtime_ns = realtime_ns;
        }
    }
    if (rs_tick_source == RS_TICKS_MONOTONIC)
        best.ticks = best.monotonic_ns;
    return best;
}
