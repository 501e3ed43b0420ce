/* Operations under way, by request handle. Any thread may complete what another has started. Handles need not be
 * unique: an MPI may hand out one and the same request for everything that was complete at once. */
#ifndef RANKSCOPE_MPI_REQUESTS_H
#define RANKSCOPE_MPI_REQUESTS_H

#include "messages.h"
#include "mpi_layer.h"

#define RS_REQUEST_BUCKETS 4096u
#define RS_REQUEST_SHARDS 64u

/* A record in the collective log; its number tells whether the place is still ours. */
struct rs_logged { struct rs_collective *record; uint32_t number; };
#define RS_NOT_LOGGED rs_as_logged(NULL, 0)

/* A persistent message: its envelope, and the place of the one under way. */
struct rs_persistent {
    struct rs_persistent *next;
    struct rs_message_place place;
    int32_t peer, tag;
};
struct rs_persistent *rs_persistent_new(int32_t peer, int32_t tag);

static inline struct rs_logged rs_as_logged(void *record, uint32_t number)
{
    return (struct rs_logged){record, number};
}

/* The newest request of a bucket lies in the bucket itself, where almost every one is found; older ones that share it
 * hang behind. Flags of 0: nothing is there. */
struct rs_request_shard { rs_lock lock; struct rs_request *unused; };
extern struct rs_request rs_request_buckets[RS_REQUEST_BUCKETS] __attribute__((visibility("hidden")));
extern struct rs_request_shard rs_request_shards[RS_REQUEST_SHARDS] __attribute__((visibility("hidden")));

int rs_request_push_back(uint32_t bucket);
struct rs_request *rs_request_find_behind(uint32_t bucket, uint64_t handle);
void rs_request_remove(uint32_t bucket, struct rs_request *request);
int rs_request_start(struct rs_thread *thread, uint64_t handle, uint64_t now, struct rs_request *copy);
void rs_request_set_record(struct rs_thread *thread, uint64_t handle, struct rs_collective *record);
void rs_request_drop(struct rs_thread *thread, uint64_t handle);
void rs_request_cancelling(struct rs_thread *thread, uint64_t handle);
void rs_requests_forget(void);

static inline uint32_t rs_request_bucket(uint64_t handle)
{
    return (uint32_t)((handle * 0x9E3779B97F4A7C15u) >> 52);
}

static inline struct rs_request_shard *rs_request_shard(uint32_t bucket)
{
    return &rs_request_shards[bucket % RS_REQUEST_SHARDS];
}

static inline int rs_request_lock(struct rs_thread *thread, uint32_t bucket)
{
    return rs_solo_enter(thread) || rs_lock_take(&rs_request_shard(bucket)->lock);
}

static inline void rs_request_unlock(struct rs_thread *thread, uint32_t bucket)
{
    if (RS_LIKELY(thread->solo))
        rs_solo_leave(thread);
    else
        rs_lock_give(&rs_request_shard(bucket)->lock);
}

/* The newest first: where a handle was used again without our seeing its completion, the old one is the stale one.
 * Fields go straight to their place: a copy of what was just written in small pieces stalls the processor. */
RS_HOT void rs_request_add(struct rs_thread *thread, uint64_t handle, uint64_t start_ticks, uint64_t bytes,
                           struct rs_mpi_group *group, uint64_t key, uint16_t flags, int32_t dest_or_root,
                           struct rs_logged logged)
{
    uint32_t bucket = rs_request_bucket(handle);
    struct rs_request *node = &rs_request_buckets[bucket];
    if (RS_UNLIKELY(!rs_request_lock(thread, bucket))) {
        rs_count(&rs.file->untracked_requests, 1);
        return;
    }
    if (RS_UNLIKELY(node->flags) && !rs_request_push_back(bucket))
        rs_count(&rs.file->untracked_requests, 1);
    node->handle = handle;
    node->start_ticks = start_ticks;
    node->bytes = bytes;
    node->group = group;
    node->record = logged.record;
    node->record_number = logged.number;
    node->dest_or_root = dest_or_root;
    node->key = key;
    node->flags = flags;
    rs_request_unlock(thread, bucket);
}

static inline struct rs_request *rs_request_find(uint32_t bucket, uint64_t handle)
{
    struct rs_request *first = &rs_request_buckets[bucket];
    return RS_LIKELY(first->handle == handle && first->flags) ? first : rs_request_find_behind(bucket, handle);
}

/* What completion needs of an operation. */
struct rs_completed {
    uint64_t start_ticks, bytes, key;
    struct rs_mpi_group *group;
    struct rs_collective *record;
    uint32_t record_number;
    uint16_t flags;
};

/* The operation is complete. 0 where none was under way: a null, inactive or unknown request. Called with the bucket
 * locked, or solo. */
RS_HOT int rs_request_take_held(uint32_t bucket, uint64_t handle, struct rs_completed *done)
{
    struct rs_request *node = rs_request_find(bucket, handle);
    if (RS_UNLIKELY(!node || !(node->flags & RS_REQUEST_ACTIVE)))
        return 0;
    *done = (struct rs_completed){node->start_ticks, node->bytes, node->key, node->group, node->record,
                                  node->record_number, node->flags};
    if (RS_UNLIKELY(node->flags & RS_REQUEST_PERSISTENT))
        node->flags &= (uint16_t)~(RS_REQUEST_ACTIVE | RS_REQUEST_CANCELLING);
    else if (RS_LIKELY(node == &rs_request_buckets[bucket]))
        node->flags = 0;
    else
        rs_request_remove(bucket, node);
    return 1;
}

RS_HOT int rs_request_take(struct rs_thread *thread, uint64_t handle, struct rs_completed *done)
{
    uint32_t bucket = rs_request_bucket(handle);
    if (RS_UNLIKELY(!rs_request_lock(thread, bucket)))
        return 0;
    int active = rs_request_take_held(bucket, handle, done);
    rs_request_unlock(thread, bucket);
    return active;
}

#endif
