/* The process as such: who it is, how it ends. */
#ifndef RANKSCOPE_PROCESS_H
#define RANKSCOPE_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

struct rs_process_stat { uint32_t threads; uint64_t start_jiffies; };
struct rs_process_stat rs_process_stat(void);
int rs_is_first_image(void);     /* what `rankscope run` has become */

/* exec.c */
void rs_exec_prepare(void);
void *rs_next(const char *name);    /* the function of this name that comes after ours */
size_t rs_bare_environment_bytes(char *const *environment);
char **rs_bare_environment(char *const *environment, void *memory);     /* without what is ours */

/* rank_variables.c: rank, local rank and world size from the environment of whatever launched us. */
void rs_rank_from_environment(struct rs_header *identity);

#endif
