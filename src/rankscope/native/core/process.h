/* The process as such: who it is, how it ends. */
#ifndef RANKSCOPE_PROCESS_H
#define RANKSCOPE_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include "layout.h"

/* identity.c */
struct rs_process_stat { uint32_t threads; uint64_t start_jiffies; };
struct rs_process_stat rs_process_stat(void);
void rs_read_host(char *host, size_t size);
uint64_t rs_boot_id(void);
uint64_t rs_pid_namespace(void);
void rs_identify(struct rs_header *identity);

/* recording.c */
int rs_is_first_image(void);     /* what `rankscope run` has become */
void rs_recording_load(const char *folder);
void rs_recording_fork(int inside);                     /* in the child; inside: its stack may be in the parent's pages */
void rs_recording_end(int status, int may_block);       /* of a process that has told nothing yet */
void rs_child_ended(pid_t pid, int signal, int again);  /* 0: by itself; again: it can still be waited for */

/* exec.c */
void rs_exec_prepare(void);
void *rs_next(const char *name);    /* the function of this name that comes after ours */
size_t rs_bare_environment_bytes(char *const *environment);
char **rs_bare_environment(char *const *environment, void *memory);     /* without what is ours */

/* rank_variables.c: rank, local rank and world size from the environment of whatever launched us. */
void rs_rank_from_environment(struct rs_header *identity);

/* A system call without libc, whose functions lie on pages that a forked child has not touched yet. */
static inline long rs_direct(long number, long a, long b)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, a, b);
#endif
}

#endif
