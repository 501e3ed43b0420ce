/* A training loop on a CUDA GPU (the fake CUPTI) and on a Level Zero device (the scripted driver) in one process:
 * two_vendors FIRST STEPS OPTIMIZER END. FIRST: "cuda" or "ze", which of them starts first. Each step launches a kernel of
 * 300 µs on the one and two of 200 µs on the other, which run while the step does. CUPTI keeps all its records until it is
 * asked for them. END: "return" or "handler", a signal's in which the program ends itself. Prints when each step began and
 * ended. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <level_zero/ze_api.h>

#include "../../../src/rankscope/native/cuda/cupti.h"
#include "../cuda/fake_cupti.h"

int InitializeInjection(void);
uint64_t rankscope_range_begin(const char *name);
void rankscope_range_end(const char *name, uint64_t begin);

static ze_command_list_handle_t list;
static ze_kernel_handle_t kernel;
static ze_event_handle_t event;
static void *loader;
#define GET(name) ((__typeof__(&name))dlsym(loader, #name))
#define CALL(name, ...) do { if (GET(name)(__VA_ARGS__)) exit(3); } while (0)

static void put(const void *record, size_t bytes)
{
    char padded[256] = "";
    memcpy(padded, record, bytes);
    fake_put(padded, sizeof padded);
}

static void start_cuda(void)
{
    if (InitializeInjection() != 1)
        exit(2);
}

static void start_level_zero(void)
{
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    ze_module_handle_t module;
    ze_event_pool_handle_t pool;
    uint32_t one = 1, first = 1;
    const ze_context_desc_t of_context = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    const ze_command_queue_desc_t of_list = {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, NULL, 0, 0, 0, 0, 0};
    const ze_module_desc_t of_module = {ZE_STRUCTURE_TYPE_MODULE_DESC, NULL, 0, 0, NULL, NULL, NULL};
    const ze_event_pool_desc_t of_pool = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
    const ze_event_desc_t of_event = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, 0, 0, 0};
    const ze_kernel_desc_t of_kernel = {ZE_STRUCTURE_TYPE_KERNEL_DESC, NULL, 0, "gemm:200000"};
    loader = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!loader)
        exit(2);
    CALL(zeInit, 0);
    CALL(zeDriverGet, &one, &driver);
    CALL(zeDeviceGet, driver, &first, &device);
    CALL(zeContextCreate, driver, &of_context, &context);
    CALL(zeModuleCreate, context, device, &of_module, &module, NULL);
    CALL(zeKernelCreate, module, &of_kernel, &kernel);
    CALL(zeCommandListCreateImmediate, context, device, &of_list, &list);
    CALL(zeEventPoolCreate, context, &of_pool, 0, NULL, &pool);
    CALL(zeEventCreate, pool, &of_event, &event);
}

static void launch_cuda(uint32_t correlation)
{
    uint64_t now = fake_now();
    struct rs_cupti_api call = {RS_CUPTI_RUNTIME, 2, now, now + 4000, (uint32_t)getpid(), (uint32_t)syscall(SYS_gettid), correlation, 0};
    struct rs_cupti_kernel one = {.kind = RS_CUPTI_CONCURRENT_KERNEL, .start = now + 5000, .end = now + 305000, .name = "add"};
    one.streamId = 7;
    one.correlationId = correlation;
    put(&call, sizeof call);
    put(&one, sizeof one);
}

static void launch_level_zero(ze_event_handle_t signals)
{
    const ze_group_count_t groups = {1, 1, 1};
    CALL(zeCommandListAppendLaunchKernel, list, kernel, &groups, signals, 0, NULL);
}

static void leave(int number)
{
    (void)number;
    exit(5);
}

int main(int count, char **values)
{
    if (count < 5)
        return 2;
    int is_cuda_first = !strcmp(values[1], "cuda");
    if (is_cuda_first)
        start_cuda();
    start_level_zero();
    if (!is_cuda_first)
        start_cuda();
    for (int step = 0; step < atoi(values[2]); step++) {
        uint64_t begun = fake_now(), at = rankscope_range_begin("backward");
        launch_cuda(1000 + (uint32_t)step);
        launch_level_zero(NULL);
        rankscope_range_end("backward", at);
        at = rankscope_range_begin(values[3]);
        launch_level_zero(event);
        CALL(zeEventHostSynchronize, event, UINT64_MAX);
        CALL(zeEventHostReset, event);
        rankscope_range_end(values[3], at);
        printf("%lu %lu\n", begun, fake_now());
    }
    fflush(stdout);
    if (!strcmp(values[4], "handler")) {
        signal(SIGUSR1, leave);
        raise(SIGUSR1);
    }
    return 5;
}
