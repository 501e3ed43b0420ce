/* HIP and ROCm. Each library of ROCm hands its table of functions to rocprofiler-register when it starts; that passes it on to
 * rocprofiler-sdk if there is a tool. We are asked first (the symbol below is found before theirs): where the SDK can be
 * loaded we make ourselves its tool, by rocprofiler_force_configure. Neither a variable nor a symbol called
 * rocprofiler_configure does that for us: with either of them rocprofiler-register ends a program that has no SDK. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rocm_layer.h"

#define BUFFER_BYTES (1u << 20)
#define PATH_BYTES 1024
#define NO_TOOLS 1                  /* what rocprofiler-register says where nobody wants to know */

struct rs_rocm_layer rs_rocm;

enum life { NOT_STARTED = 0, STARTED = 1, OVER = 2 };
static atomic_int life;
static atomic_int is_asked;         /* the first library has come */
static int32_t owner_pid;
static void flush(int is_last);
static struct rs_gpu_thread flusher = {.turn = flush, .has_last = 1, .lock = PTHREAD_MUTEX_INITIALIZER};

int rs_rocm_is_on(void) { return atomic_load_explicit(&life, memory_order_relaxed) == STARTED && rs.file; }

/* --- the clock --- */

static void read_clocks(uint64_t *ticks, uint64_t *ns, uint64_t *width_ticks)
{
    uint64_t before = rs_ticks();
    if (rs_rocm.sdk.get_timestamp(ns) != RS_ROCP_SUCCESS)
        *ns = 0;
    *ticks = rs_ticks();
    *width_ticks = *ticks - before;
}

static uint64_t note_now(void)
{
    struct rs_cuda *row = rs_gpu.row;
    if (!rs_rocm_is_on())
        return row->flushed_ns;
    read_clocks(&row->flushed_ticks, &row->flushed_ns, &row->flushed_width_ticks);
    return row->flushed_ns;
}

/* Under rs_gpu.lock, where the clock of the process is another runtime's. */
static void compare_clocks(void)
{
    uint64_t ticks, ns, width_ticks;
    if (rs_gpu.note_now == note_now || !rs_gpu_has_rate())
        return;
    read_clocks(&ticks, &ns, &width_ticks);
    if (ns)
        rs_rocm.offset_ns = (int64_t)(ns - rs_gpu_ns_of(ticks - width_ticks / 2));
}

/* --- flushing --- */

static void flush(int is_last)
{
    rs_rocm.sdk.flush_buffer(rs_rocm.buffer);
    rs_gpu_enter();
    if (rs_gpu.row && rs_rocm_is_on()) {
        compare_clocks();
        rs_gpu_settle(rs_gpu_note_now(), is_last);
    }
    rs_gpu_leave();
    rs_refresh_facts();
}

/* The last flush, for which the end of the process waits a bounded time only. */
void rs_rocm_finish(void)
{
    if (atomic_load(&life) != STARTED || owner_pid != getpid())
        return;
    if (flusher.is_there)
        rs_gpu_thread_end(&flusher);
    else
        flush(1);
    atomic_store(&life, OVER);
}

/* --- being the SDK's tool --- */

static void sdk_ends(void *data)
{
    (void)data;
    rs_rocm_finish();
}

/* The SDK lets its tools choose now and at no other time. 0: go on. */
static int initialize(void *finalize, void *data)
{
    char note[256] = "";
    int is_first = 0;
    struct rs_rocp_handle thread;
    (void)finalize;
    (void)data;
    struct rs_cuda *row = rs_gpu_begin(RS_BACKEND_HIP, note_now, &is_first);
    rs_rocm.row = row ? rs_gpu_runtime(RS_BACKEND_HIP, "rocprofiler-sdk") : NULL;
    if (!rs_rocm.row)
        return -1;
    snprintf(note, sizeof note, "%u.%u.%u", rs_rocm.version / 10000, rs_rocm.version / 100 % 100, rs_rocm.version % 100);
    rs_rocm.row->version = rs_intern(note);
    note[0] = 0;
    rs_gpu_enter();
    if (is_first)
        read_clocks(&row->started_ticks, &row->started_ns, &row->started_width_ticks);
    rs_gpu_leave();
    const struct rs_rocp *sdk = &rs_rocm.sdk;
    int is_ready = sdk->create_context(&rs_rocm.context) == RS_ROCP_SUCCESS
                   && sdk->create_buffer(rs_rocm.context, BUFFER_BYTES, BUFFER_BYTES / 2, RS_ROCP_LOSSLESS, rs_rocm_buffer, NULL,
                                         &rs_rocm.buffer) == RS_ROCP_SUCCESS
                   && rs_rocm_records_begin(note, sizeof note) && rs_rocm_calls_begin(note, sizeof note)
                   && sdk->create_callback_thread(&thread) == RS_ROCP_SUCCESS
                   && sdk->assign_callback_thread(rs_rocm.buffer, thread) == RS_ROCP_SUCCESS;
    atomic_store(&life, is_ready ? STARTED : OVER);
    if (is_ready && sdk->start_context(rs_rocm.context) != RS_ROCP_SUCCESS) {
        atomic_store(&life, OVER);
        is_ready = 0;
    }
    if (!is_ready) {
        rs_rocm.row->state = RS_RUNTIME_REFUSED;
        if (!note[0])
            snprintf(note, sizeof note, "rocprofiler-sdk refused to start: nothing is recorded of HIP");
    }
    rs_rocm.row->note = note[0] ? rs_intern(note) : 0;
    if (is_ready)
        rs_gpu_thread_start(&flusher);
    return is_ready ? 0 : -1;
}

static struct rs_rocp_tool *configure(uint32_t version, const char *runtime, uint32_t priority, struct rs_rocp_client *client)
{
    static struct rs_rocp_tool tool = {sizeof tool, initialize, sdk_ends, NULL};
    (void)runtime;
    (void)priority;
    client->name = "rankscope";
    rs_rocm.version = version;
    return version >= RS_ROCP_OLDEST ? &tool : NULL;
}

/* --- finding the SDK --- */

struct search { char loaded[PATH_BYTES], beside[PATH_BYTES]; };

static int note_object(struct dl_phdr_info *info, size_t size, void *memory)
{
    struct search *found = memory;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (!strncmp(name, "librocprofiler-sdk.so", 21))
        snprintf(found->loaded, sizeof found->loaded, "%s", info->dlpi_name);
    if (slash && (!strncmp(name, "libamdhip64.so", 14) || !strncmp(name, "librocprofiler-register.so", 26)
                  || !strncmp(name, "libhsa-runtime64.so", 19)))
        snprintf(found->beside, sizeof found->beside, "%.*s", (int)(slash - info->dlpi_name), info->dlpi_name);
    return 0;
}

/* For all to see: rocprofiler-register then takes this one and looks for no other. */
static void *open_at(const char *folder, const char *below)
{
    static const char *const names[] = {"librocprofiler-sdk.so.1", "librocprofiler-sdk.so.0", "librocprofiler-sdk.so"};
    char path[PATH_BYTES + 64];
    void *library = NULL;
    for (unsigned i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        if (snprintf(path, sizeof path, "%s%s%s", folder, below, names[i]) < (int)sizeof path)
            library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
    return library;
}

static void *open_sdk(void)
{
    struct search found = {"", ""};
    const char *asked = getenv("RANKSCOPE_ROCPROFILER"), *home = getenv("ROCM_PATH");
    if (asked && asked[0])
        return dlopen(asked, RTLD_LAZY | RTLD_GLOBAL);
    dl_iterate_phdr(note_object, &found);
    void *library = found.loaded[0] ? dlopen(found.loaded, RTLD_LAZY | RTLD_GLOBAL) : NULL;
    if (!library && found.beside[0])    /* the one that was made with this HIP */
        library = open_at(found.beside, "/");
    if (!library && home && home[0] == '/')
        library = open_at(home, "/lib/");
    if (!library)
        library = open_at("", "");
    return library ? library : open_at("/opt/rocm", "/lib/");
}

static int take_functions(void *library)
{
    int complete = library != NULL;
#define X(function, arguments) \
    rs_rocm.sdk.function = (int (*) arguments)(complete ? dlsym(library, "rocprofiler_" #function) : NULL); \
    complete = complete && rs_rocm.sdk.function;
    RS_ROCP_NEEDED(X)
#undef X
    return complete;
}

static void start(void)
{
    void *library = open_sdk();
    struct rs_runtime *row;
    if (take_functions(library)) {
        rs_rocm.sdk.force_configure((void *)configure);
        return;
    }
    row = rs_gpu_runtime(RS_BACKEND_HIP, "");
    if (!row)
        return;
    row->state = RS_RUNTIME_REFUSED;
    row->note = rs_intern(library ? "this librocprofiler-sdk is too old: nothing is recorded of HIP"
                                  : "no librocprofiler-sdk found: nothing is recorded of HIP (RANKSCOPE_ROCPROFILER names one)");
}

typedef int (*register_function)(const char *, void *, uint32_t, void **, uint64_t, void *);

/* That of the library which calls us, wherever it has been loaded from. */
static register_function real_register(const void *caller)
{
    static const char name[] = "rocprofiler_register_library_api_table";
    Dl_info about;
    register_function real = NULL;
    void *library = dladdr(caller, &about) && about.dli_fname ? dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (library) {
        real = (register_function)dlsym(library, name);
        dlclose(library);
    }
    return real ? real : (register_function)dlsym(RTLD_NEXT, name);
}

/* HIP, HSA, RCCL and ROCTx call this once each, inside their own initialisation. */
RS_EXPORT int rocprofiler_register_library_api_table(const char *library, void *import, uint32_t version, void **tables,
                                                     uint64_t count, void *id)
{
    register_function real = real_register(__builtin_return_address(0));
    const char *asked = getenv("RANKSCOPE_ROCM");
    int saved = errno, before = 0;
    if (real && !(asked && !strcmp(asked, "0")) && rs_telling() && atomic_compare_exchange_strong(&is_asked, &before, 1)) {
        owner_pid = getpid();
        start();
    }
    errno = saved;
    return real && real != rocprofiler_register_library_api_table ? real(library, import, version, tables, count, id) : NO_TOOLS;
}

/* In the child of a fork ROCm does not work, and the SDK's threads are gone. */
void rs_rocm_forget(void)
{
    if (atomic_load(&life) == NOT_STARTED)
        return;
    atomic_store(&life, OVER);
    rs_gpu_thread_forget(&flusher);
    rs_rocm.row = NULL;
    rs_rocm_calls_forget();
    rs_rocm_records_forget();
}
