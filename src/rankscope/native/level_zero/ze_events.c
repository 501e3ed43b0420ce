/* Events of our own, for work that signals none of the program's: out of pools that tell kernels' timestamps, one kind for
 * each context. And which of the program's tell none. */
#include "ze_layer.h"

#define POOL_EVENTS 512u

struct pool { ze_handle handle; struct pool *next; ze_handle events[POOL_EVENTS]; };
struct context { ze_handle handle; struct pool *pools; ze_handle *free_events; uint32_t free_used, capacity; struct context *next; };
static struct context *contexts;

static struct context *context_of(ze_handle handle)
{
    for (struct context *context = contexts; context; context = context->next)
        if (context->handle == handle)
            return context;
    struct context *context = rs_memory(sizeof *context);
    if (!context)
        return NULL;
    *context = (struct context){.handle = handle, .next = contexts};
    contexts = context;
    return context;
}

static int make_room(struct context *context)
{
    uint32_t capacity = context->capacity + POOL_EVENTS;
    ze_handle *more = rs_memory(capacity * sizeof *more);
    if (!more)
        return 0;
    if (context->free_used)
        memcpy(more, context->free_events, context->free_used * sizeof *more);
    rs_memory_free(context->free_events, context->capacity * sizeof *more);
    context->free_events = more;
    context->capacity = capacity;
    return 1;
}

static void add_pool(struct context *context)
{
    const struct rs_ze_event_pool_desc of_pool = {RS_ZE_EVENT_POOL_DESC, NULL, RS_ZE_POOL_HOST_VISIBLE | RS_ZE_POOL_TIMESTAMP, POOL_EVENTS};
    struct pool *pool = rs_memory(sizeof *pool);
    if (!pool || !make_room(context) || rs_ze.loader.zeEventPoolCreate(context->handle, &of_pool, 0, NULL, &pool->handle)) {
        rs_memory_free(pool, sizeof *pool);
        return;
    }
    pool->next = context->pools;
    context->pools = pool;
    for (uint32_t i = 0; i < POOL_EVENTS; i++) {
        const struct rs_ze_event_desc of_event = {RS_ZE_EVENT_DESC, NULL, i, 0, 0};
        if (rs_ze.loader.zeEventCreate(pool->handle, &of_event, &pool->events[i]))
            pool->events[i] = 0;
        else
            context->free_events[context->free_used++] = pool->events[i];
    }
}

/* 0: there is none. */
ze_handle rs_ze_event_take(ze_handle handle)
{
    struct context *context = context_of(handle);
    if (context && !context->free_used)
        add_pool(context);
    return context && context->free_used ? context->free_events[--context->free_used] : 0;
}

void rs_ze_event_give(ze_handle handle, ze_handle event)
{
    struct context *context = context_of(handle);
    if (context && context->free_used < context->capacity)
        context->free_events[context->free_used++] = event;
}

/* The program is about to destroy the context. */
void rs_ze_events_drop(ze_handle handle)
{
    struct context **at = &contexts;
    while (*at && (*at)->handle != handle)
        at = &(*at)->next;
    struct context *context = *at;
    if (!context)
        return;
    for (struct pool *pool = context->pools, *next; pool; pool = next) {
        next = pool->next;
        for (uint32_t i = 0; i < POOL_EVENTS; i++)
            if (pool->events[i])
                rs_ze.loader.zeEventDestroy(pool->events[i]);
        rs_ze.loader.zeEventPoolDestroy(pool->handle);
        rs_memory_free(pool, sizeof *pool);
    }
    *at = context->next;
    rs_memory_free(context->free_events, context->capacity * sizeof *context->free_events);
    rs_memory_free(context, sizeof *context);
}

/* In the child of a fork: what they were is the parent's. */
/* --- the program's --- */

static struct rs_ze_map untimeable;     /* pools and events without timestamps */

int rs_ze_event_is_untimeable(ze_handle event) { return rs_ze_map_get(&untimeable, event) != 0; }

/* All events of the program tell timestamps, but those that other processes share, which cannot. */
void rs_ze_POOL_CREATE(void **arguments, uint64_t begun)
{
    static __thread struct rs_ze_event_pool_desc timed;
    (void)begun;
    const struct rs_ze_event_pool_desc *asked = RS_ZE_ARGUMENT(const struct rs_ze_event_pool_desc *, 1);
    if (!asked || asked->flags & (RS_ZE_POOL_IPC | RS_ZE_POOL_TIMESTAMP))
        return;
    timed = *asked;
    timed.flags |= RS_ZE_POOL_TIMESTAMP;
    RS_ZE_ARGUMENT(const struct rs_ze_event_pool_desc *, 1) = &timed;
}

void rs_ze_POOL_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle pool = *RS_ZE_ARGUMENT(ze_handle *, 4);
    if (RS_ZE_ARGUMENT(const struct rs_ze_event_pool_desc *, 1)->flags & RS_ZE_POOL_TIMESTAMP)
        rs_ze_map_take(&untimeable, pool);
    else
        rs_ze_map_put(&untimeable, pool, 1);
}

void rs_ze_POOL_OPENED(void **arguments, uint64_t begun)
{
    (void)begun;
    rs_ze_map_put(&untimeable, *RS_ZE_ARGUMENT(ze_handle *, 2), 1);
}

void rs_ze_EVENT_CREATED(void **arguments, uint64_t begun)
{
    (void)begun;
    ze_handle event = *RS_ZE_ARGUMENT(ze_handle *, 2);
    if (rs_ze_map_get(&untimeable, RS_ZE_ARGUMENT(ze_handle, 0)))
        rs_ze_map_put(&untimeable, event, 1);
    else
        rs_ze_map_take(&untimeable, event);
}

void rs_ze_events_forget(void)
{
    rs_ze_map_free(&untimeable);
    for (struct context *context = contexts, *next; context; context = next) {
        next = context->next;
        for (struct pool *pool = context->pools, *after; pool; pool = after) {
            after = pool->next;
            rs_memory_free(pool, sizeof *pool);
        }
        rs_memory_free(context->free_events, context->capacity * sizeof *context->free_events);
        rs_memory_free(context, sizeof *context);
    }
    contexts = NULL;
}
