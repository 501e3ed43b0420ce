/* The ring of steps in the rank file, and what the system says of the thread that runs them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "steps.h"

#define LEAST_STEPS 16u
#define SHARE_OF_FILE 3u
#define RARELY 512u             /* asking the system may take this part of the time */

static struct rs_chunk *ring;
static uint8_t refused;
static uint64_t own_ticks;      /* what asking the system has cost the job, any thread */

/* Where steps are short, several share what the system says of them together. */
static struct rs_system asked, asked_before;
static uint64_t asked_ticks, asked_before_ticks;    /* when: the end of a step */
static uint64_t asking_ticks;   /* how long it takes */
static uint64_t shared_number;  /* of the last step that has its share, perhaps not yet of all of its time */

void rs_step_ring_forget(void)
{
    ring = NULL;
    refused = 0;
    own_ticks = 0;
    asked = asked_before = (struct rs_system){0};
    asked_ticks = asked_before_ticks = asking_ticks = shared_number = 0;
    rs_step_blocks_forget();
}

/* The dearest of what steps cost: opening a file of /proc takes longer than all else that is done for a step. */
static void add_cost(uint64_t since)
{
    uint64_t all = __atomic_add_fetch(&own_ticks, rs_ticks() - since, __ATOMIC_RELAXED) / 1000;
    if (rs.file)
        __atomic_store_n(&rs.file->steps_cost_kiloticks, all < UINT32_MAX ? (uint32_t)all : UINT32_MAX, __ATOMIC_RELAXED);
}

/* A power of two of records in at most a third of the file. */
static struct rs_chunk *make_ring(void)
{
    uint64_t most = rs.file->bound_bytes / SHARE_OF_FILE / sizeof(struct rs_step), records = LEAST_STEPS;
    while (2 * records <= most)
        records *= 2;
    struct rs_chunk *chunk = NULL;
    for (; !chunk && records >= LEAST_STEPS; records /= 2) {
        uint64_t bytes = sizeof(struct rs_chunk) + records * sizeof(struct rs_step);
        chunk = rs_chunk_new(RS_CHUNK_STEPS, 0, sizeof(struct rs_step), bytes);
        if (chunk)
            __atomic_store_n(&chunk->rows, (uint32_t)records, __ATOMIC_RELEASE);
    }
    return chunk;
}

static void fill(struct rs_step *step, uint32_t flags, const struct rs_sample *a, const struct rs_sample *b)
{
    step->flags = flags;
    step->begin_ticks = a->ticks;
    step->end_ticks = b->ticks;
    for (int part = 0; part < RS_PARTS_TOGETHER; part++) {
        step->part_ticks[part] = (float)(b->part_ticks[part] - a->part_ticks[part]);
        step->blocked_ticks[part] = (float)(b->blocked_ticks[part] - a->blocked_ticks[part]);
    }
    step->compute_ticks = (float)(b->part_ticks[RS_PART_COMPUTE] - a->part_ticks[RS_PART_COMPUTE]);
    step->blocked_compute_ticks = (float)(b->blocked_ticks[RS_PART_COMPUTE] - a->blocked_ticks[RS_PART_COMPUTE]);
#define DIFFERENCE(type, field) step->field = (type)(b->field - a->field);
    DIFFERENCE(float, progress_ticks)
    DIFFERENCE(float, covered_ticks)
    DIFFERENCE(float, gc_ticks)
    DIFFERENCE(uint64_t, collective_bytes)
    DIFFERENCE(uint32_t, collectives)
    DIFFERENCE(uint32_t, gc_runs)
    DIFFERENCE(uint16_t, backwards)
    DIFFERENCE(uint16_t, optimizer_steps)
#undef DIFFERENCE
}

static void clear_system(struct rs_step *step)
{
    step->cpu_ns = step->process_cpu_ns = step->runnable_ns = 0;
    step->minor_faults = step->major_faults = 0;
    step->voluntary_switches = step->involuntary_switches = step->process_involuntary_switches = 0;
}

/* To the step at `at`, what falls on the time from share `from` to share `to` of that since the system was asked. */
static void add_share(struct rs_step *at, double from, double to)
{
#define ADD(field) at->field += (float)((to - from) * (double)(asked.field - asked_before.field));
    ADD(cpu_ns)
    ADD(process_cpu_ns)
    ADD(runnable_ns)
#undef ADD
#define ADD(field)                                                              \
    do {                                                                        \
        double all = (double)(asked.field - asked_before.field);                \
        at->field += (uint32_t)(to * all + 0.5) - (uint32_t)(from * all + 0.5); \
    } while (0);
    ADD(minor_faults)
    ADD(major_faults)
    ADD(voluntary_switches)
    ADD(involuntary_switches)
    ADD(process_involuntary_switches)
#undef ADD
}

/* The system was asked at the end of step `number`: each step since it was asked before has its part, by its time. */
static void share_out(uint64_t number)
{
    double all = (double)(asked_ticks - asked_before_ticks);
    uint64_t first = shared_number ? shared_number : 1;
    if (number - first >= ring->rows)
        first = number - ring->rows + 1;
    for (uint64_t at = first; at <= number && all > 0; at++) {
        struct rs_step *step = (struct rs_step *)(ring + 1) + (at - 1) % ring->rows;
        uint64_t from = step->begin_ticks > asked_before_ticks ? step->begin_ticks : asked_before_ticks;
        if (step->end_ticks > from)
            add_share(step, (double)(from - asked_before_ticks) / all, (double)(step->end_ticks - asked_before_ticks) / all);
    }
    shared_number = number;
    asked_before = asked;
    asked_before_ticks = asked_ticks;
}

/* The number is stored last: a record is there whole or not at all, but for what the system says. */
void rs_step_write(uint64_t number, uint32_t flags, const struct rs_sample *begin, const struct rs_sample *end)
{
    if (!ring && !refused) {
        if (!(ring = make_ring()))
            refused = 1;
        if (!rs.file->call_cost_milliticks)     /* nothing but steps has been recorded so far */
            rs_calibrate();
    }
    if (!ring) {
        rs_tally_lost(end->ticks - begin->ticks);
        return;
    }
    struct rs_step *step = (struct rs_step *)(ring + 1) + (number - 1) % ring->rows;
    int goes_on = step->number == (uint32_t)number;     /* it was written before, and ends later than was said */
    __atomic_store_n(&step->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    fill(step, flags, begin, end);
    if (!goes_on)
        clear_system(step);
    if (asked_ticks == end->ticks)
        share_out(number);
    __atomic_store_n(&step->number, (uint32_t)number, __ATOMIC_RELEASE);
    if (!goes_on)
        rs_step_blocks_add(ring, number - 1, shared_number);
}

static uint64_t run_delay_ns(int32_t tid)
{
    char path[64], text[96];
    int saved = errno;
    if (tid)
        snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    int fd = open(tid ? path : "/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    errno = saved;
    if (got <= 0)
        return 0;
    text[got] = 0;
    char *second = strchr(text, ' ');
    return second ? strtoull(second + 1, NULL, 10) : 0;
}

/* The kernel's run delay of a thread: it could have run and had no CPU. 0 where the kernel does not count it. */
uint64_t rs_runnable_ns(int32_t tid)
{
    uint64_t since = rs_ticks(), ns = run_delay_ns(tid);
    add_cost(since);
    return ns;
}

static void ask(void)
{
    uint64_t since = rs_ticks();
    struct rusage thread, process;
    getrusage(RUSAGE_THREAD, &thread);
    getrusage(RUSAGE_SELF, &process);
    asked.minor_faults = (uint64_t)thread.ru_minflt;
    asked.major_faults = (uint64_t)thread.ru_majflt;
    asked.voluntary_switches = (uint64_t)thread.ru_nvcsw;
    asked.involuntary_switches = (uint64_t)thread.ru_nivcsw;
    asked.process_involuntary_switches = (uint64_t)process.ru_nivcsw;
    asked.cpu_ns = rs_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    asked.process_cpu_ns = rs_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    asked.runnable_ns = run_delay_ns(0);
    uint64_t took = rs_ticks() - since;
    /* once in a while it is interrupted: that is not how long it takes */
    asking_ticks = took < asking_ticks || !asking_ticks ? took : asking_ticks + (took - asking_ticks) / 16;
    add_cost(since);
}

/* At the end of a step, which is now; `at_once`: before the first. */
void rs_ask_system(uint64_t ticks, int at_once)
{
    if (!at_once && ticks - asked_ticks < RARELY * asking_ticks)
        return;
    for (int times = at_once ? 4 : 1; times; times--)   /* the first time takes long, and any may be interrupted */
        ask();
    asked_ticks = ticks;
    if (at_once) {
        asked_before = asked;
        asked_before_ticks = ticks;
    }
}
