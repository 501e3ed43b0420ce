/* Floating-point operations of sampled steps. The observer of torch tells the shapes of operators while it is asked to:
 * that makes every operator slower by about a microsecond, so few steps are sampled. */
#include <stdlib.h>

#include "steps.h"

#define MOST_DEVICES 32             /* and the CPU before them */
#define ROWS 128u
#define FIRST_SAMPLE 2u             /* warm-up still: what it costs is in no figure of steady steps */
#define SECOND_SAMPLE 64u
#define EVERY 256

struct device_sums { uint64_t operators, flops[RS_PRECISIONS], recomputed[RS_PRECISIONS]; };

static void (*switch_observer)(int on);     /* of this process and of what it forks */
static struct device_sums sums[1 + MOST_DEVICES];
static uint32_t unseen, flags;
static uint16_t unseen_name;
static uint64_t sampled;            /* the step that is being sampled, or was last */
static uint64_t every;              /* 0: as usual */
static uint8_t watching, has_several, compiled, retry;
static int tf32_products, tf32_convolutions;
static struct rs_chunk *ring;
static uint64_t written, pending;   /* rows before those of the last sample; rows of that */

void rs_flops_forget(void)
{
    watching = has_several = compiled = retry = 0;
    ring = NULL;
    sampled = written = pending = 0;
}

static void reset(void)
{
    memset(sums, 0, sizeof sums);
    __atomic_store_n(&unseen, 0, __ATOMIC_RELAXED);
    flags = 0;
}

static struct rs_step_flops *next_row(void)
{
    if (!ring) {
        ring = rs_chunk_new(RS_CHUNK_STEP_FLOPS, 0, sizeof(struct rs_step_flops),
                            sizeof(struct rs_chunk) + ROWS * sizeof(struct rs_step_flops));
        if (!ring)
            return NULL;
        __atomic_store_n(&ring->rows, ROWS, __ATOMIC_RELEASE);
    }
    return (struct rs_step_flops *)(ring + 1) + (written + pending++) % ROWS;
}

static void write_row(uint64_t number, int device, const struct device_sums *of)
{
    struct rs_step_flops *row = next_row();
    if (!row)
        return;
    __atomic_store_n(&row->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->device = (int16_t)device;
    row->flags = (uint16_t)(flags | (compiled ? RS_FLOPS_COMPILED : 0));
    row->operators = (uint32_t)of->operators;
    row->unseen = unseen;
    row->unseen_name = unseen ? unseen_name : 0;
    memcpy(row->flops, of->flops, sizeof row->flops);
    memcpy(row->recomputed_flops, of->recomputed, sizeof row->recomputed_flops);
    __atomic_store_n(&row->number, (uint32_t)number, __ATOMIC_RELEASE);
}

/* A row for each device that computed; one for the CPU where none did, to tell that it was looked at. */
static void write_rows(uint64_t number)
{
    pending = 0;
    for (int at = 0; at <= MOST_DEVICES; at++)
        if (sums[at].operators)
            write_row(number, at - 1, &sums[at]);
    if (!pending)
        write_row(number, -1, &sums[0]);
}

static int is_due(uint64_t number)
{
    if (every)
        return number == FIRST_SAMPLE || number % every == 0;
    return number == FIRST_SAMPLE || number == SECOND_SAMPLE || number % EVERY == 0;
}

static void watch(int on)
{
    __atomic_store_n(&watching, (uint8_t)on, __ATOMIC_RELEASE);
    switch_observer(on);
}

/* In the loop's thread: step `number` has ended. `more`: it had ended before, and goes on until here. */
void rs_flops_step(uint64_t number, int more)
{
    if (!switch_observer)
        return;
    if (more) {
        has_several = 1;
        if (watching && sampled == number)
            write_rows(number);
        else if (watching)
            reset();        /* what was counted since the step seemed to end was still its own */
        return;
    }
    if (watching && sampled == number && !retry)
        write_rows(number);
    if (watching && (sampled != number || !has_several || retry))
        watch(0);
    if (!watching && (retry || is_due(number + 1))) {
        written += pending;
        pending = 0;
        retry = 0;
        sampled = number + 1;
        reset();
        watch(1);
    }
}

/* What torch runs while it compiles computes nothing. */
void rs_flops_compiling(void)
{
    compiled = 1;
    retry = watching;
}

/* --- for the observer and for Python --- */

RS_EXPORT void rankscope_operators_watched_by(void (*observer)(int on))
{
    const char *asked = getenv("RANKSCOPE_FLOPS_EVERY");
    every = asked && atoll(asked) > 0 ? (uint64_t)atoll(asked) : 0;
    switch_observer = observer;
}

RS_EXPORT int rankscope_operators_wanted(void)
{
    return rs.file && __atomic_load_n(&watching, __ATOMIC_ACQUIRE);
}

/* From any thread. device -1: the CPU. */
RS_EXPORT void rankscope_operator(int device, int precision, int is_convolution, uint64_t flops, int is_recomputed)
{
    if (!rankscope_operators_wanted() || device < -1 || device >= MOST_DEVICES || precision < 0
        || precision >= RS_PRECISIONS)
        return;
    if (precision == RS_PRECISION_FP32 && device >= 0 && (is_convolution ? tf32_convolutions : tf32_products))
        precision = RS_PRECISION_TF32;
    struct device_sums *of = &sums[device + 1];
    rs_count(&of->operators, 1);
    rs_count(&of->flops[precision], flops);
    if (is_recomputed)
        rs_count(&of->recomputed[precision], flops);
}

RS_EXPORT void rankscope_operator_unseen(const char *name)
{
    if (rankscope_operators_wanted() && !__atomic_fetch_add(&unseen, 1, __ATOMIC_RELAXED))
        unseen_name = rs_intern(name);
}

/* Whether the program lets GPUs multiply float32 in TF32. */
RS_EXPORT void rankscope_tf32(int products, int convolutions)
{
    tf32_products = products;
    tf32_convolutions = convolutions;
}

RS_EXPORT void rankscope_graph_replayed(void) { flags |= RS_FLOPS_GRAPHS; }
