/* Pointers in memory that the dynamic loader has made read-only: tables of virtual functions of loaded libraries, and of
 * functions that they call. */
#ifndef RANKSCOPE_TABLE_SLOTS_H
#define RANKSCOPE_TABLE_SLOTS_H

#include <stdint.h>

/* The mapping that was looked up last: tables lie side by side. Zero at first. */
struct rs_mapping { uintptr_t begin, end; int protection; };

/* Puts `value` where `expected` is, whatever other threads do meanwhile. 0: it is not there, or its memory is not of a
 * kind that may be written to, and nothing has changed. */
int rs_slot_replace(struct rs_mapping *mapping, void **place, void *expected, void *value);

/* Calls that a library makes of a function of its own go to `ours` from now on, which may call *original. 0: nothing has
 * changed, because the library calls it directly, or somebody else has done the same before. */
int rankscope_own_calls(const char *symbol, void *ours, void **original);

#endif
