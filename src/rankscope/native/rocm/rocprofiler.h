/* What we use of rocprofiler-sdk and rocprofiler-register, by their documented layouts: versions 0.4 (ROCm 6.2) to 1.x.
 * Numbers of kinds differ among versions: they are asked for by name. */
#ifndef RANKSCOPE_ROCPROFILER_H
#define RANKSCOPE_ROCPROFILER_H

#include <stddef.h>
#include <stdint.h>

#define RS_ROCP_OLDEST 400u         /* 10000 * major + 100 * minor + patch */
#define RS_ROCP_FIRST 10000u        /* from here on correlation ids of calls have three words */

enum rs_rocp_value {
    RS_ROCP_SUCCESS = 0, RS_ROCP_LOSSLESS = 2, RS_ROCP_AGENT_GPU = 2, RS_ROCP_AGENT_VERSION = 1, RS_ROCP_CATEGORY_TRACING = 1,
    RS_ROCP_ENTER = 1, RS_ROCP_EXIT = 2, RS_ROCP_KERNEL_SYMBOL = 2,
    RS_ROCP_COPY_HOST_TO_DEVICE = 2, RS_ROCP_COPY_KINDS = 5,
    RS_ROCP_ALLOCATE = 1, RS_ROCP_ALLOCATE_VIRTUAL = 2, RS_ROCP_FREE = 3, RS_ROCP_FREE_VIRTUAL = 4
};

struct rs_rocp_handle { uint64_t handle; };

struct rs_rocp_client { const char *name; uint32_t handle; };
struct rs_rocp_tool {
    size_t size;
    int (*initialize)(void *finalize, void *data);
    void (*finalize)(void *data);
    void *data;
};

/* A call, as its callback gets it by value; and likewise from version 1 on. */
struct rs_rocp_call_0 {
    uint64_t context, thread, correlation, external;
    uint32_t kind;
    int32_t operation;
    uint32_t phase;
    void *payload;
};
struct rs_rocp_call_1 {
    uint64_t context, thread, correlation, external, ancestor;
    uint32_t kind;
    int32_t operation;
    uint32_t phase;
    void *payload;
};

/* Payloads of callbacks; arguments and result of a call lie in between and at the end. */
struct rs_rocp_arguments { uint64_t size; uint64_t first; };
#define RS_ROCP_HIP_RESULT_BYTES 24u    /* at the end of the payload of HIP's calls; an error code is its first word */
struct rs_rocp_kernel_symbol { uint64_t size, kernel, code_object; const char *name; };

struct rs_rocp_header { uint32_t category, kind; void *payload; };

struct rs_rocp_dispatch {
    uint64_t size;
    uint32_t kind;
    int32_t operation;
    uint64_t correlation, external, thread, start_ns, end_ns;
    uint64_t info_size, agent, queue, kernel, dispatch;
};

struct rs_rocp_copy {
    uint64_t size;
    uint32_t kind;
    int32_t operation;
    uint64_t correlation, external, thread, start_ns, end_ns;
    uint64_t to_agent, from_agent, bytes;
};

/* Behind the correlation ids, which have two or three words. */
struct rs_rocp_allocation { uint64_t thread, start_ns, end_ns, agent, address, bytes; };

struct rs_rocp_agent {
    uint64_t size, id;
    uint32_t type, not_ours[13];
    uint32_t compute_units, not_ours_too[25];
    uint64_t memory_bytes, hive, gpu;
    uint32_t dimensions[6];
    const void *banks, *caches, *links;
    const char *name, *vendor, *product, *model;
    uint32_t node;
    int32_t logical, logical_of_type;
    uint32_t visibility;            /* from version 1 on; bit 1: to HIP */
};
_Static_assert(offsetof(struct rs_rocp_agent, compute_units) == 72, "layout of rocprofiler's agents");
_Static_assert(offsetof(struct rs_rocp_agent, memory_bytes) == 176, "layout of rocprofiler's agents");
_Static_assert(offsetof(struct rs_rocp_agent, name) == 248, "layout of rocprofiler's agents");
_Static_assert(sizeof(struct rs_rocp_agent) == 296, "layout of rocprofiler's agents");

typedef void (*rs_rocp_buffer_callback)(struct rs_rocp_handle context, struct rs_rocp_handle buffer,
                                        struct rs_rocp_header **headers, size_t count, void *data, uint64_t dropped);
typedef int (*rs_rocp_agents_callback)(int version, const void **agents, size_t count, void *data);

/* X(name, arguments): each returns a status. */
#define RS_ROCP_NEEDED(X) \
    X(create_context, (struct rs_rocp_handle *context)) \
    X(start_context, (struct rs_rocp_handle context)) \
    X(stop_context, (struct rs_rocp_handle context)) \
    X(create_buffer, (struct rs_rocp_handle context, size_t bytes, size_t watermark, int policy, \
                      rs_rocp_buffer_callback callback, void *data, struct rs_rocp_handle *buffer)) \
    X(flush_buffer, (struct rs_rocp_handle buffer)) \
    X(create_callback_thread, (struct rs_rocp_handle *thread)) \
    X(assign_callback_thread, (struct rs_rocp_handle buffer, struct rs_rocp_handle thread)) \
    X(configure_buffer_tracing_service, (struct rs_rocp_handle context, int kind, const int32_t *operations, size_t count, \
                                         struct rs_rocp_handle buffer)) \
    X(configure_callback_tracing_service, (struct rs_rocp_handle context, int kind, const int32_t *operations, size_t count, \
                                           void *callback, void *data)) \
    X(query_buffer_tracing_kind_name, (int kind, const char **name, uint64_t *length)) \
    X(query_callback_tracing_kind_name, (int kind, const char **name, uint64_t *length)) \
    X(query_callback_tracing_kind_operation_name, (int kind, int32_t operation, const char **name, uint64_t *length)) \
    X(query_available_agents, (int version, rs_rocp_agents_callback callback, size_t bytes, void *data)) \
    X(get_timestamp, (uint64_t *ns)) \
    X(force_configure, (void *configure))

struct rs_rocp {
#define X(name, arguments) int (*name) arguments;
    RS_ROCP_NEEDED(X)
#undef X
};

#endif
