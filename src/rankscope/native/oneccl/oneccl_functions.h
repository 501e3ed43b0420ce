/* oneCCL's entry points, by the names that compilers give them: one line for each overload, with and without a stream.
 * Included with different meanings of ENTRY; there is no guard.
 *
 * ENTRY(symbol, operation, returns_object, arguments, stack_words, count, type, root, group, element_bytes)
 * Numbers are the places of arguments: of the count, the datatype, the root or peer, the communicator; NONE: it has none.
 * Overloads for sycl::buffer are not here: nothing of them is fixed but their names. */
#define NONE RS_NO_ARGUMENT

/* Buffers without a type; `letter` and `letter_with_stream` are the substitution that names an event for the second time. */
#define UNTYPED(stem, attr, vector, letter, letter_with_stream, operation, count, type, root, comm)                        \
    ENTRY(_ZN3ccl2v1##stem##RKNS0_12communicatorERKNS0_##attr##ERK##vector##INS0_5eventESaIS##letter##_EE,                 \
          operation, 1, comm + 3, 0, count, type, root, comm, 0)                                                           \
    ENTRY(_ZN3ccl2v1##stem##RKNS0_12communicatorERKNS0_6streamERKNS0_##attr##ERK##vector##INS0_5eventESaIS##letter_with_stream##_EE, \
          operation, 1, comm + 4, 0, count, type, root, comm, 0)

/* Buffers of ten types. */
#define TYPED(stem, tail, attr, vector, operation, count, root, comm)                                                      \
    OF_TYPE(a, 1, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(h, 1, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(s, 2, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(t, 2, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(i, 4, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(j, 4, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(l, 8, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(m, 8, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(f, 4, stem, tail, attr, vector, operation, count, root, comm)                                                  \
    OF_TYPE(d, 8, stem, tail, attr, vector, operation, count, root, comm)
#define OF_TYPE(letter, bytes, stem, tail, attr, vector, operation, count, root, comm)                                     \
    ENTRY(_ZN3ccl2v1##stem##I##letter##NS0_5eventE##tail##RKNS0_12communicatorERKNS0_##attr##ERK##vector##IS2_SaIS2_EE,    \
          operation, 1, comm + 3, 0, count, NONE, root, comm, bytes)                                                       \
    ENTRY(_ZN3ccl2v1##stem##I##letter##NS0_5eventE##tail##RKNS0_12communicatorERKNS0_6streamERKNS0_##attr##ERK##vector##IS2_SaIS2_EE, \
          operation, 1, comm + 4, 0, count, NONE, root, comm, bytes)

UNTYPED(9allreduceEPKvPvmNS0_8datatypeENS0_9reductionE, 14allreduce_attr, St6vector, D, G, ALLREDUCE, 2, 3, NONE, 5)
TYPED(9allreduce, EES2_PKT_PS3_mNS0_9reductionE, 14allreduce_attr, St6vector, ALLREDUCE, 2, NONE, 4)
UNTYPED(6reduceEPKvPvmNS0_8datatypeENS0_9reductionEi, 11reduce_attr, St6vector, D, G, REDUCE, 2, 3, 5, 6)
TYPED(6reduce, EES2_PKT_PS3_mNS0_9reductionEi, 11reduce_attr, St6vector, REDUCE, 2, 4, 5)
UNTYPED(9broadcastEPvS1_mNS0_8datatypeEi, 14broadcast_attr, St6vector, A, D, BROADCAST, 2, 3, 4, 5)
UNTYPED(9broadcastEPvmNS0_8datatypeEi, 14broadcast_attr, St6vector, A, D, BROADCAST, 1, 2, 3, 4)
TYPED(9broadcast, EES2_PT_S4_mi, 14broadcast_attr, St6vector, BROADCAST, 2, 3, 4)
TYPED(9broadcast, EES2_PT_mi, 14broadcast_attr, St6vector, BROADCAST, 1, 2, 3)
UNTYPED(9allgatherEPKvPvmNS0_8datatypeE, 14allgather_attr, St6vector, C, F, ALLGATHER, 2, 3, NONE, 4)
UNTYPED(9allgatherEPKvRKSt6vectorIPvSaIS4_EEmNS0_8datatypeE, 14allgather_attr, S3_, G, J, ALLGATHER, 2, 3, NONE, 4)
TYPED(9allgather, EES2_PKT_PS3_m, 14allgather_attr, St6vector, ALLGATHER, 2, NONE, 3)
TYPED(9allgather, EES2_PKT_RSt6vectorIPS3_SaIS7_EEm, 14allgather_attr, S6_, ALLGATHER, 2, NONE, 3)
UNTYPED(10allgathervEPKvmPvRKSt6vectorImSaImEENS0_8datatypeE, 15allgatherv_attr, S4_, G, J, ALLGATHERV, 1, 4, NONE, 5)
UNTYPED(10allgathervEPKvmRKSt6vectorIPvSaIS4_EERKS3_ImSaImEENS0_8datatypeE, 15allgatherv_attr, S3_, K, N,
        ALLGATHERV, 1, 4, NONE, 5)
TYPED(10allgatherv, EES2_PKT_mPS3_RKSt6vectorImSaImEE, 15allgatherv_attr, S7_, ALLGATHERV, 1, NONE, 4)
TYPED(10allgatherv, EES2_PKT_mRSt6vectorIPS3_SaIS7_EERKS6_ImSaImEE, 15allgatherv_attr, S6_, ALLGATHERV, 1, NONE, 4)
UNTYPED(8alltoallEPKvPvmNS0_8datatypeE, 13alltoall_attr, St6vector, C, F, ALLTOALL, 2, 3, NONE, 4)
UNTYPED(8alltoallERKSt6vectorIPvSaIS2_EES6_mNS0_8datatypeE, 13alltoall_attr, S1_, E, H, ALLTOALL, 2, 3, NONE, 4)
TYPED(8alltoall, EES2_PKT_PS3_m, 13alltoall_attr, St6vector, ALLTOALL, 2, NONE, 3)
TYPED(8alltoall, EES2_RKSt6vectorIPT_SaIS5_EES9_m, 13alltoall_attr, S3_, ALLTOALL, 2, NONE, 3)
UNTYPED(9alltoallvEPKvRKSt6vectorImSaImEEPvS7_NS0_8datatypeE, 14alltoallv_attr, S3_, G, J, ALLTOALLV, 1, 4, NONE, 5)
UNTYPED(9alltoallvERKSt6vectorIPvSaIS2_EERKS1_ImSaImEES6_SA_NS0_8datatypeE, 14alltoallv_attr, S1_, I, L,
        ALLTOALLV, 1, 4, NONE, 5)
TYPED(9alltoallv, EES2_PKT_RKSt6vectorImSaImEEPS3_SA_, 14alltoallv_attr, S6_, ALLTOALLV, 1, NONE, 4)
TYPED(9alltoallv, EES2_RKSt6vectorIPT_SaIS5_EERKS3_ImSaImEES9_SD_, 14alltoallv_attr, S3_, ALLTOALLV, 1, NONE, 4)
UNTYPED(14reduce_scatterEPKvPvmNS0_8datatypeENS0_9reductionE, 19reduce_scatter_attr, St6vector, D, G,
        REDUCE_SCATTER, 2, 3, NONE, 5)
TYPED(14reduce_scatter, EES2_PKT_PS3_mNS0_9reductionE, 19reduce_scatter_attr, St6vector, REDUCE_SCATTER, 2, NONE, 4)
UNTYPED(6gatherEPKvPvmNS0_8datatypeEi, 11gather_attr, St6vector, C, F, GATHER, 2, 3, 4, 5)
TYPED(6gather, EES2_PKT_PS3_mi, 11gather_attr, St6vector, GATHER, 2, 3, 4)
UNTYPED(7scatterEPKvPvmNS0_8datatypeEi, 12scatter_attr, St6vector, C, F, SCATTER, 2, 3, 4, 5)
TYPED(7scatter, EES2_PKT_PS3_mi, 12scatter_attr, St6vector, SCATTER, 2, 3, 4)
UNTYPED(7barrierE, 12barrier_attr, St6vector, 8, B, BARRIER, NONE, NONE, NONE, 0)
UNTYPED(4sendEPvmNS0_8datatypeEi, 10pt2pt_attr, St6vector, A, D, SEND, 1, 2, 3, 4)
TYPED(4send, EES2_PT_mi, 10pt2pt_attr, St6vector, SEND, 1, 2, 3)
UNTYPED(4recvEPvmNS0_8datatypeEi, 10pt2pt_attr, St6vector, A, D, RECV, 1, 2, 3, 4)
TYPED(4recv, EES2_PT_mi, 10pt2pt_attr, St6vector, RECV, 1, 2, 3)

/* Events and groups of calls: the first argument is the event. */
ENTRY(_ZN3ccl2v15event4waitEv, WAIT, 0, 1, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v15event4testEv, TEST, 0, 1, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v15eventD1Ev, DROP, 0, 1, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v111group_startEv, GROUP_START, 0, 0, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v19group_endEv, GROUP_END, 0, 0, 0, NONE, NONE, NONE, NONE, 0)

/* Where communicators come from. `count` is the place of the key-value store (a pointer to a shared pointer), or of its
 * address; `root` that of the colour, `group` that of the communicator that is split. */
ENTRY(_ZN3ccl2v115create_main_kvsERKNS0_8kvs_attrE, MAIN_STORE, 1, 1, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v110create_kvsERKSt5arrayIcLm256EERKNS0_8kvs_attrE, STORE, 1, 2, 0, 0, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v119create_communicatorEiiSt10shared_ptrINS0_13kvs_interfaceEERKNS0_9comm_attrE,
      NEW_COMM, 1, 4, 0, 2, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl7preview19create_communicatorEiSt10shared_ptrINS_2v113kvs_interfaceEERKNS2_9comm_attrE,
      NEW_COMM, 1, 3, 0, 1, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl7preview19create_communicatorERKNS_2v19comm_attrE, NEW_COMM, 1, 1, 0, NONE, NONE, NONE, NONE, 0)
ENTRY(_ZN3ccl2v118split_communicatorERKNS0_12communicatorEii, SPLIT, 1, 3, 0, NONE, NONE, 1, 0, 0)
ENTRY(_ZN3ccl2v112communicator5splitEiib, SPLIT, 1, 4, 0, NONE, NONE, 1, 0, 0)
ENTRY(_ZN3ccl2v117register_datatypeERKNS0_13datatype_attrE, NEW_TYPE, 0, 1, 0, NONE, NONE, NONE, NONE, 0)

/* Those with a device, which headers call: of a list of pairs, of devices, of a map. */
#define COMMS(stem, devices)                                                                                               \
    ENTRY(_ZNK3ccl6detail11environment##stem##INS_2v16deviceENS3_7contextEEESt6vectorINS3_12communicatorESaIS7_EEiRK##devices##ERKT0_St10shared_ptrINS3_13kvs_interfaceEERKNS3_9comm_attrE, \
          NEW_COMMS, 1, 6, 0, 4, NONE, NONE, NONE, 0)
COMMS(20create_communicators, S6_ISt4pairIiT_ESaISC_E)
COMMS(20create_communicators, S6_IT_SaISA_E)
COMMS(20create_communicators, St3mapIiT_St4lessIiESaISt4pairIKiSB_EE)
COMMS(23create_communicatorsExt, S6_ISt4pairIiT_ESaISC_E)
COMMS(23create_communicatorsExt, S6_IT_SaISA_E)
COMMS(23create_communicatorsExt, St3mapIiT_St4lessIiESaISt4pairIKiSB_EE)

#undef UNTYPED
#undef TYPED
#undef OF_TYPE
#undef COMMS
#undef ENTRY
