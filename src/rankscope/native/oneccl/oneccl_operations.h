/* What oneCCL's entry points do, and the communicators they do it on. */
#ifndef RANKSCOPE_ONECCL_OPERATIONS_H
#define RANKSCOPE_ONECCL_OPERATIONS_H

#include "recorder.h"
#include "trampolines.h"

enum rs_oneccl_operation {
    ALLREDUCE, REDUCE, BROADCAST, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, REDUCE_SCATTER, GATHER, SCATTER, BARRIER,
    SEND, RECV,
    GROUP_START, GROUP_END, WAIT, TEST,
    NAMED_OPERATIONS,           /* those before it are counted by name */
    DROP = NAMED_OPERATIONS,    /* an event ceases to be */
    MAIN_STORE, STORE, NEW_COMM, NEW_COMMS, SPLIT, NEW_TYPE,
    C_NEW_COMM, C_SPLIT, C_FREE
};

static inline int rs_oneccl_is_collective(uint16_t operation) { return operation <= BARRIER; }
static inline int rs_oneccl_is_c(const struct rs_entry *entry) { return entry->symbol[0] == 'o'; }

/* oneccl_groups.c: communicators, by the address of what they stand for: copies of the C++ object share it. */
struct rs_oneccl_comm {
    uint64_t handle, identity;
    uint32_t size, rank, children;
    uint16_t id;
    struct rs_group *row;
    struct rs_oneccl_comm *next;
};
struct rs_oneccl_comm *rs_oneccl_comm_of(const struct rs_frame *call);   /* NULL: none that is known */
uint32_t rs_oneccl_next_sequence(struct rs_oneccl_comm *comm);
void rs_oneccl_comms_made(const struct rs_frame *call);                  /* after a call that makes stores or communicators */
void rs_oneccl_comms_forget(void);

#endif
