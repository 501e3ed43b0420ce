/* What is used of Level Zero's interface, declared here so that no header of it is needed to build; the places of these
 * fields and arguments are compared with the real headers by tests/native/level_zero, where they are installed. Handles
 * are numbers to us. */
#ifndef RANKSCOPE_ZE_H
#define RANKSCOPE_ZE_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t ze_handle;

enum {
    RS_ZE_SUCCESS = 0, RS_ZE_NOT_READY = 1,
    RS_ZE_DEVICE_PROPERTIES = 0x3, RS_ZE_DEVICE_PROPERTIES_1_2 = 0x00020006,
    RS_ZE_LIST_DESC = 0xf, RS_ZE_HOST_DESC = 0x16, RS_ZE_EVENT_POOL_DESC = 0x10, RS_ZE_EVENT_DESC = 0x11, RS_ZE_MEMORY_PROPERTIES = 0x7,
    RS_ZE_POOL_HOST_VISIBLE = 1, RS_ZE_POOL_IPC = 2, RS_ZE_POOL_TIMESTAMP = 4,
    RS_ZE_SUBDEVICE = 2         /* a property of a device */
};

struct rs_ze_event_pool_desc { uint32_t stype; const void *pNext; uint32_t flags, count; };
struct rs_ze_event_desc { uint32_t stype; const void *pNext; uint32_t index, signal, wait; };
struct rs_ze_list_desc { uint32_t stype; const void *pNext; uint32_t commandQueueGroupOrdinal, flags; };
struct rs_ze_host_desc { uint32_t stype; const void *pNext; uint32_t flags; };
struct rs_ze_kernel_desc { uint32_t stype; const void *pNext; uint32_t flags; const char *pKernelName; };
struct rs_ze_kernel_timestamp { uint64_t kernelStart, kernelEnd, contextStart, contextEnd; };

struct rs_ze_device_properties {
    uint32_t stype;
    void *pNext;
    uint32_t type, vendorId, deviceId, flags, subdeviceId, coreClockRate;
    uint64_t maxMemAllocSize;
    uint32_t maxHardwareContexts, maxCommandQueuePriority, numThreadsPerEU, physicalEUSimdWidth, numEUsPerSubslice;
    uint32_t numSubslicesPerSlice, numSlices;
    uint64_t timerResolution;
    uint32_t timestampValidBits, kernelTimestampValidBits;
    uint8_t uuid[16];
    char name[256];
};

struct rs_ze_memory_properties {
    uint32_t stype;
    void *pNext;
    uint32_t flags, maxClockRate, maxBusWidth;
    uint64_t totalSize;
    char name[256];
};

/* What we call ourselves. */
#define RS_ZE_NEEDED(X) \
    X(zeDriverGet, (uint32_t *count, ze_handle *drivers)) \
    X(zeDeviceGet, (ze_handle driver, uint32_t *count, ze_handle *devices)) \
    X(zeDeviceGetSubDevices, (ze_handle device, uint32_t *count, ze_handle *devices)) \
    X(zeDeviceGetProperties, (ze_handle device, struct rs_ze_device_properties *properties)) \
    X(zeDeviceGetMemoryProperties, (ze_handle device, uint32_t *count, struct rs_ze_memory_properties *properties)) \
    X(zeDeviceGetGlobalTimestamps, (ze_handle device, uint64_t *host, uint64_t *device_ticks)) \
    X(zeEventPoolCreate, (ze_handle context, const struct rs_ze_event_pool_desc *desc, uint32_t count, \
                          ze_handle *devices, ze_handle *pool)) \
    X(zeEventPoolDestroy, (ze_handle pool)) \
    X(zeEventCreate, (ze_handle pool, const struct rs_ze_event_desc *desc, ze_handle *event)) \
    X(zeEventDestroy, (ze_handle event)) \
    X(zeEventQueryStatus, (ze_handle event)) \
    X(zeEventHostReset, (ze_handle event)) \
    X(zeEventQueryKernelTimestamp, (ze_handle event, struct rs_ze_kernel_timestamp *timestamp)) \
    X(zeMemAllocHost, (ze_handle context, const struct rs_ze_host_desc *desc, size_t bytes, size_t alignment, void **pointer)) \
    X(zeMemFree, (ze_handle context, void *pointer)) \
    X(zeCommandListCreate, (ze_handle context, ze_handle device, const struct rs_ze_list_desc *desc, ze_handle *list)) \
    X(zeCommandListDestroy, (ze_handle list)) \
    X(zeCommandListClose, (ze_handle list)) \
    X(zeCommandListAppendBarrier, (ze_handle list, ze_handle signal, uint32_t waits, ze_handle *wait)) \
    X(zeCommandListAppendEventReset, (ze_handle list, ze_handle event)) \
    X(zeCommandListAppendQueryKernelTimestamps, (ze_handle list, uint32_t count, ze_handle *events, void *to, \
                                                 const size_t *offsets, ze_handle signal, uint32_t waits, ze_handle *wait))

#define RS_ZE_OLDEST (1u << 16 | 4u)    /* of the specification; before it the tables had fewer places */

struct rs_ze_loader {
#define X(name, arguments) uint32_t (*name) arguments;
    RS_ZE_NEEDED(X)
#undef X
};




#endif
