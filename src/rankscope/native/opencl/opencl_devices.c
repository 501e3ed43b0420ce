/* Devices: their numbers, in the order in which the process uses them, what they are, and their clocks. A command's time of
 * being queued lies inside the call that queued it: so much is known of the difference to our clock, and each call
 * narrows it. */
#include <stdio.h>

#include "opencl_layer.h"

#define DEVICES 32u
#define DRIFT_PPM 20                /* by which two clocks may part */

struct device {
    word handle;
    uint32_t number;                /* of the process */
    int64_t low_ns, high_ns;        /* the device's clock less ours, at at_ns */
    uint64_t at_ns;
    int has_clock;
};
static struct device devices[DEVICES];
static uint32_t devices_used;

void rs_cl_devices_forget(void)
{
    memset(devices, 0, sizeof devices);
    devices_used = 0;
}

static void describe(word handle, uint32_t number)
{
    char name[128] = "";
    uint32_t units = 0;
    struct rs_gpu_about about = {.name = name, .note = "OpenCL tells nothing of energy"};
    RS_CL_ASK(clGetDeviceInfo, handle, RS_CL_DEVICE_NAME, sizeof name - 1, (word)name, 0);
    RS_CL_ASK(clGetDeviceInfo, handle, RS_CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, (word)&units, 0);
    RS_CL_ASK(clGetDeviceInfo, handle, RS_CL_DEVICE_GLOBAL_MEM_SIZE, sizeof about.memory_bytes, (word)&about.memory_bytes, 0);
    if (RS_CL_ASK(clGetDeviceInfo, handle, RS_CL_DEVICE_UUID, sizeof about.uuid, (word)about.uuid, 0) != RS_CL_SUCCESS)
        memset(about.uuid, 0, sizeof about.uuid);
    about.multiprocessors = units;
    rs_gpu_describe(number, &about);
}

/* Of the first device's platform. */
static void say_platform(word device)
{
    char name[128] = "", version[128] = "";
    word platform = 0;
    RS_CL_ASK(clGetDeviceInfo, device, RS_CL_DEVICE_PLATFORM, sizeof platform, (word)&platform, 0);
    RS_CL_ASK(clGetPlatformInfo, platform, RS_CL_PLATFORM_NAME, sizeof name - 1, (word)name, 0);
    RS_CL_ASK(clGetPlatformInfo, platform, RS_CL_PLATFORM_VERSION, sizeof version - 1, (word)version, 0);
    rs_cl_runtime->library = rs_intern(name);
    rs_cl_runtime->version = rs_intern(version);
}

static uint32_t find(word handle)
{
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i].handle == handle)
            return devices[i].number;
    return UINT32_MAX;
}

uint32_t rs_cl_device_of(word handle)
{
    uint32_t number = UINT32_MAX;
    int is_new = 0;
    rs_gpu_enter();
    if ((number = find(handle)) == UINT32_MAX && devices_used < DEVICES && rs_gpu.row) {
        number = rs_gpu_device(RS_BACKEND_OPENCL, devices_used);
        devices[devices_used] = (struct device){.handle = handle, .number = number};
        devices_used++;
        is_new = 1;
    }
    rs_gpu_leave();
    if (is_new)
        describe(handle, number);
    if (is_new && !rs_cl_runtime->library)
        say_platform(handle);
    return number;
}

/* Memory belongs to a context: it is counted for its first device. */
uint32_t rs_cl_device_of_context(word context)
{
    word handles[DEVICES] = {0};
    size_t bytes = 0;
    if (RS_CL_ASK(clGetContextInfo, context, RS_CL_CONTEXT_DEVICES, 0, 0, (word)&bytes) != RS_CL_SUCCESS || !bytes
        || bytes > sizeof handles
        || RS_CL_ASK(clGetContextInfo, context, RS_CL_CONTEXT_DEVICES, bytes, (word)handles, 0) != RS_CL_SUCCESS)
        return UINT32_MAX;
    return rs_cl_device_of(handles[0]);
}

static struct device *of_number(uint32_t number)
{
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i].number == number)
            return &devices[i];
    return NULL;
}

/* Under rs_gpu.lock: the difference lies between both. Where that contradicts what was known, the clock was set. */
void rs_cl_device_clock(uint32_t number, int64_t low_ns, int64_t high_ns, uint64_t now_ns)
{
    struct device *device = of_number(number);
    if (!device || high_ns < low_ns)
        return;
    if (device->has_clock) {
        uint64_t since_ns = now_ns > device->at_ns ? now_ns - device->at_ns : device->at_ns - now_ns;
        int64_t drift_ns = (int64_t)(since_ns / 1000000u * DRIFT_PPM) + 1;
        int64_t low = device->low_ns - drift_ns, high = device->high_ns + drift_ns;
        int is_apart = low_ns > high || high_ns < low;
        low_ns = !is_apart && low > low_ns ? low : low_ns;
        high_ns = !is_apart && high < high_ns ? high : high_ns;
    }
    device->low_ns = low_ns;
    device->high_ns = high_ns;
    device->at_ns = now_ns;
    device->has_clock = 1;
}

uint64_t rs_cl_device_to_host(uint32_t number, uint64_t device_ns)
{
    const struct device *device = of_number(number);
    return device && device->has_clock
               ? device_ns - (uint64_t)(device->low_ns + (device->high_ns - device->low_ns) / 2)
               : device_ns;
}
