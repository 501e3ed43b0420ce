/* A list that is executed again while it still runs: its events will be signalled anew, and what they tell now will be
 * gone before the host can ask. Between both runs the device itself then writes down what they tell, by a small list of
 * ours that is executed in front of the program's, and resets those that are ours. */
#include "ze_layer.h"

struct rs_ze_readout {
    ze_handle list, done, context;
    struct rs_ze_kernel_timestamp *told;        /* memory of the host that the device writes to */
    uint32_t count, unread;
    struct rs_ze_readout *next;
};

static int fill(struct rs_ze_readout *made, ze_handle *events, const struct rs_ze_item *items)
{
    const struct rs_ze_loader *loader = &rs_ze.loader;
    uint32_t refused = loader->zeCommandListAppendBarrier(made->list, 0, 0, NULL);
    refused |= loader->zeCommandListAppendQueryKernelTimestamps(made->list, made->count, events, made->told, NULL, 0, 0, NULL);
    refused |= loader->zeCommandListAppendBarrier(made->list, 0, 0, NULL);
    for (uint32_t i = 0; i < made->count; i++)
        if (items[i].flags & RS_ZE_OURS)
            refused |= loader->zeCommandListAppendEventReset(made->list, items[i].event);
    refused |= loader->zeCommandListAppendBarrier(made->list, made->done, 0, NULL);
    return refused || loader->zeCommandListClose(made->list) ? 0 : 1;
}

static void destroy(struct rs_ze_readout *one)
{
    if (one->list)
        rs_ze.loader.zeCommandListDestroy(one->list);
    if (one->told)
        rs_ze.loader.zeMemFree(one->context, one->told);
    if (one->done) {
        rs_ze.loader.zeEventHostReset(one->done);
        rs_ze_event_give(one->context, one->done);
    }
    rs_memory_free(one, sizeof *one);
}

static struct rs_ze_readout *make(ze_handle context, ze_handle device, const uint32_t *desc, const struct rs_ze_item *items,
                                  uint32_t count)
{
    const struct rs_ze_list_desc of_list = {RS_ZE_LIST_DESC, NULL, desc[0], desc[1]};
    const struct rs_ze_host_desc of_memory = {RS_ZE_HOST_DESC, NULL, 0};
    size_t bytes = count * sizeof(struct rs_ze_kernel_timestamp);
    struct rs_ze_readout *made = rs_memory(sizeof *made);
    ze_handle *events = rs_memory(count * sizeof *events);
    if (made)
        *made = (struct rs_ze_readout){.context = context, .count = count};
    for (uint32_t i = 0; events && i < count; i++)
        events[i] = items[i].event;
    int is_made = made && events && (made->done = rs_ze_event_take(context))
                  && !rs_ze.loader.zeMemAllocHost(context, &of_memory, bytes, 8, (void **)&made->told)
                  && !rs_ze.loader.zeCommandListCreate(context, device, &of_list, &made->list) && fill(made, events, items);
    rs_memory_free(events, count * sizeof *events);
    if (is_made)
        return made;
    if (made)
        destroy(made);
    return NULL;
}

/* One that is not in use, for these items, which are those of its list as long as that is not reset. */
struct rs_ze_readout *rs_ze_readout(struct rs_ze_readout **all, ze_handle context, ze_handle device, const uint32_t *desc,
                                    const struct rs_ze_item *items, uint32_t count)
{
    struct rs_ze_readout *one = *all;
    for (uint32_t i = 0; i < count; i++)
        if (!items[i].event)
            return NULL;
    while (one && one->unread)
        one = one->next;
    if (!one && (one = make(context, device, desc, items, count))) {
        one->next = *all;
        *all = one;
    }
    return one;
}

/* So many will be read of what it writes. */
void rs_ze_readout_begin(struct rs_ze_readout *one, uint32_t unread) { one->unread = unread; }

ze_handle rs_ze_readout_list(const struct rs_ze_readout *one) { return one->list; }

int rs_ze_readout_is_done(const struct rs_ze_readout *one)
{
    return rs_ze.loader.zeEventQueryStatus(one->done) == RS_ZE_SUCCESS;
}

/* Read once; after the last one it may be used anew. */
const struct rs_ze_kernel_timestamp *rs_ze_readout_take(struct rs_ze_readout *one, uint32_t place)
{
    if (one->unread && !--one->unread)
        rs_ze.loader.zeEventHostReset(one->done);
    return &one->told[place];
}

void rs_ze_readouts_drop(struct rs_ze_readout **all)
{
    for (struct rs_ze_readout *one = *all, *next; one; one = next) {
        next = one->next;
        destroy(one);
    }
    *all = NULL;
}

/* In the child of a fork. */
void rs_ze_readouts_forget(struct rs_ze_readout **all)
{
    for (struct rs_ze_readout *one = *all, *next; one; one = next) {
        next = one->next;
        rs_memory_free(one, sizeof *one);
    }
    *all = NULL;
}
