/* The rare half of the table of operations under way: growth, persistent operations, fork. */
#include "mpi_requests.h"

#define SLAB 64u
#define MOST_REQUESTS (1u << 20)

struct rs_request *rs_request_buckets[RS_REQUEST_BUCKETS];
struct rs_request_shard rs_request_shards[RS_REQUEST_SHARDS];
static uint32_t made;

/* Called with the shard locked. */
RS_COLD int rs_request_slab(struct rs_request_shard *shard)
{
    if (__atomic_load_n(&made, __ATOMIC_RELAXED) >= MOST_REQUESTS)
        return 0;
    struct rs_request *slab = rs_memory(SLAB * sizeof *slab);
    if (!slab)
        return 0;
    __atomic_fetch_add(&made, SLAB, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < SLAB; i++) {
        slab[i].next = shard->unused;
        shard->unused = &slab[i];
    }
    return 1;
}

/* A persistent request begins one more operation. 0 where it is not known. */
int rs_request_start(struct rs_thread *thread, uint64_t handle, uint64_t now, struct rs_request *copy)
{
    uint32_t bucket = rs_request_bucket(handle);
    if (!rs_request_lock(thread, bucket))
        return 0;
    struct rs_request *request = *rs_request_find(bucket, handle);
    if (request) {
        request->start_ticks = now;
        request->key = rs_key_in_phase(request->key, rs.phase);
        request->flags |= RS_REQUEST_ACTIVE;
        *copy = *request;
    }
    rs_request_unlock(thread, bucket);
    return request != NULL;
}

void rs_request_set_record(struct rs_thread *thread, uint64_t handle, struct rs_collective *record)
{
    uint32_t bucket = rs_request_bucket(handle);
    if (!record || !rs_request_lock(thread, bucket))
        return;
    struct rs_request *request = *rs_request_find(bucket, handle);
    if (request) {
        request->record = record;
        request->record_number = rs_log_number(record);
    }
    rs_request_unlock(thread, bucket);
}

void rs_request_drop(struct rs_thread *thread, uint64_t handle)
{
    uint32_t bucket = rs_request_bucket(handle);
    if (!rs_request_lock(thread, bucket))
        return;
    struct rs_request **link = rs_request_find(bucket, handle);
    if (*link)
        rs_request_unlink(bucket, link);
    rs_request_unlock(thread, bucket);
}

void rs_requests_forget(void)
{
    memset(rs_request_buckets, 0, sizeof rs_request_buckets);
    memset(rs_request_shards, 0, sizeof rs_request_shards);
    made = 0;
}
