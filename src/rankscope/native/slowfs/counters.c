/* The counters as text. */
#include <inttypes.h>
#include <stdio.h>

#include "slow.h"

static const char *const operation_names[] = {
#define SLOW_NAME(name) #name,
    SLOW_OPERATIONS(SLOW_NAME)
#undef SLOW_NAME
};

static size_t put(char *text, size_t capacity, size_t length, const char *name, uint64_t value) {
    if (length >= capacity) return length;
    int written = snprintf(text + length, capacity - length, "%s %" PRIu64 "\n", name, value);
    return written < 0 || (size_t)written >= capacity - length ? capacity : length + (size_t)written;
}

size_t slow_counters_text(const struct slow_counters *counters, char *text, size_t capacity) {
    size_t length = 0;
    uint64_t metadata = 0;
    for (int operation = 0; operation < SLOW_OPERATION_COUNT; operation++) {
        uint64_t value = counters->operations[operation];
        if (operation <= SLOW_LAST_METADATA) metadata += value;
        length = put(text, capacity, length, operation_names[operation], value);
    }
    length = put(text, capacity, length, "missing", counters->missing);
    length = put(text, capacity, length, "bytes", counters->bytes);
    length = put(text, capacity, length, "metadata", metadata);
    length = put(text, capacity, length, "delayed_ns", counters->delayed_ns);
    return put(text, capacity, length, "queued_ns", counters->queued_ns);
}
