/* Operations under way, by request handle. Any thread may complete what another has started. Handles need not be
 * unique: an MPI may hand out one and the same request for everything that was complete at once. */
#include "mpi_layer.h"

#define BUCKETS 4096u
#define SHARDS 64u
#define SLAB 64u
#define MOST_REQUESTS (1u << 20)

static struct rs_request *buckets[BUCKETS];
static struct { rs_lock lock; struct rs_request *unused; } shards[SHARDS];
static uint32_t made;

static uint32_t bucket_of(uint64_t handle) { return (uint32_t)((handle * 0x9E3779B97F4A7C15u) >> 52); }

static int take_shard(uint32_t bucket)
{
    return !rs.concurrent || rs_lock_take(&shards[bucket % SHARDS].lock);
}

static void give_shard(uint32_t bucket)
{
    if (rs.concurrent)
        rs_lock_give(&shards[bucket % SHARDS].lock);
}

static struct rs_request *unused_node(uint32_t shard)
{
    if (!shards[shard].unused && __atomic_load_n(&made, __ATOMIC_RELAXED) < MOST_REQUESTS) {
        struct rs_request *slab = rs_memory(SLAB * sizeof *slab);
        if (!slab)
            return NULL;
        __atomic_fetch_add(&made, SLAB, __ATOMIC_RELAXED);
        for (uint32_t i = 0; i < SLAB; i++) {
            slab[i].next = shards[shard].unused;
            shards[shard].unused = &slab[i];
        }
    }
    struct rs_request *node = shards[shard].unused;
    if (node)
        shards[shard].unused = node->next;
    return node;
}

/* The newest first: where a handle was used again without our seeing its completion, the old one is the stale one. */
void rs_request_add(uint64_t handle, const struct rs_request *request)
{
    uint32_t bucket = bucket_of(handle);
    struct rs_request *node = NULL;
    if (take_shard(bucket)) {
        node = unused_node(bucket % SHARDS);
        if (node) {
            *node = *request;
            node->handle = handle;
            node->next = buckets[bucket];
            buckets[bucket] = node;
        }
        give_shard(bucket);
    }
    if (!node)
        rs_count(&rs.file->untracked_requests, 1);
    else if (request->flags & RS_REQUEST_RECEIVE)
        rs_count(&rs_mpi.receives, 1);
}

static struct rs_request **find(uint32_t bucket, uint64_t handle)
{
    struct rs_request **link = &buckets[bucket];
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

/* A persistent request begins one more operation. 0 where it is not known. */
int rs_request_start(uint64_t handle, uint64_t now, struct rs_request *copy)
{
    uint32_t bucket = bucket_of(handle);
    if (!take_shard(bucket))
        return 0;
    struct rs_request *request = *find(bucket, handle);
    if (request) {
        request->start_ticks = now;
        request->phase = rs.phase;
        request->flags |= RS_REQUEST_ACTIVE;
        *copy = *request;
    }
    give_shard(bucket);
    return request != NULL;
}

void rs_request_set_record(uint64_t handle, struct rs_collective *record)
{
    uint32_t bucket = bucket_of(handle);
    if (!record || !take_shard(bucket))
        return;
    struct rs_request *request = *find(bucket, handle);
    if (request) {
        request->record = record;
        request->record_number = record->number;
    }
    give_shard(bucket);
}

static void unlink_node(uint32_t bucket, struct rs_request **link)
{
    struct rs_request *request = *link;
    if (request->flags & RS_REQUEST_RECEIVE)
        __atomic_fetch_sub(&rs_mpi.receives, 1, __ATOMIC_RELAXED);
    *link = request->next;
    request->next = shards[bucket % SHARDS].unused;
    shards[bucket % SHARDS].unused = request;
}

/* The operation is complete. 0 where none was under way: a null, inactive or unknown request. */
int rs_request_take(uint64_t handle, struct rs_request *copy)
{
    uint32_t bucket = bucket_of(handle);
    if (!buckets[bucket] || !take_shard(bucket))
        return 0;
    struct rs_request **link = find(bucket, handle);
    int active = *link && (*link)->flags & RS_REQUEST_ACTIVE;
    if (active) {
        *copy = **link;
        if (copy->flags & RS_REQUEST_PERSISTENT)
            (*link)->flags &= (uint8_t)~RS_REQUEST_ACTIVE;
        else
            unlink_node(bucket, link);
    }
    give_shard(bucket);
    return active;
}

void rs_request_drop(uint64_t handle)
{
    uint32_t bucket = bucket_of(handle);
    if (!take_shard(bucket))
        return;
    struct rs_request **link = find(bucket, handle);
    if (*link)
        unlink_node(bucket, link);
    give_shard(bucket);
}

void rs_requests_forget(void)
{
    memset(buckets, 0, sizeof buckets);
    memset(shards, 0, sizeof shards);
    made = 0;
    rs_mpi.receives = 0;
}
