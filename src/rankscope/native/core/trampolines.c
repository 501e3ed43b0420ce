/* What all stubs jump to. Its unwind information is complete at every call, so that exceptions and backtraces pass. */
#include "trampolines.h"
#include "loaded_objects.h"
#include "recorder.h"

#define CLEANUP_PHASE 2     /* _UA_CLEANUP_PHASE, _URC_CONTINUE_UNWIND: of the C++ ABI */
#define CONTINUE_UNWIND 8

static __thread struct rs_frame *innermost __attribute__((tls_model("initial-exec")));

#define HIDDEN __attribute__((visibility("hidden"), used))

/* One that was left by longjmp lies below where the stack is now. */
struct rs_frame *rs_frame_innermost(const struct rs_frame *here)
{
    while (innermost && innermost < here)
        innermost = innermost->outer;
    return innermost;
}

static uint64_t words_on_stack(const struct rs_entry *entry)
{
#if defined(__x86_64__)
    unsigned registers = 6, words = (unsigned)entry->arguments + entry->returns_object;
    words = (words > registers ? words - registers : 0) + entry->stack_words;
#else
    unsigned registers = 8, words = entry->arguments;
    words = words > registers ? words - registers : 0;
#endif
    return (words + 1) & ~1u;
}

HIDDEN void rs_trampoline_before(struct rs_frame *call)
{
    struct rs_entry *entry = call->entry;
    void *real = __atomic_load_n(&entry->real, __ATOMIC_ACQUIRE);
    if (RS_UNLIKELY(!real)) {
        real = rs_find_symbol(entry->symbol);
        __atomic_store_n(&entry->real, real, __ATOMIC_RELEASE);
    }
    call->real = real;
    call->watched = 0;
    if (RS_UNLIKELY(!rs_recording()))
        return;
    call->outer = rs_frame_innermost(call);
    entry->layer->before(call);
    if (!call->watched)
        return;
    call->stack_words = words_on_stack(entry);
    innermost = call;
}

HIDDEN void rs_trampoline_after(struct rs_frame *call)
{
    innermost = call->outer;
    call->entry->layer->after(call, 0);
}

/* Of our frames only: the innermost call is the one that the exception leaves. */
HIDDEN int rs_trampoline_personality(int version, int actions, uint64_t kind, void *exception, void *context)
{
    (void)version, (void)kind, (void)exception, (void)context;
    struct rs_frame *call = innermost;
    if (actions & CLEANUP_PHASE && call) {
        innermost = call->outer;
        call->entry->layer->after(call, 1);
    }
    return CONTINUE_UNWIND;
}

/* The frame: struct rs_frame at the stack pointer, below it the copy of the arguments on the stack. 0x1b: places in
 * .eh_frame are distances of 32 bits. */
#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.hidden rs_trampoline\n.globl rs_trampoline\n.type rs_trampoline, @function\nrs_trampoline:\n"
    ".cfi_startproc\n.cfi_personality 0x1b, rs_trampoline_personality\n"
    "pushq %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\n"
    "movq %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"
    "subq $256, %rsp\n"
    "movq %rdi, 0(%rsp)\nmovq %rsi, 8(%rsp)\nmovq %rdx, 16(%rsp)\n"
    "movq %rcx, 24(%rsp)\nmovq %r8, 32(%rsp)\nmovq %r9, 40(%rsp)\n"
    "movq %rax, 80(%rsp)\n"
    "leaq 16(%rbp), %rax\nmovq %rax, 72(%rsp)\n"
    "movq %rsp, %rdi\ncall rs_trampoline_before\n"
    "cmpq $0, 128(%rsp)\njne 1f\n"
    "movq 0(%rsp), %rdi\nmovq 8(%rsp), %rsi\nmovq 16(%rsp), %rdx\n"
    "movq 24(%rsp), %rcx\nmovq 32(%rsp), %r8\nmovq 40(%rsp), %r9\nmovq 96(%rsp), %rax\n"
    ".cfi_remember_state\nleave\n.cfi_def_cfa %rsp, 8\n.cfi_restore %rbp\njmp *%rax\n.cfi_restore_state\n"
    "1:\nmovq 88(%rsp), %rcx\nmovq 72(%rsp), %rsi\n"
    "leaq (,%rcx,8), %rax\nsubq %rax, %rsp\nmovq %rsp, %rdi\ncld\nrep movsq\n"
    "movq -256(%rbp), %rdi\nmovq -248(%rbp), %rsi\nmovq -240(%rbp), %rdx\n"
    "movq -232(%rbp), %rcx\nmovq -224(%rbp), %r8\nmovq -216(%rbp), %r9\n"
    "call *-160(%rbp)\n"
    "leaq -256(%rbp), %rsp\nmovq %rax, 104(%rsp)\nmovq %rdx, 112(%rsp)\n"
    "movq %rsp, %rdi\ncall rs_trampoline_after\n"
    "movq 104(%rsp), %rax\nmovq 112(%rsp), %rdx\n"
    "leave\n.cfi_def_cfa %rsp, 8\n.cfi_restore %rbp\nret\n"
    ".cfi_endproc\n.size rs_trampoline, . - rs_trampoline\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.p2align 4\n.hidden rs_trampoline\n.globl rs_trampoline\n.type rs_trampoline, %function\nrs_trampoline:\n"
    ".cfi_startproc\n.cfi_personality 0x1b, rs_trampoline_personality\n"
    "stp x29, x30, [sp, #-16]!\n.cfi_def_cfa_offset 16\n.cfi_offset 29, -16\n.cfi_offset 30, -8\n"
    "mov x29, sp\n.cfi_def_cfa_register 29\n"
    "sub sp, sp, #256\n"
    "stp x0, x1, [sp, #0]\nstp x2, x3, [sp, #16]\nstp x4, x5, [sp, #32]\nstp x6, x7, [sp, #48]\n"
    "add x10, x29, #16\nstp x8, x10, [sp, #64]\nstr x9, [sp, #80]\n"
    "mov x0, sp\nbl rs_trampoline_before\n"
    "ldr x9, [sp, #128]\ncbnz x9, 1f\n"
    "ldp x0, x1, [sp, #0]\nldp x2, x3, [sp, #16]\nldp x4, x5, [sp, #32]\nldp x6, x7, [sp, #48]\n"
    "ldr x8, [sp, #64]\nldr x16, [sp, #96]\n"
    ".cfi_remember_state\nmov sp, x29\nldp x29, x30, [sp], #16\n"
    ".cfi_def_cfa 31, 0\n.cfi_restore 29\n.cfi_restore 30\nbr x16\n.cfi_restore_state\n"
    "1:\nldr x9, [sp, #88]\nldr x10, [sp, #72]\nsub x11, sp, x9, lsl #3\nmov sp, x11\n"
    "2:\ncbz x9, 3f\nldp x12, x13, [x10], #16\nstp x12, x13, [x11], #16\nsub x9, x9, #2\nb 2b\n"
    "3:\nsub x9, x29, #256\n"
    "ldp x0, x1, [x9, #0]\nldp x2, x3, [x9, #16]\nldp x4, x5, [x9, #32]\nldp x6, x7, [x9, #48]\n"
    "ldr x8, [x9, #64]\nldr x16, [x9, #96]\nblr x16\n"
    "sub x9, x29, #256\nmov sp, x9\nstp x0, x1, [sp, #104]\n"
    "mov x0, sp\nbl rs_trampoline_after\n"
    "ldp x0, x1, [sp, #104]\n"
    "mov sp, x29\nldp x29, x30, [sp], #16\n.cfi_def_cfa 31, 0\n.cfi_restore 29\n.cfi_restore 30\nret\n"
    ".cfi_endproc\n.size rs_trampoline, . - rs_trampoline\n");
#endif
