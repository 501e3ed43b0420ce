/* Plays a program that uses CUDA from a script on stdin, one record a line; test_cuda_ranges.py writes it and works
 * out what must come of it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../src/rankscope/native/cuda/cupti.h"
#include "fake_cupti.h"

#define NAMES 4096

int InitializeInjection(void);
int cuptiActivityRegisterCallbacks(rs_buffer_requested requested, rs_buffer_completed completed);

/* CUPTI keeps the names: the same pointer for the same one. */
static const char *kept(const char *text)
{
    static char *names[NAMES];
    int at = 0;
    for (; at < NAMES - 1 && names[at]; at++)
        if (!strcmp(names[at], text))
            return names[at];
    return names[at] = strdup(text);
}

static void put(const void *record, size_t bytes)
{
    char padded[256] = "";
    memcpy(padded, record, bytes);
    fake_put(padded, sizeof padded);
}

static void kernel(const char *line)
{
    char name[128];
    struct rs_cupti_kernel record = {.kind = RS_CUPTI_CONCURRENT_KERNEL};
    sscanf(line, "%u %lu %lu %127s", &record.correlationId, &record.start, &record.end, name);
    record.streamId = 7;
    record.name = kept(name);
    put(&record, sizeof record);
}

static void copy_or_set(const char *line, int is_set)
{
    struct rs_cupti_memcpy copy = {.kind = RS_CUPTI_MEMCPY, .copyKind = 1, .streamId = 7};
    sscanf(line, "%u %lu %lu %lu", &copy.correlationId, &copy.start, &copy.end, &copy.bytes);
    struct rs_cupti_memset set = {.kind = RS_CUPTI_MEMSET, .bytes = copy.bytes, .start = copy.start, .end = copy.end};
    set.correlationId = copy.correlationId;
    set.streamId = 7;
    if (is_set)
        put(&set, sizeof set);
    else
        put(&copy, sizeof copy);
}

static void call(const char *line, uint32_t kind)
{
    struct rs_cupti_api record = {.kind = kind};
    sscanf(line, "%u %u %u %lu %lu", &record.correlationId, &record.threadId, &record.cbid, &record.start, &record.end);
    put(&record, sizeof record);
}

static void marker(const char *line, uint32_t flags)
{
    char domain[64] = "", name[64] = "";
    struct rs_cupti_marker_record record = {.kind = RS_CUPTI_MARKER, .flags = flags, .objectKind = RS_CUPTI_OBJECT_THREAD};
    sscanf(line, "%u %u %lu %63s %63s", &record.id, &record.threadId, &record.timestamp, domain, name);
    if (!record.threadId)
        record.threadId = (uint32_t)syscall(SYS_gettid);
    record.domain = flags == RS_CUPTI_START && strcmp(domain, "-") ? kept(domain) : NULL;
    record.name = flags == RS_CUPTI_START ? kept(name) : NULL;
    put(&record, sizeof record);
}

static void memory(const char *line)
{
    struct rs_cupti_memory_record record = {.kind = RS_CUPTI_MEMORY2};
    sscanf(line, "%u %u %lu %u %lu %lu", &record.memoryOperationType, &record.memoryKind, &record.bytes, &record.poolType,
           &record.poolAddress, &record.poolSize);
    put(&record, sizeof record);
}

static void pool(const char *line)
{
    struct rs_cupti_pool_record record = {.kind = RS_CUPTI_POOL, .memoryPoolType = RS_CUPTI_POOL_LOCAL};
    sscanf(line, "%u %lu %lu", &record.memoryPoolOperationType, &record.address, &record.size);
    put(&record, sizeof record);
}

static void unified(const char *line)
{
    struct rs_cupti_unified_record record = {.kind = RS_CUPTI_UNIFIED};
    sscanf(line, "%u %lu %lu %lu", &record.counterKind, &record.value, &record.start, &record.end);
    put(&record, sizeof record);
}

/* Until the flusher of the recorder has come so many times more. */
static void await_flushes(int count)
{
    for (int until = fake_flushes() + count; fake_flushes() < until;)
        usleep(1000);
}

static void fork_and_wait(void)
{
    pid_t child = fork();
    if (!child)
        exit(0);
    waitpid(child, NULL, 0);
}

static void play(const char *line)
{
    const char *rest = line + 1;
    switch (line[0]) {
    case 'k': kernel(rest); break;
    case 'c': copy_or_set(rest, 0); break;
    case 'z': copy_or_set(rest, 1); break;
    case 'r': call(rest, RS_CUPTI_RUNTIME); break;
    case 'd': call(rest, RS_CUPTI_DRIVER); break;
    case 's': marker(rest, RS_CUPTI_START); break;
    case 'e': marker(rest, RS_CUPTI_END); break;
    case 'm': memory(rest); break;
    case 'p': pool(rest); break;
    case 'u': unified(rest); break;
    case 'F': fake_flush_full(); break;
    case 'W': await_flushes(atoi(rest)); break;
    case 'N': fake_set_now(strtoull(rest, NULL, 10)); break;
    case 'P':
        printf("%d %d %d\n", fake_selected(), fake_enabled(RS_CUPTI_UNIFIED), fake_configured());
        break;
    case 'n': prctl(PR_SET_NAME, "main of it"); break;
    case 'f': fork_and_wait(); break;
    case 'K': raise(9); break;
    default: exit(2);
    }
}

int main(void)
{
    char line[256];
    if (InitializeInjection() != 1)
        return 2;
    while (fgets(line, sizeof line, stdin))
        play(line);
    return 0;
}
