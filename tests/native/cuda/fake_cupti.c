#include "fake_cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void (*requested_function)(uint8_t **, size_t *, size_t *);
typedef void (*completed_function)(void *, uint32_t, uint8_t *, size_t, size_t);

static requested_function requested;
static completed_function completed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *buffer;
static size_t size, used, dropped;
static uint64_t now = 1000;
static int enabled[64], selected, told, has_begun, clients, flushes, configured, attached, finalized, forced, is_held, is_waited;

/* Whoever calls this while CUPTI is off would attach it again, at a moment that nobody has chosen. */
static void must_be_attached(void)
{
    if (finalized && !fake_attached())
        abort();
}

static int setting(const char *name) { return getenv(name) ? atoi(getenv(name)) : 0; }

/* Records lie behind each other, each after its length, on 8 bytes. */
static void deliver(void)
{
    uint8_t *full = buffer;
    size_t valid = used;
    buffer = NULL;
    used = 0;
    if (full)
        completed(NULL, 0, full, size, valid);
}

void fake_put(const void *record, size_t bytes)
{
    size_t need = 8 + (bytes + 7) / 8 * 8, most;
    pthread_mutex_lock(&lock);
    if (finalized && !fake_attached()) {
        pthread_mutex_unlock(&lock);
        return;
    }
    if (buffer && used + need > size)
        deliver();
    if (!buffer)
        requested(&buffer, &size, &most);
    memcpy(buffer + used, &bytes, sizeof bytes);
    memcpy(buffer + used + 8, record, bytes);
    used += need;
    pthread_mutex_unlock(&lock);
}

void fake_flush_full(void)
{
    pthread_mutex_lock(&lock);
    deliver();
    pthread_mutex_unlock(&lock);
}

void fake_drop(size_t records) { __atomic_fetch_add(&dropped, records, __ATOMIC_SEQ_CST); }
uint64_t fake_now(void)
{
    struct timespec real;
    if (!getenv("FAKE_CUPTI_CLOCK"))
        return __atomic_load_n(&now, __ATOMIC_RELAXED);
    clock_gettime(CLOCK_REALTIME, &real);
    return (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
}

void fake_set_now(uint64_t ns) { __atomic_store_n(&now, ns, __ATOMIC_RELAXED); }
int fake_enabled(int kind) { return __atomic_load_n(&enabled[kind], __ATOMIC_ACQUIRE); }
int fake_selected(void) { return __atomic_load_n(&selected, __ATOMIC_ACQUIRE); }
int fake_tells_calls(void) { return __atomic_load_n(&told, __ATOMIC_ACQUIRE) || fake_enabled(5); }     /* kind RUNTIME */
void fake_begin(void) { __atomic_store_n(&has_begun, 1, __ATOMIC_RELEASE); }
int fake_clients(void) { return clients; }
int fake_forced(void) { return __atomic_load_n(&forced, __ATOMIC_ACQUIRE); }
int fake_flushes(void) { return __atomic_load_n(&flushes, __ATOMIC_ACQUIRE); }
int fake_attached(void) { return __atomic_load_n(&attached, __ATOMIC_ACQUIRE); }
int fake_finalized(void) { return __atomic_load_n(&finalized, __ATOMIC_ACQUIRE); }
int fake_configured(void) { return __atomic_load_n(&configured, __ATOMIC_ACQUIRE); }

int cuptiGetVersion(uint32_t *version)
{
    *version = getenv("FAKE_CUPTI_VERSION") ? (uint32_t)setting("FAKE_CUPTI_VERSION") : 130001;
    return 0;
}

int cuptiGetTimestamp(uint64_t *timestamp)
{
    must_be_attached();
    *timestamp = fake_now();
    return 0;
}

int cuptiGetResultString(int result, const char **text)
{
    *text = result == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_FAKE";
    return 0;
}

int cuptiGetCallbackName(int domain, uint32_t cbid, const char **name)
{
    static const char *const runtime[] = {NULL, "cudaDriverGetVersion_v3020", "cudaLaunchKernel_v7000", "cudaMalloc_v3020",
                                          "cudaGetDevice_v3020", "cudaDeviceSynchronize_v3020", "cudaGraphLaunch_v10000"};
    static const char *const driver[] = {NULL, "cuInit", "cuLaunchKernel", "cuMemAlloc_v2", "cuKernelGetName"};
    const char *const *names = domain == 2 ? runtime : driver;
    size_t count = domain == 2 ? sizeof runtime / sizeof runtime[0] : sizeof driver / sizeof driver[0];
    if (!cbid || cbid >= count)
        return 1;
    *name = names[cbid];
    return 0;
}

int cuptiActivityRegisterCallbacks(requested_function give, completed_function take)
{
    if (setting("FAKE_CUPTI_REFUSES"))
        return setting("FAKE_CUPTI_REFUSES");
    pthread_mutex_lock(&lock);
    requested = give;
    completed = take;
    clients++;
    __atomic_store_n(&attached, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityEnable(int kind)
{
    if (setting("FAKE_CUPTI_REFUSES_KIND") == kind)
        return 1;
    __atomic_store_n(&enabled[kind], 1, __ATOMIC_RELEASE);
    return 0;
}

int cuptiActivityDisable(int kind)
{
    __atomic_store_n(&enabled[kind], 0, __ATOMIC_RELEASE);
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *from, size_t valid, void **record)
{
    uint8_t *next = from;
    if (*record) {
        size_t bytes;
        memcpy(&bytes, (uint8_t *)*record - 8, sizeof bytes);
        next = (uint8_t *)*record + (bytes + 7) / 8 * 8;
    }
    if (next >= from + valid)
        return 12;
    *record = next + 8;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context;
    (void)stream;
    *count = __atomic_exchange_n(&dropped, 0, __ATOMIC_SEQ_CST);
    return 0;
}

/* Until it is let go no flush comes further than here; whoever asks for records at regular times waits already. */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
void fake_hold(int on)
{
    pthread_mutex_lock(&lock);
    is_held = on;
    pthread_cond_broadcast(&changed);
    while (on && !is_waited)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void wait_while_held(void)
{
    pthread_mutex_lock(&lock);
    is_waited = 1;
    pthread_cond_broadcast(&changed);
    while (is_held)
        pthread_cond_wait(&changed, &lock);
    is_waited = 0;
    pthread_mutex_unlock(&lock);
}

int cuptiActivityFlushAll(uint32_t flag)
{
    wait_while_held();
    __atomic_add_fetch(&forced, flag != 0, __ATOMIC_RELEASE);
    if (flag && setting("FAKE_CUPTI_HANGS"))
        for (;;)
            pthread_mutex_lock(&lock), pthread_cond_wait(&(pthread_cond_t)PTHREAD_COND_INITIALIZER, &lock);
    must_be_attached();
    fake_flush_full();
    __atomic_add_fetch(&flushes, 1, __ATOMIC_RELEASE);
    return 0;
}

int cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    (void)milliseconds;
    return 0;
}

int cuptiSetThreadIdType(int type) { return type != 1; }

struct unified { uint32_t scope, kind, device, enable; };
int cuptiActivityConfigureUnifiedMemoryCounter(struct unified *config, uint32_t count)
{
    if (setting("FAKE_CUPTI_NO_UNIFIED"))
        return 30;
    for (uint32_t i = 0; i < count; i++)
        __atomic_add_fetch(&configured, config[i].scope == 2 && config[i].enable ? 1 << config[i].kind : 0, __ATOMIC_RELEASE);
    return 0;
}

#ifndef FAKE_CUPTI_OLD
/* Delivers what is there and is off. Where calls were chosen one by one, the real one corrupts the heap. */
int cuptiFinalize(void)
{
    must_be_attached();
    if (fake_selected())
        abort();
    fake_flush_full();
    pthread_mutex_lock(&lock);
    memset(enabled, 0, sizeof enabled);
    selected = 0;
    __atomic_add_fetch(&finalized, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&attached, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Single calls that are chosen once CUDA runs are never told of, as with CUPTI 13.0. */
static int choose(uint8_t enable)
{
    int chosen = __atomic_add_fetch(&selected, enable ? 1 : -1, __ATOMIC_RELEASE);
    if (!__atomic_load_n(&has_begun, __ATOMIC_ACQUIRE))
        __atomic_store_n(&told, chosen > 0, __ATOMIC_RELEASE);
    return 0;
}

int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable)
{
    (void)cbid;
    return choose(enable);
}

int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable)
{
    (void)cbid;
    return choose(enable);
}
#endif

int InitializeInjectionNvtx2(void *get_export_table) { return get_export_table == (void *)7; }
