/* The rows of imported modules, and what the system calls of a thread are put down to. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>

#include "calls_layer.h"
#include "imports.h"
#include "recorder.h"

#define FIRST_CHUNK (2u * RS_PAGE)      /* most Pythons of a job import little */
#define MODULES_CHUNK (8u * RS_PAGE)
#define MOST_MODULES 0xFFFFFu       /* a system call's key has 20 bits for it */
#define MOST_OPEN 4096u             /* imports at a time; more are counted as lost */

/* An import that goes on. Never on a stack: greenlets copy stacks away and back, end in any order, or never. */
struct import {
    uint64_t number;                /* 0: the place is free */
    struct rs_module *row;          /* NULL: it has none */
    uint64_t outer;                 /* number of what the same thread had begun before, and not ended */
    struct import *older, *newer;   /* the others of its thread; older of a free place: the next free one */
    uint32_t thread, forks;         /* begun by which thread, before how many forks */
    uint32_t id, objects;
    uint8_t outer_cause;
    uint64_t begin_ticks, begin_cpu_ns;
    uint64_t inner_ticks, inner_cpu_ns, inner_objects;  /* of the imports inside */
} __attribute__((aligned(128)));

static rs_lock lock;
static struct rs_chunk *rows;
static uint32_t modules_used;

static struct import open_imports[MOST_OPEN];
static uint32_t places_used;        /* under the lock */
static struct import *first_free;   /* taken under the lock, given back without */
static uint64_t begun;
static uint32_t threads;

/* Of this thread: its newest import that goes on, and a number that no other thread has. */
static __thread struct { struct import *newest; uint32_t thread; } here __attribute__((tls_model("initial-exec")));

uint32_t rs_imports_mode(void)
{
    static const char *names[] = {"off", "time", "calls", "paths"};
    const char *asked = getenv("RANKSCOPE_IMPORTS");
    for (uint32_t mode = 0; asked && mode < sizeof names / sizeof names[0]; mode++)
        if (!strcmp(asked, names[mode]))
            return mode;
    return RS_IMPORTS_TIME;
}

uint64_t rs_imports_bytes(void)
{
    uint32_t mode = rs_imports_mode();
    return mode == RS_IMPORTS_PATHS ? 32u << 20 : mode == RS_IMPORTS_CALLS ? 8u << 20 : 0;
}

/* --- imports that go on --- */

static struct import *import_of(uint64_t number)
{
    struct import *import = &open_imports[number % MOST_OPEN];
    return number && import->number == number ? import : NULL;
}

/* Only one takes at a time, so that the place at the head cannot have gone and come back meanwhile. */
static struct import *take_place(void)
{
    struct import *import = __atomic_load_n(&first_free, __ATOMIC_ACQUIRE);
    while (import && !__atomic_compare_exchange_n(&first_free, &import, import->older, 0, __ATOMIC_ACQUIRE,
                                                  __ATOMIC_ACQUIRE))
        continue;
    if (!import && places_used < MOST_OPEN)
        import = &open_imports[places_used++];
    if (!import)
        return NULL;
    begun += MOST_OPEN;
    import->number = begun + (uint64_t)(import - open_imports);
    return import;
}

static void give_place(struct import *import)
{
    import->number = 0;
    import->thread = 0;
    import->older = __atomic_load_n(&first_free, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&first_free, &import->older, import, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

static void link_newest(struct import *import)
{
    import->older = here.newest;
    import->newer = NULL;
    if (here.newest)
        here.newest->newer = import;
    here.newest = import;
}

static void unlink_and_give(struct import *import)
{
    if (import->newer)
        import->newer->older = import->older;
    else
        here.newest = import->older;
    if (import->older)
        import->older->newer = import->newer;
    give_place(import);
}

void rs_imports_thread_ended(void)
{
    while (here.newest)
        unlink_and_give(here.newest);
}

/* Imports of the thread that forked go on in the child, without the rows, which are the parent's. */
void rs_imports_forget(void)
{
    rows = NULL;
    modules_used = 0;
    first_free = NULL;
    for (uint32_t i = 0; i < places_used; i++)
        if (!open_imports[i].number || open_imports[i].thread != here.thread)
            give_place(&open_imports[i]);
    rankscope_calls_thread.module = 0;
    rankscope_calls_thread.cause = RS_CAUSE_INTERPRETER;
}

/* --- their rows --- */

/* The other layers need room in a small file, too. */
static int room_for_more(void)
{
    return modules_used < MOST_MODULES
           && ((uint64_t)modules_used + 1) * sizeof(struct rs_module) + MODULES_CHUNK < rs.file->bound_bytes / 2;
}

static struct rs_module *add_row(const struct rs_module *filled, uint32_t *id)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_MODULES, .row_bytes = sizeof(struct rs_module),
                                  .chunk_bytes = rows ? MODULES_CHUNK : FIRST_CHUNK, .first_id = modules_used + 1};
    struct rs_module *row = NULL;
    if (rs_chunk_has_room(rows, sizeof *row, sizeof *row) || room_for_more())
        row = rs_row_place(&rows, like, sizeof *row);
    if (row) {
        *row = *filled;
        *id = ++modules_used;
        rs_row_publish(rows, 1);
    }
    return row;
}

/* How many shared objects have been loaded so far. */
static int loads(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    *(uint64_t *)count = info->dlpi_adds;
    return 1;
}

static uint32_t objects_loaded(void)
{
    uint64_t count = 0;
    dl_iterate_phdr(loads, &count);
    return (uint32_t)count;
}

static struct import *enter(const char *name, uint64_t begin_ticks)
{
    struct import *import = NULL;
    struct rs_module *row = NULL;
    struct rs_thread *thread = rs_self ? rs_self : rs_thread_start();
    uint32_t id = rankscope_calls_thread.module;
    struct rs_module filled = {.parent = id, .name = rs_intern(name), .thread = thread ? (uint16_t)thread->slot : 0,
                               .begin_ticks = begin_ticks};
    if (rs_lock_try(&lock) || rs_lock_take(&lock)) {
        import = take_place();
        row = import ? add_row(&filled, &id) : NULL;
        rs_lock_give(&lock);
    }
    if (!row)
        rs_count(&rs.file->lost_modules, 1);
    if (!import)
        return NULL;
    import->row = row;
    import->id = id;
    import->begin_ticks = begin_ticks;
    return import;
}

uint64_t rs_import_begin(const char *name)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (!rs_telling())
        return 0;
    rs.imported = 1;
    rs_own_enter();
    struct import *import = enter(name, rs_ticks());
    if (import) {
        if (!here.thread)
            here.thread = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
        import->thread = here.thread;
        import->forks = rs.forks;
        import->outer = here.newest ? here.newest->number : 0;
        import->outer_cause = self->cause;
        import->inner_ticks = import->inner_cpu_ns = import->inner_objects = 0;
        link_newest(import);
        self->module = import->id;
        self->cause = RS_CAUSE_SEARCH;
        import->objects = objects_loaded();
        import->begin_cpu_ns = rs_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    }
    rs_own_leave();
    return import ? import->number : 0;
}

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static void fill_row(struct import *import, uint64_t ticks, uint64_t cpu_ns, uint64_t objects, int failed)
{
    struct rs_module *row = import->row;
    row->wall_ticks = ticks;
    row->self_wall_ticks = minus(ticks, import->inner_ticks);
    row->cpu_ns = cpu_ns;
    row->self_cpu_ns = minus(cpu_ns, import->inner_cpu_ns);
    row->shared_objects = (uint32_t)minus(objects, import->inner_objects);
    __atomic_store_n(&row->flags, RS_MODULE_ENDED | (failed ? RS_MODULE_FAILED : 0), __ATOMIC_RELEASE);
}

static void leave(struct import *import, int failed)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    uint64_t cpu_ns = minus(rs_clock_ns(CLOCK_THREAD_CPUTIME_ID), import->begin_cpu_ns);
    uint64_t ticks = rs_ticks() - import->begin_ticks;
    uint64_t objects = (uint32_t)(objects_loaded() - import->objects);
    struct import *outer = import_of(import->outer);    /* NULL also where a greenlet has ended it before us */
    if (import->row && import->forks == rs.forks)
        fill_row(import, ticks, cpu_ns, objects, failed);
    if (outer) {
        outer->inner_ticks += ticks;
        outer->inner_cpu_ns += cpu_ns;
        outer->inner_objects += objects;
    }
    self->module = outer && outer->forks == rs.forks ? outer->id : 0;
    self->cause = outer || !import->outer ? import->outer_cause : RS_CAUSE_INTERPRETER;
    unlink_and_give(import);
}

void rs_import_end(uint64_t number, int failed)
{
    struct import *import = import_of(number);
    if (!import || import->thread != here.thread)
        return;
    rs_own_enter();
    leave(import, failed);
    rs_own_leave();
}

/* --- what system calls are put down to --- */

struct rs_import_place rs_import_here(void)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    return (struct rs_import_place){self->module, rs.forks, self->cause};
}

void rs_import_cause(uint8_t cause)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (self->module || here.newest)
        self->cause = cause;
}

void rs_import_back_to(const struct rs_import_place *place)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (!self->module && !here.newest)
        return;
    self->cause = place->cause;
    self->module = place->forks == rs.forks ? place->module : 0;
}
