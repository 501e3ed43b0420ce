/* The objects that are loaded into this process, looked into without the dynamic loader's help: an IFUNC resolver may not
 * call dlsym, and what was opened RTLD_LOCAL is found by no search of names. */
#ifndef RANKSCOPE_LOADED_OBJECTS_H
#define RANKSCOPE_LOADED_OBJECTS_H

#include <link.h>
#include <stddef.h>
#include <stdint.h>

struct rs_object {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu, *sysv;
    const ElfW(Rela) *calls;    /* of functions through its linkage table */
    size_t calls_count;
};

/* Where a name was found. */
struct rs_definition {
    void *address;              /* NULL: nowhere */
    ElfW(Addr) begin, end;      /* of the object that has it */
    char path[256];             /* of that; empty: the program itself */
};

/* In the order of loading, our own object left out. */
struct rs_definition rs_find_definition(const char *symbol);
static inline void *rs_find_symbol(const char *symbol) { return rs_find_definition(symbol).address; }
static inline int rs_elf_defines(const char *symbol) { return rs_find_definition(symbol).address != NULL; }

/* An exported name that must not be there where no loaded object has it: see mpi_exports.c. They lie together in the
 * section rs_optional. */
struct rs_optional { void *wrapper; void *(*choose)(void); };

struct rs_object rs_object_read(const struct dl_phdr_info *info);
int rs_object_defines(const struct rs_object *object, const char *symbol);
typedef void rs_symbol_visitor(const char *name, const ElfW(Sym) *symbol, void *data);
void rs_object_each_defined(const struct rs_object *object, rs_symbol_visitor *visit, void *data);
void rs_object_each_needed(const struct rs_object *object, void (*visit)(const char *name));
void rs_object_extent(const struct dl_phdr_info *info, ElfW(Addr) *begin, ElfW(Addr) *end);

/* Where the object that defines a function keeps its address for its own calls of it; NULL: it calls it directly. */
void **rs_find_own_calls(const char *symbol, struct rs_definition *definition);

#endif
