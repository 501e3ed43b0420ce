/* Mounts and unmounts: as root, inside a mount namespace of one's own, or through fusermount3. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slow.h"

#define MOUNT_TYPE "fuse.rankscope-slowfs"

void slow_complain(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "rankscope slowfs: %s\n", line);
}

static int mount_directly(int device, const char *mount_point, const struct stat *root) {
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=%u,group_id=%u", device, root->st_mode & S_IFMT,
             geteuid(), getegid());
    return mount("rankscope-slowfs", mount_point, MOUNT_TYPE, MS_RDONLY | MS_NOSUID | MS_NODEV, options);
}

static int receive_descriptor(int from) {
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) <= 0) return -1;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (!control || control->cmsg_type != SCM_RIGHTS) return -1;
    int descriptor;
    memcpy(&descriptor, CMSG_DATA(control), sizeof descriptor);
    return descriptor;
}

static pid_t start_helper(int channel, const char *mount_point) {
    pid_t child = fork();
    if (child != 0) return child;
    char number[16];
    snprintf(number, sizeof number, "%d", channel);
    setenv("_FUSE_COMMFD", number, 1);
    execlp("fusermount3", "fusermount3", "-o", "ro,nosuid,nodev,fsname=rankscope-slowfs,subtype=rankscope-slowfs", "--",
           mount_point, (char *)NULL);
    _exit(127);
}

/* fusermount3 is set-uid root: it opens the device, mounts, and sends the descriptor back. */
static int mount_by_helper(const char *mount_point) {
    int channel[2], status = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) return -1;
    pid_t child = start_helper(channel[0], mount_point);
    close(channel[0]);
    int device = child < 0 ? -1 : receive_descriptor(channel[1]);
    close(channel[1]);
    if (child > 0) waitpid(child, &status, 0);
    return device;
}

int slow_mount(const char *mount_point, const struct stat *root) {
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    int problem = errno;
    if (device >= 0 && mount_directly(device, mount_point, root) == 0) return device;
    if (device >= 0) {
        problem = errno;
        close(device);
    }
    int helped = mount_by_helper(mount_point);
    if (helped >= 0) return helped;
    slow_complain("%s cannot be mounted: %s (%s), and there is no fusermount3 that does it: install fuse3, or use "
                  "`rankscope slowfs run`, with --method shim as the last resort",
                  mount_point, device < 0 ? "/dev/fuse cannot be opened" : "mount(2) failed", strerror(problem));
    return -1;
}

/* mountinfo writes blanks and the like as octal numbers. */
static void decode(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned code;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
            *to = (char)code;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = 0;
}

/* Whether what is seen at the mount point is ours: somebody may have unmounted it already, and what lies below is not. */
static bool is_mounted(const char *mount_point) {
    char line[8192], place[4096];
    bool ours = false;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && fgets(line, sizeof line, mounts)) {
        if (sscanf(line, "%*s %*s %*s %*s %4095s", place) != 1) continue;
        decode(place);
        if (strcmp(place, mount_point) == 0) ours = strstr(line, " - " MOUNT_TYPE " ") != NULL;
    }
    if (mounts) fclose(mounts);
    return ours;
}

int slow_unmount(const char *mount_point) {
    if (!is_mounted(mount_point)) return -1;
    if (umount2(mount_point, MNT_DETACH) == 0) return 0;
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        execlp("fusermount3", "fusermount3", "-u", "-z", "-q", "--", mount_point, (char *)NULL);
        _exit(127);
    }
    if (child > 0) waitpid(child, &status, 0);
    return status == 0 ? 0 : -1;
}

static int write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t length = (ssize_t)strlen(text), written = write(file, text, (size_t)length);
    close(file);
    return written == length ? 0 : -1;
}

/* In a user namespace of one's own everybody may mount; user and group keep their numbers in it. */
static int enter_user_namespace(void) {
    char users[64], groups[64];
    snprintf(users, sizeof users, "%u %u 1", geteuid(), geteuid());
    snprintf(groups, sizeof groups, "%u %u 1", getegid(), getegid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return -1;
    if (write_file("/proc/self/setgroups", "deny") != 0 && errno != ENOENT) return -1;
    if (write_file("/proc/self/uid_map", users) != 0) return -1;
    return write_file("/proc/self/gid_map", groups);
}

/* A mount in a namespace of one's own is seen by the command alone, and vanishes with its last process. */
int slow_enter_namespace(void) {
    if (unshare(CLONE_NEWNS) != 0 && enter_user_namespace() != 0) {
        slow_complain("no mount namespace of our own (%s): mount with `rankscope slowfs mount`, or use --method shim",
                      strerror(errno));
        return -1;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        slow_complain("the mount namespace cannot be made private: %s", strerror(errno));
        return -1;
    }
    return 0;
}
