/* A library of its own, preloaded behind the recorder where system calls are counted: the functions of libc that make
 * most of them. They make the call without the trap and count it. The others are trapped, where that is possible.
 *
 * What may wait and be cancelled is left to libc's own function, with the trap off meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls_layer.h"
#include "clock.h"

#define EXPORT __attribute__((visibility("default")))
#define LIKELY_FAILED(result) ((result) < 0 && (result) > -4096)

/* As on x86-64: what the file counts by. */
enum { READ = 0, CLOSE = 3, FSTAT = 5, LSEEK = 8, IOCTL = 16, ACCESS = 21, READLINK = 89, OPENAT = 257, NEWFSTATAT = 262 };

EXPORT char rankscope_calls_wrappers;   /* says that this library is here */

static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_read)(int, void *, size_t);
static int (*real_close)(int);
static int fstat_is_a_call;     /* of its own: glibc 2.39 and later */

__attribute__((constructor)) static void find_real(void)
{
    if (!gnu_get_libc_version || !dlsym)    /* musl, or a glibc before 2.34 without libdl: nothing is recorded */
        return;
    const char *version = gnu_get_libc_version();
    char *rest;
    long major = strtol(version, &rest, 10), minor = *rest == '.' ? strtol(rest + 1, NULL, 10) : 0;
    fstat_is_a_call = major > 2 || minor >= 39;
    real_openat = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    real_close = (int (*)(int))dlsym(RTLD_NEXT, "close");
    real_read = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
}

static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return rs_clock_ns(CLOCK_MONOTONIC);
#endif
}

static void count(struct rs_calls_thread *self, long number, long a, long b, long c, long d, long result, uint64_t begin)
{
    struct rs_call call = {.number = number, .arguments = {a, b, c, d}, .result = result, .ticks = ticks() - begin};
    rankscope_calls_add(self, &call);
    if (self->armed && !self->own)
        self->selector = 1;     /* also where a longjmp has left it off */
}

static long made(long number, long there, long a, long b, long c, long d)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    uint64_t begin = ticks();
    long result = rankscope_raw(there, a, b, c, d, 0, 0);
    if (rankscope_calls_counting)
        count(self, number, a, b, c, d, result, begin);
    if (LIKELY_FAILED(result)) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

/* --- never wait --- */

#define STATUS(name, type, flags)                                                                                      \
    EXPORT int name(const char *path, struct type *status)                                                             \
    {                                                                                                                  \
        return (int)made(NEWFSTATAT, SYS_newfstatat, AT_FDCWD, (long)path, (long)status, flags);                       \
    }
STATUS(stat, stat, 0)
STATUS(stat64, stat64, 0)
STATUS(lstat, stat, AT_SYMLINK_NOFOLLOW)
STATUS(lstat64, stat64, AT_SYMLINK_NOFOLLOW)

#define STATUS_OF_DESCRIPTOR(name, type)                                                                               \
    EXPORT int name(int descriptor, struct type *status)                                                               \
    {                                                                                                                  \
        if (fstat_is_a_call)                                                                                           \
            return (int)made(FSTAT, SYS_fstat, descriptor, (long)status, 0, 0);                                        \
        return (int)made(NEWFSTATAT, SYS_newfstatat, descriptor, (long)"", (long)status, AT_EMPTY_PATH);               \
    }
STATUS_OF_DESCRIPTOR(fstat, stat)
STATUS_OF_DESCRIPTOR(fstat64, stat64)

EXPORT int fstatat(int folder, const char *path, struct stat *status, int flags)
{
    return (int)made(NEWFSTATAT, SYS_newfstatat, folder, (long)path, (long)status, flags);
}

EXPORT int fstatat64(int folder, const char *path, struct stat64 *status, int flags)
{
    return (int)made(NEWFSTATAT, SYS_newfstatat, folder, (long)path, (long)status, flags);
}

EXPORT off_t lseek(int descriptor, off_t offset, int whence)
{
    return made(LSEEK, SYS_lseek, descriptor, offset, whence, 0);
}

EXPORT off64_t lseek64(int descriptor, off64_t offset, int whence)
{
    return made(LSEEK, SYS_lseek, descriptor, offset, whence, 0);
}

EXPORT int isatty(int descriptor)
{
    char settings[256];
    return made(IOCTL, SYS_ioctl, descriptor, TCGETS, (long)settings, 0) == 0;
}

#if defined(__x86_64__)
EXPORT ssize_t readlink(const char *path, char *buffer, size_t size)
{
    return made(READLINK, SYS_readlink, (long)path, (long)buffer, (long)size, 0);
}

EXPORT int access(const char *path, int mode) { return (int)made(ACCESS, SYS_access, (long)path, mode, 0, 0); }
#endif

/* --- may wait --- */

EXPORT ssize_t read(int descriptor, void *buffer, size_t size)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (!real_read || !rankscope_calls_counting)
        return real_read ? real_read(descriptor, buffer, size) : made(READ, SYS_read, descriptor, (long)buffer, (long)size, 0);
    uint64_t begin = ticks();
    self->selector = 0;
    ssize_t got = real_read(descriptor, buffer, size);
    int saved = errno;
    count(self, READ, descriptor, 0, 0, 0, got < 0 ? -saved : got, begin);
    errno = saved;
    return got;
}

EXPORT int close(int descriptor)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (!real_close || !rankscope_calls_counting)
        return real_close ? real_close(descriptor) : (int)made(CLOSE, SYS_close, descriptor, 0, 0, 0);
    uint64_t begin = ticks();
    self->selector = 0;
    int failed = real_close(descriptor), saved = errno;
    count(self, CLOSE, descriptor, 0, 0, 0, failed ? -saved : 0, begin);
    errno = saved;
    return failed;
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    if (!real_openat)
        return (int)made(OPENAT, SYS_openat, folder, (long)path, flags, mode);
    if (!rankscope_calls_counting)
        return real_openat(folder, path, flags, mode);
    uint64_t begin = ticks();
    self->selector = 0;
    int opened = real_openat(folder, path, flags, mode), saved = errno;
    count(self, OPENAT, folder, (long)path, flags, 0, opened < 0 ? -saved : opened, begin);
    errno = saved;
    return opened;
}

#define MODE(mode)                                                                                                     \
    mode_t mode = 0;                                                                                                   \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                                         \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

EXPORT int open(const char *path, int flags, ...)
{
    MODE(mode)
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    MODE(mode)
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    MODE(mode)
    return open_at(folder, path, flags, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    MODE(mode)
    return open_at(folder, path, flags, mode);
}
