/* Devices and their tiles: what they are, and their clocks.
 *
 * A timestamp is a count of the device's timer, of which only the low bits may be told. It is put on the clock of the
 * process by one moment at which both were read. So that lengths and distances stay those of the device, this moment is
 * carried on at the timer's nominal rate, and put right only where both clocks have drifted apart. */
#include <stdio.h>

#include "ze_layer.h"

#define DEVICES 64u
#define COMPARED_NS 1000000000u         /* so often are the clocks compared */
#define DRIFT_NS 20000.0                /* so far apart they may be */
#define READINGS 3u                     /* of which the quickest is taken */

static struct rs_ze_device devices[DEVICES];
static uint32_t devices_used;
static int is_enumerated;

void rs_ze_devices_forget(void)
{
    memset(devices, 0, sizeof devices);
    devices_used = 0;
    is_enumerated = 0;
}

static uint64_t memory_of(ze_handle handle)
{
    struct rs_ze_memory_properties parts[8] = {{0}};
    uint32_t count = 8;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        parts[i].stype = RS_ZE_MEMORY_PROPERTIES;
    if (rs_ze.loader.zeDeviceGetMemoryProperties(handle, &count, parts) == RS_ZE_SUCCESS)
        for (uint32_t i = 0; i < count && i < 8; i++)
            bytes += parts[i].totalSize;
    return bytes;
}

static void describe(struct rs_ze_device *device, const struct rs_ze_device_properties *about, const struct rs_ze_device *root)
{
    char name[320];
    uint32_t units = about->numSlices * about->numSubslicesPerSlice;
    if (root)
        snprintf(name, sizeof name, "%.255s, tile %u of GPU %u", about->name, about->subdeviceId, root->number);
    else if (about->flags & RS_ZE_SUBDEVICE)
        snprintf(name, sizeof name, "%.255s, tile %u", about->name, about->subdeviceId);
    else
        snprintf(name, sizeof name, "%.255s", about->name);
    struct rs_gpu_about told = {.name = name, .note = "energy is not recorded of Level Zero devices",
                                .multiprocessors = units, .memory_bytes = memory_of(device->handle)};
    memcpy(told.uuid, about->uuid, sizeof told.uuid);
    rs_gpu_describe(device->number, &told);
}

/* Cycles a second where the driver knows to tell them, else whole nanoseconds. */
static void add(ze_handle handle, const struct rs_ze_device *root)
{
    struct rs_ze_device_properties about = {.stype = RS_ZE_DEVICE_PROPERTIES_1_2};
    struct rs_ze_device *device = &devices[devices_used];
    for (uint32_t i = 0; i < devices_used; i++)
        if (devices[i].handle == handle)
            return;
    if (devices_used == DEVICES || rs_ze.loader.zeDeviceGetProperties(handle, &about) != RS_ZE_SUCCESS)
        return;
    uint32_t bits = about.kernelTimestampValidBits ? about.kernelTimestampValidBits : 64;
    double resolution = about.timerResolution ? (double)about.timerResolution : 1;
    *device = (struct rs_ze_device){.handle = handle};
    device->mask = bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    device->ns_per_tick = resolution < 1000 ? resolution : 1e9 / resolution;   /* no timer has so few cycles a second */
    rs_gpu_enter();
    device->number = rs_gpu_device(RS_BACKEND_ZE, devices_used++);
    rs_gpu_leave();
    describe(device, &about, root);
}

/* All roots first, in the order of their drivers, then all tiles: numbers do not depend on what is used first. */
static void enumerate(void)
{
    ze_handle drivers[8], found[DEVICES];
    uint32_t driver_count = 8, count = DEVICES;
    is_enumerated = 1;
    if (rs_ze.loader.zeDriverGet(&driver_count, drivers) != RS_ZE_SUCCESS)
        return;
    for (uint32_t i = 0; i < driver_count && i < 8; i++, count = DEVICES)
        if (rs_ze.loader.zeDeviceGet(drivers[i], &count, found) == RS_ZE_SUCCESS)
            for (uint32_t j = 0; j < count && j < DEVICES; j++)
                add(found[j], NULL);
    for (uint32_t i = 0, roots = devices_used; i < roots; i++, count = DEVICES)
        if (rs_ze.loader.zeDeviceGetSubDevices(devices[i].handle, &count, found) == RS_ZE_SUCCESS)
            for (uint32_t j = 0; j < count && j < DEVICES; j++)
                add(found[j], &devices[i]);
}

struct rs_ze_device *rs_ze_device(ze_handle handle)
{
    if (!is_enumerated)
        enumerate();
    for (int tries = 0; tries < 2; tries++) {
        for (uint32_t i = 0; i < devices_used; i++)
            if (devices[i].handle == handle)
                return &devices[i];
        add(handle, NULL);
    }
    return NULL;
}

/* --- clocks --- */

static int read_clocks(struct rs_ze_device *device, uint64_t *ticks, double *ns)
{
    uint64_t narrowest = UINT64_MAX, host, theirs;
    if (!rs_gpu_has_rate())
        return 0;
    for (unsigned i = 0; i < READINGS; i++) {
        uint64_t before = rs_ticks();
        if (rs_ze.loader.zeDeviceGetGlobalTimestamps(device->handle, &host, &theirs) != RS_ZE_SUCCESS)
            return 0;
        uint64_t after = rs_ticks();
        if (after - before < narrowest) {
            narrowest = after - before;
            *ticks = theirs;
            *ns = (double)rs_gpu_ns_of(before + narrowest / 2);
        }
    }
    return 1;
}

/* From the anchor to then, which may be before it: the shorter way round. */
static double since_anchor(const struct rs_ze_device *device, uint64_t ticks)
{
    uint64_t ahead = (ticks - device->anchor_ticks) & device->mask, back = (device->anchor_ticks - ticks) & device->mask;
    return ahead <= back ? (double)ahead * device->ns_per_tick : -(double)back * device->ns_per_tick;
}

/* About once a second. */
void rs_ze_device_compare(struct rs_ze_device *device)
{
    uint64_t ticks = 0, now = rs_gpu_ns_of(rs_ticks());
    double ns = 0;
    if ((device->read_ticks && now - device->read_ticks < COMPARED_NS) || !read_clocks(device, &ticks, &ns))
        return;
    double expected_ns = device->anchor_ns + since_anchor(device, ticks), off_ns = expected_ns - ns;
    int is_first = !device->read_ticks, is_apart = off_ns > DRIFT_NS || off_ns < -DRIFT_NS;
    device->anchor_ns = is_first || is_apart ? ns : expected_ns;
    device->anchor_ticks = ticks;
    device->read_ticks = now;
}

/* Under the lock of the GPU layer. The end is the start and the length, which is exact. */
void rs_ze_device_times(struct rs_ze_device *device, const struct rs_ze_kernel_timestamp *at, uint64_t *start_ns,
                        uint64_t *end_ns)
{
    uint64_t length = (at->kernelEnd - at->kernelStart) & device->mask;
    double start = device->anchor_ns + since_anchor(device, at->kernelStart);
    *start_ns = start < 1 ? 1 : (uint64_t)start;
    *end_ns = *start_ns + (uint64_t)((double)length * device->ns_per_tick + 0.5);
}
