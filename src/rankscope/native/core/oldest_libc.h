/* Put before every source by hatch_build.py: what the preloaded libraries may ask of the libc that they find themselves in.
 *
 * A process may have an older glibc than the one compiled against (a container, a program with a loader of its own), or
 * musl. A strong reference that cannot be bound, or a version that is not there, ends the program before it begins. So
 * functions that came with newer glibcs are asked for in their oldest version, and what is in no libc everywhere, or in
 * libpthread and libdl before 2.34, is weak: process.c looks whether all of it is there, and without it the
 * recorder does nothing. Neither of these libraries is needed by ours: where a program has no use for them, loading them
 * would cost it more than we could tell about it. */
#ifndef RANKSCOPE_OLDEST_LIBC_H
#define RANKSCOPE_OLDEST_LIBC_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <features.h>

/* From 2.38 on strtol and its kin are functions of another name, for binary numbers that we do not read. */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

extern long syscall(long number, ...);

/* stat and its kin became functions of libc with 2.33; before, others were called in their place. */
static inline int rs_stat(const char *path, struct stat *status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

static inline int rs_fstat(int file, struct stat *status)
{
    return (int)syscall(SYS_newfstatat, file, "", status, AT_EMPTY_PATH);
}

#if defined(RS_PRELOADED)

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

/* What pthread_atfork of libc_nonshared.a calls, with a strong reference. */
extern int __register_atfork(void (*before)(void), void (*parent)(void), void (*child)(void), void *library);

#pragma weak __register_atfork
#pragma weak dladdr
#pragma weak dlclose
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlerror
#pragma weak gnu_get_libc_version
#pragma weak on_exit
#pragma weak pthread_condattr_setclock
#pragma weak pthread_create
#pragma weak pthread_getcpuclockid
#pragma weak pthread_getspecific
#pragma weak pthread_key_create
#pragma weak pthread_mutex_timedlock
#pragma weak pthread_once
#pragma weak pthread_setspecific
#pragma weak pthread_sigmask

#if defined(__x86_64__)
#define RS_FIRST_GLIBC "GLIBC_2.2.5"
#define RS_CONDATTR_GLIBC "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define RS_FIRST_GLIBC "GLIBC_2.17"
#define RS_CONDATTR_GLIBC RS_FIRST_GLIBC
#endif

/* The minor number of the newest glibc of which something is asked; the build looks whether that holds. */
#if defined(RS_FIRST_GLIBC)
#define RS_ASKED_GLIBC 17
#else
#define RS_ASKED_GLIBC __GLIBC_MINOR__
#endif

#if defined(RS_FIRST_GLIBC) && defined(__GLIBC__)
#define RS_OLDEST(name, version) __asm__(".symver " #name ", " #name "@" version);
#if __GLIBC_PREREQ(2, 32)
RS_OLDEST(pthread_sigmask, RS_FIRST_GLIBC)
#endif
#if __GLIBC_PREREQ(2, 34)   /* they moved to libc.so.6 */
RS_OLDEST(dladdr, RS_FIRST_GLIBC)
RS_OLDEST(dlclose, RS_FIRST_GLIBC)
RS_OLDEST(dlopen, RS_FIRST_GLIBC)
RS_OLDEST(dlsym, RS_FIRST_GLIBC)
RS_OLDEST(dlerror, RS_FIRST_GLIBC)
RS_OLDEST(pthread_condattr_setclock, RS_CONDATTR_GLIBC)
RS_OLDEST(pthread_create, RS_FIRST_GLIBC)
RS_OLDEST(pthread_getcpuclockid, RS_FIRST_GLIBC)
RS_OLDEST(pthread_getspecific, RS_FIRST_GLIBC)
RS_OLDEST(pthread_key_create, RS_FIRST_GLIBC)
RS_OLDEST(pthread_mutex_timedlock, RS_FIRST_GLIBC)
RS_OLDEST(pthread_once, RS_FIRST_GLIBC)
RS_OLDEST(pthread_setspecific, RS_FIRST_GLIBC)
#endif
#endif

#endif
#endif
