/* Memory: buffers, images and pipes until the driver destroys them (it tells by a callback), shared virtual memory and
 * Intel's unified shared memory until they are freed. */
#include "opencl_layer.h"

#define SLAB 1024u
#define BUCKETS 4096u

struct piece {
    struct piece *next;
    word pointer;                   /* of shared memory */
    uint64_t bytes;
    uint32_t device, forks;
    uint8_t is_shared;              /* it moves between the host and devices */
};
static rs_lock lock;
static struct piece *free_pieces, *buckets[BUCKETS];

/* Pieces are the parent's: callbacks of its objects are told from ours by their forks. */
void rs_cl_memory_forget(void)
{
    memset(buckets, 0, sizeof buckets);
    free_pieces = NULL;
    memset(&lock, 0, sizeof lock);
}

static struct piece *new_piece(uint32_t device, uint64_t bytes)
{
    if (!rs_lock_take(&lock))
        return NULL;
    struct piece *more = free_pieces ? NULL : rs_memory(SLAB * sizeof *more), *piece;
    for (uint32_t i = 0; more && i < SLAB; i++) {
        more[i].next = free_pieces;
        free_pieces = &more[i];
    }
    if ((piece = free_pieces)) {
        free_pieces = piece->next;
        *piece = (struct piece){.bytes = bytes, .device = device, .forks = rs.forks};
    }
    rs_lock_give(&lock);
    return piece;
}

static void free_piece(struct piece *piece)
{
    if (!rs_lock_take(&lock))
        return;
    piece->next = free_pieces;
    free_pieces = piece;
    rs_lock_give(&lock);
}

static void tell(const struct piece *piece, int is_release)
{
    const struct rs_gpu_memory memory = {.device = piece->device, .is_release = (uint8_t)is_release, .bytes = piece->bytes};
    rs_gpu_enter();
    if (rs_gpu.row && piece->device == UINT32_MAX)
        rs_gpu_change(&rs_cl_runtime->host_bytes, &rs_cl_runtime->host_peak_bytes, piece->bytes, is_release);
    else if (rs_gpu.row && piece->is_shared)
        rs_gpu_change(&rs_cl_runtime->shared_bytes, &rs_cl_runtime->shared_peak_bytes, piece->bytes, is_release);
    if (rs_gpu.row)
        rs_gpu_add_memory(&memory);
    rs_gpu_leave();
}

/* --- objects --- */

static void object_destroyed(word object, void *data)
{
    struct piece *piece = data;
    (void)object;
    if (piece->forks != rs.forks)
        return;
    if (rs_cl_is_on())
        tell(piece, 1);
    free_piece(piece);
}

static uint64_t bytes_of(enum rs_cl_place place, const word *arguments, word object)
{
    size_t bytes = 0;
    if (place == RS_CL_clCreateBuffer || place == RS_CL_clCreateBufferWithProperties)
        return arguments[place == RS_CL_clCreateBuffer ? 2 : 3];
    RS_CL_ASK(clGetMemObjectInfo, object, RS_CL_MEM_BYTES, sizeof bytes, (word)&bytes, 0);
    return bytes;
}

/* Contexts have memory before they have queues. */
static uint32_t device_of(word context) { return rs_cl_begin() ? rs_cl_device_of_context(context) : UINT32_MAX; }

void rs_cl_object_made(enum rs_cl_place place, const word *arguments, word object)
{
    uint32_t device = device_of(arguments[0]);
    struct piece *piece = device == UINT32_MAX ? NULL : new_piece(device, bytes_of(place, arguments, object));
    if (!piece)
        return;
    if (RS_CL_ASK(clSetMemObjectDestructorCallback, object, (word)object_destroyed, (word)piece) == RS_CL_SUCCESS)
        tell(piece, 0);
    else
        free_piece(piece);
}

/* --- pointers --- */

static struct piece **bucket_of(word pointer) { return &buckets[(pointer * 0x9E3779B97F4A7C15u >> 40) % BUCKETS]; }

void rs_cl_pointer_made(enum rs_cl_place place, const word *arguments, word pointer)
{
    int is_of_device = (place == RS_CL_clDeviceMemAllocINTEL || place == RS_CL_clSharedMemAllocINTEL) && arguments[1];
    int is_pinned = place == RS_CL_clHostMemAllocINTEL;
    uint64_t bytes = arguments[place == RS_CL_clSVMAlloc || is_pinned ? 2 : 3];
    uint32_t device = device_of(arguments[0]);
    if (device == UINT32_MAX)
        return;
    if (is_of_device || is_pinned)
        device = is_pinned ? UINT32_MAX : rs_cl_device_of(arguments[1]);
    struct piece *piece = new_piece(device, bytes);
    if (!piece)
        return;
    piece->pointer = pointer;
    piece->is_shared = place != RS_CL_clDeviceMemAllocINTEL;
    tell(piece, 0);
    if (rs_lock_take(&lock)) {
        piece->next = *bucket_of(pointer);
        *bucket_of(pointer) = piece;
        rs_lock_give(&lock);
    }
}

void rs_cl_pointer_freed(word pointer)
{
    struct piece *piece = NULL;
    if (!pointer || !rs_cl_is_on() || !rs_lock_take(&lock))
        return;
    struct piece **place = bucket_of(pointer);
    while ((piece = *place) && piece->pointer != pointer)
        place = &piece->next;
    if (piece)
        *place = piece->next;
    rs_lock_give(&lock);
    if (piece) {
        tell(piece, 1);
        free_piece(piece);
    }
}
