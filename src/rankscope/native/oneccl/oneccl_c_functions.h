/* oneCCL's C interface, as oneccl_functions.h has the C++ one. Headers declare these names weak: a program may ask
 * whether they are there, so that ours must not be where the library's are not. */
#define NONE RS_NO_ARGUMENT

ENTRY(onecclAllReduce, ALLREDUCE, 0, 7, 0, 2, 3, NONE, 5, 0)
ENTRY(onecclReduce, REDUCE, 0, 8, 0, 2, 3, 5, 6, 0)
ENTRY(onecclBroadcast, BROADCAST, 0, 7, 0, 2, 3, 4, 5, 0)
ENTRY(onecclAllGather, ALLGATHER, 0, 6, 0, 2, 3, NONE, 4, 0)
ENTRY(onecclAllToAll, ALLTOALL, 0, 6, 0, 2, 3, NONE, 4, 0)
ENTRY(onecclAllToAllV, ALLTOALLV, 0, 7, 0, 1, 4, NONE, 5, 0)
ENTRY(onecclReduceScatter, REDUCE_SCATTER, 0, 7, 0, 2, 3, NONE, 5, 0)
ENTRY(onecclScatter, SCATTER, 0, 7, 0, 2, 3, 4, 5, 0)
ENTRY(onecclSend, SEND, 0, 6, 0, 1, 2, 3, 4, 0)
ENTRY(onecclRecv, RECV, 0, 6, 0, 1, 2, 3, 4, 0)
ENTRY(onecclGroupStart, GROUP_START, 0, 0, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(onecclGroupEnd, GROUP_END, 0, 0, 0, NONE, NONE, NONE, NONE, 0)
/* The unique id, of 4096 bytes, is passed by value: on the stack of x86-64, by its address on aarch64. */
#if defined(__x86_64__)
ENTRY(onecclCommInitRank, C_NEW_COMM, 0, 3, 512, NONE, NONE, NONE, NONE, 0)
ENTRY(onecclCommInitRankConfig, C_NEW_COMM, 0, 4, 512, NONE, NONE, NONE, NONE, 0)
#else
ENTRY(onecclCommInitRank, C_NEW_COMM, 0, 4, 0, 2, NONE, NONE, NONE, 0)
ENTRY(onecclCommInitRankConfig, C_NEW_COMM, 0, 5, 0, 2, NONE, NONE, NONE, 0)
#endif
ENTRY(onecclCommSplit, C_SPLIT, 0, 5, 0, 3, NONE, 1, 0, 0)
ENTRY(onecclCommDestroy, C_FREE, 0, 1, 0, NONE, NONE, NONE, 0, 0)

#undef ENTRY
