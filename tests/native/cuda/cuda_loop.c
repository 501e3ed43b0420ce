/* A training loop on a GPU, from a script on stdin, in real time: the host sleeps, launches and waits, the device works
 * through what was launched, and everything that happened is printed as the truth. test_cuda_steps.py reads it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../../src/rankscope/native/cuda/cupti.h"
#include "fake_cupti.h"

#define RECORDS 200000
#define THREADS 2
#define STREAMS 4
#define LAUNCH_NS 4000u

int InitializeInjection(void);
int InitializeInjectionNvtx2(void *get_export_table);
uint64_t rankscope_range_begin(const char *name);
void rankscope_range_end(const char *name, uint64_t begin);
void rankscope_gc(int begins);
void rankscope_optimizers(int made);
void rankscope_compiling(int begins);

union record {
    struct rs_cupti_record any;
    struct rs_cupti_kernel kernel;
    struct rs_cupti_memcpy copy;
    struct rs_cupti_api api;
    struct rs_cupti_synchronization_record wait;
};
/* as CUPTI does, kept for each launching thread until they are delivered */
static union record *kept[THREADS];
static unsigned kept_used[THREADS];
static uint64_t free_at[STREAMS], begun[64];
static unsigned depth, correlation = 1000;

static union record *next(int thread)
{
    if (!kept[thread])
        kept[thread] = calloc(RECORDS, sizeof *kept[thread]);
    return &kept[thread][kept_used[thread]++];
}

static void pass(uint64_t until_ns)
{
    while (fake_now() < until_ns)
        if (until_ns - fake_now() > 200000)
            usleep(100);
}

static void call(int thread, uint32_t cbid, uint64_t start, uint64_t end)
{
    uint32_t tid = (uint32_t)syscall(SYS_gettid) + (uint32_t)thread * 100000u;     /* far from those of real threads */
    fake_begin();
    if (!fake_tells_calls())
        return;
    next(thread)->api = (struct rs_cupti_api){RS_CUPTI_RUNTIME, cbid, start, end, (uint32_t)getpid(), tid, correlation, 0};
}

/* A launch takes longer while somebody records it, as is told by this; nothing is recorded while nobody does. */
static uint64_t launch_ns(void)
{
    const char *cost = getenv("LOOP_COST_NS");
    return LAUNCH_NS + (cost && fake_attached() ? strtoull(cost, NULL, 10) : 0);
}

/* thread stream microseconds kind: compute, communication or copy */
static void launch(const char *line)
{
    int thread, stream;
    unsigned us;
    char kind[32];
    sscanf(line, "%d %d %u %31s", &thread, &stream, &us, kind);
    uint64_t now = fake_now(), start = now + 2 * LAUNCH_NS, takes_ns = launch_ns();
    int is_recorded = fake_attached();
    correlation++;
    if (is_recorded)
        call(thread, 2, now, now + LAUNCH_NS);
    if (start < free_at[stream])
        start = free_at[stream];
    uint64_t end = free_at[stream] = start + us * 1000ull;
    union record *record = is_recorded ? next(thread) : NULL;
    if (!record) {
        correlation = 1000;         /* counted anew once it is attached again; what was not delivered is gone */
        kept_used[0] = kept_used[1] = 0;
    } else if (!strcmp(kind, "copy")) {
        record->copy = (struct rs_cupti_memcpy){.kind = RS_CUPTI_MEMCPY, .copyKind = 1, .srcKind = RS_CUPTI_PAGEABLE, .bytes = 4096};
        record->copy.start = start;
        record->copy.end = end;
        record->copy.correlationId = correlation;
    } else {
        record->kernel = (struct rs_cupti_kernel){.kind = RS_CUPTI_CONCURRENT_KERNEL, .start = start, .end = end};
        record->kernel.streamId = (uint32_t)stream;
        record->kernel.correlationId = correlation;
        record->kernel.graphNodeId = getenv("LOOP_GRAPH") ? 7 : 0;
        record->kernel.name = strcmp(kind, "compute") ? "ncclDevKernel_AllReduce" : "gemm";
    }
    printf("activity %s %lu %lu %lu\n", kind, now, start, end);
    pass(now + takes_ns);
}

/* until a stream has done everything, and so many microseconds longer */
static void synchronize(const char *line)
{
    int stream;
    unsigned us;
    sscanf(line, "%d %u", &stream, &us);
    uint64_t now = fake_now(), until = (free_at[stream] > now ? free_at[stream] : now) + us * 1000ull;
    correlation++;
    pass(until);
    uint64_t end = fake_now();
    if (fake_attached())
        call(0, 5, now, end);
    if (fake_attached() && fake_enabled(RS_CUPTI_SYNCHRONIZATION))
        next(0)->wait = (struct rs_cupti_synchronization_record){RS_CUPTI_SYNCHRONIZATION, 3, now, end, correlation, 1, 7, 0};
    printf("sync %lu %lu\n", now, end);
}

static void deliver(int thread)
{
    for (unsigned i = 0; i < kept_used[thread]; i++) {
        char padded[256] = "";
        memcpy(padded, &kept[thread][i], sizeof kept[thread][i]);
        fake_put(padded, sizeof padded);
    }
    kept_used[thread] = 0;
}

/* what, and between which moments the recorder read its clock */
static void say(const char *what, const char *more, uint64_t before_ns)
{
    uint64_t after_ns = fake_now();
    printf("%s %s %lu %lu\n", what, more, before_ns, after_ns);
}

static void begin(const char *name)
{
    uint64_t now = fake_now();
    begun[depth++] = rankscope_range_begin(name);
    say("begin", name, now);
}

static void end(const char *name)
{
    uint64_t now = fake_now();
    rankscope_range_end(name, begun[--depth]);
    say("end", name, now);
}

/* so many ranges of that name, of which nothing is printed */
static void hurry(const char *line)
{
    unsigned times;
    char name[32];
    sscanf(line, "%u %31s", &times, name);
    while (times--)
        rankscope_range_end(name, rankscope_range_begin(name));
}

static void collect(const char *begins)
{
    uint64_t now = fake_now();
    rankscope_gc(atoi(begins));
    say("gc", begins, now);
}

static void compile(const char *begins)
{
    uint64_t now = fake_now();
    rankscope_compiling(atoi(begins));
    say("compile", begins, now);
}

void play(char *line);
void play(char *line)
{
    char *rest = line + 2;
    line[strcspn(line, "\n")] = 0;
    switch (line[0]) {
    case 'b': begin(rest); break;
    case 'e': end(rest); break;
    case 'r': hurry(rest); break;
    case 'h': fake_hold(atoi(rest)); break;
    case 's': pass(fake_now() + strtoull(rest, NULL, 10) * 1000u); break;
    case 'l': launch(rest); break;
    case 'y': synchronize(rest); break;
    case 'g': collect(rest); break;
    case 'c': compile(rest); break;
    case 'd': deliver(atoi(rest)); break;
    case 'K': fflush(stdout); raise(SIGKILL); break;
    default: exit(2);
    }
}

/* so many seconds of inference: nobody tells of steps */
void infer(double seconds);
void infer(double seconds)
{
    uint64_t until_ns = fake_now() + (uint64_t)(seconds * 1e9);
    while (fake_now() < until_ns) {
        for (int i = 0; i < 50; i++)
            play((char[]){"l 0 0 20 compute"});
        play((char[]){"y 0 0"});
        play((char[]){"d 0"});
    }
}

static void infer_late(void)
{
    infer(5);
    puts("inferred");
}

/* after main, and so after the interpreter of a program in Python */
void infer_at_exit(void);
void infer_at_exit(void) { atexit(infer_late); }

int main(void)
{
    char line[256];
    if (getenv("LOOP_NVTX"))
        InitializeInjectionNvtx2((void *)7);
    if (getenv("LOOP_TORCH"))       /* torch is imported, and has made so many optimizers */
        for (int made = 0; made <= atoi(getenv("LOOP_TORCH")); made++)
            rankscope_optimizers(made);
    if (InitializeInjection() != 1)
        return 2;
    while (fgets(line, sizeof line, stdin))
        play(line);
    return 0;
}
