/* What one launch costs the host: launch_cost ROUNDS LAUNCHES [event]. Each round appends so many empty kernels to an
 * immediate list, without an event or with one of the program's, and synchronises; the median of the rounds, in ns a launch. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <level_zero/ze_api.h>

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return difference < 0 ? -1 : difference > 0;
}

int main(int count, char **values)
{
    if (count < 3)
        return 2;
    int rounds = atoi(values[1]), launches = atoi(values[2]), with_event = count > 3;
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    ze_module_handle_t module;
    ze_kernel_handle_t kernel;
    ze_command_list_handle_t list;
    ze_event_pool_handle_t pool;
    ze_event_handle_t *events = calloc((size_t)launches + 1, sizeof *events), end;
    uint32_t one = 1, first = 1;
    const ze_context_desc_t of_context = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    const ze_command_queue_desc_t of_list = {ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, NULL, 0, 0, 0, 0, 0};
    const ze_module_desc_t of_module = {ZE_STRUCTURE_TYPE_MODULE_DESC, NULL, 0, 0, NULL, NULL, NULL};
    const ze_kernel_desc_t of_kernel = {ZE_STRUCTURE_TYPE_KERNEL_DESC, NULL, 0, "nothing:0"};
    const ze_event_pool_desc_t of_pool = {ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, NULL, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, (uint32_t)launches + 1};
    const ze_group_count_t groups = {1, 1, 1};
    if (zeInit(0) || zeDriverGet(&one, &driver) || zeDeviceGet(driver, &first, &device) || zeContextCreate(driver, &of_context, &context)
        || zeModuleCreate(context, device, &of_module, &module, NULL) || zeKernelCreate(module, &of_kernel, &kernel)
        || zeCommandListCreateImmediate(context, device, &of_list, &list) || zeEventPoolCreate(context, &of_pool, 0, NULL, &pool))
        return 3;
    for (uint32_t i = 0; i <= (uint32_t)launches; i++) {
        const ze_event_desc_t of_event = {ZE_STRUCTURE_TYPE_EVENT_DESC, NULL, i, 0, 0};
        if (zeEventCreate(pool, &of_event, &events[i]))
            return 3;
    }
    end = events[launches];
    double *ns = calloc((size_t)rounds, sizeof *ns), *all_ns = calloc((size_t)rounds, sizeof *ns);
    for (int round = 0; round < rounds; round++) {
        double began = now_ns();
        for (int i = 0; i < launches; i++)
            zeCommandListAppendLaunchKernel(list, kernel, &groups, with_event ? events[i] : NULL, 0, NULL);
        ns[round] = (now_ns() - began) / launches;
        zeCommandListAppendLaunchKernel(list, kernel, &groups, end, 0, NULL);
        zeEventHostSynchronize(end, UINT64_MAX);
        zeEventHostReset(end);
        all_ns[round] = (now_ns() - began) / launches;
        for (int i = 0; with_event && i < launches; i++)
            zeEventHostReset(events[i]);
    }
    qsort(ns, (size_t)rounds, sizeof *ns, compare);
    qsort(all_ns, (size_t)rounds, sizeof *ns, compare);
    printf("%.1f %.1f\n", ns[rounds / 2], all_ns[rounds / 2]);
    return 0;
}
