/* What stands in the loader's tables in place of the driver's functions: every call of Level Zero is timed in its own
 * thread, and what hands work to a device is followed. (The loader's tracing layer would call us as well, for 80 ns a
 * call: more than all that is done here.) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "trace.h"
#include "ze_layer.h"

#define INJECTED 1u                 /* in the lowest bit of the moment at which a call began */

enum function {
#define RS_ZE_LAUNCH(table, place, name, ...) F_##name,
#define RS_ZE_HOOKED(table, place, name, before, after) F_##name,
#define RS_ZE_CALL(table, place, name) F_##name,
#include "ze_functions.h"
#undef RS_ZE_LAUNCH
#undef RS_ZE_HOOKED
#undef RS_ZE_CALL
    FUNCTIONS
};

static const char *const names[FUNCTIONS] = {
#define RS_ZE_LAUNCH(table, place, name, ...) "ze" #name,
#define RS_ZE_HOOKED(table, place, name, before, after) "ze" #name,
#define RS_ZE_CALL(table, place, name) "ze" #name,
#include "ze_functions.h"
#undef RS_ZE_LAUNCH
#undef RS_ZE_HOOKED
#undef RS_ZE_CALL
};

/* Work for a device: the places of its arguments, -1 where it has none. */
struct launch { uint8_t kind; int8_t event, kernel, bytes, to, from; };
static const struct launch launches[FUNCTIONS] = {
#define KERNEL RS_GPU_KERNEL
#define COPY RS_GPU_COPY
#define SET RS_GPU_SET
#define RS_ZE_LAUNCH(table, place, name, kind, ...) [F_##name] = {kind, __VA_ARGS__},
#define RS_ZE_HOOKED(table, place, name, before, after)
#define RS_ZE_CALL(table, place, name)
#include "ze_functions.h"
#undef RS_ZE_LAUNCH
#undef RS_ZE_HOOKED
#undef RS_ZE_CALL
#undef KERNEL
#undef COPY
#undef SET
};

/* Launching functions of later versions, which go past us. */
static const char *const beyond[] = {
    "zeCommandListImmediateAppendCommandListsExp", "zeCommandListAppendLaunchKernelWithArguments",
    "zeCommandListAppendLaunchKernelWithParameters",
    "zeCommandListAppendMemoryCopyWithParameters", "zeCommandListAppendMemoryFillWithParameters",
};

static uint16_t ids[FUNCTIONS];                     /* string ids, 0: not asked for yet */
static uint16_t work_ids[FUNCTIONS][4][4];          /* of copies and sets, by where from and where to */
static const char kinds[] = "MHDS";

void rs_ze_calls_forget(void)
{
    memset(ids, 0, sizeof ids);
    memset(work_ids, 0, sizeof work_ids);
}

/* --- host calls --- */

static uint16_t id_of(uint32_t function)
{
    uint16_t id = __atomic_load_n(&ids[function], __ATOMIC_RELAXED);
    if (RS_UNLIKELY(!id)) {
        id = rs_intern(names[function]);
        __atomic_store_n(&ids[function], id, __ATOMIC_RELAXED);
    }
    return id;
}

static void count(uint16_t name, uint64_t begun, uint64_t now, uint32_t result)
{
    struct rs_thread *thread = rs_self ? rs_self : rs_thread_start();
    if (RS_UNLIKELY(!thread || !atomic_load_explicit(&rs.enabled, memory_order_relaxed)))
        return;
    int failed = result != RS_ZE_SUCCESS && result != RS_ZE_NOT_READY;
    uint64_t key = rs_key(name, 0, RS_LAYER_ZE, rs.phase, 0, RS_KIND_CALL);
    rs_tally(thread, key, now - begun, 0, failed);
    rs_trace(thread, key, begun, now - begun, 0, failed);
}

void rs_ze_init_called(const char *name, uint64_t begun, uint64_t ended, uint32_t result)
{
    count(rs_intern(name), begun, ended, result);
}

static inline int is_ours(void) { return !atomic_load_explicit(&rs_ze.is_on, memory_order_relaxed) || rs_ze_own; }

/* --- work --- */

static uint16_t name_of(uint32_t function, const struct launch *about, void **arguments)
{
    char text[96], from = 'M', to = 'M';
    if (about->from >= 0)
        from = rs_ze_memory_kind(RS_ZE_ARGUMENT(const void *, about->from));
    if (about->to >= 0)
        to = rs_ze_memory_kind(RS_ZE_ARGUMENT(const void *, about->to));
    uint16_t *id = &work_ids[function][strchr(kinds, from) - kinds][strchr(kinds, to) - kinds];
    if (*id)
        return *id;
    if (about->from >= 0 && about->to >= 0)
        snprintf(text, sizeof text, "%s(%c2%c)", names[function], from, to);
    else if (about->to >= 0)
        snprintf(text, sizeof text, "%s(%c)", names[function], to);
    else
        snprintf(text, sizeof text, "%s", names[function]);
    return *id = rs_intern(text);
}

struct region { uint32_t x, y, z, width, height, depth; };

static uint64_t bytes_of(uint32_t function, const struct launch *about, void **arguments)
{
    if (about->bytes >= 0)
        return RS_ZE_ARGUMENT(size_t, about->bytes);
    if (function != F_CommandListAppendMemoryCopyRegion || !RS_ZE_ARGUMENT(const struct region *, 2))
        return 0;
    const struct region *region = RS_ZE_ARGUMENT(const struct region *, 2);
    return (uint64_t)region->width * (region->height ? region->height : 1) * (region->depth ? region->depth : 1);
}

static void begin_launch(uint32_t function, void **arguments, void **of_call)
{
    unsigned injected = 0;
    if (is_ours())
        return;
    ze_handle *event = (ze_handle *)arguments[launches[function].event];
    if (!*event)
        injected = rs_ze_inject(RS_ZE_ARGUMENT(ze_handle, 0), event) ? INJECTED : 0;
    *of_call = (void *)(uintptr_t)((rs_ticks() & ~(uint64_t)INJECTED) | injected);
}

static void end_launch(uint32_t function, void **arguments, uint32_t result, void **of_call)
{
    uint64_t now = rs_ticks(), begun = (uint64_t)(uintptr_t)*of_call;
    const struct launch *about = &launches[function];
    if (!begun || is_ours())
        return;
    count(id_of(function), begun & ~(uint64_t)INJECTED, now, result);
    struct rs_ze_item item = {.event = RS_ZE_ARGUMENT(ze_handle, about->event), .kind = about->kind,
                              .flags = begun & INJECTED ? RS_ZE_OURS : 0};
    rs_ze_enter();
    if (about->kind != RS_GPU_KERNEL) {
        item.bytes = bytes_of(function, about, arguments);
        item.name_id = name_of(function, about, arguments);
    } else {
        item.name = about->kernel >= 0 ? rs_ze_kernel_name(RS_ZE_ARGUMENT(ze_handle, about->kernel)) : names[function];
    }
    rs_ze_appended(RS_ZE_ARGUMENT(ze_handle, 0), &item, begun & ~(uint64_t)INJECTED, result != RS_ZE_SUCCESS);
    rs_ze_leave();
}

/* --- other calls --- */

typedef void (*hook)(void **arguments, uint64_t begun);

static void begin_hooked(hook before, void **arguments, void **of_call)
{
    if (is_ours())
        return;
    if (before) {
        rs_ze_enter();
        before(arguments, 0);
        rs_ze_leave();
    }
    *of_call = (void *)(uintptr_t)(rs_ticks() & ~(uint64_t)INJECTED);
}

static void end_hooked(uint32_t function, hook after, void **arguments, uint32_t result, void **of_call)
{
    uint64_t now = rs_ticks(), begun = (uint64_t)(uintptr_t)*of_call;
    if (!begun || is_ours())
        return;
    count(id_of(function), begun, now, result);
    if (!after || result != RS_ZE_SUCCESS)
        return;
    rs_ze_enter();
    after(arguments, begun);
    rs_ze_leave();
}

/* A function that is called by its address alone passes by all callbacks. */
void rs_ze_EXTENSION_ASKED(void **arguments, uint64_t begun)
{
    const char *name = RS_ZE_ARGUMENT(const char *, 1);
    (void)begun;
    if (name && (strstr(name, "Append") || strstr(name, "Execute") || strstr(name, "Launch")))
        rs_unwrapped_add(name);
}

/* --- the functions --- */

/* No function of Level Zero has more arguments, counted in words: those that are not there are passed on as they are. */
#define PARAMETERS(type) type a0, type a1, type a2, type a3, type a4, type a5, type a6, type a7, type a8, type a9, type a10, \
                         type a11, type a12, type a13
#define VALUES a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13
#define PLACES &a0, &a1, &a2, &a3, &a4, &a5, &a6, &a7, &a8, &a9, &a10, &a11, &a12, &a13
typedef uint32_t (*function_of_driver)(PARAMETERS(uint64_t));

static function_of_driver real[FUNCTIONS];
static uint8_t is_taken[RS_ZE_TABLES];

#define rs_ze_NONE NULL
#define RS_ZE_LAUNCH(table, place, name, ...) \
    static uint32_t on_##name(PARAMETERS(uint64_t)) \
    { \
        void *arguments[] = {PLACES}, *of_call = NULL; \
        begin_launch(F_##name, arguments, &of_call); \
        uint32_t result = real[F_##name](VALUES); \
        if (of_call) \
            end_launch(F_##name, arguments, result, &of_call); \
        return result; \
    }
#define RS_ZE_HOOKED(table, place, name, before, after) \
    static uint32_t on_##name(PARAMETERS(uint64_t)) \
    { \
        void *arguments[] = {PLACES}, *of_call = NULL; \
        begin_hooked(rs_ze_##before, arguments, &of_call); \
        uint32_t result = real[F_##name](VALUES); \
        if (of_call) \
            end_hooked(F_##name, rs_ze_##after, arguments, result, &of_call); \
        return result; \
    }
#define RS_ZE_CALL(table, place, name) RS_ZE_HOOKED(table, place, name, NONE, NONE)
#include "ze_functions.h"
#undef RS_ZE_LAUNCH
#undef RS_ZE_HOOKED
#undef RS_ZE_CALL

static const struct { uint8_t table, place; function_of_driver ours; } functions[FUNCTIONS] = {
#define RS_ZE_LAUNCH(table, place, name, ...) {RS_ZE_TABLE_##table, place, on_##name},
#define RS_ZE_HOOKED(table, place, name, before, after) {RS_ZE_TABLE_##table, place, on_##name},
#define RS_ZE_CALL(table, place, name) {RS_ZE_TABLE_##table, place, on_##name},
#include "ze_functions.h"
#undef RS_ZE_LAUNCH
#undef RS_ZE_HOOKED
#undef RS_ZE_CALL
};

/* A table of the loader's, just filled in. */
void rs_ze_take_table(enum rs_ze_table which, void **table)
{
    is_taken[which] = 1;
    for (uint32_t i = 0; i < FUNCTIONS; i++)
        if (functions[i].table == which && table[functions[i].place]) {
            real[i] = (function_of_driver)table[functions[i].place];
            table[functions[i].place] = (void *)functions[i].ours;
        }
}

/* What we call ourselves goes past us. */
void *rs_ze_real(const char *name)
{
    for (uint32_t i = 0; i < FUNCTIONS; i++)
        if (!strcmp(names[i], name))
            return (void *)real[i];
    return NULL;
}

/* What this loader has and nobody sees is named in the file. */
void rs_ze_name_unseen(void *library)
{
    for (unsigned i = 0; i < sizeof beyond / sizeof beyond[0]; i++)
        if (dlsym(library, beyond[i]))
            rs_unwrapped_add(beyond[i]);
    for (uint32_t i = 0; i < FUNCTIONS; i++)
        if (launches[i].kind && !is_taken[functions[i].table] && dlsym(library, names[i]))
            rs_unwrapped_add(names[i]);
}
