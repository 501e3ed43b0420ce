/* Blocks of steps as the recorder keeps them, of a job whose every step is given. */
#include <stdlib.h>
#include <string.h>

#include "step_blocks.c"

struct rs_recorder rs;
static struct rs_chunk *made;

struct rs_chunk *rs_chunk_new(uint32_t kind, uint32_t thread, uint32_t row_bytes, uint64_t chunk_bytes)
{
    made = calloc(1, chunk_bytes);
    *made = (struct rs_chunk){.kind = kind, .thread = thread, .row_bytes = row_bytes};
    return made;
}

/* How many rows of blocks there are after so many steps in a ring; the rows themselves in `blocks`. */
uint32_t keep_blocks(const struct rs_step *steps, uint64_t count, uint32_t ring_rows, uint64_t bound_bytes, void *blocks)
{
    struct rs_header header = {.bound_bytes = bound_bytes};
    struct rs_chunk *ring = calloc(1, sizeof *ring + ring_rows * sizeof *steps);
    ring->rows = ring_rows;
    rs.file = &header;
    made = NULL;
    rs_step_blocks_forget();
    for (uint64_t at = 0; at < count; at++) {
        ((struct rs_step *)(ring + 1))[at % ring_rows] = steps[at];
        rs_step_blocks_add(ring, at, at);
    }
    uint32_t rows = made ? made->rows : 0;
    if (made)
        memcpy(blocks, made + 1, rows * sizeof(struct rs_step_block));
    free(made);
    free(ring);
    return rows;
}

#ifdef COUNTED
/* For a counter of instructions: so many steps, in a ring of so many rows; of fewer than 64 no blocks are made. */
int main(int count, char **words)
{
    uint64_t steps = strtoull(words[1], NULL, 10);
    struct rs_step *rows = calloc(steps, sizeof *rows);
    static struct rs_step_block blocks[MOST_BLOCKS];
    for (uint64_t at = 0; at < steps; at++) {
        rows[at].number = (uint32_t)(at + 1);
        rows[at].begin_ticks = 1000000 * at;
        rows[at].end_ticks = rows[at].begin_ticks + 1000000 + at * 7919 % 60000;
    }
    keep_blocks(rows, steps, count > 2 ? (uint32_t)atoi(words[2]) : 8192, 4u << 20, blocks);
    return 0;
}
#endif
