/* oneCCL's communicators: who is in them, and an identity that all members agree on without a message: the address of
 * the key-value store that they met at, and how many communicators came from it before. */
#include <stdio.h>

#include "loaded_objects.h"
#include "oneccl_operations.h"

#define BUCKETS 256u
#define STORES 64u
#define STORE_ADDRESS 256u      /* bytes of ccl::kvs::address_type */
#define UNIQUE_ID_USED 512u     /* of a unique id of the C interface: what lies behind is not always set */

static rs_lock lock;
static struct rs_oneccl_comm *buckets[BUCKETS];
static struct rs_group nowhere;
static uint32_t made_so_far, guessed_so_far;

/* A key-value store of this process: what it is called by all who use it. */
static struct { uint64_t handle, identity; uint32_t communicators; } stores[STORES];
static uint32_t stores_used;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xFF51AFD7ED558CCDu;
    return x ^ (x >> 33);
}

static uint64_t hash_bytes(const void *bytes, size_t count)
{
    uint64_t hash = RS_FNV64;
    for (const uint8_t *at = bytes; count--; at++)
        hash = rs_fnv64_byte(hash, *at);
    return hash;
}

void rs_oneccl_comms_forget(void)
{
    memset(buckets, 0, sizeof buckets);
    memset(stores, 0, sizeof stores);
    stores_used = made_so_far = guessed_so_far = 0;
}

/* --- stores --- */

static void add_store(uint64_t handle, uint64_t identity)
{
    uint32_t at = 0;
    while (at < stores_used && stores[at].handle != handle)
        at++;
    if (!handle || at == STORES)
        return;
    stores[at].handle = handle;
    stores[at].identity = identity;
    stores[at].communicators = 0;
    stores_used += at == stores_used;
}

struct address { char bytes[STORE_ADDRESS]; };

static void main_store_made(const struct rs_frame *call)
{
    uint64_t handle = rs_object_built(call)[0];
    struct address (*get_address)(uint64_t) = (struct address (*)(uint64_t))rs_find_symbol("_ZNK3ccl2v13kvs11get_addressEv");
    if (!handle || !get_address)
        return;
    struct address own = get_address(handle);
    add_store(handle, hash_bytes(&own, sizeof own));
}

/* 0: a store that we did not see, perhaps of the program's own making. */
static uint64_t identity_by_store(uint64_t handle)
{
    for (uint32_t at = 0; at < stores_used; at++)
        if (stores[at].handle == handle)
            return mix(stores[at].identity, ++stores[at].communicators);
    return 0;
}

/* --- communicators --- */

static struct rs_oneccl_comm **find(uint64_t handle)
{
    struct rs_oneccl_comm **link = &buckets[(handle * 0x9E3779B97F4A7C15u) >> 56];
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

static int ask(const char *symbol, uint64_t communicator)
{
    int (*function)(uint64_t) = (int (*)(uint64_t))rs_find_symbol(symbol);
    return function ? function(communicator) : 0;
}

static int ask_c(const char *symbol, uint64_t handle)
{
    int answer = 0, (*function)(uint64_t, int *) = (int (*)(uint64_t, int *))rs_find_symbol(symbol);
    return function && function(handle, &answer) == 0 ? answer : 0;
}

static void write_row(struct rs_oneccl_comm *comm, uint32_t flags)
{
    char name[32];
    comm->row = rs_group_row(&comm->id);
    if (!comm->row) {
        rs_count(&rs.file->folded_groups, 1);
        comm->row = &nowhere;
        return;
    }
    made_so_far++;
    snprintf(name, sizeof name, made_so_far == 1 ? "oneCCL" : "oneCCL#%u", made_so_far);
    comm->row->handle = comm->handle;
    comm->row->identity = comm->identity;
    comm->row->size = comm->size;
    comm->row->my_rank = comm->rank;
    comm->row->name = rs_intern(name);
    comm->row->kind = RS_GROUP_ONECCL;
    comm->row->flags = flags;
    comm->row->created_ticks = rs_ticks();
}

/* The first communicator of a process that no launcher has told its rank, if it is not alone in it. */
static void learn_rank(const struct rs_oneccl_comm *comm)
{
    if (rs.file->rank_source != RS_RANK_NONE || comm->size < 2)
        return;
    rs.file->world_size = (int32_t)comm->size;
    rs.file->rank_source = RS_RANK_ONECCL;
    __atomic_store_n(&rs.file->rank, (int32_t)comm->rank, __ATOMIC_RELEASE);
}

/* Without an identity it is guessed: programs make their communicators in the same order on all ranks. */
static struct rs_oneccl_comm *add(uint64_t handle, uint64_t identity, uint32_t size, uint32_t rank)
{
    struct rs_oneccl_comm **link = find(handle), *comm = *link;
    if (!comm && !(comm = rs_memory(sizeof *comm)))
        return NULL;
    if (*link && comm->row->size == size && !identity)
        return comm;
    if (*link)      /* its address was that of another, which is gone */
        RS_SET(comm->row->freed_ticks, rs_ticks());
    uint32_t guess = identity ? 0 : ++guessed_so_far;
    *comm = (struct rs_oneccl_comm){.handle = handle, .size = size, .rank = rank, .next = comm->next,
                                    .identity = identity ? mix(identity, size) : mix(mix(5, guess), size)};
    *link = comm;
    write_row(comm, guess ? RS_GROUP_GUESSED : 0);
    learn_rank(comm);
    return comm;
}

static struct rs_oneccl_comm *add_object(uint64_t communicator, uint64_t identity)
{
    uint64_t handle = *(const uint64_t *)communicator;
    if (!handle)
        return NULL;
    return add(handle, identity, (uint32_t)ask("_ZNK3ccl2v112communicator4sizeEv", communicator),
               (uint32_t)ask("_ZNK3ccl2v112communicator4rankEv", communicator));
}

static struct rs_oneccl_comm *add_handle(uint64_t handle, uint64_t identity)
{
    return handle ? add(handle, identity, (uint32_t)ask_c("onecclCommCount", handle),
                        (uint32_t)ask_c("onecclCommUserRank", handle)) : NULL;
}

/* That of the call's argument. One whose making was not seen is asked about itself: the program is about to use it. */
struct rs_oneccl_comm *rs_oneccl_comm_of(const struct rs_frame *call)
{
    uint64_t given = rs_argument(call, call->entry->group);
    int is_c = rs_oneccl_is_c(call->entry);
    uint64_t handle = given && !is_c ? *(const uint64_t *)given : given;
    if (!handle || !rs_lock_take(&lock))
        return NULL;
    struct rs_oneccl_comm *comm = *find(handle);
    if (!comm)
        comm = is_c ? add_handle(given, 0) : add_object(given, 0);
    rs_lock_give(&lock);
    return comm;
}

uint32_t rs_oneccl_next_sequence(struct rs_oneccl_comm *comm)
{
    return (uint32_t)__atomic_add_fetch(&comm->row->collectives, 1, __ATOMIC_RELAXED);
}

/* --- calls that make them --- */

/* An argument that is a shared pointer is passed by its address. */
static uint64_t store_of(const struct rs_frame *call)
{
    uint8_t place = call->entry->count;
    return place == RS_NO_ARGUMENT ? 0 : identity_by_store(*(const uint64_t *)rs_argument(call, place));
}

static void many_made(const struct rs_frame *call)
{
    const uint64_t *vector = rs_object_built(call);     /* begin and end of objects of two words */
    for (uint64_t at = vector[0]; at < vector[1]; at += 2 * sizeof(uint64_t))
        add_object(at, store_of(call));
}

static uint64_t identity_of_part(const struct rs_frame *call, uint64_t parent_handle)
{
    struct rs_oneccl_comm *parent = *find(parent_handle);
    uint32_t colour = (uint32_t)rs_argument(call, call->entry->root);
    return parent ? mix(mix(parent->identity, ++parent->children), colour) : 0;
}

static void handle_made(const struct rs_frame *call)
{
#if defined(__x86_64__)
    const void *unique = call->stack;
#else
    const void *unique = (const void *)rs_argument(call, call->entry->count);
#endif
    add_handle(*(const uint64_t *)rs_argument(call, 0), hash_bytes(unique, UNIQUE_ID_USED));
}

static void handle_freed(uint64_t handle)
{
    struct rs_oneccl_comm **link = find(handle), *comm = *link;
    if (!comm)
        return;
    RS_SET(comm->row->freed_ticks, rs_ticks());
    *link = comm->next;
    rs_memory_free(comm, sizeof *comm);
}

static void made_locked(const struct rs_frame *call)
{
    const struct rs_entry *entry = call->entry;
    switch (entry->operation) {
    case MAIN_STORE: main_store_made(call); break;
    case STORE: add_store(rs_object_built(call)[0], hash_bytes((const void *)rs_argument(call, 0), STORE_ADDRESS)); break;
    case NEW_COMM: add_object((uint64_t)rs_object_built(call), store_of(call)); break;
    case NEW_COMMS: many_made(call); break;
    case SPLIT:
        add_object((uint64_t)rs_object_built(call), identity_of_part(call, *(const uint64_t *)rs_argument(call, entry->group)));
        break;
    case C_NEW_COMM: handle_made(call); break;
    case C_SPLIT:
        add_handle(*(const uint64_t *)rs_argument(call, entry->count),
                   identity_of_part(call, rs_argument(call, entry->group)));
        break;
    case C_FREE: handle_freed(rs_argument(call, entry->group)); break;
    default: break;
    }
}

void rs_oneccl_comms_made(const struct rs_frame *call)
{
    if (!rs_lock_take(&lock))
        return;
    made_locked(call);
    rs_lock_give(&lock);
}
