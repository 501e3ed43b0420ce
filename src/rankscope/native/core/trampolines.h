/* Wrappers for functions of any signature: C++ functions that return objects by value, structures on the stack.
 *
 * A stub of an exported name loads the address of its entry and jumps to rs_trampoline, which keeps the argument
 * registers, asks `before`, calls the function with the same registers and a copy of what lies on the stack, and tells
 * `after`. An exception passes through it: our personality routine learns of it and lets it go on. */
#ifndef RANKSCOPE_TRAMPOLINES_H
#define RANKSCOPE_TRAMPOLINES_H

#include <stddef.h>
#include <stdint.h>

#define RS_SAVED_REGISTERS 8

/* One call on its way, in the frame of the trampoline. The layer may use `kept` as it likes. */
struct rs_frame {
    uint64_t registers[RS_SAVED_REGISTERS];     /* arguments; x86-64 has six */
    uint64_t object_at;             /* aarch64: where a result is to be built */
    const uint64_t *stack;          /* further arguments, as the caller left them */
    struct rs_entry *entry;
    uint64_t stack_words;           /* of them to be passed on; even */
    void *real;
    uint64_t results[2];
    struct rs_frame *outer;          /* of the same thread, still going on */
    uint64_t watched;               /* 0: jump to the function, there is no `after` */
    uint64_t kept[15];
};

struct rs_entry_layer {
    void (*before)(struct rs_frame *call);               /* sets `watched` */
    void (*after)(struct rs_frame *call, int thrown);
};

#define RS_NO_ARGUMENT 0xFF

/* One exported name. Positions count the arguments from 0, `this` included, the place of a returned object left out. */
struct rs_entry {
    const char *symbol;
    void *real;
    const struct rs_entry_layer *layer;
    uint16_t operation;
    uint16_t stack_words;       /* of structures passed on the stack of x86-64, beside what `arguments` says */
    uint8_t returns_object;     /* through memory of the caller's */
    uint8_t arguments;
    uint8_t count, type, root, group;   /* positions, of which each layer has its own idea */
    uint8_t element_bytes;
    uint8_t reserved[29];
};

#define RS_ENTRY_BYTES 64       /* as the stubs know it */
_Static_assert(sizeof(struct rs_entry) == RS_ENTRY_BYTES, "stubs count in entries");
_Static_assert(offsetof(struct rs_frame, object_at) == 64 && offsetof(struct rs_frame, stack) == 72
                   && offsetof(struct rs_frame, entry) == 80 && offsetof(struct rs_frame, stack_words) == 88
                   && offsetof(struct rs_frame, real) == 96 && offsetof(struct rs_frame, results) == 104
                   && offsetof(struct rs_frame, watched) == 128 && sizeof(struct rs_frame) == 256,
               "trampolines.c has these places in its instructions");

/* The innermost watched call of this thread. */
struct rs_frame *rs_frame_innermost(const struct rs_frame *here);

static inline uint64_t rs_argument(const struct rs_frame *call, unsigned position)
{
#if defined(__x86_64__)
    position += call->entry->returns_object;
    return position < 6 ? call->registers[position] : call->stack[position - 6];
#else
    return position < 8 ? call->registers[position] : call->stack[position - 8];
#endif
}

/* The object that the function has built. */
static inline const uint64_t *rs_object_built(const struct rs_frame *call)
{
#if defined(__x86_64__)
    return (const uint64_t *)call->registers[0];
#else
    return (const uint64_t *)call->object_at;
#endif
}

/* Inside one asm statement: the stubs of a table, in its order. `table` is the name of an array of struct rs_entry. A stub
 * is called rs_stub_X, by which our own code reaches it whatever the program binds X to; RS_EXPORTED_STUB exports X. */
#define RS_STUBS_BEGIN(table)                                                                     \
    ".text\n.set rs_stub_number, 0\n"                                                             \
    ".macro rs_stub symbol\n.hidden rs_stub_\\symbol\n.globl rs_stub_\\symbol\n"                 \
    ".type rs_stub_\\symbol, %function\n.p2align 4\nrs_stub_\\symbol:\n.cfi_startproc\n"          \
    RS_STUB_LOAD(#table)                                                                          \
    ".cfi_endproc\n.size rs_stub_\\symbol, . - rs_stub_\\symbol\n"                                \
    ".set rs_stub_number, rs_stub_number + 1\n.endm\n"                                            \
    ".macro rs_exported_stub symbol\nrs_stub \\symbol\n.globl \\symbol\n.type \\symbol, %function\n" \
    ".set \\symbol, rs_stub_\\symbol\n.endm\n"
#define RS_STUB(symbol) "rs_stub " #symbol "\n"
#define RS_EXPORTED_STUB(symbol) "rs_exported_stub " #symbol "\n"
#define RS_STUBS_END ".purgem rs_exported_stub\n.purgem rs_stub\n"

#if defined(__x86_64__)
#define RS_STUB_LOAD(table) "leaq " table " + 64 * rs_stub_number(%rip), %rax\njmp rs_trampoline\n"
#elif defined(__aarch64__)
#define RS_STUB_LOAD(table)                                                                       \
    "adrp x9, " table " + 64 * rs_stub_number\nadd x9, x9, :lo12:" table " + 64 * rs_stub_number\nb rs_trampoline\n"
#endif

#endif
