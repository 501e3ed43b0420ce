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

static struct rs_chunk *ring;
static uint8_t refused;
static uint64_t own_ticks;      /* what asking the system has cost the job, any thread */

void rs_step_ring_forget(void)
{
    ring = NULL;
    refused = 0;
    own_ticks = 0;
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
    for (int part = 0; part < RS_PARTS; part++) {
        step->part_ticks[part] = (float)(b->part_ticks[part] - a->part_ticks[part]);
        step->blocked_ticks[part] = (float)(b->blocked_ticks[part] - a->blocked_ticks[part]);
    }
#define DIFFERENCE(type, field) step->field = (type)(b->field - a->field);
    DIFFERENCE(float, progress_ticks)
    DIFFERENCE(float, covered_ticks)
    DIFFERENCE(float, gc_ticks)
    DIFFERENCE(float, cpu_ns)
    DIFFERENCE(float, process_cpu_ns)
    DIFFERENCE(float, runnable_ns)
    DIFFERENCE(uint64_t, collective_bytes)
    DIFFERENCE(uint32_t, collectives)
    DIFFERENCE(uint32_t, gc_runs)
    DIFFERENCE(uint32_t, minor_faults)
    DIFFERENCE(uint32_t, major_faults)
    DIFFERENCE(uint32_t, voluntary_switches)
    DIFFERENCE(uint32_t, involuntary_switches)
    DIFFERENCE(uint32_t, process_involuntary_switches)
    DIFFERENCE(uint16_t, backwards)
    DIFFERENCE(uint16_t, optimizer_steps)
#undef DIFFERENCE
}

/* The number is stored last: a record is there whole or not at all. */
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
    __atomic_store_n(&step->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    fill(step, flags, begin, end);
    __atomic_store_n(&step->number, (uint32_t)number, __ATOMIC_RELEASE);
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

void rs_sample_system(struct rs_sample *sample)
{
    uint64_t since = rs_ticks();
    struct rusage thread, process;
    getrusage(RUSAGE_THREAD, &thread);
    getrusage(RUSAGE_SELF, &process);
    sample->minor_faults = (uint64_t)thread.ru_minflt;
    sample->major_faults = (uint64_t)thread.ru_majflt;
    sample->voluntary_switches = (uint64_t)thread.ru_nvcsw;
    sample->involuntary_switches = (uint64_t)thread.ru_nivcsw;
    sample->process_involuntary_switches = (uint64_t)process.ru_nivcsw;
    sample->cpu_ns = rs_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    sample->process_cpu_ns = rs_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    sample->runnable_ns = run_delay_ns(0);
    add_cost(since);
}
