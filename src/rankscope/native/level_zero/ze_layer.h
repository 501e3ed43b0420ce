/* What the files of the Level Zero layer share. Handles are looked up and work is kept under rs_ze.lock; what is handed
 * on to the GPU layer is, under its lock, inside of that. */
#ifndef RANKSCOPE_ZE_LAYER_H
#define RANKSCOPE_ZE_LAYER_H

#include "gpu.h"
#include "ze.h"

struct rs_ze_layer {
    struct rs_ze_loader loader;
    struct rs_runtime *row;         /* NULL: not recording */
    pthread_mutex_t lock;
    atomic_int is_held;             /* the lock is */
    atomic_int is_on;               /* calls are recorded */
};
extern struct rs_ze_layer rs_ze __attribute__((visibility("hidden")));

/* A thread that is in here makes calls of ours, which nobody counts. */
extern __thread int rs_ze_own __attribute__((visibility("hidden"), tls_model("initial-exec")));
static inline void rs_ze_enter(void)
{
    rs_ze_own = 1;
    pthread_mutex_lock(&rs_ze.lock);
    atomic_store_explicit(&rs_ze.is_held, 1, memory_order_relaxed);
}

static inline void rs_ze_leave(void)
{
    atomic_store_explicit(&rs_ze.is_held, 0, memory_order_relaxed);
    pthread_mutex_unlock(&rs_ze.lock);
    rs_ze_own = 0;
}

/* ze_map.c: what is known by a handle. A value of 0 is none. */
struct rs_ze_map { struct rs_ze_entry *entries; uint32_t capacity, used; };
uint64_t rs_ze_map_get(const struct rs_ze_map *map, uint64_t key);
int rs_ze_map_put(struct rs_ze_map *map, uint64_t key, uint64_t value);
uint64_t rs_ze_map_take(struct rs_ze_map *map, uint64_t key);
void rs_ze_map_free(struct rs_ze_map *map);
typedef int (*rs_ze_visit)(void *context, uint64_t key, uint64_t value);    /* 0: go on */
void rs_ze_map_walk(const struct rs_ze_map *map, rs_ze_visit visit, void *context);

/* ze_devices.c */
struct rs_ze_device {
    ze_handle handle;
    uint32_t number;                /* in the GPU layer */
    uint32_t streams;               /* numbered so far */
    uint64_t mask;                  /* of the bits of a kernel's timestamp that count */
    double ns_per_tick;
    uint64_t anchor_ticks;          /* one moment on the device's clock */
    double anchor_ns;               /* and on that of the process */
    uint64_t read_ticks;            /* when it was compared last */
};
struct rs_ze_device *rs_ze_device(ze_handle handle);
void rs_ze_device_compare(struct rs_ze_device *device);
void rs_ze_device_times(struct rs_ze_device *device, const struct rs_ze_kernel_timestamp *at, uint64_t *start_ns,
                        uint64_t *end_ns);
void rs_ze_devices_forget(void);

/* ze_events.c: our own, in the contexts of the program; and the program's */
int rs_ze_event_is_untimeable(ze_handle event);
ze_handle rs_ze_event_take(ze_handle context);
void rs_ze_event_give(ze_handle context, ze_handle event);
void rs_ze_events_drop(ze_handle context);
void rs_ze_events_forget(void);

/* ze_streams.c */
void rs_ze_collect(int is_last);

/* ze_lists.c */
enum rs_ze_item_flag {
    RS_ZE_OURS = 1,                 /* the event is */
    RS_ZE_UNTIMED = 2,              /* nothing will tell when it ran */
    RS_ZE_PAGEABLE = 4,
    RS_ZE_LATE = 8,                 /* its event may still be signalled from before: wait until the queue is done */
    RS_ZE_DONE = 16
};
struct rs_ze_item {
    ze_handle event, context;
    const char *name;               /* of a kernel */
    uint64_t bytes;
    uint16_t name_id;
    uint8_t kind, flags;
};
int rs_ze_inject(ze_handle list, ze_handle *event);                 /* 1: the event is ours */
void rs_ze_appended(ze_handle list, struct rs_ze_item *item, uint64_t begun, int failed);
void rs_ze_lists_forget(void);

/* ze_readouts.c */
struct rs_ze_readout;
struct rs_ze_readout *rs_ze_readout(struct rs_ze_readout **all, ze_handle context, ze_handle device, const uint32_t *desc,
                                    const struct rs_ze_item *items, uint32_t count);
void rs_ze_readout_begin(struct rs_ze_readout *one, uint32_t unread);
ze_handle rs_ze_readout_list(const struct rs_ze_readout *one);
int rs_ze_readout_is_done(const struct rs_ze_readout *one);
const struct rs_ze_kernel_timestamp *rs_ze_readout_take(struct rs_ze_readout *one, uint32_t place);
void rs_ze_readouts_drop(struct rs_ze_readout **all);
void rs_ze_readouts_forget(struct rs_ze_readout **all);

/* ze_memory.c */
char rs_ze_memory_kind(const void *pointer);                        /* 'D', 'H', 'S', or 'M': malloc's */
void rs_ze_memory_forget(void);

/* ze_calls.c */
enum rs_ze_table {
#define RS_ZE_TABLE(name) RS_ZE_TABLE_##name,
#include "ze_tables.h"
#undef RS_ZE_TABLE
    RS_ZE_TABLES
};
void rs_ze_take_table(enum rs_ze_table which, void **table);
void *rs_ze_real(const char *name);
void rs_ze_name_unseen(void *library);
void rs_ze_init_called(const char *name, uint64_t begun, uint64_t ended, uint32_t result);
void rs_ze_calls_forget(void);

/* ze_start.c */
void rs_ze_note_unseen(void);
void rs_ze_finish(void);
void rs_ze_forget(void);

/* Before and after calls, with the places of their arguments. */
#define RS_ZE_HOOKS(X) \
    X(KERNEL_CREATED) X(KERNEL_DESTROYED) X(QUEUE_CREATED) X(QUEUE_DESTROYED) X(LIST_CREATED) X(IMMEDIATE_CREATED) \
    X(LIST_DESTROYED) X(LIST_RESET) X(EXECUTE) X(EXECUTED) X(EVENT_RESET_APPENDED) X(EVENT_RESET) X(POOL_CREATE) \
    X(POOL_CREATED) X(POOL_OPENED) X(EVENT_CREATED) X(DEVICE_ALLOCATED) X(HOST_ALLOCATED) X(SHARED_ALLOCATED) X(FREE) \
    X(FREE_EXT) X(CONTEXT_DESTROYED) X(EXTENSION_ASKED) X(SYNCED) X(WAITED)
#define X(hook) void rs_ze_##hook(void **arguments, uint64_t begun);
RS_ZE_HOOKS(X)
#undef X
const char *rs_ze_kernel_name(ze_handle kernel);

#define RS_ZE_ARGUMENT(type, place) (*(type *)arguments[place])

#endif
