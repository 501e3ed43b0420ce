/* XLA inside jaxlib: one library that exports nothing of it, but has its symbol table. */
#ifndef RANKSCOPE_XLA_H
#define RANKSCOPE_XLA_H

#include <link.h>

#include "recorder.h"

/* A symbol that is looked for by the beginning of its mangled name: what follows are the types of its arguments. */
struct rs_symbol {
    const char *prefix;
    char name[256];             /* the whole of it, or its first letters; "": there is none */
    uint64_t value, size;       /* as in the file: to be moved by where the library lies */
};

/* The library as it is loaded. */
struct rs_xla_library {
    char path[4096];
    uintptr_t base;
    ElfW(Addr) begin, end;
    const ElfW(Phdr) *segments;
    unsigned segments_count;
    const unsigned char *note;          /* with the build id: its bytes in memory, and where they lie in the file */
    uint64_t note_offset, note_size;    /* 0: it has none */
};

/* xla_symbols.c: how many of them were found, in the library's file or in what was written of it. */
unsigned rs_symbols_find(const struct rs_xla_library *library, struct rs_symbol *wanted, unsigned count);
unsigned rs_symbols_read(const char *text, struct rs_symbol *symbols, unsigned count);
size_t rs_symbols_write(const struct rs_symbol *symbols, unsigned count, char *text, size_t size);

/* xla_programs.c: compiled programs, how often each is started, and where a step ends. */
struct rs_xla_program;
struct rs_xla_program *rs_xla_program_of(uint64_t executable);      /* NULL: not seen before */
struct rs_xla_program *rs_xla_program_named(uint64_t executable, const char *name, size_t length);
int rs_xla_program_begins(struct rs_xla_program *program, uint64_t now);        /* whether it is the step */
void rs_xla_program_started(struct rs_xla_program *program, int is_step, uint64_t begin, uint64_t end);
void rs_xla_program_deleted(uint64_t executable);
void rs_xla_programs_forget(void);

/* xla_cliques.c: communicators of XLA and the groups that they are for us. */
#define RS_CLIQUE_OTHER_DEVICE UINT32_MAX   /* of a process that takes part with another device already */
void rs_clique_created(const char *devices, const uint64_t *ranks, const uint64_t *communicators, uint32_t count);
uint32_t rs_clique_of(uint64_t communicator);
void rs_cliques_forget(void);

#endif
