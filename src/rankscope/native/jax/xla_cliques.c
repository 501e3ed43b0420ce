/* Communicators of XLA: each is one device's place among the devices that take part in its collectives. */
#include <stdio.h>
#include <stdlib.h>

#include "xla.h"

#define MOST_CLIQUES 512u
#define MOST_DEVICES 4096u
#define DEVICE_BITS 28          /* an id of a CPU: the process above, its device below; */
#define DEVICE_BITS_EARLIER 17  /* of earlier versions */

RS_EXPORT uint32_t rankscope_group(const char *name, uint64_t identity, uint32_t size, uint32_t my_rank, int guessed);

static struct { uint64_t communicator; uint32_t group; } cliques[MOST_CLIQUES];
static uint32_t cliques_used;
static rs_lock lock;

void rs_cliques_forget(void)
{
    memset(cliques, 0, sizeof cliques);
    cliques_used = 0;
}

uint32_t rs_clique_of(uint64_t communicator)
{
    for (uint32_t at = __atomic_load_n(&cliques_used, __ATOMIC_ACQUIRE); at; at--)  /* an address may be used again */
        if (cliques[at - 1].communicator == communicator)
            return cliques[at - 1].group;
    return 0;
}

static void remember(uint64_t communicator, uint32_t group)
{
    if (!rs_lock_take(&lock))
        return;
    uint32_t at = 0;
    while (at < cliques_used && cliques[at].communicator != communicator)
        at++;
    if (at < MOST_CLIQUES) {
        cliques[at].group = group;
        cliques[at].communicator = communicator;
        if (at == cliques_used)
            __atomic_store_n(&cliques_used, at + 1, __ATOMIC_RELEASE);
    }
    rs_lock_give(&lock);
}

/* The numbers behind "devices=[". */
static uint32_t devices_in(const char *text, uint64_t *devices)
{
    const char *at = strchr(text, '[');
    uint32_t count = 0;
    while (at && *at != ']' && count < MOST_DEVICES) {
        char *end;
        devices[count] = strtoull(at + 1, &end, 10);
        if (end == at + 1)
            return 0;
        count++;
        at = strpbrk(end, ",]");
    }
    return at ? count : 0;
}

/* Devices as the processes that hold them, each once; `place`: that of device number `rank`. */
static uint32_t processes_of(uint64_t *devices, uint32_t count, uint64_t rank, uint32_t *place)
{
    uint64_t largest = 0, mine = rank < count ? devices[rank] : 0;
    uint32_t used = 0;
    for (uint32_t at = 0; at < count; at++)
        largest = devices[at] > largest ? devices[at] : largest;
    unsigned shift = largest >> DEVICE_BITS ? DEVICE_BITS : largest >> DEVICE_BITS_EARLIER ? DEVICE_BITS_EARLIER : 0;
    *place = 0;
    for (uint32_t at = 0; at < count; at++) {
        uint64_t process = devices[at] >> shift;
        uint32_t known = 0;
        while (known < used && devices[known] != process)
            known++;
        if (known == used)
            devices[used++] = process;
        if (process == mine >> shift)
            *place = known;
    }
    return used;
}

/* "processes 0-3", "processes 0,2" */
static void describe(const uint64_t *processes, uint32_t count, char *text, size_t size)
{
    int length = snprintf(text, size, "processes ");
    for (uint32_t at = 0; at < count && length > 0 && (size_t)length + 24 < size; at++) {
        uint32_t last = at;
        while (last + 1 < count && processes[last + 1] == processes[last] + 1)
            last++;
        length += snprintf(text + length, size - (size_t)length, last > at ? "%s%llu-%llu" : "%s%llu", at ? "," : "",
                           (unsigned long long)processes[at], (unsigned long long)processes[last]);
        at = last;
    }
}

/* Communicators of this process for the devices of one clique, in the order of their ranks there. */
void rs_clique_created(const char *devices, const uint64_t *ranks, const uint64_t *communicators, uint32_t count)
{
    uint64_t *numbers = rs_memory(MOST_DEVICES * sizeof *numbers);
    uint32_t place = 0, group = 0;
    char text[200];
    if (!numbers)
        return;
    uint32_t size = processes_of(numbers, devices_in(devices, numbers), count ? ranks[0] : 0, &place);
    if (size) {
        describe(numbers, size, text, sizeof text);
        group = rankscope_group(text, rs_fnv64(RS_FNV64, devices), size, place, 0);
    }
    rs_memory_free(numbers, MOST_DEVICES * sizeof *numbers);
    for (uint32_t at = 0; at < count; at++)
        remember(communicators[at], at ? RS_CLIQUE_OTHER_DEVICE : group);
}
