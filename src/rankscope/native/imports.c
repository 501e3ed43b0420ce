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

static rs_lock lock;
static struct rs_chunk *rows;
static uint32_t modules_used;
static __thread struct rs_import *innermost __attribute__((tls_model("initial-exec")));

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

void rs_imports_forget(void)
{
    memset(&lock, 0, sizeof lock);
    rows = NULL;
    modules_used = 0;
    for (struct rs_import *import = innermost; import; import = import->outer) {
        import->row = NULL;     /* forked inside an import: the rows are the parent's */
        import->id = import->outer_module = 0;
    }
    rankscope_calls_thread.module = 0;
    rankscope_calls_thread.cause = RS_CAUSE_INTERPRETER;
}

/* The other layers need room in a small file, too. */
static int room_for_more(void)
{
    return modules_used < MOST_MODULES
           && ((uint64_t)modules_used + 1) * sizeof(struct rs_module) + MODULES_CHUNK < rs.file->bound_bytes / 2;
}

static struct rs_module *add_row(const struct rs_module *filled, uint32_t *id)
{
    struct rs_module *row = NULL;
    if (!rs_lock_take(&lock))
        return NULL;
    if (rs_chunk_full(rows) && room_for_more()) {
        struct rs_chunk *chunk = rs_chunk_new(RS_CHUNK_MODULES, 0, sizeof(struct rs_module),
                                              rows ? MODULES_CHUNK : FIRST_CHUNK);
        if (chunk) {
            chunk->first_id = modules_used + 1;
            rows = chunk;
        }
    }
    if (!rs_chunk_full(rows)) {
        row = (struct rs_module *)(rows + 1) + rows->rows;
        *row = *filled;
        *id = ++modules_used;
        __atomic_store_n(&rows->rows, rows->rows + 1, __ATOMIC_RELEASE);
    }
    rs_lock_give(&lock);
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

static void enter_row(struct rs_import *import, const char *name)
{
    struct rs_thread *thread = rs_self ? rs_self : rs_thread_start();
    struct rs_module filled = {.parent = import->outer_module, .name = rs_intern(name),
                               .thread = thread ? (uint16_t)thread->slot : 0, .begin_ticks = import->begin_ticks};
    import->row = add_row(&filled, &import->id);
    if (!import->row) {
        rs_count(&rs.file->lost_modules, 1);
        import->id = import->outer_module;
    }
}

void rs_import_begin(struct rs_import *import, const char *name)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    memset(import, 0, sizeof *import);
    rs_own_enter();
    import->outer = innermost;
    import->outer_module = self->module;
    import->outer_cause = self->cause;
    import->begin_ticks = rs_ticks();
    if (rs_telling())
        enter_row(import, name);
    import->objects = objects_loaded();
    innermost = import;
    self->module = import->id;
    self->cause = RS_CAUSE_SEARCH;
    import->begin_cpu_ns = rs_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    rs_own_leave();
}

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static void fill_row(struct rs_import *import, uint64_t ticks, uint64_t cpu_ns, uint64_t objects, int failed)
{
    struct rs_module *row = import->row;
    row->wall_ticks = ticks;
    row->self_wall_ticks = minus(ticks, import->inner_ticks);
    row->cpu_ns = cpu_ns;
    row->self_cpu_ns = minus(cpu_ns, import->inner_cpu_ns);
    row->shared_objects = (uint32_t)minus(objects, import->inner_objects);
    __atomic_store_n(&row->flags, RS_MODULE_ENDED | (failed ? RS_MODULE_FAILED : 0), __ATOMIC_RELEASE);
}

void rs_import_end(struct rs_import *import, int failed)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    rs_own_enter();
    uint64_t cpu_ns = minus(rs_clock_ns(CLOCK_THREAD_CPUTIME_ID), import->begin_cpu_ns);
    uint64_t ticks = rs_ticks() - import->begin_ticks;
    uint64_t objects = (uint32_t)(objects_loaded() - import->objects);
    if (import->row)
        fill_row(import, ticks, cpu_ns, objects, failed);
    if (import->outer) {
        import->outer->inner_ticks += ticks;
        import->outer->inner_cpu_ns += cpu_ns;
        import->outer->inner_objects += objects;
    }
    innermost = import->outer;
    self->module = import->outer_module;
    self->cause = import->outer_cause;
    rs_own_leave();
}

uint8_t rs_import_cause(uint8_t cause)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    uint8_t before = self->cause;
    if (self->module || innermost)
        self->cause = cause;
    return before;
}
