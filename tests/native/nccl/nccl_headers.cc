// Compiles only if nccl.h places everything where NCCL's own profiler_v1.h to profiler_v6.h do.
#include <cstddef>
#include <cstdint>
#include <sys/types.h>

typedef int ncclResult_t;
typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef pid_t ncclPid_t;
typedef int ncclProfilerEventState_v1_t, ncclProfilerEventState_v2_t, ncclProfilerEventState_v3_t,
    ncclProfilerEventState_v4_t, ncclProfilerEventState_v5_t, ncclProfilerEventState_v6_t;
#include "profiler_v1.h"
#include "profiler_v2.h"
#include "profiler_v3.h"
#include "profiler_v4.h"
#include "profiler_v5.h"
#include "profiler_v6.h"

#include "nccl.h"

#define AT(v, theirs, ours, n) \
    static_assert(offsetof(ncclProfilerEventDescr_v##v##_t, theirs) == offsetof(nccl_descr_v##n, ours), #theirs); \
    static_assert(sizeof(((ncclProfilerEventDescr_v##v##_t *)0)->theirs) == sizeof(((nccl_descr_v##n *)0)->ours), #theirs);
#define HEAD(v, n) AT(v, type, type, n) AT(v, parentObj, parent, n) AT(v, rank, rank, n)
#define COLL(v, n) \
    AT(v, coll.func, coll.func, n) AT(v, coll.count, coll.count, n) AT(v, coll.root, coll.root, n) \
    AT(v, coll.datatype, coll.datatype, n) AT(v, coll.algo, coll.algo, n) AT(v, coll.proto, coll.proto, n)
#define P2P(v, n) AT(v, p2p.func, p2p.func, n) AT(v, p2p.count, p2p.count, n) AT(v, p2p.datatype, p2p.datatype, n)
#define COMM(v, n) \
    AT(v, coll.name, coll.comm_name, n) AT(v, coll.commHash, coll.comm_hash, n) \
    AT(v, p2p.name, p2p.comm_name, n) AT(v, p2p.commHash, p2p.comm_hash, n)
#define CHANNELS(v, n) AT(v, coll.nChannels, coll.channels, n) AT(v, p2p.nChannels, p2p.channels, n) \
    AT(v, kernelCh.pTimer, channel.gpu_ns, n)

HEAD(1, 1) COLL(1, 1) P2P(1, 1) COMM(1, 1)
HEAD(2, 2) COLL(2, 2) P2P(2, 2) COMM(2, 2)
HEAD(3, 3) COLL(3, 3) P2P(3, 3) COMM(3, 3) AT(3, kernelCh.channelId, channel.channel, 3)
HEAD(4, 4) COLL(4, 4) P2P(4, 4) CHANNELS(4, 4)
HEAD(5, 5) COLL(5, 5) P2P(5, 5) CHANNELS(5, 5)
HEAD(6, 5) COLL(6, 5) P2P(6, 5) CHANNELS(6, 5)
AT(6, ceColl.func, ce_coll.func, 5) AT(6, ceColl.count, ce_coll.count, 5) AT(6, ceColl.root, ce_coll.root, 5)
AT(6, ceColl.datatype, ce_coll.datatype, 5)

static_assert(offsetof(ncclProfilerEventStateArgs_v4_t, kernelCh.pTimer) == 0, "state");
static_assert(offsetof(ncclProfilerEventStateArgs_v5_t, kernelCh.pTimer) == 0, "state");

#define PLUGIN(v) \
    static_assert(sizeof(ncclProfiler_v##v##_t) == sizeof(nccl_profiler), "plugin"); \
    static_assert(offsetof(ncclProfiler_v##v##_t, startEvent) == offsetof(nccl_profiler, start), "start"); \
    static_assert(offsetof(ncclProfiler_v##v##_t, stopEvent) == offsetof(nccl_profiler, stop), "stop"); \
    static_assert(offsetof(ncclProfiler_v##v##_t, recordEventState) == offsetof(nccl_profiler, state), "state"); \
    static_assert(offsetof(ncclProfiler_v##v##_t, finalize) == offsetof(nccl_profiler, finalize), "finalize");
PLUGIN(1) PLUGIN(2) PLUGIN(3) PLUGIN(4) PLUGIN(5) PLUGIN(6)
