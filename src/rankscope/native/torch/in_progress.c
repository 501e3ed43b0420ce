/* Collectives in progress: how many, for how long, and how long the loop's thread stood still meanwhile. */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "steps.h"

#define RARELY 512u             /* asking how long it had no CPU may take this part of the time */

static rs_lock lock;
static struct rs_in_progress sums;
static uint64_t running, changed_ticks;
static uint64_t untold, untold_ticks;   /* of which waits may be seen by nobody: how many run, how long at least one did */

/* The loop's thread, while it runs something that may wait for collectives where nobody sees it wait. */
static struct exposure {
    uint8_t watched, begun, asked;      /* asked: runnable_ns is known */
    int32_t tid;                /* 0: not known yet */
    clockid_t clock;
    uint64_t number;            /* of the times it has begun */
    uint64_t begin_ticks, cpu_ns, runnable_ns, asking_ticks, covered_ticks, untold_ticks;
} exposure;

/* How much of the time off its CPU it wanted one, of late. Only the kernel knows, and asking it takes so long that it
 * holds up a short collective: where steps are short, it is asked in some and the others are taken to be like them. */
static struct {
    double runnable_ns, off_ns;         /* the older, the less they count */
    uint64_t next_ticks;
} lately;

void rs_progress_forget(void)
{
    memset(&sums, 0, sizeof sums);
    memset(&exposure, 0, sizeof exposure);
    memset(&lately, 0, sizeof lately);
    running = changed_ticks = untold = untold_ticks = 0;
}

/* A thread that read its clock before another may come after it. */
static void bring_up_to(uint64_t now)
{
    if (now <= changed_ticks)
        return;
    uint64_t since = now - changed_ticks;
    sums.progress_ticks += running * since;
    sums.covered_ticks += running ? since : 0;
    untold_ticks += untold ? since : 0;
    changed_ticks = now;
}

/* Whoever loses its CPU in a system call must not hold the lock: the clock of the loop's thread is read before, where
 * a look at what others may be changing says that it will be needed. */
static uint64_t cpu_ns_if(int likely) { return likely ? rs_clock_ns(exposure.clock) : 0; }

static int is_watched_in_vain(void)
{
    return __atomic_load_n(&exposure.watched, __ATOMIC_ACQUIRE) && !__atomic_load_n(&exposure.begun, __ATOMIC_RELAXED);
}

/* Under the lock. The number to ask the kernel for, when the lock is given back; 0: it is not due. */
static uint64_t watch_from(uint64_t now, uint64_t cpu_ns)
{
    __atomic_store_n(&exposure.begun, 1, __ATOMIC_RELAXED);
    exposure.asked = 0;
    exposure.number++;
    exposure.begin_ticks = now;
    exposure.covered_ticks = sums.covered_ticks;
    exposure.untold_ticks = untold_ticks;
    exposure.cpu_ns = cpu_ns ? cpu_ns : rs_clock_ns(exposure.clock);
    return now >= __atomic_load_n(&lately.next_ticks, __ATOMIC_RELAXED) ? exposure.number : 0;
}

/* Without the lock: whoever begins or ends a collective meanwhile would wait for a file of /proc. */
static void ask_for(uint64_t number)
{
    if (!number)
        return;
    uint64_t since = rs_ticks(), runnable_ns = rs_runnable_ns(exposure.tid);
    if (!rs_lock_take(&lock))
        return;
    if (exposure.begun && exposure.number == number) {
        exposure.asked = 1;
        exposure.runnable_ns = runnable_ns;
        exposure.asking_ticks = rs_ticks() - since;
    }
    rs_lock_give(&lock);
}

void rs_progress_begin(uint64_t now, uint64_t bytes, int waits_told)
{
    uint64_t cpu_ns = cpu_ns_if(!waits_told && is_watched_in_vain());
    if (!rs_lock_take(&lock))
        return;
    bring_up_to(now);
    running++;
    __atomic_store_n(&untold, untold + !waits_told, __ATOMIC_RELAXED);
    sums.collectives++;
    sums.bytes += bytes;
    uint64_t asked = exposure.watched && !exposure.begun && !waits_told ? watch_from(now, cpu_ns) : 0;
    rs_lock_give(&lock);
    ask_for(asked);
}

void rs_progress_end(uint64_t now, int waits_told)
{
    if (!rs_lock_take(&lock))
        return;
    bring_up_to(now);
    running -= running ? 1 : 0;
    __atomic_store_n(&untold, untold - (untold && !waits_told), __ATOMIC_RELAXED);
    rs_lock_give(&lock);
}

struct rs_in_progress rs_progress_now(uint64_t now)
{
    struct rs_in_progress found = {0, 0, 0, 0};
    if (rs_lock_take(&lock)) {
        bring_up_to(now);
        found = sums;
        rs_lock_give(&lock);
    }
    return found;
}

/* It is always the loop's thread that asks. */
void rs_exposure_begin(void)
{
    if (!exposure.tid) {
        if (pthread_getcpuclockid(pthread_self(), &exposure.clock) != 0)
            return;
        exposure.tid = (int32_t)syscall(SYS_gettid);
    }
    uint64_t cpu_ns = cpu_ns_if(__atomic_load_n(&untold, __ATOMIC_RELAXED) != 0);
    if (!rs_lock_take(&lock))
        return;
    uint64_t asked = 0;
    __atomic_store_n(&exposure.begun, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&exposure.watched, 1, __ATOMIC_RELEASE);
    if (untold) {
        uint64_t now = rs_ticks();
        bring_up_to(now);
        asked = watch_from(now, cpu_ns);
    }
    rs_lock_give(&lock);
    ask_for(asked);
}

void rs_exposure_anew(uint64_t now)
{
    if (!exposure.watched)
        return;
    uint64_t cpu_ns = cpu_ns_if(__atomic_load_n(&untold, __ATOMIC_RELAXED) != 0);
    if (!rs_lock_take(&lock))
        return;
    bring_up_to(now);
    __atomic_store_n(&exposure.begun, 0, __ATOMIC_RELAXED);
    uint64_t asked = untold ? watch_from(now, cpu_ns) : 0;
    rs_lock_give(&lock);
    ask_for(asked);
}

static uint64_t less(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static double less_than_all(double share) { return share < 1 ? share : 1; }

/* Of `off_ns` off the CPU since it is watched, those for want of one. */
static uint64_t runnable_of(const struct exposure *watched, uint64_t off_ns)
{
    if (!watched->asked)
        return lately.off_ns > 0 ? (uint64_t)((double)off_ns * less_than_all(lately.runnable_ns / lately.off_ns)) : 0;
    uint64_t since = rs_ticks(), runnable_ns = minus(rs_runnable_ns(watched->tid), watched->runnable_ns);
    lately.runnable_ns = lately.runnable_ns * 0.75 + (double)runnable_ns;
    lately.off_ns = lately.off_ns * 0.75 + (double)off_ns;
    uint64_t now = rs_ticks();
    __atomic_store_n(&lately.next_ticks, now + RARELY * (watched->asking_ticks + now - since), __ATOMIC_RELAXED);
    return runnable_ns;
}

/* Since it is watched: off the CPU and not for want of one, and for no longer than a collective was in progress. */
static uint64_t still_of(const struct exposure *watched, uint64_t now, uint64_t covered_ticks)
{
    struct rs_anchor at = rs_anchor_now(), *then = &rs.file->loaded;
    double ns_per_tick = (double)(at.monotonic_ns - then->monotonic_ns) / (double)(at.ticks - then->ticks);
    uint64_t on_cpu_ns = minus(rs_clock_ns(watched->clock), watched->cpu_ns);
    uint64_t off_ns = minus((uint64_t)((double)(now - watched->begin_ticks) * ns_per_tick), on_cpu_ns);
    uint64_t busy_ticks = (uint64_t)((double)(on_cpu_ns + runnable_of(watched, off_ns)) / ns_per_tick);
    return less(minus(now - watched->begin_ticks, busy_ticks), covered_ticks);
}

/* Off the CPU and not for want of one, since the first collective began whose waits nobody tells; never more than one
 * was in progress, without the waits that were told, and never more than such a one was. */
uint64_t rs_exposure_end(uint64_t now, uint64_t told_ticks)
{
    if (!exposure.watched || !rs_lock_take(&lock))
        return 0;
    bring_up_to(now);
    struct exposure watched = exposure;
    uint64_t covered_ticks = sums.covered_ticks - watched.covered_ticks;
    uint64_t out_of_sight_ticks = untold_ticks - watched.untold_ticks;
    __atomic_store_n(&exposure.watched, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&exposure.begun, 0, __ATOMIC_RELAXED);
    rs_lock_give(&lock);
    if (!watched.begun)
        return 0;
    return less(minus(still_of(&watched, now, covered_ticks), told_ticks), out_of_sight_ticks);
}
