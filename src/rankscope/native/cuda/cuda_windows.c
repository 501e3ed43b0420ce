/* When the GPU is recorded. Listening to CUPTI costs a launch-bound job up to a quarter of its speed, so kernels are
 * recorded from the program's first steps until there is enough to answer. Where the devices hardly wait for launches, recording costs
 * nothing and goes on; elsewhere whole steps are recorded in windows. What that costs is
 * measured in the job itself: steps inside a window against those outside, around it. Length and distance of windows
 * follow from it, so that all of recording stays below a hundredth of the job's time from the fifth minute on; where
 * it costs less than that anyway, the windows nearly touch. Where there are no steps (inference), what a window costs is
 * assumed by its kernels, and it ends by time. Steps, collectives and NCCL's plugin are always recorded.
 * docs/reference/metrics.md has the formulas. */
#include <stdlib.h>

#include "cuda_layer.h"
#include "steps.h"

static uint64_t second_ns = 1000000000u;        /* tests let time pass faster */
#define SECONDS(count) ((uint64_t)((count) * (double)second_ns))

#define FIRST_NS SECONDS(3)         /* of steps, recorded at the start, with waits, which cost most */
#define FIRST_STEPS 30u
#define FIRST_MOST_NS SECONDS(60)
#define DEVICE_STEPS 8u             /* on a device, in which it has not got its queue yet: they say nothing of launching */
#define DEVICE_NS SECONDS(1)        /* of steps on a device, to tell whether it waits for launches; without them */
#define DEVICE_MOST_NS SECONDS(6)   /* so long is waited for them */
#define BUSY 0.03                   /* a device that waits for launches for less than this: recording costs a hundredth at most */
#define WINDOW_NS SECONDS(1.5)
#define WINDOW_STEPS 16u
#define CHEAP_NS SECONDS(120)       /* a window where recording costs less than it may */
#define BARE_NS SECONDS(2)          /* the least time between two */
#define BARE_STEPS 8u
#define AFTER_NS SECONDS(5)         /* of steps after a window: enough to tell what it cost, although they are more when the next one begins */
#define LONGEST_NS SECONDS(30)      /* for which steps are waited for, where they are long */
#define TRIAL_NS SECONDS(300)       /* a job as long as this may cost as much as a share of it all at once */
static double share_of_time = 0.0045;   /* that recording may cost, of the hundredth that all of us may; tests take more of it */
#define LEAST_SHARE 0.002
#define CHEAP 0.006
#define FIRST_COST 0.4              /* before it is measured */
#define LEAST_COST 0.03             /* and less is not believed of a device that waits for launches, until there are */
#define SURE 5u                     /* so many measurements */
#define KERNEL_NS 5000.0            /* that a record adds to a launch, where there are no steps to measure it by */
#define STEPLESS_MOST_NS SECONDS(60)    /* so long steps are waited for once an optimizer was made */
#define NOT_MEASURED -1.0
#define COSTS 15u                   /* the latest that count */
#define ROWS 256u
#define SAMPLE 255u                 /* steps of a period that are looked at one by one */
#define PAUSE 3.0                   /* medians: of a longer step no more counts, as the loop did something else in it */

struct period { uint64_t steps, ns; uint64_t sample[SAMPLE]; uint32_t latest; };   /* latest: its place, or SAMPLE */

static int wanted, is_open, has_stepped, has_first_only;
static uint64_t stepped_windows;    /* that have ended, once there were steps */
static uint64_t busy_before_ns;     /* of the busiest device, when this window began */
static double stepless_ns, stepless_cost;   /* what windows without steps have cost; the share of the last one */
static uint64_t began_ns, switched_ns, first_step_ns, next_ns;
static uint64_t settled_ns;         /* switched_ns, and what switching took: no step before it is compared */
static uint64_t kernels, kernel_ns, millisteps;          /* of this window; window_millisteps when it began */
static uint64_t device_steps, device_ns, launching_ns;   /* of steps on the devices; of it, idle because of the host */
static struct period now_in, recorded, bare_before;     /* this period, the last window, the time before it */
static double costs[COSTS], first_cost;          /* the latest; that of the first window */
static double first_work_ns, later_work_ns;     /* of steps in windows that have ended and have no price yet, without pauses */
static double priced_ns;                        /* what the windows before these have cost */
static int is_told, is_provisional;             /* of the last window: its cost, by the first steps after it */
static uint64_t dice;
static struct rs_chunk *rows;
static struct rs_window *last_row;

void rs_windows_forget(void)
{
    wanted = is_open = has_stepped = has_first_only = 0;
    first_cost = NOT_MEASURED;
    first_work_ns = later_work_ns = priced_ns = stepless_ns = stepless_cost = 0;
    is_told = is_provisional = 0;
    stepped_windows = busy_before_ns = 0;
    began_ns = switched_ns = settled_ns = first_step_ns = next_ns = 0;
    kernels = kernel_ns = millisteps = device_steps = device_ns = launching_ns = 0;
    now_in.steps = recorded.steps = bare_before.steps = now_in.ns = recorded.ns = bare_before.ns = 0;
    rows = NULL;
    last_row = NULL;
}

/* Not pausing, it has begun already; else it begins when it is opened. */
void rs_windows_begin(int may_pause)
{
    const char *second = getenv("RANKSCOPE_CUDA_SECOND_NS");
    if (second && atoll(second) > 0)
        second_ns = (uint64_t)atoll(second);
    if (getenv("RANKSCOPE_CUDA_SHARE"))
        share_of_time = atof(getenv("RANKSCOPE_CUDA_SHARE"));
    wanted = may_pause;
    first_cost = NOT_MEASURED;
    is_open = !may_pause;
    began_ns = switched_ns = rs_cuda.row->started_ns;
    rs_cuda.row->window_begin_ns = is_open ? began_ns : 0;
    dice = began_ns | 1;
}

uint64_t rs_windows_seen_steps(void) { return rs_cuda.row->seen_steps; }

/* Nobody would tell of steps in a program without torch, and it may end soon: all of it is recorded. */
int rs_windows_wanted(void)
{
    const char *asked = getenv("RANKSCOPE_CUDA");
    if (asked && !strcmp(asked, "auto"))
        return rs_steps_may_come() != RS_STEPS_NONE;
    return asked && !strcmp(asked, "windows");
}

int rs_windows_may_pause(void) { return wanted; }

int rs_windows_has_steps(void) { return has_stepped; }

/* Waits for the device are recorded in the first window with steps, or in which there may be some. */
int rs_windows_first(void) { return !stepped_windows && (has_stepped || rs_steps_may_come() == RS_STEPS_TRAINING); }

/* Recording pauses no more, where that would hide work or save nothing. */
void rs_windows_stay(const char *why)
{
    if (wanted && why)
        rs_cuda.row->note = rs_intern(why);
    wanted = 0;
}

/* --- what it costs --- */

static double median(double *values, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++)
        for (uint64_t j = i; j && values[j] < values[j - 1]; j--) {
            double other = values[j];
            values[j] = values[j - 1];
            values[j - 1] = other;
        }
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double sqrt_of(double value)
{
    double root = value > 1 ? value : 1;
    for (int i = 0; i < 40 && value > 0; i++)
        root = (root + value / root) / 2;
    return value > 0 ? root : 0;
}

static uint64_t next_dice(void) { return dice = dice * 6364136223846793005ull + 1442695040888963407ull; }

/* A step more, or more of the last one. All of a period's steps are equally likely to be in its sample. */
static void add_step(struct period *period, uint64_t ns, int is_rest)
{
    period->ns += ns;
    if (is_rest) {
        if (period->steps && period->latest < SAMPLE)
            period->sample[period->latest] += ns;
        return;
    }
    uint64_t place = period->steps++;
    if (place >= SAMPLE)
        place = (next_dice() >> 16) % period->steps;
    period->latest = place < SAMPLE ? (uint32_t)place : SAMPLE;
    if (place < SAMPLE)
        period->sample[place] = ns;
}

/* The mean step, of which pauses (a checkpoint, an evaluation) are no part; 0: there is none. */
static double usual_ns(const struct period *period)
{
    double sorted[SAMPLE], sum = 0;
    uint64_t count = period->steps < SAMPLE ? period->steps : SAMPLE;
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = (double)period->sample[i];
    double most = count ? PAUSE * median(sorted, count) : 0;
    for (uint64_t i = 0; i < count; i++)
        sum += sorted[i] < most ? sorted[i] : most;
    return count ? sum / (double)count : 0;
}

static double of_cost(double cost, double recorded_ns) { return cost > 0 ? cost / (1 + cost) * recorded_ns : 0; }

/* Of those that have no price yet. */
static double of_windows(double cost)
{
    return of_cost(first_cost != NOT_MEASURED ? first_cost : cost, first_work_ns) + of_cost(cost, later_work_ns);
}

/* A window is over: its steps against those after it and before it. Once the time after it is over as well, that stands. */
static void compare(int is_final)
{
    const struct period *after = &now_in;
    if (recorded.steps < BARE_STEPS || after->steps < BARE_STEPS || !recorded.ns || !after->ns)
        return;
    double bare_ns = usual_ns(after);
    if (bare_before.steps >= BARE_STEPS && bare_before.ns)
        bare_ns = (bare_ns + usual_ns(&bare_before)) / 2;
    double cost = usual_ns(&recorded) / bare_ns - 1;
    rs_cuda.row->costs -= is_provisional ? 1 : 0;
    is_told = 1;
    is_provisional = !is_final;
    if (stepped_windows == 1)
        first_cost = cost;
    else if (rs_cuda.row->costs == 1 && has_first_only)
        rs_cuda.row->costs = 0;         /* the first records more than all others: it stands for them no longer */
    has_first_only = stepped_windows == 1;
    costs[rs_cuda.row->costs++ % COSTS] = cost;
    uint64_t count = rs_cuda.row->costs < COSTS ? rs_cuda.row->costs : COSTS;
    double sorted[COSTS];
    memcpy(sorted, costs, count * sizeof *costs);
    double middle = median(sorted, count);
    for (uint64_t i = 0; i < count; i++)
        sorted[i] = costs[i] > middle ? costs[i] - middle : middle - costs[i];
    /* 1.4826 medians of the deviations are a standard deviation, and a median errs 1.25 times as much as a mean */
    double error = count > 2 ? 1.25 * 1.4826 * median(sorted, count) / sqrt_of((double)count) : middle / 2;
    rs_cuda.row->cost_ppm = (int64_t)(middle * 1e6);
    rs_cuda.row->cost_error_ppm = (int64_t)((error < 0 ? -error : error) * 1e6);
    if (!is_final)
        return;
    priced_ns += of_windows(middle);    /* at what they cost then: it may cost another share later */
    first_work_ns = later_work_ns = 0;
}

/* Of a window without steps: by its kernels, unless the device has more to do than the host launches. */
static double assumed_cost(uint64_t now_ns)
{
    uint64_t last_ns, busy_ns = rs_gpu_busiest(&last_ns);
    double ns = now_ns > switched_ns ? (double)(now_ns - switched_ns) : 0, of_it_ns = (double)kernels * KERNEL_NS;
    double cost = ns > of_it_ns ? of_it_ns / (ns - of_it_ns) : ns > 0 ? FIRST_COST : 0;
    if (last_ns > switched_ns && (double)(busy_ns - busy_before_ns) >= (1 - BUSY) * (double)(last_ns - switched_ns))
        return 0;
    return cost < FIRST_COST ? cost : FIRST_COST;
}

/* By how much recording lengthens what is recorded, rather too high than too low. */
static double cost_at_most(void)
{
    const struct rs_cuda *row = rs_cuda.row;
    double cost = row->costs ? (double)(row->cost_ppm + row->cost_error_ppm) / 1e6 : has_stepped ? FIRST_COST : stepless_cost;
    return row->costs && row->costs < SURE && cost < LEAST_COST ? LEAST_COST : cost;
}

/* The speed of the machine changes as well, so that a window may seem to cost nothing by chance. */
static int is_cheap(void)
{
    const struct rs_cuda *row = rs_cuda.row;
    return row->costs >= SURE && (double)(row->cost_ppm + 3 * row->cost_error_ppm) / 1e6 <= CHEAP;
}

static double spent_ns(uint64_t now_ns)
{
    const struct rs_cuda *row = rs_cuda.row;
    double cost = row->costs ? (double)row->cost_ppm / 1e6 : cost_at_most();
    uint64_t since_ns = first_step_ns > switched_ns ? first_step_ns : switched_ns;  /* before there are steps, launching is not what takes the time */
    double open_ns = is_open && has_stepped && now_ns > since_ns ? (double)(now_ns - since_ns) : 0;
    double stepless_open_ns = is_open && !has_stepped && now_ns > switched_ns ? (double)(now_ns - switched_ns) : 0;
    return priced_ns + of_windows(cost) + of_cost(cost, open_ns)
           + stepless_ns + of_cost(assumed_cost(now_ns), stepless_open_ns) + (double)row->switching_ns;
}

/* --- windows --- */

static struct rs_window *next_row(void)
{
    uint64_t bytes = sizeof(struct rs_chunk) + ROWS * sizeof(struct rs_window);
    if (!rows) {
        rows = rs_chunk_new(RS_CHUNK_WINDOWS, 0, sizeof(struct rs_window), bytes);
        if (rows)
            __atomic_store_n(&rows->rows, ROWS, __ATOMIC_RELEASE);
    }
    return rows ? (struct rs_window *)(rows + 1) + (rs_cuda.row->windows - 1) % ROWS : NULL;
}

static void write_row(uint64_t now_ns)
{
    last_row = next_row();
    if (!last_row)
        return;
    __atomic_store_n(&last_row->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    last_row->begin_ns = switched_ns;
    last_row->end_ns = now_ns;
    last_row->millisteps = rs_cuda.row->window_millisteps - millisteps;
    last_row->kernels = kernels;
    last_row->kernel_ns = kernel_ns;
    last_row->steps = now_in.steps;
    last_row->step_ns = now_in.ns;
    last_row->bare_steps = last_row->bare_step_ns = 0;
    __atomic_store_n(&last_row->number, rs_cuda.row->windows, __ATOMIC_RELEASE);
}

void rs_windows_kernel(uint64_t ns)
{
    kernels++;
    kernel_ns += ns;
}

void rs_windows_device_step(uint64_t ns, uint64_t of_it_launching_ns)
{
    if (device_steps++ < DEVICE_STEPS)
        return;
    device_ns += ns;
    launching_ns += of_it_launching_ns;
}

void rs_windows_step(uint64_t begin_ns, uint64_t end_ns, int is_rest)
{
    struct rs_cuda *row = rs_cuda.row;
    uint64_t ns = end_ns - begin_ns;
    if (!has_stepped) {
        first_step_ns = begin_ns;
        next_ns = end_ns;       /* what is known without them is not enough */
    }
    has_stepped = 1;
    if (begin_ns >= switched_ns && begin_ns >= settled_ns)
        add_step(&now_in, ns, is_rest);
    if (is_rest)
        return;
    row->seen_steps++;
    if (begin_ns >= switched_ns) {
        row->window_millisteps += is_open ? 1000 : 0;
    } else if (ns && end_ns > switched_ns) {            /* recording began or ended in the middle of it */
        uint64_t part = is_open ? end_ns - switched_ns : switched_ns - begin_ns;
        row->window_millisteps += (uint64_t)(1000.0 * (double)part / (double)ns);
    } else {
        row->window_millisteps += is_open ? 0 : 1000;
    }
}

/* The job may pay its share of the time so far; in the first minutes, what the whole trial may is spread over it. */
static uint64_t distance_ns(uint64_t now_ns, double cost, uint64_t window_ns)
{
    double passed_ns = (double)(now_ns - began_ns), share = share_of_time;
    uint64_t switches = 2 * rs_cuda.row->windows;
    double one_ns = cost * (double)window_ns + 2 * (double)rs_cuda.row->switching_ns / (double)(switches ? switches : 1);
    if (passed_ns < (double)TRIAL_NS)
        share = (share_of_time * (double)TRIAL_NS - spent_ns(now_ns)) / ((double)TRIAL_NS - passed_ns);
    if (share < LEAST_SHARE)
        share = LEAST_SHARE;
    if (share > share_of_time)
        share = share_of_time;
    double ns = one_ns / share - (double)window_ns;
    double late_ns = (spent_ns(now_ns) + one_ns) / share_of_time - (passed_ns > (double)TRIAL_NS ? passed_ns : (double)TRIAL_NS);
    if (late_ns > ns)
        ns = late_ns;
    ns *= 0.75 + 0.5 * (double)(next_dice() >> 40) / (double)(1u << 24);   /* not in step with what the job does every so often */
    return ns > (double)BARE_NS ? (uint64_t)ns : BARE_NS;
}

static int has_enough(uint64_t ns, uint64_t least_ns, uint64_t least_steps)
{
    return (ns >= least_ns && now_in.steps >= least_steps) || (ns >= LONGEST_NS && ns >= least_ns);
}

/* The first window may cost half of what the first minutes may. */
static int should_close_without_steps(uint64_t now_ns)
{
    double ns = (double)(now_ns - switched_ns), passed_ns = (double)(now_ns - began_ns);
    double least_ns = (double)(rs_cuda.row->windows ? WINDOW_NS : rs_steps_may_come() == RS_STEPS_TRAINING ? STEPLESS_MOST_NS : FIRST_NS);
    double allowed_ns = share_of_time * (passed_ns > (double)TRIAL_NS ? passed_ns : (double)TRIAL_NS);
    return rs_cuda_may_interrupt() && ns >= least_ns && spent_ns(now_ns) > (rs_cuda.row->windows ? allowed_ns : allowed_ns / 2);
}

static int should_close(uint64_t now_ns)
{
    uint64_t ns = now_ns - switched_ns;
    if (!has_stepped)
        return should_close_without_steps(now_ns);
    if (stepped_windows)
        return has_enough(ns, is_cheap() ? CHEAP_NS : WINDOW_NS, WINDOW_STEPS);
    uint64_t since_ns = first_step_ns > switched_ns ? first_step_ns : switched_ns;
    uint64_t stepping_ns = now_ns - since_ns;
    int is_known = device_ns >= DEVICE_NS || stepping_ns >= DEVICE_MOST_NS;
    return (stepping_ns >= FIRST_NS && now_in.steps >= FIRST_STEPS && is_known) || stepping_ns >= FIRST_MOST_NS;
}

/* So often is looked whether to record. */
uint64_t rs_windows_turn_ns(void) { return SECONDS(0.2); }

enum rs_turn rs_windows_turn(uint64_t now_ns)
{
    if (!wanted || now_ns < switched_ns)
        return RS_TURN_STAY;
    if (!is_open && stepped_windows && !is_told && now_ns - switched_ns >= AFTER_NS)
        compare(0);
    rs_cuda.row->spent_ns = (uint64_t)spent_ns(now_ns);
    if (is_open && should_close(now_ns)) {
        if (stepped_windows || !device_ns || (double)launching_ns > BUSY * (double)device_ns)
            return RS_TURN_CLOSE;
        rs_windows_stay(NULL);
    }
    if (is_open)
        return RS_TURN_STAY;
    return now_ns >= next_ns && has_enough(now_ns - switched_ns, BARE_NS, has_stepped ? BARE_STEPS : 0) ? RS_TURN_OPEN
                                                                                                      : RS_TURN_STAY;
}

/* What it took to attach CUPTI, or to take it off, until now. */
void rs_windows_switched(uint64_t now_ns, uint64_t took_ns)
{
    settled_ns = now_ns;
    rs_cuda.row->switching_ns += took_ns;
    rs_cuda.row->spent_ns = (uint64_t)spent_ns(now_ns);
}

void rs_windows_closed(uint64_t now_ns)
{
    struct rs_cuda *row = rs_cuda.row;
    row->windows++;
    row->window_ns += now_ns - switched_ns;
    double work_ns = usual_ns(&now_in) * (double)(row->window_millisteps - millisteps) / 1000;
    if (has_stepped) {
        *(stepped_windows++ ? &later_work_ns : &first_work_ns) += work_ns;
    } else {
        stepless_cost = assumed_cost(now_ns);
        stepless_ns += of_cost(stepless_cost, (double)(now_ns - switched_ns));
    }
    row->window_begin_ns = 0;
    write_row(now_ns);
    recorded = now_in;
    is_open = 0;
    switched_ns = now_ns;
    now_in.steps = now_in.ns = 0;
    is_told = is_provisional = 0;
    double cost = cost_at_most();
    next_ns = now_ns + ((row->costs || !has_stepped) && cost > CHEAP ? distance_ns(now_ns, cost, WINDOW_NS) : BARE_NS);
}

void rs_windows_opened(uint64_t now_ns)
{
    struct rs_cuda *row = rs_cuda.row;
    compare(1);
    if (last_row) {
        last_row->bare_steps = now_in.steps;
        last_row->bare_step_ns = now_in.ns;
    }
    if (stepped_windows)
        bare_before = now_in;       /* before the first one the program warms up */
    now_in.steps = now_in.ns = 0;
    is_open = 1;
    switched_ns = now_ns;
    row->window_begin_ns = now_ns;
    kernels = kernel_ns = 0;
    busy_before_ns = rs_gpu_busiest(NULL);
    millisteps = row->window_millisteps;
}
