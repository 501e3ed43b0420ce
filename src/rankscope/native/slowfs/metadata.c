/* Answers about names and attributes, from the source folder, with the times the client may keep them for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "slow.h"

#define LONGEST_PATH 4096

/* The path of a name in a node, or of the node itself. */
int slow_path_of(uint64_t id, const char *name, char *path, size_t capacity) {
    const struct slow_node *node = slow_node_of(id);
    if (!node) return -ENOENT;
    bool top = strcmp(node->path, ".") == 0;
    int length = !name ? snprintf(path, capacity, "%s", node->path)
                 : top ? snprintf(path, capacity, "%s", name)
                       : snprintf(path, capacity, "%s/%s", node->path, name);
    return length < 0 || (size_t)length >= capacity ? -ENAMETOOLONG : 0;
}

static void keep_for(bool allowed, uint64_t *seconds, uint32_t *nanoseconds) {
    *seconds = allowed ? (uint64_t)(slow_settings.cache_ns / 1000000000) : 0;
    *nanoseconds = allowed ? (uint32_t)(slow_settings.cache_ns % 1000000000) : 0;
}

static void fill_attributes(struct fuse_attr *to, const struct stat *from) {
    to->ino = from->st_ino;
    to->size = (uint64_t)from->st_size;
    to->blocks = (uint64_t)from->st_blocks;
    to->atime = (uint64_t)from->st_atim.tv_sec;
    to->atimensec = (uint32_t)from->st_atim.tv_nsec;
    to->mtime = (uint64_t)from->st_mtim.tv_sec;
    to->mtimensec = (uint32_t)from->st_mtim.tv_nsec;
    to->ctime = (uint64_t)from->st_ctim.tv_sec;
    to->ctimensec = (uint32_t)from->st_ctim.tv_nsec;
    to->mode = from->st_mode;
    to->nlink = (uint32_t)from->st_nlink;
    to->uid = from->st_uid;
    to->gid = from->st_gid;
    to->rdev = (uint32_t)from->st_rdev;
    to->blksize = (uint32_t)from->st_blksize;
}

static void counters_attributes(struct stat *made) {
    *made = (struct stat){.st_ino = SLOW_COUNTERS_ID, .st_mode = S_IFREG | 0444, .st_nlink = 1, .st_size = 4096};
    made->st_uid = geteuid();
    made->st_gid = getegid();
}

ssize_t slow_do_init(struct slow_request *request) {
    const struct fuse_init_in *asked = request->body;
    struct fuse_init_out *out = (void *)request->out;
    memset(out, 0, sizeof *out);
    out->major = FUSE_KERNEL_VERSION;
    out->minor = FUSE_KERNEL_MINOR_VERSION;
    /* Lookups in one folder must not wait for each other, or N clients would be as slow as one. */
    uint32_t wanted = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_AUTO_INVAL_DATA;
    if (slow_settings.cache_positive) wanted |= FUSE_CACHE_SYMLINKS;
    out->flags = wanted & asked->flags;
    out->max_readahead = asked->max_readahead;
    out->max_write = 4096;
    out->max_background = 64;
    out->congestion_threshold = 48;
    out->time_gran = 1;
    out->max_pages = SLOW_BIGGEST_READ / 4096;
    request->uncounted = true;
    return sizeof *out;
}

static ssize_t found_nothing(struct slow_request *request, int problem) {
    struct fuse_entry_out *out = (void *)request->out;
    request->missing = problem == ENOENT;
    if (problem != ENOENT || !slow_settings.cache_negative) return -problem;
    keep_for(true, &out->entry_valid, &out->entry_valid_nsec); /* number 0: the client may remember the absence */
    return sizeof *out;
}

ssize_t slow_do_lookup(struct slow_request *request) {
    struct fuse_entry_out *out = (void *)request->out;
    const char *name = request->body;
    char path[LONGEST_PATH];
    struct stat found;
    memset(out, 0, sizeof *out);
    if (request->header->nodeid == FUSE_ROOT_ID && strcmp(name, SLOW_COUNTERS_NAME) == 0) {
        request->uncounted = true;
        counters_attributes(&found);
        out->nodeid = SLOW_COUNTERS_ID;
        fill_attributes(&out->attr, &found);
        return sizeof *out;
    }
    int problem = slow_path_of(request->header->nodeid, name, path, sizeof path);
    if (problem) return problem;
    if (fstatat(slow_source, path, &found, AT_SYMLINK_NOFOLLOW) != 0) return found_nothing(request, errno);
    out->nodeid = slow_node_id(path, &found);
    if (!out->nodeid) return -ENOMEM;
    keep_for(slow_settings.cache_positive, &out->entry_valid, &out->entry_valid_nsec);
    keep_for(slow_settings.cache_positive, &out->attr_valid, &out->attr_valid_nsec);
    fill_attributes(&out->attr, &found);
    return sizeof *out;
}

ssize_t slow_do_getattr(struct slow_request *request) {
    struct fuse_attr_out *out = (void *)request->out;
    char path[LONGEST_PATH];
    struct stat found;
    memset(out, 0, sizeof *out);
    if (request->header->nodeid == SLOW_COUNTERS_ID) {
        counters_attributes(&found);
    } else {
        int problem = slow_path_of(request->header->nodeid, NULL, path, sizeof path);
        if (problem) return problem;
        if (fstatat(slow_source, path, &found, AT_SYMLINK_NOFOLLOW) != 0) return -errno;
        keep_for(slow_settings.cache_positive, &out->attr_valid, &out->attr_valid_nsec);
    }
    fill_attributes(&out->attr, &found);
    return sizeof *out;
}

ssize_t slow_do_access(struct slow_request *request) {
    const struct fuse_access_in *asked = request->body;
    char path[LONGEST_PATH];
    if (request->uncounted) return 0;
    int problem = slow_path_of(request->header->nodeid, NULL, path, sizeof path);
    if (problem) return problem;
    return faccessat(slow_source, path, (int)asked->mask, AT_EACCESS) == 0 ? 0 : -errno;
}

ssize_t slow_do_readlink(struct slow_request *request) {
    char path[LONGEST_PATH];
    int problem = slow_path_of(request->header->nodeid, NULL, path, sizeof path);
    if (problem) return problem;
    ssize_t length = readlinkat(slow_source, path, request->out, LONGEST_PATH);
    return length < 0 ? -errno : length;
}

ssize_t slow_do_statfs(struct slow_request *request) {
    struct fuse_statfs_out *out = (void *)request->out;
    struct statvfs found;
    memset(out, 0, sizeof *out);
    if (fstatvfs(slow_source, &found) != 0) return -errno;
    out->st.blocks = found.f_blocks;
    out->st.bfree = found.f_bfree;
    out->st.bavail = found.f_bavail;
    out->st.files = found.f_files;
    out->st.ffree = found.f_ffree;
    out->st.bsize = (uint32_t)found.f_bsize;
    out->st.frsize = (uint32_t)found.f_frsize;
    out->st.namelen = (uint32_t)found.f_namemax;
    return sizeof *out;
}
