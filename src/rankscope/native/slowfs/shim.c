/* Where nothing can be mounted: preloaded, delays and counts the path operations a program makes through libc below
 * one folder. What libc and the dynamic loader ask by themselves does not come through here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slow.h"

/* Declared here and not by their headers: those rename some of them, and mark arguments as never null. */
#define HERE (-100) /* AT_FDCWD */
struct __dirstream;
extern char *getcwd(char *, size_t);
extern ssize_t readlink(const char *restrict, char *restrict, size_t);

static bool ready;
static _Thread_local bool inside;
static char folder[4096];
static size_t folder_length;

static int64_t variable(const char *name) {
    const char *text = getenv(name);
    return text ? atoll(text) : 0;
}

__attribute__((constructor)) static void start(void) {
    const char *wanted = getenv("RANKSCOPE_SLOWFS_FOLDER");
    slow_settings.server_file = getenv("RANKSCOPE_SLOWFS_SERVER");
    slow_settings.latency_ns = variable("RANKSCOPE_SLOWFS_LATENCY_NS");
    slow_settings.operations_per_second = variable("RANKSCOPE_SLOWFS_OPS_PER_SECOND");
    if (!wanted || !slow_settings.server_file || strlen(wanted) >= sizeof folder) return;
    strcpy(folder, wanted);
    folder_length = strlen(folder);
    ready = slow_pace_start() == 0;
}

/* Takes out `.`, `..` and doubled slashes, as far as that can be done without asking the file system. */
static void tidy(char *path) {
    char *to = path;
    for (const char *from = path; *from;) {
        size_t length = strcspn(from + 1, "/") + 1;
        bool up = length == 3 && strncmp(from, "/..", 3) == 0;
        if (up)
            while (to > path && *--to != '/') continue;
        else if (length > 1 && !(length == 2 && from[1] == '.'))
            to = (char *)memmove(to, from, length) + length;
        from += length;
    }
    *to = 0;
}

static bool absolute(int descriptor, const char *path, char *full, size_t capacity) {
    char base[4096] = "";
    if (path[0] != '/' && descriptor == HERE && !getcwd(base, sizeof base)) return false;
    if (path[0] != '/' && descriptor != HERE) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length < 0) return false;
        base[length] = 0;
    }
    int length = snprintf(full, capacity, "%s%s%s", base, *base ? "/" : "", path);
    if (length < 0 || (size_t)length >= capacity) return false;
    tidy(full);
    return true;
}

static bool is_below(int descriptor, const char *path) {
    char full[8192];
    if (!path || !*path || !absolute(descriptor, path, full, sizeof full)) return false;
    return strncmp(full, folder, folder_length) == 0 && (full[folder_length] == '/' || full[folder_length] == 0);
}

static void seen(int descriptor, const char *path, enum slow_operation operation, int64_t begin_ns, bool failed) {
    if (!ready || inside) return;
    int result_errno = errno;
    inside = true;
    if (is_below(descriptor, path)) {
        slow_count(operation, failed && result_errno == ENOENT, 0);
        slow_delay(operation, begin_ns, 0);
    }
    inside = false;
    errno = result_errno;
}

#define EXPORT __attribute__((visibility("default")))
#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
    int64_t begin_ns = ready ? slow_now_ns() : 0

#define CALL(type, name, parameters, arguments, descriptor, path, operation, failed) \
    EXPORT type name parameters { \
        REAL(name); \
        type result = real arguments; \
        seen(descriptor, path, operation, begin_ns, failed); \
        return result; \
    }

#define STAT(name, type) \
    CALL(int, name, (const char *path, struct type *to), (path, to), HERE, path, SLOW_getattr, result != 0)
#define OLD_STAT(name, type) \
    CALL(int, name, (int version, const char *path, struct type *to), (version, path, to), HERE, path, SLOW_getattr, \
         result != 0)
#define OPEN(name) \
    EXPORT int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        int result = real(path, flags, va_arg(rest, unsigned)); \
        va_end(rest); \
        seen(HERE, path, SLOW_open, begin_ns, result < 0); \
        return result; \
    }
#define OPEN_AT(name) \
    EXPORT int name(int at, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        int result = real(at, path, flags, va_arg(rest, unsigned)); \
        va_end(rest); \
        seen(at, path, SLOW_open, begin_ns, result < 0); \
        return result; \
    }

#ifdef __GLIBC__ /* elsewhere there is one name for each */
STAT(stat64, stat64)
STAT(lstat64, stat64)
OLD_STAT(__xstat, stat)
OLD_STAT(__lxstat, stat)
OLD_STAT(__xstat64, stat64)
OLD_STAT(__lxstat64, stat64)
CALL(int, fstatat64, (int at, const char *path, struct stat64 *to, int flags), (at, path, to, flags), at, path,
     SLOW_getattr, result != 0)
CALL(FILE *, fopen64, (const char *path, const char *mode), (path, mode), HERE, path, SLOW_open, !result)
OPEN(open64)
OPEN_AT(openat64)
#endif
STAT(stat, stat)
STAT(lstat, stat)
CALL(int, fstatat, (int at, const char *path, struct stat *to, int flags), (at, path, to, flags), at, path, SLOW_getattr,
     result != 0)
CALL(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *to), (at, path, flags, mask, to), at,
     path, SLOW_getattr, result != 0)
CALL(int, access, (const char *path, int mode), (path, mode), HERE, path, SLOW_access, result != 0)
CALL(int, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags), at, path, SLOW_access,
     result != 0)
CALL(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size), HERE, path, SLOW_readlink,
     result < 0)
CALL(ssize_t, readlinkat, (int at, const char *path, char *to, size_t size), (at, path, to, size), at, path,
     SLOW_readlink, result < 0)
CALL(struct __dirstream *, opendir, (const char *path), (path), HERE, path, SLOW_opendir, !result)
CALL(FILE *, fopen, (const char *path, const char *mode), (path, mode), HERE, path, SLOW_open, !result)
OPEN(open)
OPEN_AT(openat)
