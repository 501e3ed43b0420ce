/* The rare half of the table of operations under way: growth, persistent operations, fork. */
#include "mpi_requests.h"

#define SLAB 64u
#define MOST_REQUESTS (1u << 20)

struct rs_request rs_request_buckets[RS_REQUEST_BUCKETS];
struct rs_request_shard rs_request_shards[RS_REQUEST_SHARDS];
static uint32_t made;

static int slab(struct rs_request_shard *shard)
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

/* All below is called with the bucket locked, or solo. Makes the bucket's own place free; 0 where what lay there had to
 * be given up. */
RS_COLD int rs_request_push_back(uint32_t bucket)
{
    struct rs_request *first = &rs_request_buckets[bucket];
    struct rs_request_shard *shard = rs_request_shard(bucket);
    if (!shard->unused && !slab(shard))
        return 0;
    struct rs_request *older = shard->unused;
    shard->unused = older->next;
    *older = *first;
    first->next = older;
    return 1;
}

RS_COLD struct rs_request *rs_request_find_behind(uint32_t bucket, uint64_t handle)
{
    struct rs_request *request = rs_request_buckets[bucket].next;
    while (request && request->handle != handle)
        request = request->next;
    return request;
}

RS_COLD void rs_request_remove(uint32_t bucket, struct rs_request *request)
{
    struct rs_request *first = &rs_request_buckets[bucket], **link = &first->next;
    struct rs_request_shard *shard = rs_request_shard(bucket);
    if (request == first) {
        first->flags = 0;
        return;
    }
    while (*link != request)
        link = &(*link)->next;
    *link = request->next;
    request->next = shard->unused;
    shard->unused = request;
}

/* A persistent request begins one more operation. 0 where it is not known. */
int rs_request_start(struct rs_thread *thread, uint64_t handle, uint64_t now, struct rs_request *copy)
{
    uint32_t bucket = rs_request_bucket(handle);
    if (!rs_request_lock(thread, bucket))
        return 0;
    struct rs_request *request = rs_request_find(bucket, handle);
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
    struct rs_request *request = rs_request_find(bucket, handle);
    if (request) {
        request->record = record;
        request->record_number = rs_log_number(record);
    }
    rs_request_unlock(thread, bucket);
}

void rs_request_cancelling(struct rs_thread *thread, uint64_t handle)
{
    uint32_t bucket = rs_request_bucket(handle);
    if (!rs_request_lock(thread, bucket))
        return;
    struct rs_request *request = rs_request_find(bucket, handle);
    if (request)
        request->flags |= RS_REQUEST_CANCELLING;
    rs_request_unlock(thread, bucket);
}

/* --- persistent messages --- */

static rs_lock persistent_lock;
static struct rs_persistent *persistent_unused;

static void persistent_slab(void)
{
    struct rs_persistent *made_now = rs_memory(SLAB * sizeof *made_now);
    for (uint32_t i = 0; made_now && i < SLAB; i++) {
        made_now[i].next = persistent_unused;
        persistent_unused = &made_now[i];
    }
}

RS_COLD struct rs_persistent *rs_persistent_new(int32_t peer, int32_t tag)
{
    if (!rs_lock_take(&persistent_lock))
        return NULL;
    if (!persistent_unused)
        persistent_slab();
    struct rs_persistent *persistent = persistent_unused;
    if (persistent) {
        persistent_unused = persistent->next;
        *persistent = (struct rs_persistent){NULL, {NULL, 0}, peer, tag};
    }
    rs_lock_give(&persistent_lock);
    return persistent;
}

static void persistent_free(struct rs_persistent *persistent)
{
    if (!persistent || !rs_lock_take(&persistent_lock))
        return;
    persistent->next = persistent_unused;
    persistent_unused = persistent;
    rs_lock_give(&persistent_lock);
}

void rs_request_drop(struct rs_thread *thread, uint64_t handle)
{
    struct rs_persistent *persistent = NULL;
    uint32_t bucket = rs_request_bucket(handle);
    if (!rs_request_lock(thread, bucket))
        return;
    struct rs_request *request = rs_request_find(bucket, handle);
    if (request) {
        if ((request->flags & RS_REQUEST_MESSAGE) && (request->flags & RS_REQUEST_PERSISTENT))
            persistent = (struct rs_persistent *)request->record;
        rs_request_remove(bucket, request);
    }
    rs_request_unlock(thread, bucket);
    persistent_free(persistent);
}

void rs_requests_forget(void)
{
    memset(rs_request_buckets, 0, sizeof rs_request_buckets);
    memset(rs_request_shards, 0, sizeof rs_request_shards);
    made = 0;
    persistent_unused = NULL;
}
