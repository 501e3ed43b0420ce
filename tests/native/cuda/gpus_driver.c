/* Plays a program that uses two GPUs for two and a half seconds, one of which NVML knows; and the driver that describes
 * them. What must come out is in test_gpus.py. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../../src/rankscope/native/cuda/cupti.h"
#include "fake_cupti.h"

int InitializeInjection(void);

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, device ? "NVIDIA Unheard-of" : "NVIDIA H200");
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(device ? 0xEE : i);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = device ? 1u << 30 : 150754820096u;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = device ? 7 : 132;
    return attribute == 16 ? 0 : 1;
}

static void kernel(uint32_t device)
{
    char padded[256] = "";
    struct rs_cupti_kernel record = {.kind = RS_CUPTI_CONCURRENT_KERNEL, .start = 1000, .end = 2000, .name = "gemm"};
    record.deviceId = device;
    memcpy(padded, &record, sizeof record);
    fake_put(padded, sizeof padded);
}

int main(int count, char **arguments)
{
    InitializeInjection();
    kernel(0);
    kernel(1);
    if (count > 1 && !strcmp(arguments[1], "short"))
        return 0;
    usleep(3300000);
    return 0;
}
