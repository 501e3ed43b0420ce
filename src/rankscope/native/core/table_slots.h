/* Pointers in memory that the dynamic loader has made read-only: tables of virtual functions of loaded libraries. */
#ifndef RANKSCOPE_TABLE_SLOTS_H
#define RANKSCOPE_TABLE_SLOTS_H

#include <stdint.h>

/* The mapping that was looked up last: tables lie side by side. Zero at first. */
struct rs_mapping { uintptr_t begin, end; int protection; };

/* Puts `value` where `expected` is, whatever other threads do meanwhile. 0: it is not there, or its memory is not of a
 * kind that may be written to, and nothing has changed. */
int rs_slot_replace(struct rs_mapping *mapping, void **place, void *expected, void *value);

#endif
