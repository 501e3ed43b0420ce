/* A training loop on a Level Zero device, with the loader looked up by name: training_loop STEPS OPTIMIZER. Each step
 * launches three kernels of 200 µs in its backward, a communicating one of 100 µs and, in its optimizer, one of 50 µs
 * and a copy, and waits for them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <level_zero/ze_api.h>

static void *loader;
#define GET(name) ((__typeof__(&name))dlsym(loader, #name))
#define CALL(name, ...) do { if (GET(name)(__VA_ARGS__)) return 3; } while (0)

int main(int count, char **values)
{
    loader = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    uint64_t (*begin)(const char *) = (uint64_t (*)(const char *))dlsym(RTLD_DEFAULT, "rankscope_range_begin");
    void (*end)(const char *, uint64_t) = (void (*)(const char *, uint64_t))dlsym(RTLD_DEFAULT, "rankscope_range_end");
    if (count < 3 || !loader)
        return 2;
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    ze_module_handle_t module;
    ze_kernel_handle_t kernels[3];
    ze_command_list_handle_t list;
    ze_event_pool_handle_t pool;
    ze_event_handle_t event;
    uint32_t one = 1, first = 1;
    void *memory;
    static char plain[4096];
    static const char *const names[] = {"gemm:200000", "oneccl_allreduce:100000", "adam:50000"};
    const ze_context_desc_t of_context = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    const ze_command_queue_desc_t of_list = {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, NULL, 0, 0, 0, 0, 0};
    const ze_module_desc_t of_module = {ZE_STRUCTURE_TYPE_MODULE_DESC, NULL, 0, 0, NULL, NULL, NULL};
    const ze_event_pool_desc_t of_pool = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1};
    const ze_event_desc_t of_event = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, 0, 0, 0};
    const ze_device_mem_alloc_desc_t of_memory = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, NULL, 0, 0};
    const ze_group_count_t groups = {1, 1, 1};
    CALL(zeInit, 0);
    CALL(zeDriverGet, &one, &driver);
    CALL(zeDeviceGet, driver, &first, &device);
    CALL(zeContextCreate, driver, &of_context, &context);
    CALL(zeModuleCreate, context, device, &of_module, &module, NULL);
    for (int i = 0; i < 3; i++) {
        const ze_kernel_desc_t of_kernel = {ZE_STRUCTURE_TYPE_KERNEL_DESC, NULL, 0, names[i]};
        CALL(zeKernelCreate, module, &of_kernel, &kernels[i]);
    }
    CALL(zeCommandListCreateImmediate, context, device, &of_list, &list);
    CALL(zeEventPoolCreate, context, &of_pool, 0, NULL, &pool);
    CALL(zeEventCreate, pool, &of_event, &event);
    CALL(zeMemAllocDevice, context, &of_memory, 4096, 1, device, &memory);
    for (int step = 0; step < atoi(values[1]); step++) {
        uint64_t at = begin ? begin("backward") : 0;
        for (int i = 0; i < 3; i++)
            CALL(zeCommandListAppendLaunchKernel, list, kernels[0], &groups, NULL, 0, NULL);
        CALL(zeCommandListAppendLaunchKernel, list, kernels[1], &groups, NULL, 0, NULL);
        if (end)
            end("backward", at);
        at = begin ? begin(values[2]) : 0;
        CALL(zeCommandListAppendMemoryCopy, list, memory, plain, sizeof plain, NULL, 0, NULL);
        CALL(zeCommandListAppendLaunchKernel, list, kernels[2], &groups, event, 0, NULL);
        CALL(zeEventHostSynchronize, event, UINT64_MAX);
        CALL(zeEventHostReset, event);
        if (end)
            end(values[2], at);
    }
    void *address;
    GET(zeDriverGetExtensionFunctionAddress)(driver, "zexCommandListAppendLaunchFast", &address);
    puts("trained");
    return 7;
}
