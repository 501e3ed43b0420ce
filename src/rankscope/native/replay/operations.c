/* What one client does: the operations in their order, each timed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "replay.h"

#define LOADER_READS 832 /* bytes of a shared object's head, as the dynamic loader asks for them */

int64_t replay_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static bool list_folder(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return false;
    while (readdir(folder)) continue;
    closedir(folder);
    return true;
}

/* True if it went well; an opened file is left in *file. */
static bool done(const struct replay_operation *operation, int *file) {
    struct stat found;
    char link[4096];
    switch (operation->kind) {
    case REPLAY_OPEN: return (*file = open(operation->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) >= 0;
    case REPLAY_ACCESS: return access(operation->path, F_OK) == 0;
    case REPLAY_READLINK: return readlink(operation->path, link, sizeof link) >= 0;
    case REPLAY_LIST: return list_folder(operation->path);
    default: return stat(operation->path, &found) == 0;
    }
}

/* As an import reads: of a shared object the head, everything else to its end. */
static uint64_t read_through(int file, const char *path) {
    static char buffer[1 << 17];
    uint64_t total = 0;
    ssize_t got;
    if (strstr(path, ".so")) {
        got = read(file, buffer, LOADER_READS);
        return got > 0 ? (uint64_t)got : 0;
    }
    while ((got = read(file, buffer, sizeof buffer)) > 0) total += (uint64_t)got;
    return total;
}

static void read_file(const struct replay_operation *operation, int file, struct replay_times *times,
                      struct replay_client *client) {
    int64_t begin_ns = replay_now_ns();
    client->bytes += read_through(file, operation->path);
    client->reads++;
    times->read_ns = (uint64_t)(replay_now_ns() - begin_ns) | 1; /* never 0, which says that there was none */
}

void replay_operations(const struct replay_plan *plan, int number) {
    struct replay_client *client = &plan->clients[number];
    struct replay_times *times = plan->times + (size_t)number * plan->operation_count;
    client->begin_ns = replay_now_ns();
    for (size_t place = 0; place < plan->operation_count; place++) {
        const struct replay_operation *operation = &plan->operations[place];
        int file = -1;
        int64_t begin_ns = replay_now_ns();
        bool went_well = done(operation, &file);
        times[place].operation_ns = (uint64_t)(replay_now_ns() - begin_ns);
        client->failed += !went_well;
        client->otherwise += operation->end != REPLAY_UNKNOWN && (operation->end == REPLAY_WENT_WELL) != went_well;
        if (file >= 0 && plan->reads) read_file(operation, file, &times[place], client);
        if (file >= 0) close(file);
    }
    client->end_ns = replay_now_ns();
}
