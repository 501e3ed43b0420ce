/* Node-local recording: a rank file joins those of the run, in as few calls to the shared file system as can be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recorder.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static int copy_bytes(int from, int to, uint64_t bytes)
{
    static char buffer[16 * RS_PAGE];
    for (uint64_t at = 0; at < bytes;) {
        uint64_t piece = bytes - at < sizeof buffer ? bytes - at : sizeof buffer;
        ssize_t got = pread(from, buffer, piece, (off_t)at);
        if (got <= 0 || write(to, buffer, (size_t)got) != got)
            return 0;
        at += (uint64_t)got;
    }
    return 1;
}

/* 1: the file has its name; 0 with EEXIST where another has it. One call where the file system knows it, else two. */
static int give_name(const char *part, const char *target)
{
    if (syscall(SYS_renameat2, AT_FDCWD, part, AT_FDCWD, target, RENAME_NOREPLACE) == 0)
        return 1;
    if (errno != EINVAL && errno != ENOSYS)
        return 0;
    if (link(part, target) == 0)
        return unlink(part) == 0;
    if (errno == EEXIST || access(target, F_OK) == 0) {
        errno = EEXIST;
        return 0;
    }
    return rename(part, target) == 0;   /* no hard links there */
}

/* Whether the file is a copy that `rankscope gather` made of ours while we were running. */
static int is_earlier_copy(const char *path, const struct rs_header *ours)
{
    struct rs_header theirs;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = pread(fd, &theirs, sizeof theirs, 0);
    close(fd);
    return got == (ssize_t)sizeof theirs && rs_file_is_of_same_process(&theirs, ours)
        && theirs.loaded.realtime_ns == ours->loaded.realtime_ns;
}

/* Under a name that is not taken, because process numbers come back; or in place of an earlier copy. */
static int publish(const char *part, const char *folder, const char *host, const struct rs_header *header)
{
    char target[512];
    for (int take = 0; take < RS_NAMES_PER_PID; take++) {
        int length = take ? snprintf(target, sizeof target, "%s/ranks/%s/%d-%d.rank", folder, host, rs.pid, take)
                          : snprintf(target, sizeof target, "%s/ranks/%s/%d.rank", folder, host, rs.pid);
        if (length >= (int)sizeof target)
            return 0;
        if (give_name(part, target))
            return 1;
        if (errno != EEXIST)
            return 0;
        if (is_earlier_copy(target, header))
            return rename(part, target) == 0;
    }
    return 0;
}

static int collect_one(const char *path, const char *folder, const char *host)
{
    struct rs_header header;
    char part[512];
    struct rlimit limit;
    int done = 0, from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return 0;
    if (pread(from, &header, sizeof header, 0) == (ssize_t)sizeof header
        && rs_file_is_of_same_process(&header, rs.file)
        && (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= header.used_bytes)
        && snprintf(part, sizeof part, "%s/ranks/%s/.%d.%llu.%llu.%llx.part", folder, host, rs.pid,
                    (unsigned long long)header.start_jiffies, (unsigned long long)header.pid_namespace,
                    (unsigned long long)header.boot_id) < (int)sizeof part) {
        int to = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (to < 0 && errno == ENOENT) {    /* the first of its host: others need not ask */
            rs_file_make_folders(folder, host);
            to = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        }
        if (to >= 0) {
            done = copy_bytes(from, to, header.used_bytes);
            done = close(to) == 0 && done && publish(part, folder, host, &header);
            if (!done)
                unlink(part);
        }
    }
    close(from);
    if (done)
        unlink(path);
    return done;
}

/* Node-local recording: at a clean end the files of this process, those of earlier program images included, join the
 * others; after a crash `rankscope gather` does it. Files of its number that another process made, in a container or
 * before the last boot, stay where they are. */
void rs_file_collect(const char *run_folder)
{
    char path[sizeof rs.path];
    const char *slash = strrchr(rs.path, '/');
    if (!slash)
        return;
    for (int take = 0; take < RS_NAMES_PER_PID; take++) {
        if (take)
            snprintf(path, sizeof path, "%.*s/%d-%d.rank", (int)(slash - rs.path), rs.path, rs.pid, take);
        else
            snprintf(path, sizeof path, "%.*s/%d.rank", (int)(slash - rs.path), rs.path, rs.pid);
        int ours = !strcmp(path, rs.path);
        collect_one(path, run_folder, rs.file->host);
        if (ours)
            return;
    }
}
