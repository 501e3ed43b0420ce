/* Horovod's background thread: negotiation, fusion and execution.
 *
 * Horovod's library binds calls of its own functions when it is linked (-Bsymbolic-functions), so that none of them can
 * be interposed. But its controllers and operations are classes with virtual functions, which are called through
 * tables of addresses. Each table is gone through for the functions that are known by name, and those addresses give
 * way to our stubs. A function that is not there, or not virtual, is left alone. */
#define _GNU_SOURCE
#include "horovod_layer.h"
#include "loaded_objects.h"
#include "recorder.h"
#include "steps.h"
#include "table_slots.h"
#include "trampolines.h"

enum part { NEGOTIATION, FUSION, FUSION_SIZED, EXECUTION };
#define BUFFER_LENGTH 4         /* argument of AllreduceOp::MemcpyInFusionBuffer: where the size is left, */
#define WITH_LENGTH "RPKvRPvRm" /* where its arguments end so */
#define ARGUMENTS 12            /* words that are passed on: more than any version has */
#define FUNCTIONS "_ZN7horovod6common"
#define TABLES "_ZTVN7horovod6common"

struct doing { uint64_t start; };

/* A call of the program's that has gone on since then. */
RS_EXPORT void rankscope_horovod_call(const char *name, uint64_t begin, int failed)
{
    uint64_t now = rs_ticks();
    struct rs_thread *thread = rs.file ? rs_enter() : NULL;
    if (!thread)
        return;
    uint64_t key = rs_key(rs_intern(name), 0, RS_LAYER_HOROVOD, rs.phase, 0, RS_KIND_CALL);
    rs_tally(thread, key, now - begin, 0, failed);
    if (rs_step_open)
        rs_step_blocked(begin, now);
    rs_leave(thread, now);
}

#if defined(__x86_64__) || defined(__aarch64__)

#define METHOD(class, method, part, text) text,
static const char *const texts[] = {
#include "horovod_functions.h"
};
#define METHODS (sizeof texts / sizeof texts[0])
static uint16_t names[METHODS];

extern struct rs_entry rs_horovod_entries[] __attribute__((visibility("hidden")));

void rs_horovod_forget(void) { memset(names, 0, sizeof names); }

/* --- calls --- */

static void before(struct rs_frame *call)
{
    struct rs_thread *thread = rs_enter();
    if (!thread)
        return;
    ((struct doing *)call->kept)->start = rs_ticks();
    call->watched = 1;
    thread->depth = 0;      /* MPI below is recorded as ever */
}

static uint16_t name_of(const struct rs_entry *entry)
{
    uint16_t *name = &names[entry - rs_horovod_entries];
    if (RS_UNLIKELY(!__atomic_load_n(name, __ATOMIC_RELAXED)))
        __atomic_store_n(name, rs_intern(texts[entry - rs_horovod_entries]), __ATOMIC_RELAXED);
    return *name;
}

/* No call of the program's: it overlaps with what the program does, so it is counted as progress. */
static void after(struct rs_frame *call, int thrown)
{
    uint64_t now = rs_ticks(), start = ((struct doing *)call->kept)->start, bytes = 0;
    struct rs_thread *thread = rs.file ? rs_enter() : NULL;
    if (!thread)
        return;
    if (call->entry->operation == FUSION_SIZED && !thrown)
        bytes = *(const uint64_t *)rs_argument(call, BUFFER_LENGTH);
    uint64_t key = rs_key(name_of(call->entry), 0, RS_LAYER_HOROVOD, rs.phase, rs_size_class(bytes), RS_KIND_PROGRESS);
    rs_tally(thread, key, now - start, bytes, thrown);
    rs_leave(thread, now);
}

static const struct rs_entry_layer layer = {before, after};

/* Status Execute(…) is built in memory of the caller's; the others return nothing. */
#define METHOD(class, method, part, text)                                                         \
    {FUNCTIONS #class #method "E", NULL, &layer, part, 0, part == EXECUTION, ARGUMENTS,                    \
     RS_NO_ARGUMENT, RS_NO_ARGUMENT, RS_NO_ARGUMENT, RS_NO_ARGUMENT, 0, {0}},
__attribute__((visibility("hidden"), used)) struct rs_entry rs_horovod_entries[] = {
#include "horovod_functions.h"
};

#define METHOD(class, method, part, text) RS_STUB(class##method)
__asm__(RS_STUBS_BEGIN(rs_horovod_entries)
#include "horovod_functions.h"
        RS_STUBS_END);

#define METHOD(class, method, part, text) extern char rs_stub_##class##method[] __attribute__((visibility("hidden")));
#include "horovod_functions.h"
#define METHOD(class, method, part, text) rs_stub_##class##method,
static char *const stubs[] = {
#include "horovod_functions.h"
};

/* --- the tables of virtual functions --- */

struct library { ElfW(Addr) base; struct rs_mapping mapping; uint32_t replaced; };

static int ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), most = strlen(ending);
    return length >= most && !strcmp(name + length - most, ending);
}

static void note_function(const char *name, const ElfW(Sym) *symbol, void *data)
{
    const struct library *library = data;
    if (strncmp(name, FUNCTIONS, sizeof FUNCTIONS - 1))
        return;
    for (unsigned i = 0; i < METHODS; i++)
        if (!strncmp(name, rs_horovod_entries[i].symbol, strlen(rs_horovod_entries[i].symbol))) {
            rs_horovod_entries[i].real = (void *)(library->base + symbol->st_value);
            if (rs_horovod_entries[i].operation == FUSION_SIZED && !ends_with(name, WITH_LENGTH))
                rs_horovod_entries[i].operation = FUSION;
        }
}

static void go_through_table(const char *name, const ElfW(Sym) *symbol, void *data)
{
    struct library *library = data;
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || strncmp(name, TABLES, sizeof TABLES - 1))
        return;
    void **place = (void **)(library->base + symbol->st_value), **end = place + symbol->st_size / sizeof *place;
    for (; place < end; place++)
        for (unsigned i = 0; i < METHODS; i++)
            if (rs_horovod_entries[i].real && *place == rs_horovod_entries[i].real)
                library->replaced += (uint32_t)rs_slot_replace(&library->mapping, place, *place, stubs[i]);
}

static int look_into(struct dl_phdr_info *info, size_t size, void *data)
{
    struct library *library = data;
    struct rs_object object = rs_object_read(info);
    (void)size;
    if (!rs_object_defines(&object, "horovod_init"))
        return 0;
    library->base = info->dlpi_addr;
    rs_object_each_defined(&object, note_function, library);
    rs_object_each_defined(&object, go_through_table, library);
    return 1;
}

/* When Horovod has been imported, before it starts its thread. Gives how many places were taken, 0 the second time. */
RS_EXPORT uint32_t rankscope_horovod(void)
{
    static uint8_t looked;
    struct library library = {0};
    if (!rs_telling() || __atomic_exchange_n(&looked, 1, __ATOMIC_RELAXED))
        return 0;
    dl_iterate_phdr(look_into, &library);
    return library.replaced;
}

#else

void rs_horovod_forget(void) {}
RS_EXPORT uint32_t rankscope_horovod(void) { return 0; }

#endif
