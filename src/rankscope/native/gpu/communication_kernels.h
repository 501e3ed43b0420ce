/* How kernels that move data between ranks are called: words that begin in their names, in capitals or not, where no
 * letter stands before them. The only list; tools/generated.py writes questions/gpu/communication_kernels.py from it. */
RS_COMMUNICATES("nccl")                 /* ncclDevKernel_AllReduce_Sum_bf16_RING_LL, ncclKernel_Broadcast_RING_LL_Sum_int8_t */
RS_COMMUNICATES("rccl")
RS_COMMUNICATES("msccl")                /* mscclKernel_..., mscclpp::... */
RS_COMMUNICATES("oneccl")
RS_COMMUNICATES("nvshmem")
RS_COMMUNICATES("rocshmem")
RS_COMMUNICATES("deep_ep")              /* deep_ep::internode::dispatch */
RS_COMMUNICATES("cross_device_reduce")  /* vllm::cross_device_reduce_1stage */
RS_COMMUNICATES("multimem_")            /* torch's symmetric memory: multimem_all_reduce_kernel */
RS_COMMUNICATES("all_reduce")           /* one_shot_all_reduce_kernel, two_shot_all_reduce_kernel */
RS_COMMUNICATES("allreduce")            /* allreduce_fusion_kernel_oneshot_lamport */
RS_COMMUNICATES("all_gather")
RS_COMMUNICATES("allgather")
RS_COMMUNICATES("reduce_scatter")
RS_COMMUNICATES("reducescatter")
RS_COMMUNICATES("all_to_all")
RS_COMMUNICATES("alltoall")
