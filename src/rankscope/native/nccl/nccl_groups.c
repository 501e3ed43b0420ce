/* NCCL's communicators: contexts handed to NCCL, and their rows in the rank file. */
#include <stdio.h>

#include "nccl_layer.h"

struct rs_nccl_comm rs_nccl_comms[RS_NCCL_COMMS];
static uint8_t opened;

int rs_nccl_recording(void) { return __atomic_load_n(&opened, __ATOMIC_RELAXED); }

static void *context_of(const struct rs_nccl_comm *comm)
{
    return (void *)((uintptr_t)comm->generation << 16 | (uintptr_t)(comm - rs_nccl_comms + 1));
}

static void write_row(struct rs_nccl_comm *comm, const struct rs_nccl_identity *identity)
{
    uint16_t id = 0;
    struct rs_group *row = rs_group_row(&id);
    if (!row) {
        rs_count(&rs.file->folded_groups, 1);
        return;
    }
    char name[128];
    snprintf(name, sizeof name, "%s", identity->name && identity->name[0] ? identity->name : "NCCL");
    row->handle = (uint64_t)(uintptr_t)context_of(comm);
    row->identity = identity->hash;
    row->size = identity->size;
    row->my_rank = identity->rank;
    row->name = rs_intern(name);
    row->kind = RS_GROUP_NCCL;
    row->created_ticks = rs_ticks();
    comm->row = row;
    __atomic_store_n(&comm->group, id, __ATOMIC_RELEASE);
}

RS_COLD void rs_nccl_comm_name(struct rs_nccl_comm *comm, const struct rs_nccl_identity *identity)
{
    if (!rs_lock_take(&comm->lock))
        return;
    if (!comm->group)
        write_row(comm, identity);
    rs_lock_give(&comm->lock);
}

void *rs_nccl_comm_new(const struct rs_nccl_identity *identity, int kernels_told)
{
    rs_nccl_prepare();
    __atomic_store_n(&opened, 1, __ATOMIC_RELAXED);
    for (struct rs_nccl_comm *comm = rs_nccl_comms; comm < rs_nccl_comms + RS_NCCL_COMMS; comm++) {
        uint8_t unused = 0;
        if (!__atomic_compare_exchange_n(&comm->used, &unused, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&comm->group, 0, __ATOMIC_RELAXED);
        comm->row = NULL;
        comm->collectives = 0;
        comm->kernels_told = (uint8_t)kernels_told;
        __atomic_store_n(&comm->running, NULL, __ATOMIC_RELAXED);
        __atomic_store_n(&comm->generation, comm->generation + 1, __ATOMIC_RELEASE);
        rs_nccl_comm_identify(comm, identity);
        return context_of(comm);
    }
    rs_count(&rs.file->folded_groups, 1);
    return NULL;
}

void rs_nccl_comm_end(void *context)
{
    struct rs_nccl_comm *comm = rs.file ? rs_nccl_comm(context) : NULL;
    if (!comm)
        return;
    rs_nccl_flush(comm);
    if (__atomic_load_n(&comm->group, __ATOMIC_ACQUIRE))
        __atomic_store_n(&comm->row->freed_ticks, rs_ticks(), __ATOMIC_RELAXED);
    __atomic_store_n(&comm->used, 0, __ATOMIC_RELEASE);
}

/* The parent's communicators are no use to a child; their contexts become stale. */
void rs_nccl_comms_forget(void)
{
    opened = 0;
    for (uint32_t i = 0; i < RS_NCCL_COMMS; i++) {
        uint32_t generation = rs_nccl_comms[i].generation;
        memset(&rs_nccl_comms[i], 0, sizeof rs_nccl_comms[i]);
        rs_nccl_comms[i].generation = generation;
    }
}
