/* A library that plays HIP and a program of it: random calls, kernels, copies, allocations and ranges on the stand-in of
 * rocprofiler-sdk, in several threads, and what must have been recorded of them. The starter (hip_starter.c) opens it as
 * Python opens torch: so that nobody else sees its symbols. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_rocprofiler.h"

int rocprofiler_register_library_api_table(const char *, void *, uint32_t, void **, uint64_t, void *);

#define MOST_THREADS 4
#define KERNELS 4
#define COPIES 5
static const char *const kernel_names[KERNELS] = {"_Z4gemmPf", "add", "ncclDevKernel_Generic", "__amd_rocclr_copyBuffer"};
static const char *const copy_names[COPIES] = {"[HIP memcpy]", "[HIP memcpy HtoH]", "[HIP memcpy HtoD]", "[HIP memcpy DtoH]",
                                               "[HIP memcpy DtoD]"};
static const char *const calls[] = {"hipLaunchKernel", "hipMemcpy", "hipMemcpyAsync", "hipMalloc", "hipFree", "hipDeviceSynchronize",
                                    "hipMemsetAsync", "hipGraphLaunch", "hipGetDevice", "hipStreamQuery"};
#define CALLS 10
enum { LAUNCH, COPY, COPY_ASYNC, MALLOC, FREE, SYNC, SET, GRAPH, GET_DEVICE, QUERY };

struct sums { long count; unsigned long long bytes, ns; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { long calls, errors; } called[CALLS];
static struct sums kernels[2][KERNELS], copies[2][COPIES];
static long ranges[2], untimed;
static unsigned long long live[2], peak[2];

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void count_call(int which, int failed)
{
    pthread_mutex_lock(&lock);
    called[which].calls++;
    called[which].errors += failed;
    pthread_mutex_unlock(&lock);
}

static void add(struct sums *to, uint64_t bytes, uint64_t ns)
{
    pthread_mutex_lock(&lock);
    to->count++;
    to->bytes += bytes;
    to->ns += ns;
    pthread_mutex_unlock(&lock);
}

static uint64_t agent(unsigned device) { return 107 + device * 7; }

static void launch(uint64_t *seed, int count)
{
    for (int i = 0; i < count; i++) {
        unsigned which = next(seed) % KERNELS, device = next(seed) % 2, odd = next(seed) % 50;
        uint64_t start = fake_now() + next(seed) % 100000, ns = next(seed) % 100000;
        if (odd < 2) {      /* of a GPU that HIP does not see; without a start */
            fake_kernel(fake_correlation(), odd ? 999 : agent(device), 1, which, odd ? start : 0, start + ns);
            __atomic_fetch_add(&untimed, 1, __ATOMIC_RELAXED);
            continue;
        }
        fake_kernel(fake_correlation(), agent(device), next(seed) % 3, which, start, start + ns);
        add(&kernels[device][which], 0, ns);
    }
}

static void copy(uint64_t *seed)
{
    unsigned direction = 2 + next(seed) % 3, device = next(seed) % 2;
    uint64_t bytes = next(seed) % 1000000, start = fake_now(), ns = next(seed) % 50000;
    uint64_t from = direction == 2 ? 100 : agent(device), to = direction == 3 ? 100 : agent(direction == 2 ? device : 1 - device);
    fake_copy(fake_correlation(), (int)direction, from, to, bytes, start, start + ns);
    add(&copies[device][direction], bytes, ns);
}

struct piece { uint64_t address, bytes; unsigned device; };

/* Memory is followed in one thread, so that its peak is known. */
static void allocate(uint64_t *seed, struct piece *piece, int is_first)
{
    static uint64_t addresses = 4096;
    *piece = (struct piece){__atomic_add_fetch(&addresses, 4096, __ATOMIC_RELAXED), 1 + next(seed) % 100000, (unsigned)(next(seed) % 2)};
    fake_memory(fake_correlation(), 1, agent(piece->device), piece->address, piece->bytes);
    if (is_first && (live[piece->device] += piece->bytes) > peak[piece->device])
        peak[piece->device] = live[piece->device];
}

struct job { uint64_t seed; int rounds, is_first; };

static void *work(void *given)
{
    struct job *job = given;
    struct piece pieces[64];
    int held = 0, depth = 0;
    for (int i = 0; i < job->rounds; i++) {
        int which = (int)(next(&job->seed) % CALLS), operation = fake_hip_operation(calls[which]);
        int failed = next(&job->seed) % 20 == 0;
        if ((which == MALLOC && (!job->is_first || held == 64)) || (which == FREE && (!job->is_first || !held)))
            continue;
        if (depth < 8 && next(&job->seed) % 10 == 0) {
            uint64_t begun = fake_enter(FAKE_MARKERS, 1, (uint64_t)(uintptr_t)"step");
            fake_leave(FAKE_MARKERS, 1, begun, (uint64_t)(uintptr_t)"step", (uint64_t)depth++);
            __atomic_fetch_add(&ranges[0], 1, __ATOMIC_RELAXED);
        }
        uint64_t begun = fake_enter(FAKE_HIP, operation, 0);
        if (!failed && which == LAUNCH)
            launch(&job->seed, 1);
        else if (!failed && which == GRAPH)
            launch(&job->seed, 3);
        else if (!failed && (which == COPY || which == COPY_ASYNC))
            copy(&job->seed);
        else if (!failed && which == MALLOC)
            allocate(&job->seed, &pieces[held++], job->is_first);
        else if (!failed && which == FREE) {
            struct piece *gone = &pieces[--held];
            fake_memory(fake_correlation(), 3, 0, gone->address, 0);
            live[gone->device] -= gone->bytes;
        }
        uint64_t answer = which == QUERY && next(&job->seed) % 2 ? 600 : failed ? 1 + next(&job->seed) % 700 : 0;
        if (failed && answer == 600)
            answer = 1;
        fake_leave(FAKE_HIP, operation, begun, 0, answer);
        count_call(which, answer && answer != 600);
        if (depth && next(&job->seed) % 10 == 0) {
            begun = fake_enter(FAKE_MARKERS, 2, 0);
            fake_leave(FAKE_MARKERS, 2, begun, 0, (uint64_t)--depth);
        }
        if (next(&job->seed) % 40 == 0) {
            uint64_t id = 1000 + (uint64_t)i, name = (uint64_t)(uintptr_t)"load";
            begun = fake_enter(FAKE_MARKERS, 3, name);
            fake_leave(FAKE_MARKERS, 3, begun, name, id + job->seed % 1000000 * 5000);
            begun = fake_enter(FAKE_MARKERS, 4, id + job->seed % 1000000 * 5000);
            fake_leave(FAKE_MARKERS, 4, begun, id, 0);
            __atomic_fetch_add(&ranges[1], 1, __ATOMIC_RELAXED);
        }
    }
    for (; depth; depth--) {
        uint64_t begun = fake_enter(FAKE_MARKERS, 2, 0);
        fake_leave(FAKE_MARKERS, 2, begun, 0, 0);
    }
    return NULL;
}

static void report(void)
{
    for (int i = 0; i < CALLS; i++)
        if (called[i].calls)
            printf("call %s %ld %ld\n", calls[i], called[i].calls, called[i].errors);
    for (int device = 0; device < 2; device++) {
        for (int i = 0; i < KERNELS; i++)
            if (kernels[device][i].count)
                printf("work %d %ld 0 %llu %s\n", device, kernels[device][i].count, kernels[device][i].ns, kernel_names[i]);
        for (int i = 0; i < COPIES; i++)
            if (copies[device][i].count)
                printf("work %d %ld %llu %llu %s\n", device, copies[device][i].count, copies[device][i].bytes, copies[device][i].ns, copy_names[i]);
        printf("memory %d %llu %llu\n", device, live[device], peak[device]);
    }
    printf("range step %ld\nrange load %ld\nuntimed %ld\n", ranges[0], ranges[1], untimed);
    fflush(stdout);
}

int run(int count, char **arguments)
{
    uint64_t seed = strtoull(arguments[0], NULL, 10), id = 0;
    int rounds = atoi(arguments[1]), threads = atoi(arguments[2]);
    const char *end = count > 3 ? arguments[3] : "return";
    void *table = NULL;
    pthread_t all[MOST_THREADS];
    struct job jobs[MOST_THREADS];
    printf("registered %d\n", rocprofiler_register_library_api_table("hip", NULL, 60300, &table, 1, &id));
    if (id != 42)
        printf("id %llu\n", (unsigned long long)id);
    fake_shuffle(seed % 3 ? seed : 0);
    for (int i = 0; i < KERNELS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.kd", kernel_names[i]);
        fake_kernel_symbol((uint64_t)i, name);
    }
    for (int i = 0; i < threads; i++) {
        jobs[i] = (struct job){seed * 77 + (uint64_t)i, rounds, i == 0};
        pthread_create(&all[i], NULL, work, &jobs[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    report();
    if (!strcmp(end, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(end, "fork")) {
        int status;
        pid_t child = fork();
        if (!child)
            exit(7);
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
    }
    if (!strcmp(end, "quick"))
        _exit(0);
    if (!strcmp(end, "sdk"))
        fake_end();
    return 0;
}
