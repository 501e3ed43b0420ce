/* As much of libcuda as the GPU programs under scripts/ call, without a GPU: it succeeds and does nothing, but for
 * memory, of which one page is given, and the kernel of managed memory, whose one addition it makes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAKES(name) int name(void **made) { *made = malloc(1); return 0; }
#define DOES(name) int name(void) { return 0; }
#define MOST_BYTES (1ull << 40)

MAKES(cuDevicePrimaryCtxRetain) MAKES(cuModuleLoadData) MAKES(cuStreamCreate) MAKES(cuEventCreate)
MAKES(cuGraphInstantiateWithFlags)
DOES(cuInit) DOES(cuDeviceGet) DOES(cuCtxSetCurrent) DOES(cuCtxSynchronize) DOES(cuStreamSynchronize)
DOES(cuMemFreeHost) DOES(cuMemFree_v2) DOES(cuMemFreeAsync) DOES(cuMemcpyHtoD_v2) DOES(cuMemcpyDtoH_v2)
DOES(cuMemcpyHtoDAsync_v2) DOES(cuMemcpyDtoHAsync_v2) DOES(cuMemcpyDtoDAsync_v2) DOES(cuMemsetD8Async)
DOES(cuMemsetD32Async) DOES(cuEventRecord) DOES(cuStreamBeginCapture_v2) DOES(cuGraphLaunch)

static uint8_t *managed;
static size_t managed_bytes;
static const char touch[] = "touch";

int cuDeviceGetAttribute(int *value) { *value = 1980000; return 0; }
int cuModuleGetFunction(void **made, void *module, const char *name)
{
    (void)module;
    *made = strstr(name, touch) ? (void *)touch : malloc(1);
    return 0;
}
int cuMemHostAlloc(void **made, size_t size) { *made = malloc(size); return 0; }
int cuMemAllocManaged(void **made, size_t size) { *made = managed = malloc(managed_bytes = size); return 0; }
int cuMemAlloc_v2(void **made, size_t size) { *made = malloc(4096); return size > MOST_BYTES ? 2 : 0; }
int cuMemAllocAsync(void **made, size_t size) { return cuMemAlloc_v2(made, size); }
int cuEventElapsedTime(float *milliseconds) { *milliseconds = 20; return 0; }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; *graph = malloc(1); return 0; }
int cuLaunchKernel(void *kernel)
{
    for (size_t i = 0; kernel == touch && i < managed_bytes; i += 4)
        ++*(uint32_t *)(managed + i);
    return 0;
}
