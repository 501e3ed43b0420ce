/* A libnvidia-ml.so.1 with one GPU whose counter grows by 250 mJ a millisecond (250 W), as the test scripts it:
 * FAKE_NVML=no_counter refuses the counter, FAKE_NVML=no_init refuses to start. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int asked(const char *what)
{
    const char *given = getenv("FAKE_NVML");
    return given && !strcmp(given, what);
}

int nvmlInitWithFlags(unsigned flags) { return flags == 2 ? asked("no_init") * 9 : 2; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)1;
    return strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") ? 6 : 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = 250ull * ((unsigned long long)now.tv_sec * 1000 + (unsigned long long)now.tv_nsec / 1000000);
    return device == (void *)1 ? asked("no_counter") * 3 : 1;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    *mhz = 1980;
    return device == (void *)1 && which == 1 ? 0 : 2;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    *celsius = 61;
    return device == (void *)1 && sensor == 0 ? 0 : 2;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos)
{
    (void)device, (void)infos;
    *count = 3;
    return 7;           /* more than there was room for */
}

const char *nvmlErrorString(int result) { return result == 3 ? "Not Supported" : result == 9 ? "Driver Not Loaded" : "?"; }
