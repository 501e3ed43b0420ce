/* What is used of CUPTI's interface, declared here so that no CUDA header is needed to build. The places of these
 * fields are the same in every CUPTI from CUDA 12.0 to 13.4; tests/gpu/test_declarations.py compares them with the
 * real headers. Records grow at their end only, and CUPTI itself steps from one to the next. */
#ifndef RANKSCOPE_CUPTI_H
#define RANKSCOPE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#define RS_CUPTI_OLDEST 18u         /* CUDA 12.0 */
#define RS_CUPTI_DETACHES 24u       /* CUDA 12.6: before, taking CUPTI off broke programs with CUDA graphs */

enum {
    RS_CUPTI_SUCCESS = 0, RS_CUPTI_NOT_INITIALIZED = 15, RS_CUPTI_MULTIPLE_SUBSCRIBERS = 39,
    RS_CUPTI_FLUSH_FORCED = 1, RS_CUPTI_THREAD_ID_SYSTEM = 1
};

enum rs_cupti_kind {
    RS_CUPTI_MEMCPY = 1, RS_CUPTI_MEMSET = 2, RS_CUPTI_DRIVER = 4, RS_CUPTI_RUNTIME = 5,
    RS_CUPTI_CONCURRENT_KERNEL = 10, RS_CUPTI_MARKER = 12, RS_CUPTI_MEMCPY2 = 22, RS_CUPTI_UNIFIED = 25,
    RS_CUPTI_SYNCHRONIZATION = 38, RS_CUPTI_MEMORY2 = 49, RS_CUPTI_POOL = 50
};

enum rs_cupti_domain { RS_CUPTI_DRIVER_API = 1, RS_CUPTI_RUNTIME_API = 2 };
enum rs_cupti_object { RS_CUPTI_OBJECT_PROCESS = 1, RS_CUPTI_OBJECT_THREAD = 2 };
enum rs_cupti_marker { RS_CUPTI_INSTANTANEOUS = 1, RS_CUPTI_START = 2, RS_CUPTI_END = 4 };
enum rs_cupti_memory { RS_CUPTI_ALLOCATION = 1, RS_CUPTI_RELEASE = 2 };
enum rs_cupti_memory_kind { RS_CUPTI_PAGEABLE = 1, RS_CUPTI_PINNED = 2, RS_CUPTI_DEVICE = 3, RS_CUPTI_MANAGED = 5 };
enum rs_cupti_synchronization { RS_CUPTI_STREAM_WAITS = 2 };      /* not the host, as with all others */
enum rs_cupti_pool { RS_CUPTI_POOL_LOCAL = 1 };
enum rs_cupti_pool_operation { RS_CUPTI_POOL_CREATED = 1, RS_CUPTI_POOL_DESTROYED = 2, RS_CUPTI_POOL_TRIMMED = 3 };
enum rs_cupti_unified { RS_CUPTI_TO_DEVICE = 1, RS_CUPTI_TO_HOST = 2, RS_CUPTI_CPU_FAULT = 3, RS_CUPTI_GPU_FAULT = 4 };

struct rs_cupti_record { uint32_t kind; };

struct rs_cupti_kernel {
    uint32_t kind, skipped[3];
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId, skipped2[10], correlationId;
    int64_t gridId;
    const char *name;
    void *reserved0;
    uint64_t queued, submitted;
    uint8_t launchType, skipped3[3];
    uint32_t sharedMemoryExecuted;
    uint64_t graphNodeId;           /* 0: launched by itself */
};

struct rs_cupti_memcpy {
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId;
};

/* Between two devices: as a copy up to its stream, then where from and where to. */
struct rs_cupti_memcpy2 {
    uint32_t kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, srcDeviceId, srcContextId, dstDeviceId, dstContextId, correlationId;
};

struct rs_cupti_memset {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId;
};

struct rs_cupti_api {
    uint32_t kind, cbid;
    uint64_t start, end;
    uint32_t processId, threadId, correlationId, returnValue;
};

struct rs_cupti_synchronization_record {
    uint32_t kind, type;
    uint64_t start, end;
    uint32_t correlationId, contextId, streamId, cudaEventId;
};

struct rs_cupti_marker_record {
    uint32_t kind, flags;
    uint64_t timestamp;
    uint32_t id, objectKind, processId, threadId, skipped[2];
    const char *name, *domain;
};

struct rs_cupti_memory_record {
    uint32_t kind, memoryOperationType, memoryKind, correlationId;
    uint64_t address, bytes, timestamp, PC;
    uint32_t processId, deviceId, contextId, streamId;
    const char *name;
    uint32_t isAsync, skipped;
    uint32_t poolType, skipped2;
    uint64_t poolAddress, poolThreshold, poolSize, poolUsed;
};

struct rs_cupti_pool_record {
    uint32_t kind, memoryPoolOperationType, memoryPoolType, correlationId, processId, deviceId;
    size_t minBytesToKeep;
    uint64_t address, size, releaseThreshold, timestamp, utilizedSize;
};

struct rs_cupti_unified_record {
    uint32_t kind, counterKind;
    uint64_t value, start, end, address;
    uint32_t srcId, dstId, streamId, processId, flags;
};

struct rs_cupti_unified_config { uint32_t scope, kind, deviceId, enable; };

typedef void (*rs_buffer_requested)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*rs_buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* Functions without which nothing can be recorded, then those that may be missing. All return 0 on success. */
#define RS_CUPTI_NEEDED(X) \
    X(cuptiGetVersion, (uint32_t *version)) \
    X(cuptiGetTimestamp, (uint64_t *timestamp)) \
    X(cuptiGetResultString, (int result, const char **text)) \
    X(cuptiGetCallbackName, (int domain, uint32_t cbid, const char **name)) \
    X(cuptiActivityRegisterCallbacks, (rs_buffer_requested requested, rs_buffer_completed completed)) \
    X(cuptiActivityEnable, (int kind)) \
    X(cuptiActivityDisable, (int kind)) \
    X(cuptiActivityGetNextRecord, (uint8_t *buffer, size_t valid, struct rs_cupti_record **record)) \
    X(cuptiActivityGetNumDroppedRecords, (void *context, uint32_t stream, size_t *dropped)) \
    X(cuptiActivityFlushAll, (uint32_t flag))
#define RS_CUPTI_OPTIONAL(X) \
    X(cuptiActivityFlushPeriod, (uint32_t milliseconds)) \
    X(cuptiSetThreadIdType, (int type)) \
    X(cuptiActivityEnableRuntimeApi, (uint32_t cbid, uint8_t enable)) \
    X(cuptiActivityEnableDriverApi, (uint32_t cbid, uint8_t enable)) \
    X(cuptiActivityConfigureUnifiedMemoryCounter, (struct rs_cupti_unified_config *config, uint32_t count)) \
    X(cuptiFinalize, (void))

struct rs_cupti {
#define X(name, arguments) int (*name) arguments;
    RS_CUPTI_NEEDED(X)
    RS_CUPTI_OPTIONAL(X)
#undef X
    int (*InitializeInjectionNvtx2)(void *get_export_table);
};

#endif
