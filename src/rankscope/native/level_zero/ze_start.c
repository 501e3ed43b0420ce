/* Starting and ending with Level Zero. Its loader fills in its own tables of functions by calls that are bound like any
 * other, and finds ours first: what stands in the tables afterwards is ours, however the program has found zeInit. Recording
 * begins when that has succeeded. A process that does not use Level Zero pays nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include "ze_layer.h"

#define EXIT_TRIES 400              /* milliseconds for which the end of the process waits for a thread that is in here */
#define HAS_INIT_DRIVERS (1u << 16 | 10u)       /* the version of Level Zero whose table has it */
#define UNINITIALIZED 0x78000001u

struct rs_ze_layer rs_ze = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread int rs_ze_own __attribute__((tls_model("initial-exec")));

struct table { uint32_t (*init)(uint32_t flags); uint32_t (*init_drivers)(uint32_t *count, void *drivers, void *desc); };

enum life { NOT_STARTED = 0, STARTED = 1, OVER = 2 };
static atomic_int life;
static struct table real;           /* of the loader that was there first */
static void *loader;
static char loader_path[512];
static uint32_t loader_version;
static int32_t owner_pid;

/* --- the thread that asks devices once a second --- */

static void settle(int is_last)
{
    rs_ze_collect(is_last);
    rs_gpu_enter();
    if (rs_gpu.row)
        rs_gpu_settle(rs_gpu_note_now(), is_last);
    rs_gpu_leave();
}

static void take_turn(int is_last)
{
    if (!atomic_load(&rs_ze.is_on))
        return;
    rs_ze_enter();
    if (rs_ze.row && rs.file)
        settle(is_last);
    rs_ze_leave();
    rs_refresh_facts();
}

static struct rs_gpu_thread flusher = {.turn = take_turn, .lock = PTHREAD_MUTEX_INITIALIZER};

/* --- starting --- */

static int take_functions(void)
{
    int complete = 1;
#define X(name, arguments) \
    rs_ze.loader.name = (uint32_t (*) arguments)rs_ze_real(#name); \
    complete = complete && rs_ze.loader.name;
    RS_ZE_NEEDED(X)
#undef X
    return complete;
}

static void listen(void)
{
    int is_first;
    if (loader_version < RS_ZE_OLDEST || !take_functions() || !rs_gpu_begin(RS_BACKEND_ZE, NULL, &is_first)) {
        rs_ze.row->state = RS_RUNTIME_REFUSED;
        rs_ze.row->note = rs_intern("this loader of Level Zero is too old to be listened to (that of version 1.8 is not), or its driver tells "
                                    "no timestamps: nothing is recorded of its devices");
        return;
    }
    rs_ze_name_unseen(loader);
    if (is_first)
        rs_gpu.row->api = RS_CUDA_API_SYNC;
    atomic_store(&life, STARTED);
    atomic_store(&rs_ze.is_on, 1);
    rs_gpu_thread_start(&flusher);
    atexit(rs_ze_finish);
}

static int is_wanted(void)
{
    const char *asked = getenv("RANKSCOPE_LEVEL_ZERO");
    return !(asked && !strcmp(asked, "0"));
}

static void start(void)
{
    int before = NOT_STARTED;
    if (!is_wanted() || !rs_telling() || !atomic_compare_exchange_strong(&life, &before, OVER))
        return;
    rs.gpu = 1;
    owner_pid = getpid();
    rs_ze.row = rs_gpu_runtime(RS_BACKEND_ZE, loader_path);
    rs_ze_own = 1;
    if (rs_ze.row)
        listen();
    rs_ze_own = 0;
}

static uint32_t started(const char *name, uint64_t begun, uint32_t result)
{
    int saved = errno;
    uint64_t ended = rs_ticks();
    if (result == RS_ZE_SUCCESS)
        start();
    if (atomic_load(&rs_ze.is_on))
        rs_ze_init_called(name, begun, ended, result);
    errno = saved;
    return result;
}

static uint32_t init(uint32_t flags)
{
    uint64_t begun = rs_ticks();
    return started("zeInit", begun, real.init(flags));
}

static uint32_t init_drivers(uint32_t *count, void *drivers, void *desc)
{
    uint64_t begun = rs_ticks();
    return started("zeInitDrivers", begun, real.init_drivers(count, drivers, desc));
}

/* The library that calls, found again by an address in it. */
static void *library_of(const void *code, char *path, size_t size)
{
    Dl_info about;
    if (!dladdr(code, &about) || !about.dli_fname || strlen(about.dli_fname) >= size)
        return NULL;
    strcpy(path, about.dli_fname);
    return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

static int is_loader(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !strncmp(slash ? slash + 1 : path, "libze_loader", 12);
}

static void take_table(uint32_t version, struct table *table, void *library, const char *path)
{
    if (loader || !rs_recording() || !is_loader(path) || !table || !table->init)
        return;
    loader = library;
    loader_version = version;
    strcpy(loader_path, path);
    real.init = table->init;
    table->init = init;
    if (version >= HAS_INIT_DRIVERS && table->init_drivers) {
        real.init_drivers = table->init_drivers;
        table->init_drivers = init_drivers;
    }
}

typedef uint32_t (*fill_table)(uint32_t version, void *table);

/* The loader's own function of this name, which it would have called without us. */
static fill_table real_of(const char *name, const void *caller, void **library, char *path, size_t size)
{
    *library = library_of(caller, path, size);
    void *found = *library ? dlsym(*library, name) : NULL;
    return (fill_table)(found ? found : dlsym(RTLD_NEXT, name));
}

/* The loader calls these, inside the program's zeInit, for its own tables of functions. */
RS_EXPORT uint32_t zeGetGlobalProcAddrTable(uint32_t version, void *table)
{
    char path[512] = "";
    void *library;
    fill_table fill = real_of("zeGetGlobalProcAddrTable", __builtin_return_address(0), &library, path, sizeof path);
    uint32_t result = fill ? fill(version, table) : UNINITIALIZED;
    if (result == RS_ZE_SUCCESS && is_wanted())
        take_table(version, table, library, path);
    return result;
}

static uint32_t fill_in(const char *name, const void *caller, uint32_t version, void *table, enum rs_ze_table which)
{
    static uint8_t is_taken[RS_ZE_TABLES];
    char path[512] = "";
    void *library;
    fill_table fill = real_of(name, caller, &library, path, sizeof path);
    uint32_t result = fill ? fill(version, table) : UNINITIALIZED;
    if (result == RS_ZE_SUCCESS && loader && library == loader && version >= RS_ZE_OLDEST && !is_taken[which]) {
        is_taken[which] = 1;
        rs_ze_take_table(which, table);
    }
    return result;
}

#define RS_ZE_TABLE(name) \
    RS_EXPORT uint32_t zeGet##name##ProcAddrTable(uint32_t version, void *table) \
    { \
        return fill_in("zeGet" #name "ProcAddrTable", __builtin_return_address(0), version, table, RS_ZE_TABLE_##name); \
    }
#include "ze_tables.h"
#undef RS_ZE_TABLE

/* --- ending --- */

static int is_driver(struct dl_phdr_info *info, size_t size, void *found)
{
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (strncmp(name, "libze_intel", 11))
        return 0;
    *(const char **)found = info->dlpi_name;
    return 1;
}

/* A driver is there, and nobody has started it through a loader that we know of: a loader that is compiled into a program
 * or library asks for its functions itself. Not at the fast end of a process, where other threads may hold any lock. */
void rs_ze_note_unseen(void)
{
    const char *driver = NULL;
    struct rs_runtime *row = NULL;
    if (atomic_load(&life) != NOT_STARTED || !rs.file || !is_wanted())
        return;
    if (dl_iterate_phdr(is_driver, &driver))
        row = rs_gpu_runtime(RS_BACKEND_ZE, driver);
    if (!row)
        return;
    row->state = RS_RUNTIME_REFUSED;
    row->note = rs_intern("a driver of Level Zero is in the process, and was not started through libze_loader's zeInit: what its "
                          "devices did, if anything, is not recorded");
}

/* A thread of the program may be in here, or may have been stopped for good while it was. */
void rs_ze_finish(void)
{
    int tries = 0, before = STARTED;
    if (atomic_load(&life) != STARTED || owner_pid != getpid() || !atomic_compare_exchange_strong(&life, &before, OVER))
        return;
    while (rs_ze_own || atomic_load(&rs_ze.is_held)) {
        if (rs_ze_own || ++tries > EXIT_TRIES)
            return;
        rs_pause(1000);
    }
    rs_ze_enter();
    if (rs_ze.row && rs.file)
        settle(1);
    atomic_store(&rs_ze.is_on, 0);
    rs_ze_leave();
    rs_gpu_thread_end(&flusher);
}

/* In the child of a fork drivers do not work; where none was started, it still may be. */
void rs_ze_forget(void)
{
    if (atomic_load(&life) == NOT_STARTED)
        return;
    atomic_store(&life, OVER);
    atomic_store(&rs_ze.is_on, 0);
    pthread_mutex_init(&rs_ze.lock, NULL);
    atomic_store(&rs_ze.is_held, 0);
    rs_gpu_thread_forget(&flusher);
    rs_ze.row = NULL;
    rs_ze_own = 0;
    rs_ze_lists_forget();
    rs_ze_events_forget();
    rs_ze_devices_forget();
    rs_ze_memory_forget();
    rs_ze_calls_forget();
}
