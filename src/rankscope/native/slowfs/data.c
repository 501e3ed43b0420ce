/* Answers about the content of files and folders. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slow.h"

#define LONGEST_PATH 4096
#define COUNTERS_TEXT_BYTES 4096

/* A folder is read as a whole when it is opened, so that places in it stay what they were. */
struct listing {
    size_t size, capacity;
    char records[]; /* struct fuse_dirent, each padded to 8 */
};

static ssize_t open_counters(struct slow_request *request) {
    struct fuse_open_out *out = (void *)request->out;
    char *text = malloc(COUNTERS_TEXT_BYTES);
    if (!text) return -ENOMEM;
    size_t length = slow_counters_text(slow_counters, text, COUNTERS_TEXT_BYTES - 64);
    snprintf(text + length, 64, "pid %ld\n", (long)getpid());
    out->fh = (uint64_t)(uintptr_t)text;
    out->open_flags = FOPEN_DIRECT_IO;
    return sizeof *out;
}

static ssize_t read_counters(struct slow_request *request, const struct fuse_read_in *asked) {
    const char *text = (const char *)(uintptr_t)asked->fh;
    size_t length = strlen(text);
    if (asked->offset >= length) return 0;
    size_t rest = length - asked->offset, size = rest < asked->size ? rest : asked->size;
    memcpy(request->out, text + asked->offset, size);
    return (ssize_t)size;
}

ssize_t slow_do_open(struct slow_request *request) {
    const struct fuse_open_in *asked = request->body;
    struct fuse_open_out *out = (void *)request->out;
    char path[LONGEST_PATH];
    memset(out, 0, sizeof *out);
    if (request->uncounted) return open_counters(request);
    if ((asked->flags & O_ACCMODE) != O_RDONLY) return -EROFS;
    int problem = slow_path_of(request->header->nodeid, NULL, path, sizeof path);
    if (problem) return problem;
    int file = openat(slow_source, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return -errno;
    out->fh = (uint64_t)file;
    /* Without this flag the kernel drops the file's pages at every open. */
    if (slow_settings.page_cache) out->open_flags |= FOPEN_KEEP_CACHE;
    return sizeof *out;
}

ssize_t slow_do_read(struct slow_request *request) {
    const struct fuse_read_in *asked = request->body;
    if (request->uncounted) return read_counters(request, asked);
    size_t size = asked->size < request->out_capacity ? asked->size : request->out_capacity;
    ssize_t got = pread((int)asked->fh, request->out, size, (off_t)asked->offset);
    if (got < 0) return -errno;
    request->bytes = (uint64_t)got;
    return got;
}

ssize_t slow_do_release(struct slow_request *request) {
    const struct fuse_release_in *asked = request->body;
    if (request->uncounted)
        free((void *)(uintptr_t)asked->fh);
    else
        close((int)asked->fh);
    return 0;
}

static struct listing *with_entry(struct listing *all, const struct dirent *entry) {
    size_t length = strlen(entry->d_name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
    if (all->size + size > all->capacity) {
        size_t capacity = all->capacity * 2 + size;
        struct listing *wider = realloc(all, sizeof *all + capacity);
        if (!wider) {
            free(all);
            return NULL;
        }
        all = wider;
        all->capacity = capacity;
    }
    struct fuse_dirent *record = (void *)(all->records + all->size);
    memset(record, 0, size);
    *record = (struct fuse_dirent){
        .ino = entry->d_ino, .off = all->size + size, .namelen = (uint32_t)length, .type = entry->d_type};
    memcpy(record->name, entry->d_name, length);
    all->size += size;
    return all;
}

static struct listing *listing_of(DIR *folder) {
    struct listing *all = calloc(1, sizeof *all);
    const struct dirent *entry;
    while (all && (entry = readdir(folder))) all = with_entry(all, entry);
    return all;
}

ssize_t slow_do_opendir(struct slow_request *request) {
    struct fuse_open_out *out = (void *)request->out;
    char path[LONGEST_PATH];
    memset(out, 0, sizeof *out);
    int problem = slow_path_of(request->header->nodeid, NULL, path, sizeof path);
    if (problem) return problem;
    int file = openat(slow_source, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = file < 0 ? NULL : fdopendir(file);
    if (!folder) {
        problem = -errno;
        if (file >= 0) close(file);
        return problem;
    }
    struct listing *all = listing_of(folder);
    closedir(folder);
    if (!all) return -ENOMEM;
    out->fh = (uint64_t)(uintptr_t)all;
    if (slow_settings.page_cache) out->open_flags |= FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE;
    return sizeof *out;
}

ssize_t slow_do_readdir(struct slow_request *request) {
    const struct fuse_read_in *asked = request->body;
    const struct listing *all = (const void *)(uintptr_t)asked->fh;
    size_t room = asked->size < request->out_capacity ? asked->size : request->out_capacity, size = 0;
    while (asked->offset + size < all->size) {
        const struct fuse_dirent *record = (const void *)(all->records + asked->offset + size);
        size_t one = FUSE_DIRENT_SIZE(record);
        if (size + one > room) break;
        size += one;
    }
    if (size) memcpy(request->out, all->records + asked->offset, size);
    return (ssize_t)size;
}

ssize_t slow_do_releasedir(struct slow_request *request) {
    const struct fuse_release_in *asked = request->body;
    free((void *)(uintptr_t)asked->fh);
    return 0;
}
