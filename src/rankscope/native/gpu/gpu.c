/* What all backends share: the row that says how they are recorded, the clock, the numbers of devices. */
#include "gpu_layer.h"

#define PAST_NS 30000000000u        /* so late an activity may come and still be told from others at its time */
#define LATE_NS 1000000000u         /* so late calls and activities come, where they are asked for once a second */
#define LONGEST_NS 2000000000u      /* work that is waited for */
#define SETTLING_NS 1000000000u     /* until the clocks were read so far apart, each look at them reads them anew */
#define MOST_DEVICES 64u            /* as many have timelines */
#define EXIT_NS 400000000u          /* how long the end of the process waits for a thread that has the lock */

struct rs_gpu_layer rs_gpu = {.lock = PTHREAD_MUTEX_INITIALIZER};
__thread int rs_gpu_inside __attribute__((tls_model("initial-exec")));

/* By number: whose it is, index << 8 | backend. A device keeps its runtime's own number unless one of another runtime
 * has it. */
static uint32_t devices[MOST_DEVICES];

/* --- the clock --- */

static void note_monotonic(uint64_t *ticks, uint64_t *ns, uint64_t *width_ticks)
{
    uint64_t before = rs_ticks();
    *ns = rs_clock_ns(CLOCK_MONOTONIC);
    *ticks = rs_ticks();
    *width_ticks = *ticks - before;
}

static uint64_t note_monotonic_now(void)
{
    struct rs_cuda *row = rs_gpu.row;
    note_monotonic(&row->flushed_ticks, &row->flushed_ns, &row->flushed_width_ticks);
    return row->flushed_ns;
}

uint64_t rs_gpu_note_now(void) { return rs_gpu.note_now(); }

/* Until there was a flush or two, the clocks are compared anew each time. */
int rs_gpu_has_rate(void)
{
    const struct rs_cuda *row = rs_gpu.row;
    if (row->flushed_ns < row->started_ns + SETTLING_NS)
        rs_gpu.note_now();
    return row->flushed_ticks > row->started_ticks && row->flushed_ns > row->started_ns;
}

uint64_t rs_gpu_ns_of(uint64_t ticks)
{
    const struct rs_cuda *row = rs_gpu.row;
    double rate = (double)(row->flushed_ns - row->started_ns) / (double)(row->flushed_ticks - row->started_ticks);
    return row->flushed_ns + (uint64_t)(int64_t)((double)(int64_t)(ticks - row->flushed_ticks) * rate);
}

/* Of the process at that moment: records come up to a second after it. Where the clocks cannot be put side by side yet,
 * that of now. */
uint8_t rs_gpu_phase(uint64_t at_ns)
{
    uint32_t changes = __atomic_load_n(&rs.phase_changes, __ATOMIC_ACQUIRE);
    uint32_t known = changes < RS_PHASE_CHANGES ? changes : RS_PHASE_CHANGES;
    if (!known || !rs_gpu_has_rate())
        return __atomic_load_n(&rs.phase, __ATOMIC_RELAXED);
    uint64_t change = 0;
    for (uint32_t back = 1; back <= known; back++) {
        change = __atomic_load_n(&rs.phase_ticks[(changes - back) % RS_PHASE_CHANGES], __ATOMIC_RELAXED);
        if (rs_gpu_ns_of(change >> 3) <= at_ns)
            return change & 7;
    }
    return changes > known ? change & 7 : RS_PHASE_START;
}

/* Without asking whoever has the clock; what the loop's thread did until then is known. */
uint64_t rs_gpu_now(void)
{
    rs_device_steps_take();
    const struct rs_cuda *row = rs_gpu.row;
    return row->flushed_ticks > row->started_ticks ? rs_gpu_ns_of(rs_ticks()) : 0;
}

/* --- beginning --- */

struct rs_cuda *rs_gpu_new_row(enum rs_cuda_state state, const char *library, const char *note)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_CUDA, .row_bytes = sizeof(struct rs_cuda), .chunk_bytes = RS_PAGE};
    struct rs_chunk *chunk = NULL;
    struct rs_cuda *row = rs_row_place(&chunk, like, sizeof *row);
    if (!row)
        return NULL;
    row->library = rs_intern(library);
    row->note = rs_intern(note);
    row->state = state;
    rs_row_publish(chunk, 1);
    return row;
}

struct rs_cuda *rs_gpu_begin(enum rs_backend backend, uint64_t (*note_now)(void), int *is_first)
{
    rs_gpu_enter();
    *is_first = !rs_gpu.row;
    if (*is_first) {
        rs_gpu.activities = rs_thread_of(0, backend == RS_BACKEND_CUDA ? "CUDA" : "GPU");
        struct rs_cuda *row = rs_gpu_new_row(RS_CUDA_RECORDING, "", "");
        rs_gpu.note_now = note_now ? note_now : note_monotonic_now;
        if (row && !note_now)
            note_monotonic(&row->started_ticks, &row->started_ns, &row->started_width_ticks);
        rs_gpu.row = row;
        rs.gpu = 1;
    }
    struct rs_cuda *row = rs_gpu.row;
    rs_gpu.producers += row != NULL;
    rs_gpu_leave();
    return row;
}

struct rs_runtime *rs_gpu_runtime(enum rs_backend backend, const char *library)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_RUNTIMES, .row_bytes = sizeof(struct rs_runtime), .chunk_bytes = RS_PAGE};
    struct rs_chunk *chunk = NULL;
    struct rs_runtime *row = rs_row_place(&chunk, like, sizeof *row);
    if (!row)
        return NULL;
    row->backend = backend;
    row->state = RS_RUNTIME_RECORDING;
    row->library = rs_intern(library);
    rs_row_publish(chunk, 1);
    return row;
}

uint32_t rs_gpu_device(enum rs_backend backend, uint32_t index)
{
    uint32_t whose = index << 8 | (uint32_t)backend, free_number = UINT32_MAX;
    if (index >= MOST_DEVICES || RS_LIKELY(devices[index] == whose))
        return index;               /* beyond, none has a timeline, whosoever it is */
    for (uint32_t number = 0; number < MOST_DEVICES; number++) {
        if (devices[number] == whose)
            return number;
        if (!devices[number] && (number == index || number > 0))
            free_number = number == index || free_number != index ? number : free_number;
    }
    if (free_number < MOST_DEVICES)
        __atomic_store_n(&devices[free_number], whose, __ATOMIC_RELAXED);
    return free_number;
}

int rs_gpu_is_of(uint32_t device, enum rs_backend backend, uint32_t *index)
{
    uint32_t whose = device < MOST_DEVICES ? __atomic_load_n(&devices[device], __ATOMIC_RELAXED) : 0;
    *index = whose ? whose >> 8 : device;
    return !whose || (whose & 0xFF) == (uint32_t)backend;
}

/* --- settling --- */

/* After so long all is known of what happened: calls and activities come in buffers, each thread's at its own time. */
uint64_t rs_gpu_patience_ns(void)
{
    uint64_t late_ns = rs_gpu.producers < 2 && rs_gpu.late_ns ? rs_gpu.late_ns : LATE_NS;
    return late_ns + (rs_gpu.longest_ns < LONGEST_NS ? rs_gpu.longest_ns : LONGEST_NS);
}

static void settle(uint64_t now_ns, int is_last)
{
    uint64_t patience_ns = rs_gpu_patience_ns();
    rs_device_steps_settle(now_ns, is_last);
    rs_device_settle(now_ns > PAST_NS ? now_ns - PAST_NS : 0);
    rs_attribution_settle(is_last ? UINT64_MAX : now_ns > patience_ns ? now_ns - patience_ns : 0);
    rs_gpu.longest_ns -= rs_gpu.longest_ns / 64;
}

/* With several producers, what one of them launched last may belong to a step in which another still has something to tell:
 * then rs_gpu_finish is the last. */
void rs_gpu_settle(uint64_t now_ns, int is_last)
{
    is_last = is_last && rs_gpu.producers < 2;
    settle(now_ns, is_last);
}

/* A handler of the program may end it while its thread is in here, or another thread may have been stopped in here. */
void rs_gpu_finish(void)
{
    uint64_t until_ns = rs_clock_ns(CLOCK_REALTIME) + EXIT_NS;
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    if (rs_gpu_inside || __atomic_load_n(&rs_gpu.producers, __ATOMIC_RELAXED) < 2
        || pthread_mutex_timedlock(&rs_gpu.lock, &until) != 0)
        return;
    if (rs_gpu.row && rs.file)
        settle(rs_gpu_now(), 1);
    pthread_mutex_unlock(&rs_gpu.lock);
}

void rs_gpu_cut(void)
{
    rs_device_steps_close();
    rs_attribution_cut();
    rs_gpu_markers_cut();
    rs_devices_cut();
}

void rs_gpu_forget(void)
{
    pthread_mutex_init(&rs_gpu.lock, NULL);
    rs_gpu.row = NULL;
    rs_gpu.activities = NULL;
    rs_gpu.step_seen = NULL;
    rs_gpu.device_step_seen = NULL;
    rs_gpu.producers = 0;
    rs_gpu.late_ns = rs_gpu.longest_ns = 0;
    rs_gpu_inside = 0;
    memset(devices, 0, sizeof devices);
    rs_gpu_names_forget();
    rs_gpu_streams_forget();
    rs_gpu_markers_forget();
    rs_range_nodes_forget();
    rs_lanes_forget();
    rs_attribution_forget();
    rs_devices_forget();
    rs_device_steps_forget();
    rs_gpus_forget();
}
