/* Two collectives, and the loop's thread, which had read its clock before the second one began, asks after it; then it
 * does something out of sight while two more are in progress. */
#include <stdio.h>

#include "steps.h"

static rs_lock lock;    /* that of in_progress.c */
static int asked, asked_under_lock;

/* How often the system was asked, and how often while others would have had to wait for that. */
static void count_asked(void)
{
    asked++;
    if (rs_lock_try(&lock))
        rs_lock_give(&lock);
    else
        asked_under_lock++;
}

static uint64_t counted_clock_ns(clockid_t clock)
{
    count_asked();
    return rs_clock_ns(clock);
}

#define rs_clock_ns counted_clock_ns
#include "in_progress.c"

struct rs_recorder rs;

int rs_lock_wait(rs_lock *taken) { return rs_lock_try(taken); }

uint64_t rs_runnable_ns(int tid)
{
    count_asked();
    return tid ? 0 : 1;
}

static void watch_three_times(void)
{
    static struct rs_header header;
    rs.file = &header;
    rs_exposure_begin();
    rs_progress_begin(rs_ticks(), 8, 0);    /* the other thread begins to watch */
    rs_exposure_anew(rs_ticks());           /* the loop's own does so anew */
    rs_exposure_end(rs_ticks(), 0);
    lately.next_ticks = 0;
    rs_exposure_begin();                    /* while one is in progress */
    rs_exposure_end(rs_ticks(), 0);
    rs_progress_end(rs_ticks(), 0);
}

int main(void)
{
    rs_progress_begin(100, 8, 1);
    rs_progress_begin(300, 8, 1);
    uint64_t early = rs_progress_now(250).covered_ticks;    /* 250 was read before the second one began */
    rs_progress_end(400, 1);
    rs_progress_end(410, 1);
    struct rs_in_progress all = rs_progress_now(500);
    printf("%llu %llu %llu\n", (unsigned long long)early, (unsigned long long)all.covered_ticks,
           (unsigned long long)all.progress_ticks);
    watch_three_times();
    printf("%d %d\n", asked, asked_under_lock);
    return 0;
}
