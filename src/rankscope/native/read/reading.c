/* Copies rows of a rank file that another process may be writing, each of them consistent.
 *
 * A row carries a mark: the seq of a tally or peer (odd while it is written) or the number of a log record (0 while
 * it is set up). A copy counts when the mark was at rest and the same before and after. Rows that do not come to
 * rest within the tries are copied as they are and marked in unsettled: a writer killed in the middle leaves such. */
#include <stdint.h>
#include <string.h>

enum { TRIES = 1000 };

static int at_rest(uint32_t mark, int zero_is_busy)
{
    return zero_is_busy ? mark != 0 : (mark & 1) == 0;
}

static int copy_row(const char *from, char *to, uint32_t row_bytes, uint32_t mark_offset, int zero_is_busy)
{
    const uint32_t *mark = (const uint32_t *)(const void *)(from + mark_offset);
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = __atomic_load_n(mark, __ATOMIC_ACQUIRE);
        memcpy(to, from, row_bytes);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(mark, __ATOMIC_RELAXED) == before && at_rest(before, zero_is_busy))
            return 1;
        /* an empty log slot is no reason to wait: the next reading will see what comes into it */
        if (zero_is_busy && before == 0)
            return 0;
    }
    return 0;
}

__attribute__((visibility("default")))
uint64_t rankscope_read_rows(const void *from, void *to, uint64_t rows, uint32_t row_bytes, uint32_t mark_offset,
                             int zero_is_busy, uint8_t *unsettled)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < rows; i++) {
        uint64_t at = i * row_bytes;
        unsettled[i] = !copy_row((const char *)from + at, (char *)to + at, row_bytes, mark_offset, zero_is_busy);
        count += unsettled[i];
    }
    return count;
}
