/* Recorded path operations, done again by many clients at once. */
#ifndef RANKSCOPE_REPLAY_H
#define RANKSCOPE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the file of operations each is: a letter for what, a letter for how it ended, the path, a zero byte. */
enum replay_kind { REPLAY_STAT = 's', REPLAY_OPEN = 'o', REPLAY_ACCESS = 'a', REPLAY_READLINK = 'r', REPLAY_LIST = 'l' };
enum replay_end { REPLAY_WENT_WELL = '+', REPLAY_FAILED = '-', REPLAY_UNKNOWN = '?' };

struct replay_operation {
    char kind, end;
    const char *path;
};

/* One for each operation of each client, in the shared file of times. */
struct replay_times {
    uint64_t operation_ns;
    uint64_t read_ns; /* 0: nothing was read */
};

struct replay_client {
    int64_t begin_ns, end_ns;
    uint64_t failed, otherwise, reads, bytes;
};

struct replay_plan {
    struct replay_operation *operations;
    size_t operation_count;
    int client_count;
    int64_t start_ns;
    bool reads;
    struct replay_times *times; /* client after client */
    struct replay_client *clients;
};

int64_t replay_now_ns(void);
void replay_operations(const struct replay_plan *plan, int client); /* operations.c */

#endif
