/* Which GPUs the process uses, by the driver's words, and what energy they have used, by NVML's counter. NVML is opened
 * by name where the driver has it, in a thread of ours, and asked once a second. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "cuda_layer.h"

#define MOST_GPUS 32u
#define POWER_ROWS 2048u
#define MULTIPROCESSORS 16          /* of enum CUdevice_attribute */
#define NO_ATTACH 2u                /* leave GPUs alone that nobody asks about */
#define SM_CLOCK 1
#define CORE_TEMPERATURE 0
#define NOT_ENOUGH_ROOM 7           /* NVML has counted more processes than there is room for */

typedef void *nvml_device;

/* The driver's part of CUDA, of which the program has the library already. */
static struct {
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetName)(char *name, int size, int device);
    int (*cuDeviceGetUuid)(uint8_t uuid[16], int device);
    int (*cuDeviceTotalMem)(size_t *bytes, int device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuDevicePrimaryCtxGetState)(int device, unsigned *flags, int *is_active);
} driver;

static struct {
    int (*init)(unsigned flags);
    int (*init_all)(void);
    int (*by_uuid)(const char *uuid, nvml_device *device);
    int (*energy)(nvml_device device, unsigned long long *millijoules);
    int (*clock)(nvml_device device, int which, unsigned *mhz);
    int (*temperature)(nvml_device device, int sensor, unsigned *celsius);
    int (*processes)(nvml_device device, unsigned *count, void *infos);
    const char *(*error)(int result);
} nvml;

struct gpu { struct rs_gpu *row; nvml_device handle; uint8_t is_tried; };

static struct rs_chunk *ring;
static struct gpu gpus[MOST_GPUS];
static uint64_t written;
static int nvml_state;              /* 0: not opened yet, 1: usable, -1: not */
static char nvml_problem[128];

void rs_cuda_gpus_forget(void)
{
    ring = NULL;
    memset(gpus, 0, sizeof gpus);
    written = 0;
    nvml_state = 0;
}

/* --- what they are --- */

static int find_driver(void)
{
    if (__atomic_load_n(&driver.cuDeviceGet, __ATOMIC_ACQUIRE))
        return 1;
    void *library = dlsym(RTLD_DEFAULT, "cuDeviceGet") ? RTLD_DEFAULT : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library && !dlsym(RTLD_DEFAULT, "cuDeviceGet"))
        return 0;
    driver.cuDeviceGetName = (int (*)(char *, int, int))dlsym(library, "cuDeviceGetName");
    driver.cuDeviceGetUuid = (int (*)(uint8_t *, int))dlsym(library, "cuDeviceGetUuid_v2");
    if (!driver.cuDeviceGetUuid)
        driver.cuDeviceGetUuid = (int (*)(uint8_t *, int))dlsym(library, "cuDeviceGetUuid");
    driver.cuDeviceTotalMem = (int (*)(size_t *, int))dlsym(library, "cuDeviceTotalMem_v2");
    driver.cuDeviceGetAttribute = (int (*)(int *, int, int))dlsym(library, "cuDeviceGetAttribute");
    driver.cuDevicePrimaryCtxGetState = (int (*)(int, unsigned *, int *))dlsym(library, "cuDevicePrimaryCtxGetState");
    int (*get)(int *, int) = (int (*)(int *, int))dlsym(library, "cuDeviceGet");
    __atomic_store_n(&driver.cuDeviceGet, get, __ATOMIC_RELEASE);   /* last: whoever sees it sees the others */
    return get != NULL;
}

static void describe(uint32_t number, int index)
{
    int device = 0, multiprocessors = 0;
    size_t bytes = 0;
    char name[128] = "";
    struct rs_gpu_about about = {.name = name};
    if (find_driver() && driver.cuDeviceGet(&device, index) == 0) {
        if (driver.cuDeviceGetName && driver.cuDeviceGetName(name, sizeof name - 1, device) != 0)
            name[0] = 0;
        if (driver.cuDeviceTotalMem && driver.cuDeviceTotalMem(&bytes, device) == 0)
            about.memory_bytes = bytes;
        if (driver.cuDeviceGetAttribute && driver.cuDeviceGetAttribute(&multiprocessors, MULTIPROCESSORS, device) == 0)
            about.multiprocessors = (uint32_t)multiprocessors;
        if (driver.cuDeviceGetUuid && driver.cuDeviceGetUuid(about.uuid, device) != 0)
            memset(about.uuid, 0, sizeof about.uuid);
    }
    rs_gpu_describe(number, &about);
}

/* Whether the program has made a context: the one that a device has for all who share it, as torch, JAX and CUDA's
 * runtime use it. Of others the driver tells nobody. */
int rs_gpu_has_context(void)
{
    int device, is_active = 0;
    unsigned flags;
    if (!find_driver() || !driver.cuDevicePrimaryCtxGetState)
        return 1;
    for (int ordinal = 0; ordinal < (int)MOST_GPUS && !is_active && driver.cuDeviceGet(&device, ordinal) == 0; ordinal++)
        if (driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != 0)
            is_active = 0;
    return is_active;
}

/* The process uses this GPU; its number is the process's own. */
void rs_gpu_known(uint32_t device)
{
    uint32_t index;
    if (device < MOST_GPUS && rs.file && !rs_gpu_row(device) && rs_gpu_is_of(device, RS_BACKEND_CUDA, &index))
        describe(device, (int)index);
}

/* --- their energy --- */

static int open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        snprintf(nvml_problem, sizeof nvml_problem, "no libnvidia-ml.so.1 was found");
        return -1;
    }
    nvml.init = (int (*)(unsigned))dlsym(library, "nvmlInitWithFlags");
    nvml.init_all = (int (*)(void))dlsym(library, "nvmlInit_v2");
    nvml.by_uuid = (int (*)(const char *, nvml_device *))dlsym(library, "nvmlDeviceGetHandleByUUID");
    nvml.energy = (int (*)(nvml_device, unsigned long long *))dlsym(library, "nvmlDeviceGetTotalEnergyConsumption");
    nvml.clock = (int (*)(nvml_device, int, unsigned *))dlsym(library, "nvmlDeviceGetClockInfo");
    nvml.temperature = (int (*)(nvml_device, int, unsigned *))dlsym(library, "nvmlDeviceGetTemperature");
    nvml.processes = (int (*)(nvml_device, unsigned *, void *))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    nvml.error = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    if ((!nvml.init && !nvml.init_all) || !nvml.by_uuid || !nvml.energy) {
        snprintf(nvml_problem, sizeof nvml_problem, "this libnvidia-ml.so.1 has no energy counter");
        return -1;
    }
    int result = nvml.init ? nvml.init(NO_ATTACH) : nvml.init_all();
    if (result == 0)
        return 1;
    snprintf(nvml_problem, sizeof nvml_problem, "NVML: %s", nvml.error ? nvml.error(result) : "refused to start");
    return -1;
}

static void cannot(struct rs_gpu *row, const char *why)
{
    uint16_t note = rs_intern(why);
    __atomic_store_n(&row->note, note, __ATOMIC_RELEASE);
}

static void find_handle(struct gpu *gpu)
{
    const uint8_t *u = gpu->row->uuid;
    char uuid[64];
    gpu->is_tried = 1;
    if (!nvml_state)
        nvml_state = open_nvml();
    if (nvml_state < 0) {
        cannot(gpu->row, nvml_problem);
        return;
    }
    snprintf(uuid, sizeof uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    int result = nvml.by_uuid(uuid, &gpu->handle);
    if (result != 0 && nvml.init_all && nvml.init_all() == 0)   /* where it wants to see all before it looks for one */
        result = nvml.by_uuid(uuid, &gpu->handle);
    if (result != 0) {
        gpu->handle = NULL;
        cannot(gpu->row, "NVML does not know this GPU: a part of one (MIG) has no energy counter");
    }
}

static uint32_t count_processes(nvml_device handle)
{
    unsigned count = 0;
    int result = nvml.processes ? nvml.processes(handle, &count, NULL) : -1;
    return result == 0 || result == NOT_ENOUGH_ROOM ? count : 0;
}

static void write_power(uint32_t device, uint64_t ticks, uint64_t energy_mj, nvml_device handle)
{
    if (!ring) {
        ring = rs_chunk_new(RS_CHUNK_POWER, 0, sizeof(struct rs_power),
                            sizeof(struct rs_chunk) + POWER_ROWS * sizeof(struct rs_power));
        if (!ring)
            return;
        __atomic_store_n(&ring->rows, POWER_ROWS, __ATOMIC_RELEASE);
    }
    struct rs_power *row = (struct rs_power *)(ring + 1) + written % POWER_ROWS;
    unsigned mhz = 0, celsius = 0;
    __atomic_store_n(&row->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    row->ticks = ticks;
    row->energy_mj = energy_mj;
    row->device = device;
    row->sm_mhz = nvml.clock && nvml.clock(handle, SM_CLOCK, &mhz) == 0 ? mhz : 0;
    row->temperature_c = nvml.temperature && nvml.temperature(handle, CORE_TEMPERATURE, &celsius) == 0 ? celsius : 0;
    row->processes = count_processes(handle);
    __atomic_store_n(&row->number, ++written, __ATOMIC_RELEASE);
}

static void sample(struct gpu *gpu)
{
    unsigned long long energy_mj = 0;
    struct rs_gpu *row = gpu->row;
    uint64_t before = rs_ticks();
    int result = nvml.energy(gpu->handle, &energy_mj);
    uint64_t ticks = before / 2 + rs_ticks() / 2;
    if (result != 0) {
        cannot(row, nvml.error ? nvml.error(result) : "NVML has no energy counter for this GPU");
        gpu->handle = NULL;
        return;
    }
    uint32_t odd = rs_row_begin(&row->seq);
    if (!row->samples++) {
        row->first_ticks = ticks;
        row->first_energy_mj = energy_mj;
    }
    row->last_ticks = ticks;
    row->last_energy_mj = energy_mj;
    rs_row_done(&row->seq, odd);
    write_power(row->device, ticks, energy_mj, gpu->handle);
}

/* In the thread that asks for CUPTI's records, about once a second. The end of the process does not wait for NVML. */
void rs_gpus_sample(int is_last)
{
    uint32_t index;
    for (uint32_t device = 0; device < MOST_GPUS && rs.file; device++) {
        struct gpu *gpu = &gpus[device];
        if (!rs_gpu_is_of(device, RS_BACKEND_CUDA, &index))
            continue;
        if (rs_gpu_is_used(device))
            rs_gpu_known(device);
        gpu->row = rs_gpu_row(device);
        if (!gpu->row)
            continue;
        if (!gpu->is_tried && !is_last)
            find_handle(gpu);
        if (gpu->handle)
            sample(gpu);
    }
    while (dlerror())           /* glibc keeps a message for each thread; nobody shall find it leaked when ours ends */
        continue;
}
