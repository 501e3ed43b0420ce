/* Virtual functions of Horovod that its background thread calls, by class and method as their names are mangled; what
 * follows, the arguments, may differ from version to version. Included with different meanings of METHOD; no guard.
 *
 * METHOD(class, method, part, text)   part: one of NEGOTIATION, FUSION, FUSION_SIZED, EXECUTION */
#define CONTROLLER(class, name)                                                                   \
    METHOD(class, 19CrossRankBitwiseAnd, NEGOTIATION, "negotiation: " name "::CrossRankBitwiseAnd") \
    METHOD(class, 18CrossRankBitwiseOr, NEGOTIATION, "negotiation: " name "::CrossRankBitwiseOr") \
    METHOD(class, 16RecvReadyTensors, NEGOTIATION, "negotiation: " name "::RecvReadyTensors")     \
    METHOD(class, 16SendReadyTensors, NEGOTIATION, "negotiation: " name "::SendReadyTensors")     \
    METHOD(class, 16RecvFinalTensors, NEGOTIATION, "negotiation: " name "::RecvFinalTensors")     \
    METHOD(class, 16SendFinalTensors, NEGOTIATION, "negotiation: " name "::SendFinalTensors")     \
    METHOD(class, 21AlltoallGetRecvSplits, NEGOTIATION, "negotiation: " name "::AlltoallGetRecvSplits") \
    METHOD(class, 14Allgather2Ints, NEGOTIATION, "negotiation: " name "::Allgather2Ints")         \
    METHOD(class, 5Bcast, NEGOTIATION, "negotiation: " name "::Bcast")                            \
    METHOD(class, 7Barrier, NEGOTIATION, "negotiation: " name "::Barrier")
#define FUSES(class, name, part)                                                                  \
    METHOD(class, 20MemcpyInFusionBuffer, part, "fusion: " name "::MemcpyInFusionBuffer")         \
    METHOD(class, 21MemcpyOutFusionBuffer, FUSION, "fusion: " name "::MemcpyOutFusionBuffer")
#define EXECUTES(class, name) METHOD(class, 7Execute, EXECUTION, "execution: " name)

CONTROLLER(13MPIController, "MPIController")
CONTROLLER(14GlooController, "GlooController")
FUSES(11AllreduceOp, "AllreduceOp", FUSION_SIZED)
FUSES(11AllgatherOp, "AllgatherOp", FUSION)
FUSES(15ReducescatterOp, "ReducescatterOp", FUSION)
EXECUTES(12MPIAllreduce, "MPIAllreduce")
EXECUTES(12MPIAllgather, "MPIAllgather")
EXECUTES(24MPIHierarchicalAllgather, "MPIHierarchicalAllgather")
EXECUTES(12MPIBroadcast, "MPIBroadcast")
EXECUTES(11MPIAlltoall, "MPIAlltoall")
EXECUTES(16MPIReducescatter, "MPIReducescatter")
EXECUTES(16MPI_GPUAllreduce, "MPI_GPUAllreduce")
EXECUTES(16MPI_GPUAllgather, "MPI_GPUAllgather")
EXECUTES(15MPI_GPUAlltoall, "MPI_GPUAlltoall")
EXECUTES(20MPI_GPUReducescatter, "MPI_GPUReducescatter")
EXECUTES(13GlooAllreduce, "GlooAllreduce")
EXECUTES(13GlooAllgather, "GlooAllgather")
EXECUTES(13GlooBroadcast, "GlooBroadcast")
EXECUTES(12GlooAlltoall, "GlooAlltoall")
EXECUTES(17GlooReducescatter, "GlooReducescatter")
EXECUTES(12CCLAllreduce, "CCLAllreduce")
EXECUTES(12CCLAllgather, "CCLAllgather")
EXECUTES(12CCLBroadcast, "CCLBroadcast")
EXECUTES(11CCLAlltoall, "CCLAlltoall")
EXECUTES(13NCCLAllreduce, "NCCLAllreduce")
EXECUTES(25NCCLHierarchicalAllreduce, "NCCLHierarchicalAllreduce")
EXECUTES(18NCCLTorusAllreduce, "NCCLTorusAllreduce")
EXECUTES(13NCCLAllgather, "NCCLAllgather")
EXECUTES(13NCCLBroadcast, "NCCLBroadcast")
EXECUTES(12NCCLAlltoall, "NCCLAlltoall")
EXECUTES(17NCCLReducescatter, "NCCLReducescatter")
EXECUTES(20AdasumMPIAllreduceOp, "AdasumMPIAllreduceOp")
EXECUTES(20AdasumGpuAllreduceOp, "AdasumGpuAllreduceOp")
EXECUTES(6JoinOp, "JoinOp")
EXECUTES(9BarrierOp, "BarrierOp")

#undef CONTROLLER
#undef FUSES
#undef EXECUTES
#undef METHOD
