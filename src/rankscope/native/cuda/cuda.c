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

#define SAMPLE_NS 1000000000u
#define LOOK_NS 10000000u           /* so often is looked whether the program has come so far that recording may begin: */
#define WARM_STEPS 3u               /* after these, its kernels are loaded */
#define STEPLESS_NS 10000000000u    /* or its context is so old, */
#define UNTRAINED_NS 3000000000u    /* where no optimizer was made yet, so old: it may only infer */
#define NO_CONTEXT_NS 60000000000u  /* or so much time has passed: its context may be none that can be asked for */
#define CLOCK_TRIES 16

struct rs_cuda_layer rs_cuda;

static int32_t owner_pid;
static int has_windows;             /* recording may pause */
static _Atomic uint64_t context_seen;   /* 0: none has been yet */
static uint64_t asked_steps;        /* RANKSCOPE_CUDA_WARM_STEPS: recording begins after these, and not before; 0: it is not set */

static pthread_mutex_t asking_lock = PTHREAD_MUTEX_INITIALIZER, switch_lock = PTHREAD_MUTEX_INITIALIZER;

static void take_turns(int is_last);
static uint64_t pause_ns(void);
static struct rs_gpu_thread flusher = {
    .turn = take_turns, .pause_ns = pause_ns, .has_last = 1, .lock = PTHREAD_MUTEX_INITIALIZER};
static uint64_t began, flushed, sampled;    /* when the thread did */

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
    int unified = atomic_load(&rs_cuda.others) ? 0 : rs_cuda_unified_select(1);
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
    int is_off = !row->window_begin_ns && !atomic_load(&rs_cuda.is_waiting);
    if (rs_cuda_hold()) {
        if (!is_off && atomic_load(&rs_cuda.life) != RS_CUDA_OVER)
            note_clocks(&row->flushed_ticks, &row->flushed_ns, &row->flushed_width_ticks);
        rs_cuda_let_go();
    }
    return row->flushed_ns;
}

static void flush(int is_last)
{
    int unified = 0;
    if (!rs_cuda_is_attached()) {
        rs_refresh_facts();
        return;
    }
    rs_cuda.cupti.cuptiActivityFlushAll(is_last ? RS_CUPTI_FLUSH_FORCED : 0);
    rs_gpu_enter();
    if (rs_cuda.row && atomic_load(&rs_cuda.life) == RS_CUDA_STARTED) {
        rs_gpu_settle(rs_gpu_note_now(), is_last);
        unified = rs_cuda_unified_wanted();
    }
    rs_gpu_leave();
    if (!is_last && unified)
        ask_for_unified();
    rs_refresh_facts();
}

/* --- windows --- */

static void close_window(void)
{
    rs_cuda.cupti.cuptiActivityFlushAll(RS_CUPTI_FLUSH_FORCED);
    rs_gpu_enter();
    rs_gpu_note_now();
    int may_pause = rs_windows_may_pause();     /* what was delivered just now may have forbidden it */
    int has_steps = rs_windows_has_steps();
    rs_gpu_leave();
    int is_off = may_pause && rs_cuda_detach(&flusher, has_steps);
    rs_gpu_enter();
    uint64_t now_ns = rs_gpu_now();
    if (is_off) {
        rs_gpu_cut();
        rs_windows_closed(now_ns);
        rs_windows_switched(now_ns, rs_cuda_detached());
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
    int with_waits = rs_windows_may_pause() && rs_windows_first();
    rs_gpu.has_no_waits = !with_waits;
    rs_gpu_leave();
    int is_on = rs_cuda_attach(with_waits, note, sizeof note);
    rs_gpu_enter();
    rs_windows_switched(rs_gpu_now(), rs_clock_ns(CLOCK_MONOTONIC) - begun);
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
    int is_warm = rs_windows_seen_steps() >= (asked_steps ? asked_steps : WARM_STEPS) || rs_cuda_has_nvtx() || rs_gpu.producers > 1;
    rs_gpu_leave();
    if (asked_steps && !is_warm)
        return;
    uint64_t stepless_ns = rs_steps_may_come() == RS_STEPS_PERHAPS ? UNTRAINED_NS : STEPLESS_NS;
    if (!is_warm && (!context_seen || now - context_seen < stepless_ns) && waited_ns < NO_CONTEXT_NS)
        return;
    pthread_mutex_lock(&switch_lock);
    atomic_store(&rs_cuda.is_waiting, 0);
    if (!atomic_load(&rs_cuda.others))
        open_window();
    pthread_mutex_unlock(&switch_lock);
}

/* Less and less often, where the program does something else for long. */
static uint64_t pause_ns(void)
{
    uint64_t waited_ns = rs_clock_ns(CLOCK_MONOTONIC) - began;
    uint64_t turn_ns = has_windows ? rs_windows_turn_ns() : RS_CUDA_FLUSH_NS, soon_ns = LOOK_NS + waited_ns / 64;
    return (atomic_load(&rs_cuda.is_waiting) || !context_seen) && soon_ns < turn_ns ? soon_ns : turn_ns;
}

static void take_turn(void)
{
    pthread_mutex_lock(&switch_lock);
    rs_gpu_enter();
    if (rs_cuda_has_nvtx())
        rs_windows_stay("NVTX ranges: all is recorded (they would call a CUPTI that is taken off)");
    if (rs_gpu.producers > 1 && rs_cuda_is_attached())
        rs_windows_stay("devices of another vendor: all is recorded (their steps would be cut where CUDA's pause)");
    enum rs_turn turn = rs_windows_turn(rs_gpu_now());
    int may_pause = rs_windows_may_pause();
    rs_gpu_leave();
    if (!may_pause && rs_cuda_is_attached())
        has_windows = 0;        /* to the end, without calls: of those chosen once CUDA runs, CUPTI tells none (gpu_late_calls.py) */
    if (!atomic_load(&rs_cuda.others) && turn == RS_TURN_CLOSE)
        close_window();
    else if (!atomic_load(&rs_cuda.others) && turn == RS_TURN_OPEN)
        open_window();
    pthread_mutex_unlock(&switch_lock);
}

static void take_turns(int is_last)
{
    uint64_t now = rs_clock_ns(CLOCK_MONOTONIC);
    if (!is_last && !atomic_load(&rs_cuda.others))
        look_for_context(now);
    if (!atomic_load(&rs_cuda.others) && (is_last || now - flushed >= RS_CUDA_FLUSH_NS)) {
        flush(is_last);
        flushed = now;
    }
    if (is_last || now - sampled >= SAMPLE_NS) {
        rs_gpus_sample(is_last);
        sampled = now;
    }
    if (atomic_load(&rs_cuda.is_waiting) && !is_last && !atomic_load(&rs_cuda.others))
        begin_if_due(now, now - began);
    else if (has_windows && !is_last && !atomic_load(&rs_cuda.others))
        take_turn();
}

static void start_flusher(void)
{
    began = flushed = sampled = rs_clock_ns(CLOCK_MONOTONIC);
    rs_gpu_thread_start(&flusher);
}

int rs_cuda_is_own(uint32_t tid) { return tid && tid == __atomic_load_n(&flusher.tid, __ATOMIC_RELAXED); }

void rs_cuda_ending(void) { rs_cuda_neighbour_note(atomic_load(&rs_cuda.life) != RS_CUDA_NOT_STARTED); }

/* The last flush, for which the end of the process waits a bounded time only. */
void rs_cuda_finish(void)
{
    if (atomic_load(&rs_cuda.life) != RS_CUDA_STARTED || owner_pid != getpid())
        return;
    if (flusher.is_there)
        rs_gpu_thread_end(&flusher);
    else if (!atomic_load(&rs_cuda.others))
        flush(1);
    if (atomic_load(&rs_cuda.is_waiting) && atomic_load(&context_seen) && !atomic_load(&rs_cuda.others))
        rs_cuda.row->note = rs_intern("the GPU was used for a few seconds, without steps: nothing of it is recorded "
                                      "(--cuda exact records from the start)");
    atomic_store(&rs_cuda.life, RS_CUDA_OVER);
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
    rs_gpu.late_ns = 2 * RS_CUDA_FLUSH_NS;
    rs_gpu.step_seen = rs_windows_step;
    rs_gpu.device_step_seen = rs_windows_device_step;
    int asked = rs_windows_wanted();
    has_windows = asked && is_first && rs_cuda_can_detach();
    asked_steps = getenv("RANKSCOPE_CUDA_WARM_STEPS") ? strtoull(getenv("RANKSCOPE_CUDA_WARM_STEPS"), NULL, 10) : 0;
    rs_windows_begin(has_windows);
    atomic_store(&rs_cuda.is_waiting, has_windows);
    rs_gpu_leave();
    atomic_store(&rs_cuda.life, RS_CUDA_STARTED);
    if (has_windows || rs_cuda_attach(0, note, sizeof note)) {
        say_missing(asked && !rs_cuda_can_detach(), note, sizeof note);
        start_flusher();
        atexit(rs_cuda_finish);
    } else {
        rs_cuda.row->state = RS_CUDA_REFUSED;
        atomic_store(&rs_cuda.life, RS_CUDA_OVER);
    }
    rs_cuda.row->note = rs_intern(note);
}

static void start(const char *taken)
{
    char path[1024] = "";
    uint32_t version = 0;
    struct rs_cuda *row = NULL;
    if (taken) {
        atomic_store(&rs_cuda.others, 1);
        rs_gpu_new_row(RS_CUDA_ASIDE, path, taken);
        return;
    }
    enum rs_found found = rs_cupti_find(&rs_cuda.cupti, &version, path, sizeof path, 1);
    if (atomic_load(&rs_cuda.others))
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
    int saved = errno, before = RS_CUDA_NOT_STARTED, result = 1;
    char note[512] = "";
    const char *asked = getenv("RANKSCOPE_CUDA");
    enum rs_chained theirs = RS_CHAINED_NONE;
    if (!atomic_exchange(&is_chained, 1))
        theirs = rs_cuda_chain(&result, note, sizeof note);
    if (!(asked && !strcmp(asked, "0")) && rs_telling() && atomic_compare_exchange_strong(&rs_cuda.life, &before, RS_CUDA_OVER)) {
        rs.gpu = 1;
        owner_pid = getpid();
        start(theirs == RS_CHAINED_CLIENT ? note : NULL);
        if (note[0] && theirs != RS_CHAINED_CLIENT)
            rs_remark(note, 0);
    }
    errno = saved;
    return result;
}

/* --- making room --- */

static void step_aside(void)
{
    int before = 0;
    if (!atomic_compare_exchange_strong(&rs_cuda.others, &before, 1) || atomic_load(&rs_cuda.life) != RS_CUDA_STARTED || owner_pid != getpid())
        return;
    pthread_mutex_lock(&flusher.lock);
    pthread_cond_broadcast(&flusher.wake);      /* nobody has to wait for a call in which CUPTI is taken off */
    pthread_mutex_unlock(&flusher.lock);
    pthread_mutex_lock(&switch_lock);
    int was_waiting = atomic_load(&rs_cuda.is_waiting);
    flush(1);
    rs_cuda_ask_no_more();
    pthread_mutex_lock(&asking_lock);
    if (rs_cuda.row->unified == 1)
        rs_cuda_unified_select(0);
    pthread_mutex_unlock(&asking_lock);
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
    if (atomic_load(&rs_cuda.life) == RS_CUDA_NOT_STARTED)
        return;
    atomic_store(&rs_cuda.life, RS_CUDA_OVER);
    pthread_mutex_init(&asking_lock, NULL);
    pthread_mutex_init(&switch_lock, NULL);
    rs_gpu_thread_forget(&flusher);
    rs_cuda_attach_forget();
    atomic_store(&rs_cuda.is_waiting, 0);
    context_seen = 0;
    rs_cuda.row = NULL;
    rs_cuda_records_forget();
    rs_cuda_calls_forget();
    rs_windows_forget();
    rs_cuda_memory_forget();
    rs_cuda_gpus_forget();
}
