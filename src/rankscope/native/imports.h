/* Imports of Python modules: who, when, how long. */
#ifndef RANKSCOPE_IMPORTS_H
#define RANKSCOPE_IMPORTS_H

#include <stdint.h>

struct rs_import {
    struct rs_module *row;          /* NULL: it has none */
    struct rs_import *outer;        /* what the same thread was importing before */
    uint32_t id, outer_module, objects;
    uint8_t outer_cause;
    uint64_t begin_ticks, begin_cpu_ns;
    uint64_t inner_ticks, inner_cpu_ns, inner_objects;  /* of the imports inside */
};

uint32_t rs_imports_mode(void);     /* enum rs_imports_mode, from RANKSCOPE_IMPORTS */
void rs_import_begin(struct rs_import *import, const char *name);
void rs_import_end(struct rs_import *import, int failed);
uint8_t rs_import_cause(uint8_t cause);     /* of what follows; the cause of what came before */
void rs_imports_forget(void);

#endif
