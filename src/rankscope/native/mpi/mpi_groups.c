/* Communicators, windows and files: who is in them, and a name and an identity that all their members agree on
 * without exchanging a message: the parent's identity, how many children it had before, and the first member. */
#include <stdio.h>

#include "mpi_layer.h"

#define BUCKETS 1024u

static struct rs_mpi_group *buckets[BUCKETS], *unused;
static rs_lock lock;
static struct rs_group nowhere;     /* the row of groups that have none in the file */
struct rs_mpi_group rs_no_group = {.size = 1, .remote_size = 1, .out_degree = 0, .row = &nowhere};
static uint16_t folded_id;

static int ask(const char *symbol, W a, W b, W c, W d, W e)
{
    int (*function)(W, W, W, W, W) = (int (*)(W, W, W, W, W))rs_mpi_symbol(symbol);
    return function ? function(a, b, c, d, e) : -1;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xFF51AFD7ED558CCDu;
    return x ^ (x >> 33);
}

static uint64_t mix_text(uint64_t seed, const char *text)
{
    for (; *text; text++)
        seed = mix(seed, (uint8_t)*text);
    return seed;
}

static uint64_t key_of(W handle, uint8_t kind)
{
    return kind == RS_GROUP_FILE ? (uint64_t)handle : rs_handle(handle);
}

static struct rs_mpi_group **find(uint64_t handle, uint8_t kind)
{
    struct rs_mpi_group **link = &buckets[(handle * 0x9E3779B97F4A7C15u) >> 54];
    while (*link && ((*link)->handle != handle || (*link)->kind != kind))
        link = &(*link)->next;
    return link;
}

/* --- members --- */

/* Everybody, of the model that the communicator was made in: objects of two must not meet in one call. */
static int world_group(int of_session, W *world)
{
    if (!of_session)
        return rs_mpi.world && ask("PMPI_Comm_group", rs_mpi.comm_world, (W)world, 0, 0, 0) == 0;
    return rs_mpi.sessions == 1
           && ask("PMPI_Group_from_session_pset", rs_mpi.session, (W)"mpi://WORLD", (W)world, 0, 0) == 0;
}

static int32_t world_rank_of(const struct rs_mpi_group *group, const char *group_function, W comm, int32_t rank)
{
    W members = 0, world = 0;
    int in = rank, out = -1;
    if (ask(group_function, comm, (W)&members, 0, 0, 0) == 0) {
        if (world_group(group->of_session, &world)) {
            ask("PMPI_Group_translate_ranks", members, 1, (W)&in, world, (W)&out);
            ask("PMPI_Group_free", (W)&world, 0, 0, 0, 0);
        }
        ask("PMPI_Group_free", (W)&members, 0, 0, 0, 0);
    }
    return out;
}

static void learn_members(struct rs_mpi_group *group, W comm)
{
    int size = 1, rank = 0, inter = 0, remote;
    ask("PMPI_Comm_size", comm, (W)&size, 0, 0, 0);
    ask("PMPI_Comm_rank", comm, (W)&rank, 0, 0, 0);
    ask("PMPI_Comm_test_inter", comm, (W)&inter, 0, 0, 0);
    remote = size;
    if (inter)
        ask("PMPI_Comm_remote_size", comm, (W)&remote, 0, 0, 0);
    group->size = (uint32_t)size;
    group->rank = (uint32_t)rank;
    group->remote_size = (uint32_t)remote;
    group->inter = inter != 0;
}

/* Equal on both sides of an intercommunicator. */
static uint64_t first_members(const struct rs_mpi_group *group, W comm)
{
    uint64_t first = (uint32_t)world_rank_of(group, "PMPI_Comm_group", comm, 0);
    if (!group->inter)
        return first;
    uint64_t other = (uint32_t)world_rank_of(group, "PMPI_Comm_remote_group", comm, 0);
    return first < other ? first << 32 | other : other << 32 | first;
}

/* --- rows --- */

static uint16_t fold(void)
{
    if (!folded_id) {
        struct rs_group *row = rs_group_row(&folded_id);
        if (row)
            row->name = rs_intern("(other groups)");
    }
    rs_count(&rs.file->folded_groups, 1);
    return folded_id;
}

static void write_row(struct rs_mpi_group *group, const struct rs_mpi_group *parent, const char *name, uint32_t flags)
{
    uint16_t id = 0;
    struct rs_group *row = rs_group_row(&id);
    snprintf(group->name, sizeof group->name, "%.*s", RS_GROUP_NAME - 1, name);
    if (!row) {
        group->row = &nowhere;
        group->id = fold();
        return;
    }
    row->handle = group->handle;
    row->identity = group->identity;
    row->size = group->size;
    row->my_rank = group->rank;
    row->remote_size = group->inter ? group->remote_size : 0;
    row->parent = parent->id;
    row->name = rs_intern(name);
    row->kind = group->kind;
    row->flags = flags | (group->inter ? RS_GROUP_INTER : 0);
    row->created_ticks = rs_ticks();
    group->row = row;
    group->id = id;
}

static struct rs_mpi_group *take_node(void)
{
    struct rs_mpi_group *group = unused;
    if (group)
        unused = group->next;
    else if (!(group = rs_memory(sizeof *group)))
        return NULL;
    memset(group, 0, sizeof *group);
    group->out_degree = -1;
    return group;
}

static struct rs_mpi_group *insert(uint64_t handle, uint8_t kind)
{
    struct rs_mpi_group *group = take_node();
    if (!group)
        return NULL;
    group->handle = handle;
    group->kind = kind;
    struct rs_mpi_group **link = &buckets[(handle * 0x9E3779B97F4A7C15u) >> 54];
    group->next = *link;
    *link = group;
    __atomic_fetch_add(&rs_mpi.group_epoch, 1, __ATOMIC_RELEASE);
    return group;
}

/* A group whose making we did not see: the two that always are, or one made behind our back. */
static struct rs_mpi_group *register_found(W handle, uint8_t kind)
{
    if (kind != RS_GROUP_COMM || rs_handle(handle) == rs_handle(rs_mpi.comm_null) || !rs_plausible(handle, RS_MPICH_COMM))
        return &rs_no_group;
    struct rs_mpi_group *group = insert(rs_handle(handle), kind);
    if (!group)
        return &rs_no_group;
    group->of_session = !rs_mpi.world;
    learn_members(group, handle);
    if (group->handle == rs_handle(rs_mpi.comm_world)) {
        group->identity = 1;
        write_row(group, &rs_no_group, "MPI_COMM_WORLD", 0);
    } else if (group->handle == rs_handle(rs_mpi.comm_self)) {
        group->identity = mix(2, (uint32_t)rs.file->rank);
        write_row(group, &rs_no_group, "MPI_COMM_SELF", 0);
    } else {
        group->identity = mix(mix(3, first_members(group, handle)), group->size);
        write_row(group, &rs_no_group, "(communicator made unseen)", RS_GROUP_GUESSED);
    }
    return group;
}

static int is_predefined(W handle)
{
    return rs_mpi.world
           && (rs_handle(handle) == rs_handle(rs_mpi.comm_world) || rs_handle(handle) == rs_handle(rs_mpi.comm_self));
}

/* proven: the MPI has just taken the handle. Else it is looked up, and nobody is asked about it. */
RS_COLD struct rs_mpi_group *rs_group_slow(struct rs_thread *thread, W handle, uint8_t kind, int proven)
{
    if (RS_UNLIKELY(!__atomic_load_n(&rs_mpi.ready, __ATOMIC_ACQUIRE))) {
        if (proven)
            rs_mpi_started(1);
        if (!rs_mpi.ready)
            return &rs_no_group;
    }
    if (!rs_lock_take(&lock))
        return &rs_no_group;
    uint64_t epoch = __atomic_load_n(&rs_mpi.group_epoch, __ATOMIC_ACQUIRE);
    struct rs_mpi_group *group = *find(key_of(handle, kind), kind);
    if (!group && kind == RS_GROUP_COMM && (proven || is_predefined(handle))) {
        group = register_found(handle, kind);
        epoch = __atomic_load_n(&rs_mpi.group_epoch, __ATOMIC_ACQUIRE);
    }
    rs_lock_give(&lock);
    if (!group)
        return &rs_no_group;
    if (kind == RS_GROUP_COMM) {
        thread->last_group_handle = (uint64_t)handle;
        thread->last_group_epoch = epoch;
        thread->last_group = group;
    }
    return group;
}

/* tag >= 0: only some members of the parent took part, so its count of children is not common knowledge. */
static void identify(struct rs_mpi_group *group, W comm, struct rs_mpi_group *parent, const char *label, int64_t tag)
{
    char name[RS_GROUP_NAME];
    uint64_t base = tag >= 0 ? mix(4, (uint64_t)tag) : mix(parent->identity, ++parent->children);
    group->identity = mix(mix_text(base, label), group->kind == RS_GROUP_COMM ? first_members(group, comm) : 0);
    if (tag >= 0)
        snprintf(name, sizeof name, "%.90s%s%.20s", parent->name, parent->name[0] ? "/" : "", label);
    else
        snprintf(name, sizeof name, "%.90s/%.20s#%u", parent->name, label, parent->children);
    write_row(group, parent, name, 0);
}

void rs_group_new(W handle, uint8_t kind, struct rs_mpi_group *parent, const char *label, int64_t tag)
{
    uint64_t key = key_of(handle, kind);
    if (!rs_mpi.ready || !rs.file || !rs_lock_take(&lock))
        return;
    if (kind == RS_GROUP_COMM && key == rs_handle(rs_mpi.comm_null)) {
        parent->children++;     /* the others' new group has a number too */
    } else if (!*find(key, kind) && (kind != RS_GROUP_COMM || rs_plausible(handle, RS_MPICH_COMM))) {
        struct rs_mpi_group *group = insert(key, kind);
        if (group) {
            group->size = parent->size;
            group->rank = parent->rank;
            group->remote_size = parent->remote_size;
            group->of_session = parent == &rs_no_group ? !strncmp(label, "from_group", 10) || !rs_mpi.world
                                                       : parent->of_session;
            if (kind == RS_GROUP_COMM)
                learn_members(group, handle);
            identify(group, handle, parent, label, tag);
        }
    }
    rs_lock_give(&lock);
}

void rs_group_freed(W handle, uint8_t kind)
{
    if (!rs.file || !rs_lock_take(&lock))
        return;
    struct rs_mpi_group **link = find(key_of(handle, kind), kind), *group = *link;
    if (group) {
        group->row->freed_ticks = rs_ticks();
        if (group->world_ranks)
            rs_memory_free(group->world_ranks, group->remote_size * sizeof *group->world_ranks);
        *link = group->next;
        group->next = unused;
        unused = group;
        __atomic_fetch_add(&rs_mpi.group_epoch, 1, __ATOMIC_RELEASE);
    }
    rs_lock_give(&lock);
}

void rs_group_named(W handle, const char *name)
{
    if (!rs.file || !name || !rs_lock_take(&lock))
        return;
    struct rs_mpi_group *group = *find(rs_handle(handle), RS_GROUP_COMM);
    if (group) {
        snprintf(group->name, sizeof group->name, "%.*s", RS_GROUP_NAME - 1, name);
        if (group->row != &nowhere)
            group->row->name = rs_intern(group->name);
    }
    rs_lock_give(&lock);
}

/* --- neighbours and destinations --- */

int32_t rs_out_degree(struct rs_mpi_group *group, W comm)
{
    int topology = -1, dimensions = 0, in = 0, out = 0, weighted = 0;
    if (group->out_degree >= 0)
        return group->out_degree;
    /* An MPI answers only the question that fits the topology: ask for the topology first. */
    ask("PMPI_Topo_test", comm, (W)&topology, 0, 0, 0);
    if (topology == rs_mpi.topology_cart && ask("PMPI_Cartdim_get", comm, (W)&dimensions, 0, 0, 0) == 0)
        out = 2 * dimensions;
    else if (topology == rs_mpi.topology_graph)
        ask("PMPI_Graph_neighbors_count", comm, (W)group->rank, (W)&out, 0, 0);
    else if (topology >= 0)
        ask("PMPI_Dist_graph_neighbors_count", comm, (W)&in, (W)&out, (W)&weighted, 0);
    group->out_degree = out;
    return out;
}

static void learn_world_ranks(struct rs_mpi_group *group, W comm)
{
    uint32_t *ranks = rs_memory(group->remote_size * sizeof *ranks);
    if (!ranks)
        return;
    const char *members = group->inter ? "PMPI_Comm_remote_group" : "PMPI_Comm_group";
    for (uint32_t i = 0; i < group->remote_size; i++)
        ranks[i] = (uint32_t)world_rank_of(group, members, comm, (int32_t)i);
    group->world_ranks = ranks;
}

RS_COLD void rs_matrix_add(struct rs_thread *thread, struct rs_mpi_group *group, W comm, int32_t dest, uint64_t bytes)
{
    if (dest < 0 || (uint32_t)dest >= group->remote_size || !rs_mpi.ready)
        return;
    if (rs_handle(comm) == rs_handle(rs_mpi.comm_world)) {
        rs_peer_add(thread, (uint32_t)dest, bytes);
        return;
    }
    if (!group->world_ranks && rs_lock_take(&lock)) {
        if (!group->world_ranks)
            learn_world_ranks(group, comm);
        rs_lock_give(&lock);
    }
    if (group->world_ranks)
        rs_peer_add(thread, group->world_ranks[dest], bytes);
}

void rs_groups_forget(void)
{
    memset(buckets, 0, sizeof buckets);
    unused = NULL;
    folded_id = 0;
    rs_no_group.children = 0;
    rs_mpi.group_epoch++;
}
