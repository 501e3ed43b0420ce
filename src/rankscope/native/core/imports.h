/* Imports of Python modules: who, when, how long. */
#ifndef RANKSCOPE_IMPORTS_H
#define RANKSCOPE_IMPORTS_H

#include <stdint.h>

uint32_t rs_imports_mode(void);     /* enum rs_imports_mode, from RANKSCOPE_IMPORTS */
uint64_t rs_imports_bytes(void);    /* how much more a rank file may grow for it */

/* A number that the end is told by, 0 where none is kept. Numbers, not addresses: what an import's frame holds may
 * outlive its thread, its greenlet or (in the child of a fork) its rank file. */
uint64_t rs_import_begin(const char *name);
void rs_import_end(uint64_t number, int failed);

/* What the system calls of this thread are put down to. */
struct rs_import_place { uint32_t module, forks; uint8_t cause; };
struct rs_import_place rs_import_here(void);
void rs_import_cause(uint8_t cause);                        /* of what follows in this import */
void rs_import_back_to(const struct rs_import_place *place);    /* greenlets may have been elsewhere meanwhile */

void rs_imports_thread_ended(void); /* inside an import, perhaps */
void rs_imports_forget(void);       /* in the child of a fork, perhaps inside an import too */

#endif
