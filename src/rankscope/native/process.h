/* The process as such: who it is, how it ends. */
#ifndef RANKSCOPE_PROCESS_H
#define RANKSCOPE_PROCESS_H

#include <stdint.h>

#include "layout.h"

struct rs_process_stat { uint32_t threads; uint64_t start_jiffies; };
struct rs_process_stat rs_process_stat(void);
int rs_is_first_image(void);     /* what `rankscope run` has become */

/* rank_variables.c: rank, local rank and world size from the environment of whatever launched us. */
void rs_rank_from_environment(struct rs_header *identity);

#endif
