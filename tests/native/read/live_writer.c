/* Updates the tallies and the ring of a rank file in the documented order, as fast as it can, for the reader's test.
 * Every call takes 7 ticks and carries 3 bytes; every record has bytes = 3 * number and end = enter + number. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../src/rankscope/native/core/layout.h"

static void *find(struct rs_header *file, uint32_t kind, uint32_t *rows)
{
    char *at = (char *)file + file->header_bytes, *end = (char *)file + file->used_bytes;
    for (; at < end; at += ((struct rs_chunk *)at)->chunk_bytes)
        if (((struct rs_chunk *)at)->kind == kind) {
            *rows = ((struct rs_chunk *)at)->rows;
            return at + sizeof(struct rs_chunk);
        }
    _exit(2);
}

static void count(struct rs_tally *row)
{
    uint32_t seq = row->seq;
    __atomic_store_n(&row->seq, seq + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->total_ticks += 7;
    row->bytes += 3;
    row->sum_squares_ticks2 += 49;
    __atomic_store_n(&row->calls, row->calls + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&row->seq, seq + 2, __ATOMIC_RELEASE);
}

static void log_one(struct rs_header *file, struct rs_collective *ring, uint32_t capacity)
{
    uint64_t claim = __atomic_fetch_add(&file->log_written, 1, __ATOMIC_RELAXED);
    struct rs_collective *record = &ring[claim % capacity];
    __atomic_store_n(&record->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    record->enter_ticks = 1000;
    record->bytes = 3 * (claim + 1);
    record->end_ticks = 1000 + claim + 1;
    record->sequence = (uint32_t)(claim + 1);
    __atomic_store_n(&record->number, (uint32_t)(claim + 1), __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
    uint32_t rows, capacity;
    int fd = open(argv[argc - 1], O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    struct rs_header *file = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return 1;
    struct rs_tally *tallies = find(file, RS_CHUNK_TALLIES, &rows);
    struct rs_collective *ring = find(file, RS_CHUNK_LOG, &capacity);
    for (uint64_t turn = 0;; turn++) {
        count(&tallies[turn % rows]);
        log_one(file, ring, capacity);
    }
}
