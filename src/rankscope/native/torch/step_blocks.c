/* The whole life of a training in a fixed number of rows: blocks of neighbouring steps. A new block is made of steps
 * that the ring still holds. Where no row is left for it, the two neighbours that differ least become one: a change of
 * pace keeps its place, however long ago it was. */
#include "steps.h"

#define MOST_BLOCKS 512u        /* 64 KiB */
#define FEWEST_BLOCKS 16u
#define SHARE_OF_FILE 32u
#define HARDLY 6e-6f            /* blocks whose lengths differ by less than 0.5 % are joined by their size */

static struct {
    struct rs_chunk *chunk;
    uint8_t refused;
    uint64_t last;              /* number of the last step that is in a block */
    uint32_t count, free_count;
    uint16_t order[MOST_BLOCKS];        /* rows in use, by time */
    uint16_t free_rows[MOST_BLOCKS];
    float losses[MOST_BLOCKS];  /* what would be lost if a block were joined with the one after it */
} kept;

void rs_step_blocks_forget(void)
{
    kept.chunk = NULL;
    kept.refused = 0;
    kept.last = kept.count = kept.free_count = 0;
}

static struct rs_step_block *row(uint32_t at) { return (struct rs_step_block *)(kept.chunk + 1) + at; }

static int make_chunk(void)
{
    uint64_t rows = rs.file->bound_bytes / SHARE_OF_FILE / sizeof(struct rs_step_block);
    rows = rows > MOST_BLOCKS ? MOST_BLOCKS : rows < FEWEST_BLOCKS ? FEWEST_BLOCKS : rows;
    uint64_t bytes = sizeof(struct rs_chunk) + rows * sizeof(struct rs_step_block);
    kept.chunk = rs_chunk_new(RS_CHUNK_STEP_BLOCKS, 0, sizeof(struct rs_step_block), bytes);
    if (!kept.chunk)
        return 0;
    for (kept.free_count = 0; kept.free_count < rows; kept.free_count++)
        kept.free_rows[kept.free_count] = (uint16_t)(rows - 1 - kept.free_count);
    __atomic_store_n(&kept.chunk->rows, (uint32_t)rows, __ATOMIC_RELEASE);
    return 1;
}

/* --- one block --- */

static void sort(float *values, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        float value = values[i];
        uint32_t at = i;
        for (; at && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

static void add_lengths(struct rs_step_block *block, float *lengths)
{
    uint32_t count = block->steps;
    sort(lengths, count);
    block->least_ticks = lengths[0];
    block->quarter_ticks = lengths[count / 4];
    block->median_ticks = (lengths[(count - 1) / 2] + lengths[count / 2]) / 2;
    block->three_quarters_ticks = lengths[count - 1 - count / 4];
    block->most_ticks = lengths[count - 1];
}

static float own(float part_ticks, float blocked_ticks) { return part_ticks > blocked_ticks ? part_ticks - blocked_ticks : 0; }

static void add_step(struct rs_step_block *block, const struct rs_step *step)
{
    for (int part = 0; part < RS_PARTS_TOGETHER; part++) {
        block->own_ticks[part] += own(step->part_ticks[part], step->blocked_ticks[part]);
        block->exposed_ticks += step->blocked_ticks[part];
    }
    block->own_ticks[RS_PART_COMPUTE] += own(step->compute_ticks, step->blocked_compute_ticks);
    block->exposed_ticks += step->blocked_compute_ticks;
    block->covered_ticks += step->covered_ticks;
    block->checkpoint_ticks += step->part_ticks[RS_PART_CHECKPOINT];
    block->gc_ticks += step->gc_ticks;
    block->cpu_ns += step->cpu_ns;
    block->process_cpu_ns += step->process_cpu_ns;
    block->runnable_ns += step->runnable_ns;
    block->flags |= step->flags;
    if (step->part_ticks[RS_PART_CHECKPOINT] > 0)
        block->saved = step->number;
}

static void add_if_long(struct rs_step_block *block, const struct rs_step *step)
{
    float net = (float)(step->end_ticks - step->begin_ticks) - step->part_ticks[RS_PART_CHECKPOINT];
    if (net <= block->median_ticks * 1.25f)
        return;
    block->long_steps++;
    block->long_ticks += net - block->median_ticks;
}

static struct rs_step_block block_of(const struct rs_chunk *ring, uint64_t first, uint32_t count)
{
    const struct rs_step *records = (const struct rs_step *)(ring + 1), *step = NULL;
    struct rs_step_block block = {.first = (uint32_t)first, .steps = count};
    float lengths[RS_BLOCK_STEPS];
    block.begin_ticks = records[(first - 1) % ring->rows].begin_ticks;
    for (uint32_t i = 0; i < count; i++) {
        step = &records[(first - 1 + i) % ring->rows];
        lengths[i] = (float)(step->end_ticks - step->begin_ticks);
        add_step(&block, step);
    }
    block.end_ticks = step->end_ticks;
    add_lengths(&block, lengths);
    for (uint32_t i = 0; i < count; i++)
        add_if_long(&block, &records[(first - 1 + i) % ring->rows]);
    return block;
}

/* --- two neighbours --- */

/* By how much two lengths differ, squared: 1/4 of the relative difference's square where it is small. */
static float difference(float a, float b) { return a + b > 0 ? (a - b) / (a + b) * ((a - b) / (a + b)) : 0; }

/* Quartiles count with the median: a block within which the pace changes resembles neither of its neighbours. */
static float loss(const struct rs_step_block *a, const struct rs_step_block *b)
{
    if (a->first == 1)          /* the warm-up stays apart */
        return __FLT_MAX__;
    float differ = HARDLY + difference(a->quarter_ticks, b->quarter_ticks) + difference(a->median_ticks, b->median_ticks)
        + difference(a->three_quarters_ticks, b->three_quarters_ticks);
    return differ * (float)a->steps * (float)b->steps / (float)(a->steps + b->steps);
}

static struct rs_step_block together(const struct rs_step_block *a, const struct rs_step_block *b)
{
    struct rs_step_block both = *a;
    float share = (float)b->steps / (float)(a->steps + b->steps);
    both.steps += b->steps;
    both.saved = b->saved ? b->saved : a->saved;
    both.end_ticks = b->end_ticks;
    both.least_ticks = a->least_ticks < b->least_ticks ? a->least_ticks : b->least_ticks;
    both.most_ticks = a->most_ticks > b->most_ticks ? a->most_ticks : b->most_ticks;
    both.quarter_ticks += share * (b->quarter_ticks - a->quarter_ticks);
    both.median_ticks += share * (b->median_ticks - a->median_ticks);
    both.three_quarters_ticks += share * (b->three_quarters_ticks - a->three_quarters_ticks);
    both.long_steps += b->long_steps;
    for (int part = 0; part < RS_PARTS; part++)
        both.own_ticks[part] += b->own_ticks[part];
#define ADD(field) both.field += b->field;
    ADD(long_ticks)
    ADD(exposed_ticks)
    ADD(covered_ticks)
    ADD(checkpoint_ticks)
    ADD(gc_ticks)
    ADD(cpu_ns)
    ADD(process_cpu_ns)
    ADD(runnable_ns)
#undef ADD
    both.flags |= b->flags;
    return both;
}

/* --- all of them --- */

static void write_row(uint32_t at, struct rs_step_block block)
{
    struct rs_step_block *to = row(at);
    block.seq = to->seq + 2;
    __atomic_store_n(&to->seq, block.seq - 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy((char *)to + sizeof to->seq, (char *)&block + sizeof block.seq, sizeof block - sizeof block.seq);
    __atomic_store_n(&to->seq, block.seq, __ATOMIC_RELEASE);
}

static void free_row(uint32_t at)
{
    kept.free_rows[kept.free_count++] = (uint16_t)at;
    write_row(at, (struct rs_step_block){0});
}

static void weigh(uint32_t at)
{
    if (at + 1 < kept.count)
        kept.losses[at] = loss(row(kept.order[at]), row(kept.order[at + 1]));
}

/* The two are there until both together are: a kill at any moment loses no step. */
static void join_likest(void)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i + 1 < kept.count; i++)
        if (kept.losses[i] < kept.losses[at])
            at = i;
    uint32_t before = kept.order[at], after = kept.order[at + 1], joined = kept.free_rows[--kept.free_count];
    write_row(joined, together(row(before), row(after)));
    free_row(before);
    free_row(after);
    kept.order[at] = (uint16_t)joined;
    kept.count--;
    memmove(&kept.order[at + 1], &kept.order[at + 2], (kept.count - at - 1) * sizeof *kept.order);
    memmove(&kept.losses[at], &kept.losses[at + 1], (kept.count - at) * sizeof *kept.losses);
    weigh(at);
    if (at)
        weigh(at - 1);
}

static void add_block(struct rs_step_block block)
{
    if (kept.free_count == 1)
        join_likest();
    uint32_t at = kept.free_rows[--kept.free_count];
    write_row(at, block);
    kept.order[kept.count++] = (uint16_t)at;
    if (kept.count > 1)
        weigh(kept.count - 2);
}

/* Steps up to `last` have ended for good, those up to `complete` have what the system says of them. The others are
 * waited for, but not until the ring has no place. */
void rs_step_blocks_add(const struct rs_chunk *ring, uint64_t last, uint64_t complete)
{
    uint32_t count = kept.last ? RS_BLOCK_STEPS : RS_WARMUP_STEPS;
    uint64_t end = kept.last + count;
    if (last < end || (complete < end && last - kept.last < ring->rows / 2) || ring->rows < 2 * RS_BLOCK_STEPS || kept.refused)
        return;
    if (!kept.chunk && !make_chunk()) {
        kept.refused = 1;
        return;
    }
    add_block(block_of(ring, kept.last + 1, count));
    kept.last = end;
}
