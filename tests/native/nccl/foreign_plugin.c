/* A profiler plugin of somebody else, for one version of the interface (-DVERSION=n): counts every call, and insists that
 * contexts, handles and parents are those that it has given itself. What it has counted is written to $FOREIGN_OUT
 * when its last communicator is finalized. $FOREIGN_MODE: what it does wrong. $FOREIGN_GOES_ON: what is not as it should
 * be is counted, too, instead of ending the program. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

#define KINDS 16
#define MAGIC 0x46524E44u
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define DESCR struct JOIN(nccl_descr_v, DESCR_VERSION)
#if VERSION >= 5
#define DESCR_VERSION 5
#else
#define DESCR_VERSION VERSION
#endif

struct object { unsigned magic; int kind; int stops, states; struct object *parent; };
struct context { unsigned magic; };

static long starts[KINDS][KINDS + 1], stops[KINDS], states[64], inits, finals, null_stops, null_contexts, wrongs;
static int last_nodes, last_ranks, last_rank;
static int alive, *mask_place;
static struct object shared_object = {.magic = MAGIC};

static int mode_is(const char *mode) { return getenv("FOREIGN_MODE") && !strcmp(getenv("FOREIGN_MODE"), mode); }
static int number(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

static void insist(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "foreign plugin: %s\n", what);
    __atomic_add_fetch(&wrongs, 1, __ATOMIC_RELAXED);
    if (!getenv("FOREIGN_GOES_ON"))
        abort();
}

static int kind_of(uint64_t type)
{
    int kind = 0;
    while (type > 1 && kind < KINDS - 1)
        type >>= 1, kind++;
    return kind;
}

static int open_plugin(void **context, int *mask)
{
    static struct context made = {MAGIC};
    __atomic_add_fetch(&inits, 1, __ATOMIC_RELAXED);
    if (mode_is("fail") || (mode_is("fail_second") && inits == 2))
        return 1;
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    mask_place = mask;
    *mask = number("FOREIGN_MASK", 0x7FFF);
    *context = mode_is("no_context") ? NULL : &made;
    return 0;
}

#if VERSION >= 4
static void told(uint64_t hash, int nodes, int ranks, int rank)
{
    insist(hash && nodes > 0 && rank >= 0 && rank < ranks, "init was told something else");
    last_nodes = nodes, last_ranks = ranks, last_rank = rank;
}
#endif

#if VERSION <= 3
static int init(void **context, int *mask) { return open_plugin(context, mask); }
#elif VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log)
{
    (void)name, (void)log;
    told(hash, nodes, ranks, rank);
    return open_plugin(context, mask);
}
#else
static int init(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log)
{
    (void)name, (void)log;
    told(hash, nodes, ranks, rank);
    return open_plugin(context, mask);
}
#endif

static void misbehave(long events)
{
    if (mode_is("crash") && events == 20)
        raise(SIGSEGV);
    if (mode_is("exit") && events == 20)
        _Exit(7);
    if (mode_is("raise") && events == 20)
        *mask_place = 0x7F;
    if (mode_is("lower") && events == 20)
        *mask_place = NCCL_EVENT_COLL;
}

/* As plugins do that allocate nothing later on: the next of a few hundred of the thread, whose event was over long ago. */
static struct object *pooled(int kind)
{
    static __thread struct object pools[KINDS][512];
    static __thread unsigned next[KINDS];
    return &pools[kind][next[kind]++ % 512];
}

static int start(void *context, void **handle, const void *description)
{
    static long events;
    const DESCR *descr = description;
    struct object *parent = descr->parent;
    int kind = kind_of(descr->type);
    insist(!context ? mode_is("no_context") : ((struct context *)context)->magic == MAGIC, "a context of somebody else");
    insist(!parent || parent->magic == MAGIC, "a parent of somebody else");
    __atomic_add_fetch(&starts[kind][parent && parent->magic == MAGIC ? parent->kind : KINDS], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&null_contexts, !context, __ATOMIC_RELAXED);
    misbehave(__atomic_add_fetch(&events, 1, __ATOMIC_RELAXED));
    *handle = NULL;
    if (mode_is("none") || (mode_is("no_collectives") && (kind == 1 || kind == 12)))
        return 0;
    if (mode_is("same")) {
        *handle = &shared_object;
        return 0;
    }
    struct object *made = mode_is("pool") ? pooled(kind) : calloc(1, sizeof *made);
    *made = (struct object){.magic = MAGIC, .kind = kind, .parent = parent};
    *handle = made;
    return 0;
}

static int stop(void *handle)
{
    struct object *object = handle;
    if (!object) {
        __atomic_add_fetch(&null_stops, 1, __ATOMIC_RELAXED);
        return 0;
    }
    insist(object->magic == MAGIC, "a handle of somebody else");
    insist(mode_is("same") || __atomic_add_fetch(&object->stops, 1, __ATOMIC_RELAXED) == 1, "stopped twice");
    __atomic_add_fetch(&stops[object->kind], 1, __ATOMIC_RELAXED);
    return 0;
}

static int state(void *handle, int which, const void *args)
{
    (void)args;
    insist(handle && ((struct object *)handle)->magic == MAGIC, "the state of somebody else's event");
    __atomic_add_fetch(&states[which & 63], 1, __ATOMIC_RELAXED);
    return 0;
}

static void report(void)
{
    FILE *out = getenv("FOREIGN_OUT") ? fopen(getenv("FOREIGN_OUT"), "a") : NULL;
    if (!out)
        return;
    fprintf(out, "version %d inits %ld finals %ld null_stops %ld null_contexts %ld\n", VERSION, inits, finals, null_stops,
            null_contexts);
    fprintf(out, "nodes %d ranks %d rank %d\n", last_nodes, last_ranks, last_rank);
    if (wrongs)
        fprintf(out, "wrong: %ld\n", wrongs);
    for (int kind = 0; kind < KINDS; kind++)
        for (int of = 0; of <= KINDS; of++)
            if (starts[kind][of])
                fprintf(out, "start %d of %d: %ld\n", kind, of, starts[kind][of]);
    for (int kind = 0; kind < KINDS; kind++)
        if (stops[kind])
            fprintf(out, "stop %d: %ld\n", kind, stops[kind]);
    for (int which = 0; which < 64; which++)
        if (states[which])
            fprintf(out, "state %d: %ld\n", which, states[which]);
    fclose(out);
}

static int finalize(void *context)
{
    insist(context && ((struct context *)context)->magic == MAGIC, "a context of somebody else is finalized");
    __atomic_add_fetch(&finals, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
    return 0;
}

/* NCCL closes the library after its last communicator: what a plugin does then must happen then. */
__attribute__((destructor)) static void closed(void) { report(); }

__attribute__((visibility("default"))) struct nccl_profiler JOIN(ncclProfiler_v, VERSION) = {
    .name = "foreign",
#if VERSION <= 3
    .init_v1 = init,
#elif VERSION == 4
    .init_v4 = init,
#else
    .init_v5 = init,
#endif
    .start = start, .stop = stop, .state = state, .finalize = finalize};
