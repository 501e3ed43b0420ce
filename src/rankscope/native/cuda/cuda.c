/* CUDA's part of the GPU layer. CUDA loads this library by CUDA_INJECTION64_PATH and calls InitializeInjection at its first use;
 * CUPTI then delivers records of what the GPUs did in buffers, from a thread of its own. A thread of ours asks for
 * them several times a second, because CUPTI keeps a buffer until it is full, and once more at the end. That thread also has
 * CUPTI taken off, and attaches it again, where cuda_windows.c says so. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_layer.h"
#include "steps.h"

#define BUFFER_BYTES (256u << 10)   /* about 1,200 kernels: what CUPTI holds back while one of them still runs */
#define KEPT_BUFFERS 64u
#define FLUSH_NS 300000000u         /* a kill loses what has come since, and what was under way at the time */
#define SAMPLE_NS 1000000000u
#define LOOK_NS 10000000u           /* so often is looked whether the program has come so far that recording may begin: */
#define WARM_STEPS 3u               /* after these, its kernels are loaded */
#define STEPLESS_NS 10000000000u    /* or its context is so old, */
#define UNTRAINED_NS 3000000000u    /* where no optimizer was made yet, so old: it may only infer */
#define NO_CONTEXT_NS 60000000000u  /* or so much time has passed: its context may be none that can be asked for */
#define CLOCK_TRIES 16
#define DETACH_NS 2000000000u       /* so long is waited for the end of a step, at which CUPTI may be taken off */

struct rs_cuda_layer rs_cuda;

enum life { NOT_STARTED = 0, STARTED = 1, OVER = 2 };
static atomic_int life;             /* OVER: records are no longer looked at */
static atomic_int others;           /* another client of CUPTI has come */
static int32_t owner_pid;
static int has_windows;             /* recording may pause */
static atomic_int has_nvtx;         /* CUPTI was given to the program's NVTX, which keeps calling it */
static atomic_int is_waiting;       /* contexts made and kernels loaded under CUPTI stay slower by 3 % without it */
static _Atomic uint64_t context_seen;   /* 0: none has been yet */
static int is_attached;             /* changed under switch_lock */
static uint64_t finalize_ns;        /* how long the last one took */
static uint64_t asked_steps;        /* RANKSCOPE_CUDA_WARM_STEPS: recording begins after these, and not before; 0: it is not set */

/* Who takes CUPTI off: the loop's thread does, once it is asked to. */
enum detaching { NOBODY = 0, ASKED = 1, AT_WORK = 2, DONE = 3 };
static atomic_int detaching;

static pthread_mutex_t asking_lock = PTHREAD_MUTEX_INITIALIZER, switch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;  /* CUPTI is not used elsewhere while it is taken off */

static void take_turns(int is_last);
static uint64_t pause_ns(void);
static struct rs_gpu_thread flusher = {
    .turn = take_turns, .pause_ns = pause_ns, .has_last = 1, .lock = PTHREAD_MUTEX_INITIALIZER};
static uint64_t began, flushed, sampled;    /* when the thread did */

enum when { ALWAYS, UNTIL_PAUSED, UNTIL_PAUSED_IF_EVER };
static const struct { int kind; enum when when; const char *name; } kinds[] = {
    {RS_CUPTI_CONCURRENT_KERNEL, ALWAYS, "kernels"}, {RS_CUPTI_MEMCPY, ALWAYS, "copies"},
    {RS_CUPTI_MEMCPY2, ALWAYS, "peer copies"}, {RS_CUPTI_MEMSET, ALWAYS, "sets"},
    {RS_CUPTI_MARKER, UNTIL_PAUSED, "NVTX ranges"}, {RS_CUPTI_MEMORY2, UNTIL_PAUSED, "memory"},         /* what is not seen whole is not seen at all */
    {RS_CUPTI_POOL, UNTIL_PAUSED, "memory pools"},
    {RS_CUPTI_SYNCHRONIZATION, UNTIL_PAUSED_IF_EVER, "waits"},  /* in place of calls; it costs more than the kernels */
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static int is_wanted(enum when when)
{
    return when == ALWAYS || (!rs_cuda.row->windows && (when == UNTIL_PAUSED || rs_windows_may_pause()));
}

/* --- buffers --- */

static rs_lock buffers_lock;
static void *kept[KEPT_BUFFERS];
static uint32_t kept_used;

static void give_buffer(uint8_t **buffer, size_t *size, size_t *most_records)
{
    void *memory = NULL;
    if (rs_lock_take(&buffers_lock)) {
        memory = kept_used ? kept[--kept_used] : NULL;
        rs_lock_give(&buffers_lock);
    }
    *buffer = memory ? memory : rs_memory(BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *most_records = 0;
}

static void keep_buffer(void *memory)
{
    if (rs_lock_take(&buffers_lock)) {
        if (kept_used < KEPT_BUFFERS) {
            kept[kept_used++] = memory;
            memory = NULL;
        }
        rs_lock_give(&buffers_lock);
    }
    rs_memory_free(memory, BUFFER_BYTES);
}

static void take_buffer(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)size;
    int saved = errno;
    size_t dropped = 0;
    rs_gpu_enter();
    if (rs_cuda.row && rs.file && atomic_load(&life) == STARTED) {
        rs_cuda_buffer(buffer, valid);
        if (rs_cuda.cupti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == RS_CUPTI_SUCCESS)
            rs_cuda.row->dropped += dropped;
    }
    rs_gpu_leave();
    keep_buffer(buffer);
    errno = saved;
}

/* --- flushing --- */

static uint64_t note_clocks(uint64_t *ticks, uint64_t *ns, uint64_t *width_ticks)
{
    uint64_t before = rs_ticks();
    if (rs_cuda.cupti.cuptiGetTimestamp(ns) != RS_CUPTI_SUCCESS)
        *ns = 0;
    *ticks = rs_ticks();
    *width_ticks = *ticks - before;
    return *ns;
}

/* Needed only once managed memory was allocated. Not under the lock: CUPTI may deliver buffers meanwhile. */
static void ask_for_unified(void)
{
    pthread_mutex_lock(&asking_lock);
    int unified = atomic_load(&others) ? 0 : rs_cuda_unified_select(1);
    rs_gpu_enter();
    if (unified)
        rs_cuda.row->unified = (uint64_t)unified;
    rs_gpu_leave();
    pthread_mutex_unlock(&asking_lock);
}

/* One moment on both clocks, as near to now as it gets; the last one, where CUPTI is off. */
static uint64_t note_now(void)
{
    struct rs_cuda *row = rs_cuda.row;
    pthread_mutex_lock(&clock_lock);
    int is_off = !row->window_begin_ns && !atomic_load(&is_waiting);
    if (!is_off && atomic_load(&detaching) < AT_WORK && atomic_load(&life) != OVER)
        note_clocks(&row->flushed_ticks, &row->flushed_ns, &row->flushed_width_ticks);
    pthread_mutex_unlock(&clock_lock);
    return row->flushed_ns;
}

static void flush(int is_last)
{
    int unified = 0;
    if (!is_attached) {
        rs_refresh_facts();
        return;
    }
    rs_cuda.cupti.cuptiActivityFlushAll(is_last ? RS_CUPTI_FLUSH_FORCED : 0);
    rs_gpu_enter();
    if (rs_cuda.row && atomic_load(&life) == STARTED) {
        rs_gpu_settle(rs_gpu_note_now(), is_last);
        unified = rs_cuda_unified_wanted();
    }
    rs_gpu_leave();
    if (!is_last && unified)
        ask_for_unified();
    rs_refresh_facts();
}

/* --- attaching CUPTI and taking it off --- */

static const char *result_text(int result)
{
    const char *text = NULL;
    rs_cuda.cupti.cuptiGetResultString(result, &text);
    return text ? text : "?";
}

/* Whether kernels can be recorded; what else CUPTI refuses is said in the note. */
static int enable_kinds(char *note, size_t size)
{
    int result = rs_cuda.cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    if (result != RS_CUPTI_SUCCESS) {
        snprintf(note, size, "CUPTI refused to start: %s%s", result_text(result),
                 result == RS_CUPTI_MULTIPLE_SUBSCRIBERS ? " (another profiler is active)" : "");
        return 0;
    }
    for (unsigned i = 0; i < KINDS; i++) {
        result = is_wanted(kinds[i].when) ? rs_cuda.cupti.cuptiActivityEnable(kinds[i].kind) : RS_CUPTI_SUCCESS;
        if (result == RS_CUPTI_SUCCESS)
            continue;
        size_t used = strlen(note);
        snprintf(note + used, size - used, "%sCUPTI refused to record %s: %s", used ? "; " : "", kinds[i].name,
                 result_text(result));
        if (i == 0)
            return 0;
    }
    return 1;
}

/* Nothing but what CUPTI needs to begin: it may be the second time. */
static int attach(char *note, size_t size)
{
    if (rs_cuda.cupti.cuptiSetThreadIdType)
        rs_cuda.cupti.cuptiSetThreadIdType(RS_CUPTI_THREAD_ID_SYSTEM);
    if (!enable_kinds(note, size))
        return 0;
    rs_cuda.row->api = rs_cuda_calls_select(rs_cuda_api_asked(), 1);
    if (rs_cuda.cupti.cuptiActivityFlushPeriod)
        rs_cuda.cupti.cuptiActivityFlushPeriod(FLUSH_NS / 1000000u);
    is_attached = 1;
    return 1;
}

/* In the loop's thread, at the end of a step: the one moment at which taking CUPTI off broke no program. In the middle
 * of a call, as its documentation has it, it did, as soon as several threads use CUDA. */
void rs_cuda_step_ended(void)
{
    int before = ASKED, saved = errno;
    if (atomic_load(&detaching) != ASKED)
        return;
    pthread_mutex_lock(&clock_lock);
    int is_chosen = !atomic_load(&has_nvtx) && atomic_compare_exchange_strong(&detaching, &before, AT_WORK);
    pthread_mutex_unlock(&clock_lock);
    if (is_chosen) {
        uint64_t begun = rs_clock_ns(CLOCK_MONOTONIC);
        rs_cuda.cupti.cuptiFinalize();
        finalize_ns = rs_clock_ns(CLOCK_MONOTONIC) - begun;
        pthread_mutex_lock(&flusher.lock);
        atomic_store(&detaching, DONE);
        pthread_cond_broadcast(&flusher.wake);
        pthread_mutex_unlock(&flusher.lock);
    }
    errno = saved;
}

/* 0: no step ended meanwhile, or the program ends, or another client of CUPTI came: CUPTI stays. */
static int detach(void)
{
    atomic_store(&detaching, ASKED);
    struct timespec until = rs_gpu_after(DETACH_NS);
    pthread_mutex_lock(&flusher.lock);
    while (atomic_load(&detaching) != DONE && !flusher.asked_to_end && !atomic_load(&others)
           && pthread_cond_timedwait(&flusher.wake, &flusher.lock, &until) == 0)
        continue;
    int before = ASKED;
    int is_called_off = atomic_compare_exchange_strong(&detaching, &before, NOBODY);
    while (!is_called_off && atomic_load(&detaching) != DONE)
        pthread_cond_wait(&flusher.wake, &flusher.lock);
    pthread_mutex_unlock(&flusher.lock);
    is_attached = is_called_off;
    return !is_called_off;
}

static int can_detach(void)
{
    return rs_cuda.row->cupti_version >= RS_CUPTI_DETACHES && rs_cuda.cupti.cuptiFinalize;
}

static void close_window(void)
{
    rs_cuda.cupti.cuptiActivityFlushAll(RS_CUPTI_FLUSH_FORCED);
    rs_gpu_enter();
    rs_gpu_note_now();
    int may_pause = rs_windows_may_pause();     /* what was delivered just now may have forbidden it */
    rs_gpu_leave();
    int is_off = may_pause && detach();
    rs_gpu_enter();
    uint64_t now_ns = rs_gpu_now();
    if (is_off) {
        rs_gpu_cut();
        rs_windows_closed(now_ns);
        rs_windows_switched(now_ns, finalize_ns);
        atomic_store(&detaching, NOBODY);
    }
    rs_gpu_leave();
}

static void open_window(void)
{
    char note[512] = "";
    uint64_t begun = rs_clock_ns(CLOCK_MONOTONIC);
    struct rs_cuda *row = rs_cuda.row;
    rs_gpu_enter();
    uint64_t now_ns = rs_gpu_now();
    rs_device_steps_open(now_ns);
    rs_windows_opened(now_ns);
    rs_gpu_leave();
    int is_on = attach(note, sizeof note);
    rs_gpu_enter();
    rs_windows_switched(now_ns, rs_clock_ns(CLOCK_MONOTONIC) - begun);
    if (!is_on) {
        has_windows = 0;
        row->window_begin_ns = 0;
        row->note = rs_intern(note);
        row->state = row->windows ? RS_CUDA_ASIDE : RS_CUDA_REFUSED;
    }
    rs_gpu_leave();
}

static void look_for_context(uint64_t now)
{
    if (context_seen || !rs_gpu_has_context())
        return;
    context_seen = now;
    rs_mark_at(RS_MARK_CUDA_CONTEXT, "", rs_ticks());
}

static void begin_if_due(uint64_t now, uint64_t waited_ns)
{
    rs_gpu_enter();
    rs_gpu_note_now();      /* a program without steps has not asked for the time yet */
    rs_gpu_now();
    int is_warm = rs_windows_seen_steps() >= (asked_steps ? asked_steps : WARM_STEPS) || atomic_load(&has_nvtx) || rs_gpu.producers > 1;
    rs_gpu_leave();
    if (asked_steps && !is_warm)
        return;
    uint64_t stepless_ns = rs_steps_may_come() == RS_STEPS_PERHAPS ? UNTRAINED_NS : STEPLESS_NS;
    if (!is_warm && (!context_seen || now - context_seen < stepless_ns) && waited_ns < NO_CONTEXT_NS)
        return;
    pthread_mutex_lock(&switch_lock);
    atomic_store(&is_waiting, 0);
    if (!atomic_load(&others))
        open_window();
    pthread_mutex_unlock(&switch_lock);
}

/* Less and less often, where the program does something else for long. */
static uint64_t pause_ns(void)
{
    uint64_t waited_ns = rs_clock_ns(CLOCK_MONOTONIC) - began;
    uint64_t turn_ns = has_windows ? rs_windows_turn_ns() : FLUSH_NS, soon_ns = LOOK_NS + waited_ns / 64;
    return (atomic_load(&is_waiting) || !context_seen) && soon_ns < turn_ns ? soon_ns : turn_ns;
}

static void take_turn(void)
{
    pthread_mutex_lock(&switch_lock);
    rs_gpu_enter();
    if (atomic_load(&has_nvtx))
        rs_windows_stay("NVTX ranges: all is recorded (they would call a CUPTI that is taken off)");
    if (rs_gpu.producers > 1 && is_attached)
        rs_windows_stay("devices of another vendor: all is recorded (their steps would be cut where CUDA's pause)");
    enum rs_turn turn = rs_windows_turn(rs_gpu_now());
    int may_pause = rs_windows_may_pause();
    rs_gpu_leave();
    if (!may_pause && is_attached)
        has_windows = 0;        /* to the end, without calls: of those chosen once CUDA runs, CUPTI tells none (gpu_late_calls.py) */
    if (!atomic_load(&others) && turn == RS_TURN_CLOSE)
        close_window();
    else if (!atomic_load(&others) && turn == RS_TURN_OPEN)
        open_window();
    pthread_mutex_unlock(&switch_lock);
}

static void take_turns(int is_last)
{
    uint64_t now = rs_clock_ns(CLOCK_MONOTONIC);
    if (!is_last && !atomic_load(&others))
        look_for_context(now);
    if (!atomic_load(&others) && (is_last || now - flushed >= FLUSH_NS)) {
        flush(is_last);
        flushed = now;
    }
    if (is_last || now - sampled >= SAMPLE_NS) {
        rs_gpus_sample(is_last);
        sampled = now;
    }
    if (atomic_load(&is_waiting) && !is_last && !atomic_load(&others))
        begin_if_due(now, now - began);
    else if (has_windows && !is_last && !atomic_load(&others))
        take_turn();
}

static void start_flusher(void)
{
    began = flushed = sampled = rs_clock_ns(CLOCK_MONOTONIC);
    rs_gpu_thread_start(&flusher);
}

int rs_cuda_is_own(uint32_t tid) { return tid && tid == __atomic_load_n(&flusher.tid, __ATOMIC_RELAXED); }

void rs_cuda_ending(void) { rs_cuda_neighbour_note(atomic_load(&life) != NOT_STARTED); }

/* The last flush, for which the end of the process waits a bounded time only. */
void rs_cuda_finish(void)
{
    if (atomic_load(&life) != STARTED || owner_pid != getpid())
        return;
    if (flusher.is_there)
        rs_gpu_thread_end(&flusher);
    else if (!atomic_load(&others))
        flush(1);
    if (atomic_load(&is_waiting) && atomic_load(&context_seen) && !atomic_load(&others))
        rs_cuda.row->note = rs_intern("the GPU was used for a few seconds, without steps: nothing of it is recorded "
                                      "(--cuda exact records from the start)");
    atomic_store(&life, OVER);
}

/* --- starting --- */

static void say_missing(int windows_missing, char *note, size_t size)
{
    enum rs_cuda_api asked = rs_cuda_api_asked(), got = (enum rs_cuda_api)rs_cuda.row->api;
    size_t used = strlen(note);
    if (asked != got)
        snprintf(note + used, size - used, "%sthis CUPTI cannot record %s: CUDA API calls are not recorded%s",
                 used ? "; " : "", asked == RS_CUDA_API_SYNC ? "chosen calls only" : "calls",
                 asked == RS_CUDA_API_SYNC ? " (--cuda-api all records every one)" : "");
    used = strlen(note);
    if (windows_missing)
        snprintf(note + used, size - used, "%sthis CUPTI cannot be taken off again (that of CUDA 12.6 can): all is recorded",
                 used ? "; " : "");
}

/* Under the lock. Where another backend was there before, its clock is that of the process. */
static void begin_clock(int is_first)
{
    struct rs_cuda *row = rs_cuda.row;
    uint64_t ticks, ns, width_ticks, narrowest = UINT64_MAX;
    rs_cuda.offset_ns = 0;
    if (is_first)
        note_clocks(&row->started_ticks, &row->started_ns, &row->started_width_ticks);
    for (int i = 0; !is_first && i < CLOCK_TRIES; i++)      /* something else may run between two readings, but not each time */
        if (rs_gpu_has_rate() && note_clocks(&ticks, &ns, &width_ticks) && width_ticks < narrowest) {
            narrowest = width_ticks;
            rs_cuda.offset_ns = rs_gpu_ns_of(ticks - width_ticks / 2) - ns;
        }
}

static void begin(uint32_t version, const char *path)
{
    char note[512] = "";
    int is_first;
    rs_cuda.row = rs_gpu_begin(RS_BACKEND_CUDA, note_now, &is_first);
    if (!rs_cuda.row)
        return;
    rs_cuda.row->library = rs_intern(path);
    rs_cuda.row->cupti_version = version;
    rs_gpu_enter();
    begin_clock(is_first);
    rs_gpu.late_ns = 2 * FLUSH_NS;
    rs_gpu.step_seen = rs_windows_step;
    rs_gpu.device_step_seen = rs_windows_device_step;
    int asked = rs_windows_wanted();
    has_windows = asked && is_first && can_detach();
    asked_steps = getenv("RANKSCOPE_CUDA_WARM_STEPS") ? strtoull(getenv("RANKSCOPE_CUDA_WARM_STEPS"), NULL, 10) : 0;
    rs_windows_begin(has_windows);
    atomic_store(&is_waiting, has_windows);
    rs_gpu_leave();
    atomic_store(&life, STARTED);
    if (has_windows || attach(note, sizeof note)) {
        say_missing(asked && !can_detach(), note, sizeof note);
        start_flusher();
        atexit(rs_cuda_finish);
    } else {
        rs_cuda.row->state = RS_CUDA_REFUSED;
        atomic_store(&life, OVER);
    }
    rs_cuda.row->note = rs_intern(note);
}

static void start(const char *taken)
{
    char path[1024] = "";
    uint32_t version = 0;
    struct rs_cuda *row = NULL;
    if (taken) {
        atomic_store(&others, 1);
        rs_gpu_new_row(RS_CUDA_ASIDE, path, taken);
        return;
    }
    enum rs_found found = rs_cupti_find(&rs_cuda.cupti, &version, path, sizeof path, 1);
    if (atomic_load(&others))
        row = rs_gpu_new_row(RS_CUDA_ASIDE, path, "another client of CUPTI was there first: nothing is recorded of the GPU");
    else if (found == RS_FOUND_NONE)
        row = rs_gpu_new_row(RS_CUDA_NO_LIBRARY, "", "no libcupti found: nothing is recorded of the GPU (RANKSCOPE_CUPTI names one)");
    else if (found == RS_FOUND_OLD)
        row = rs_gpu_new_row(RS_CUDA_TOO_OLD, path, "this libcupti is too old: nothing is recorded of the GPU");
    else
        begin(version, path);
    if (row)
        row->cupti_version = version;
}

/* CUDA calls this once, inside its own initialisation. 1: all is well, go on; of the job's own library: what it says. */
RS_EXPORT int InitializeInjection(void)
{
    static atomic_int is_chained;
    int saved = errno, before = NOT_STARTED, result = 1;
    char note[512] = "";
    const char *asked = getenv("RANKSCOPE_CUDA");
    enum rs_chained theirs = RS_CHAINED_NONE;
    if (!atomic_exchange(&is_chained, 1))
        theirs = rs_cuda_chain(&result, note, sizeof note);
    if (!(asked && !strcmp(asked, "0")) && rs_telling() && atomic_compare_exchange_strong(&life, &before, OVER)) {
        rs.gpu = 1;
        owner_pid = getpid();
        start(theirs == RS_CHAINED_CLIENT ? note : NULL);
        if (note[0] && theirs != RS_CHAINED_CLIENT)
            rs_remark(note, 0);
    }
    errno = saved;
    return result;
}

/* NVIDIA's own libraries name every operation, whether somebody wants to know or not. */
static int is_nvidias(const void *code)
{
    Dl_info about;
    const char *path = dladdr(code, &about) && about.dli_fname ? about.dli_fname : "", *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return !strncmp(name, "libnccl", 7) || !strncmp(name, "libcu", 5) || !strncmp(name, "libnv", 5);
}

/* NVTX, once for every library that carries a copy of it, asks whoever NVTX_INJECTION64_PATH names. 0: nobody. */
RS_EXPORT int InitializeInjectionNvtx2(void *get_export_table)
{
    struct rs_cupti cupti = {0};
    char path[1024];
    uint32_t version;
    const char *asked = getenv("RANKSCOPE_CUDA");
    int saved = errno, taken = rs_nvtx_chain(get_export_table);
    const void *caller = __builtin_return_address(0);
    if (!taken && rs_recording() && !(asked && !strcmp(asked, "0")) && rs_cupti_find(&cupti, &version, path, sizeof path, 0) == RS_FOUND
        && cupti.InitializeInjectionNvtx2) {
        pthread_mutex_lock(&clock_lock);        /* while recording pauses nobody is there to listen */
        int is_there = atomic_load(&life) != STARTED || atomic_load(&is_waiting) || (is_attached && atomic_load(&detaching) < AT_WORK);
        int is_on = !rs_windows_wanted() || (is_there && !is_nvidias(caller));
        if (is_on)
            atomic_store(&has_nvtx, 1);
        pthread_mutex_unlock(&clock_lock);
        if (is_on)
            taken = cupti.InitializeInjectionNvtx2(get_export_table);
    }
    errno = saved;
    return taken;
}

/* --- making room --- */

static void step_aside(void)
{
    int before = 0;
    if (!atomic_compare_exchange_strong(&others, &before, 1) || atomic_load(&life) != STARTED || owner_pid != getpid())
        return;
    pthread_mutex_lock(&flusher.lock);
    pthread_cond_broadcast(&flusher.wake);      /* nobody has to wait for a call in which CUPTI is taken off */
    pthread_mutex_unlock(&flusher.lock);
    pthread_mutex_lock(&switch_lock);
    int was_waiting = atomic_load(&is_waiting);
    flush(1);
    for (unsigned i = 0; is_attached && i < KINDS; i++)
        rs_cuda.cupti.cuptiActivityDisable(kinds[i].kind);
    if (is_attached)
        rs_cuda_calls_select((enum rs_cuda_api)rs_cuda.row->api, 0);
    pthread_mutex_lock(&asking_lock);
    if (rs_cuda.row->unified == 1)
        rs_cuda_unified_select(0);
    pthread_mutex_unlock(&asking_lock);
    if (is_attached && rs_cuda.cupti.cuptiActivityFlushPeriod)
        rs_cuda.cupti.cuptiActivityFlushPeriod(0);
    pthread_mutex_unlock(&switch_lock);
    rs_cuda.row->note = rs_intern(was_waiting ? "another client of CUPTI (torch.profiler?) came before recording began: nothing is recorded "
                                                "of the GPU"
                                              : "another client of CUPTI (torch.profiler?) came: the GPU is recorded up to then");
    rs_cuda.row->state = RS_CUDA_ASIDE;
}

/* CUPTI has one client. torch.profiler and its like become it by this call, which finds us first: records go to
 * them from now on, and what we had asked for must not be among theirs. */
RS_EXPORT int cuptiActivityRegisterCallbacks(rs_buffer_requested requested, rs_buffer_completed completed)
{
    struct rs_cupti cupti = {0};
    char path[1024];
    uint32_t version;
    int (*real)(rs_buffer_requested, rs_buffer_completed) = rs_cuda.cupti.cuptiActivityRegisterCallbacks;
    if (rs.file)
        step_aside();
    if (!real && rs_cupti_find(&cupti, &version, path, sizeof path, 0) != RS_FOUND_NONE)
        real = cupti.cuptiActivityRegisterCallbacks;
    return real ? real(requested, completed) : RS_CUPTI_NOT_INITIALIZED;
}

/* In the child of a fork CUDA does not work and CUPTI's threads are gone; where it was not started it still may be. */
void rs_cuda_forget(void)
{
    if (atomic_load(&life) == NOT_STARTED)
        return;
    atomic_store(&life, OVER);
    pthread_mutex_init(&asking_lock, NULL);
    pthread_mutex_init(&switch_lock, NULL);
    pthread_mutex_init(&clock_lock, NULL);
    rs_gpu_thread_forget(&flusher);
    atomic_store(&detaching, NOBODY);   /* else the child's next step would take off a CUPTI that is its parent's */
    atomic_store(&is_waiting, 0);
    context_seen = 0;
    rs_cuda.row = NULL;
    rs_cuda_records_forget();
    rs_cuda_calls_forget();
    rs_windows_forget();
    rs_cuda_memory_forget();
    rs_cuda_gpus_forget();
}
