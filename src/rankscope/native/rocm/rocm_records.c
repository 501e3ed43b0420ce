/* What devices did, from the SDK's buffers: dispatches of kernels, copies, allocations. Buffers come from a thread of the
 * SDK, in the order in which work was completed. */
#include <stdio.h>

#include "rocm_layer.h"

#define MOST_KINDS 64
#define AGENTS 64u
#define PIECES (1u << 16)           /* allocations whose size is remembered until they are freed; a power of two */

enum domain { KERNELS, COPIES, MEMORY, DOMAINS };
static const char *const domain_names[DOMAINS] = {"KERNEL_DISPATCH", "MEMORY_COPY", "MEMORY_ALLOCATION"};
static const char *const copy_names[RS_ROCP_COPY_KINDS] = {
    "[HIP memcpy]", "[HIP memcpy HtoH]", "[HIP memcpy HtoD]", "[HIP memcpy DtoH]", "[HIP memcpy DtoD]",
};

struct agent { uint64_t id; uint32_t device; uint8_t is_gpu; };
struct piece { uint64_t address, bytes; uint32_t device; };
static struct agent agents[AGENTS];
static uint32_t agents_used;
static int kinds[DOMAINS];
static uint16_t copy_ids[RS_ROCP_COPY_KINDS];
static struct piece *pieces;
static uint32_t pieces_used;

void rs_rocm_records_forget(void)
{
    memset(copy_ids, 0, sizeof copy_ids);
    rs_memory_free(pieces, PIECES * sizeof *pieces);
    pieces = NULL;
    pieces_used = 0;
}

/* --- agents --- */

static const struct agent *agent_of(uint64_t id)
{
    for (uint32_t i = 0; i < agents_used; i++)
        if (agents[i].id == id)
            return &agents[i];
    return NULL;
}

static void describe(const struct rs_rocp_agent *agent, uint32_t device)
{
    const struct rs_gpu_about about = {
        .name = agent->product && agent->product[0] ? agent->product : agent->name ? agent->name : "",
        .note = "ROCm's energy counters are not read", .multiprocessors = agent->compute_units,
        .memory_bytes = agent->memory_bytes};
    rs_gpu_describe(device, &about);
}

/* Numbered as HIP does: those that it cannot see are left out, as far as the SDK tells. */
static int take_agents(int version, const void **all, size_t count, void *data)
{
    uint32_t gpus = 0;
    (void)version;
    (void)data;
    for (size_t i = 0; i < count && agents_used < AGENTS; i++) {
        const struct rs_rocp_agent *agent = all[i];
        int is_gpu = agent->type == RS_ROCP_AGENT_GPU;
        int is_seen = rs_rocm.version < RS_ROCP_FIRST || (agent->visibility & 2);
        uint32_t device = UINT32_MAX;
        if (is_gpu && is_seen) {
            rs_gpu_enter();
            device = rs_gpu_device(RS_BACKEND_HIP, gpus++);
            rs_gpu_leave();
            describe(agent, device);
        }
        agents[agents_used++] = (struct agent){agent->id, device, (uint8_t)(is_gpu && is_seen)};
    }
    return RS_ROCP_SUCCESS;
}

/* --- work --- */

static uint64_t ours_ns(uint64_t ns) { return ns ? ns - (uint64_t)rs_rocm.offset_ns : 0; }

static void add(struct rs_gpu_work *work, uint64_t start_ns, uint64_t end_ns)
{
    int is_timed = start_ns && end_ns >= start_ns && work->device != UINT32_MAX;
    rs_rocm.row->launched++;
    *(is_timed ? &rs_rocm.row->timed : &rs_rocm.row->untimed) += 1;
    if (!is_timed)
        return;
    work->start_ns = ours_ns(start_ns);
    work->end_ns = work->start_ns + (end_ns - start_ns);
    rs_gpu_add_work(work);
}

/* Copies and memsets that ROCm's runtime does by kernels of its own. */
static uint8_t kind_of(const char *name)
{
    static const char own[] = "__amd_rocclr_";
    if (!name || strncmp(name, own, sizeof own - 1))
        return RS_GPU_KERNEL;
    name += sizeof own - 1;
    return !strncmp(name, "copy", 4) ? RS_GPU_COPY : !strncmp(name, "fill", 4) ? RS_GPU_SET : RS_GPU_KERNEL;
}

static void add_kernel(const struct rs_rocp_dispatch *record)
{
    const struct agent *agent = agent_of(record->agent);
    const char *name = rs_rocm_kernel(record->kernel);
    struct rs_gpu_work work = {.kind = kind_of(name), .device = agent ? agent->device : UINT32_MAX,
                               .queue = (uint32_t)record->queue, .correlation = (uint32_t)record->correlation,
                               .name = name};
    if (work.kind != RS_GPU_KERNEL)
        work.name_id = rs_intern(name);
    add(&work, record->start_ns, record->end_ns);
}

/* A copy is work of the device that is one of its ends; between two, of the one it comes from. */
static void add_copy(const struct rs_rocp_copy *record)
{
    const struct agent *from = agent_of(record->from_agent), *to = agent_of(record->to_agent);
    const struct agent *agent = from && from->is_gpu ? from : to;
    uint32_t kind = (uint32_t)record->operation < RS_ROCP_COPY_KINDS ? (uint32_t)record->operation : 0;
    if (!copy_ids[kind])
        copy_ids[kind] = rs_intern(copy_names[kind]);
    struct rs_gpu_work work = {.kind = RS_GPU_COPY, .device = agent ? agent->device : UINT32_MAX, .queue = UINT32_MAX,
                               .correlation = (uint32_t)record->correlation, .bytes = record->bytes,
                               .name_id = copy_ids[kind]};
    add(&work, record->start_ns, record->end_ns);
}

/* --- memory --- */

static uint32_t piece_place(uint64_t address)
{
    uint32_t at = (uint32_t)(address * 0x9E3779B97F4A7C15u >> 40) % PIECES;
    while (pieces[at].address && pieces[at].address != address)
        at = (at + 1) % PIECES;
    return at;
}

/* What stands behind the freed place moves up. */
static void remove_piece(uint32_t hole)
{
    for (uint32_t at = (hole + 1) % PIECES; pieces[at].address; at = (at + 1) % PIECES) {
        uint32_t home = (uint32_t)(pieces[at].address * 0x9E3779B97F4A7C15u >> 40) % PIECES;
        if ((at - home) % PIECES >= (at - hole) % PIECES) {
            pieces[hole] = pieces[at];
            hole = at;
        }
    }
    pieces[hole].address = 0;
    pieces_used--;
}

static void tell_memory(const struct piece *piece, int is_release)
{
    const struct rs_gpu_memory memory = {.device = piece->device, .is_release = (uint8_t)is_release, .bytes = piece->bytes};
    if (piece->device == UINT32_MAX)
        rs_gpu_change(&rs_rocm.row->host_bytes, &rs_rocm.row->host_peak_bytes, piece->bytes, is_release);
    rs_gpu_add_memory(&memory);
}

static void add_allocation(const struct rs_rocp_allocation *record, int32_t operation)
{
    const struct agent *agent = agent_of(record->agent);
    int is_new = operation == RS_ROCP_ALLOCATE || operation == RS_ROCP_ALLOCATE_VIRTUAL;
    int is_freed = operation == RS_ROCP_FREE || operation == RS_ROCP_FREE_VIRTUAL;
    if (!pieces)
        pieces = rs_memory(PIECES * sizeof *pieces);
    if (!pieces || !record->address || (!is_new && !is_freed))
        return;
    uint32_t at = piece_place(record->address);
    if (is_freed && pieces[at].address) {
        tell_memory(&pieces[at], 1);
        remove_piece(at);
    } else if (is_new && !pieces[at].address && pieces_used < PIECES * 3 / 4 && record->bytes) {
        pieces[at] = (struct piece){record->address, record->bytes, agent ? agent->device : UINT32_MAX};
        pieces_used++;
        tell_memory(&pieces[at], 0);
    }
}

/* --- buffers --- */

static void take(const struct rs_rocp_header *header)
{
    const struct rs_rocp_dispatch *any = header->payload;   /* all begin alike */
    int kind = (int)header->kind;
    if (header->category != RS_ROCP_CATEGORY_TRACING || !any)
        return;
    if (kind == kinds[KERNELS])
        add_kernel(any);
    else if (kind == kinds[COPIES])
        add_copy((const struct rs_rocp_copy *)any);
    else if (kind == kinds[MEMORY])
        add_allocation((const struct rs_rocp_allocation *)((const char *)any + (rs_rocm.version >= RS_ROCP_FIRST ? 40 : 32)),
                       any->operation);
}

void rs_rocm_buffer(struct rs_rocp_handle context, struct rs_rocp_handle buffer, struct rs_rocp_header **headers, size_t count,
                    void *data, uint64_t dropped)
{
    (void)context;
    (void)buffer;
    (void)data;
    rs_gpu_enter();
    if (rs_rocm_is_on() && rs_gpu.row && rs_rocm.row) {
        for (size_t i = 0; i < count; i++)
            take(headers[i]);
        rs_gpu.row->records += count;
        rs_gpu.row->buffers++;
        rs_gpu.row->dropped += dropped;
    }
    rs_gpu_leave();
}

static void find_kinds(void)
{
    for (int kind = 1; kind < MOST_KINDS; kind++) {
        const char *name = NULL;
        uint64_t length = 0;
        if (rs_rocm.sdk.query_buffer_tracing_kind_name(kind, &name, &length) != RS_ROCP_SUCCESS || !name)
            continue;
        for (unsigned i = 0; i < DOMAINS; i++)
            if (!strcmp(name, domain_names[i]))
                kinds[i] = kind;
    }
}

static int listen(enum domain domain)
{
    return kinds[domain]
           && rs_rocm.sdk.configure_buffer_tracing_service(rs_rocm.context, kinds[domain], NULL, 0, rs_rocm.buffer)
                  == RS_ROCP_SUCCESS;
}

int rs_rocm_records_begin(char *note, size_t size)
{
    find_kinds();
    rs_rocm.sdk.query_available_agents(RS_ROCP_AGENT_VERSION, take_agents, sizeof(struct rs_rocp_agent), NULL);
    if (!listen(KERNELS)) {
        snprintf(note, size, "rocprofiler-sdk tells nothing of kernels: nothing is recorded of HIP");
        return 0;
    }
    int has_copies = listen(COPIES), has_memory = listen(MEMORY);
    if (!has_copies || !has_memory)
        snprintf(note, size, "this rocprofiler-sdk does not tell of %s%s%s", has_copies ? "" : "copies",
                 has_copies || has_memory ? "" : " and ", has_memory ? "" : "allocated memory");
    return 1;
}
