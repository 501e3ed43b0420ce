/* A profiler plugin that puts two others to the same use: $ALTERNATING_ALONE, the job's own, and $ALTERNATING_BEHIND,
 * ours with a second copy of the job's own behind it. Every operation goes to the one that the program has chosen by
 * `alternating_side` just before it, so that the same call of the same process is timed with either. What the chosen
 * plugin itself takes of an operation in the thread that enqueues it (one start, one stop, two readings of the clock
 * each) is kept for `alternating_taken`. -DVERSION=4, 5 or 6. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
#if VERSION >= 5
#define DESCR struct nccl_descr_v5
#else
#define DESCR struct nccl_descr_v4
#endif

struct context { void *of[2]; };
struct event { void *inner; int side, is_operation; };

#define KEPT 65536u

#ifndef FIRST_SIDE
#define FIRST_SIDE 0
#endif
__attribute__((visibility("default"))) int alternating_side = FIRST_SIDE;
static struct nccl_profiler *plugins[2];
static int masks[2];
static uint32_t taken_ns[2][KEPT], operations[2];

/* Nanoseconds of the operations of a side since the last time it was asked; how many they are. One thread enqueues. */
__attribute__((visibility("default"))) uint32_t alternating_taken(int side, uint32_t *into, uint32_t most)
{
    uint32_t count = operations[side] < most ? operations[side] : most;
    for (uint32_t i = 0; i < count; i++)
        into[i] = taken_ns[side][i];
    operations[side] = 0;
    return count;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int find_plugins(void)
{
    const char *names[2] = {getenv("ALTERNATING_ALONE"), getenv("ALTERNATING_BEHIND")};
    for (int side = 0; side < 2; side++) {
        void *library = names[side] ? dlopen(names[side], RTLD_NOW | RTLD_LOCAL) : NULL;
        plugins[side] = library ? dlsym(library, "ncclProfiler_v" TEXT(VERSION)) : NULL;
        if (!plugins[side]) {
            fprintf(stderr, "alternating plugin: no %s\n", names[side] ? names[side] : "plugin named");
            return 1;
        }
    }
    return 0;
}

#if VERSION == 4
#define GIVEN void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log
#define OPEN(side) init_v4(&both->of[side], &masks[side], name, hash, nodes, ranks, rank, log)
#else
#define GIVEN void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log
#define OPEN(side) init_v5(&both->of[side], hash, &masks[side], name, nodes, ranks, rank, log)
#endif
static int init(GIVEN)
{
    struct context *both = calloc(1, sizeof *both);
    if ((!plugins[0] && find_plugins()) || plugins[0]->OPEN(0) || plugins[1]->OPEN(1))
        return 1;
    *mask = masks[0] | masks[1];
    *context = both;
    return 0;
}

/* Events of a kernel come later and from another thread: they are of the side of their operation. Either side is told
 * collectives and channels only, which both ask for, so that both are told the same. */
static int start(void *context, void **handle, const void *description)
{
    DESCR *descr = (DESCR *)(uintptr_t)description;
    struct event *parent = descr->parent, *made;
    int side = parent ? parent->side : __atomic_load_n(&alternating_side, __ATOMIC_RELAXED);
    *handle = NULL;
    if (!(descr->type & (NCCL_EVENT_COLL | NCCL_EVENT_KERNEL_CHANNEL)))
        return 0;
    made = calloc(1, sizeof *made);     /* never freed: NCCL does not say when an event is over for good */
    made->side = side;
    made->is_operation = descr->type == NCCL_EVENT_COLL;
    descr->parent = parent ? parent->inner : NULL;
    void *of_side = ((struct context *)context)->of[side];
    uint64_t begun_ns = made->is_operation ? now_ns() : 0;
    int result = plugins[side]->start(of_side, &made->inner, descr);
    if (made->is_operation && operations[side] < KEPT)
        taken_ns[side][operations[side]] = (uint32_t)(now_ns() - begun_ns);
    descr->parent = parent;
    *handle = made;
    return result;
}

static int stop(void *handle)
{
    struct event *event = handle;
    if (!event || !event->inner)
        return 0;
    if (!event->is_operation)
        return plugins[event->side]->stop(event->inner);
    uint64_t begun_ns = now_ns();
    int result = plugins[event->side]->stop(event->inner);
    if (operations[event->side] < KEPT)
        taken_ns[event->side][operations[event->side]++] += (uint32_t)(now_ns() - begun_ns);
    return result;
}

static int state(void *handle, int which, const void *args)
{
    struct event *event = handle;
    return event && event->inner ? plugins[event->side]->state(event->inner, which, args) : 0;
}

static int finalize(void *context)
{
    struct context *both = context;
    for (int side = 0; side < 2; side++)
        if (both->of[side])
            plugins[side]->finalize(both->of[side]);
    free(both);
    return 0;
}

__attribute__((visibility("default"))) struct nccl_profiler JOIN(ncclProfiler_v, VERSION) = {
    .name = "alternating",
#if VERSION == 4
    .init_v4 = init,
#else
    .init_v5 = init,
#endif
    .start = start, .stop = stop, .state = state, .finalize = finalize};
