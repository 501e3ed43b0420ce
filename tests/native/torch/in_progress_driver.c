/* Two collectives, and the loop's thread, which had read its clock before the second one began, asks after it. */
#include <stdio.h>

#include "in_progress.c"

struct rs_recorder rs;

int rs_lock_wait(rs_lock *taken) { return rs_lock_try(taken); }
uint64_t rs_runnable_ns(int tid) { return (uint64_t)tid; }

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
    return 0;
}
