/* Rows of a thread: found or made the first time it counts something. */
#include "recorder.h"

#define FIRST_INDEX 128u

static uint32_t index_slot(uint64_t key, uint32_t capacity)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 32) & (capacity - 1);
}

static void index_put(struct rs_tally **index, uint32_t capacity, struct rs_tally *row)
{
    uint32_t at = index_slot(rs_key_of(row), capacity);
    while (index[at])
        at = (at + 1) & (capacity - 1);
    index[at] = row;
}

/* Another thread may fork at any moment, and its child frees what it finds: never a table with the size of another. */
static void replace(void **table, uint32_t *capacity, void *larger, uint32_t larger_capacity)
{
    void *smaller = *table;
    uint32_t smaller_capacity = *capacity;
    __atomic_store_n(capacity, 0, __ATOMIC_RELEASE);
    __atomic_store_n(table, larger, __ATOMIC_RELEASE);
    __atomic_store_n(capacity, larger_capacity, __ATOMIC_RELEASE);
    rs_memory_free(smaller, smaller_capacity * sizeof(void *));
}

static int index_grow(struct rs_thread *thread)
{
    uint32_t capacity = thread->index ? 2 * thread->index_capacity : FIRST_INDEX;
    struct rs_tally **index = rs_memory(capacity * sizeof *index);
    if (!index)
        return 0;
    for (uint32_t i = 0; i < thread->index_capacity; i++)
        if (thread->index[i])
            index_put(index, capacity, thread->index[i]);
    replace((void **)&thread->index, &thread->index_capacity, index, capacity);
    return 1;
}

static struct rs_tally *new_row(struct rs_thread *thread, uint64_t key)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_TALLIES, .thread = thread->slot, .row_bytes = sizeof(struct rs_tally),
                                  .chunk_bytes = RS_PAGE};
    struct rs_tally *row = rs_row_place(&thread->tallies, like, sizeof *row);
    if (!row)
        return NULL;
    memcpy(row, &key, sizeof key);
    row->min_ticks = UINT64_MAX;
    rs_row_publish(thread->tallies, 1);
    return row;
}

RS_COLD struct rs_tally *rs_tally_find(struct rs_thread *thread, uint64_t key)
{
    struct rs_tally *row = NULL;
    if (thread->index) {
        uint32_t at = index_slot(key, thread->index_capacity);
        while ((row = thread->index[at]) && rs_key_of(row) != key)
            at = (at + 1) & (thread->index_capacity - 1);
    }
    if (!row) {
        if (2 * (thread->index_used + 1) > thread->index_capacity && !index_grow(thread))
            return NULL;
        row = new_row(thread, key);
        if (!row)
            return NULL;
        index_put(thread->index, thread->index_capacity, row);
        thread->index_used++;
    }
    thread->cache[rs_cache_slot(key)] = row;
    return row;
}

RS_COLD void rs_tally_lost(uint64_t ticks)
{
    rs_count(&rs.file->lost_calls, 1);
    rs_count(&rs.file->lost_ticks, ticks);
}

/* --- bytes per destination --- */

static struct rs_peer **peer_place(struct rs_peer **peers, uint32_t capacity, uint32_t world_rank)
{
    uint32_t at = index_slot(world_rank + 1, capacity);
    while (peers[at] && peers[at]->world_rank != world_rank)
        at = (at + 1) & (capacity - 1);
    return &peers[at];
}

static int peers_grow(struct rs_thread *thread)
{
    uint32_t capacity = thread->peers ? 2 * thread->peers_capacity : FIRST_INDEX;
    struct rs_peer **peers = rs_memory(capacity * sizeof *peers);
    if (!peers)
        return 0;
    for (uint32_t i = 0; i < thread->peers_capacity; i++)
        if (thread->peers[i])
            *peer_place(peers, capacity, thread->peers[i]->world_rank) = thread->peers[i];
    replace((void **)&thread->peers, &thread->peers_capacity, peers, capacity);
    return 1;
}

static struct rs_peer *new_peer(struct rs_thread *thread, uint32_t world_rank)
{
    if (2 * (thread->peers_used + 1) > thread->peers_capacity && !peers_grow(thread))
        return NULL;
    const struct rs_chunk like = {.kind = RS_CHUNK_PEERS, .thread = thread->slot, .row_bytes = sizeof(struct rs_peer),
                                  .chunk_bytes = RS_PAGE};
    struct rs_peer *row = rs_row_place(&thread->peer_chunk, like, sizeof *row);
    if (!row)
        return NULL;
    row->world_rank = world_rank;
    rs_row_publish(thread->peer_chunk, 1);
    *peer_place(thread->peers, thread->peers_capacity, world_rank) = row;
    thread->peers_used++;
    return row;
}

RS_COLD void rs_peer_add(struct rs_thread *thread, uint32_t world_rank, uint64_t bytes)
{
    struct rs_peer *row = thread->peers ? *peer_place(thread->peers, thread->peers_capacity, world_rank) : NULL;
    if (!row)
        row = new_peer(thread, world_rank);
    if (!row) {
        rs_count(&rs.file->lost_peers, 1);
        return;
    }
    uint32_t odd = rs_row_begin(&row->seq);
    row->bytes += bytes;
    row->calls++;
    rs_row_done(&row->seq, odd);
}
