/* Streams, domains of ranges and threads, each found again by what the runtime calls it. All are bounded: past the bound a
 * stream counts for its device, a domain for none, a thread for the last one that had room. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu_layer.h"

#define STREAMS 512u                /* places; three quarters are used */
#define DOMAINS 64u
#define THREADS 64u

static struct { uint64_t key; uint16_t group; } streams[STREAMS];
static struct { uint16_t name, group; } domains[DOMAINS];
static struct { uint32_t tid; struct rs_thread *thread; } threads[THREADS];
static uint32_t streams_used, domains_used, threads_used, last_stream;

void rs_gpu_streams_forget(void)
{
    memset(streams, 0, sizeof streams);
    memset(domains, 0, sizeof domains);
    memset(threads, 0, sizeof threads);
    streams_used = domains_used = threads_used = 0;
}

static uint16_t new_group(uint16_t name, uint32_t kind, uint64_t handle)
{
    uint16_t id = 0;
    struct rs_group *row = rs_group_row(&id);
    if (!row) {
        rs_count(&rs.file->folded_groups, 1);
        return 0;
    }
    row->handle = row->identity = handle;
    row->name = name;
    row->kind = kind;
    row->created_ticks = rs_ticks();
    return id;
}

static uint32_t place_of(uint64_t key)
{
    uint32_t at = (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 40) % STREAMS;
    while (streams[at].key && streams[at].key != key)
        at = (at + 1) % STREAMS;
    return at;
}

/* stream UINT32_MAX: the device as a whole. */
uint16_t rs_gpu_stream(uint32_t device, uint32_t stream)
{
    char name[48];
    uint64_t key = ((uint64_t)device << 32 | stream) + 1;
    if (streams[last_stream].key == key)
        return streams[last_stream].group;
    uint32_t at = place_of(key);
    if (streams[at].key) {
        last_stream = at;
        return streams[at].group;
    }
    if (streams_used >= STREAMS * 3 / 4 && stream != UINT32_MAX) {
        rs_gpu.row->folded_streams++;
        return rs_gpu_stream(device, UINT32_MAX);
    }
    if (streams_used >= STREAMS - 1)
        return 0;
    if (stream == UINT32_MAX)
        snprintf(name, sizeof name, "GPU %u", device);
    else
        snprintf(name, sizeof name, "GPU %u stream %u", device, stream);
    streams[at].key = key;
    streams[at].group = new_group(rs_intern(name), RS_GROUP_STREAM, key);
    streams_used++;
    return streams[at].group;
}

uint16_t rs_gpu_domain(const char *text)
{
    uint16_t name = rs_intern(text && text[0] ? text : "<unnamed>");
    for (uint32_t i = 0; i < domains_used; i++)
        if (domains[i].name == name)
            return domains[i].group;
    if (domains_used >= DOMAINS || !name)
        return 0;
    domains[domains_used].name = name;
    domains[domains_used].group = new_group(name, RS_GROUP_DOMAIN, name);
    return domains[domains_used++].group;
}

/* As the kernel has it now; "" where the thread is gone already. */
static void name_of(uint32_t tid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%u/comm", tid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, name, size - 1);
    if (file >= 0)
        close(file);
    while (length > 0 && name[length - 1] == '\n')
        length--;
    name[length > 0 ? length : 0] = 0;
}

struct rs_thread *rs_gpu_thread(uint32_t tid)
{
    for (uint32_t i = 0; i < threads_used; i++)
        if (threads[i].tid == tid)
            return threads[i].thread;
    if (threads_used >= THREADS)
        return threads[THREADS - 1].thread;
    char name[16];
    name_of(tid, name, sizeof name);
    struct rs_thread *thread = rs_thread_of(tid, name);
    if (thread) {
        threads[threads_used].tid = tid;
        threads[threads_used++].thread = thread;
    }
    return thread;
}
