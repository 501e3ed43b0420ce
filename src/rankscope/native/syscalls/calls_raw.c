/* The only code from which system calls are never trapped: the range that the kernel is told to leave alone. A thread
 * may be cancelled here, and the stack is then unwound through it. */
#define _GNU_SOURCE
#include <ucontext.h>

#include "calls_layer.h"

#if defined(__x86_64__)

_Static_assert(offsetof(struct rs_calls_thread, selector) == 0, "known to the assembly below");
_Static_assert(offsetof(struct rs_calls_thread, armed) == 1, "known to the assembly below");
_Static_assert(offsetof(struct rs_calls_thread, own) == 4, "known to the assembly below");
_Static_assert(offsetof(struct rs_calls_thread, return_to) == 16, "known to the assembly below");
_Static_assert(offsetof(struct rs_calls_thread, spill) == 24, "known to the assembly below");
_Static_assert(offsetof(struct rs_calls_thread, called_from) == 72, "known to the assembly below");
_Static_assert(offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]) == 168, "known to the assembly below");

/* rcx and r11 are free after each system call: the kernel has overwritten them. */
__asm__(
    ".pushsection .text.rs_raw,\"ax\",@progbits\n"
    ".globl rs_raw_begin\n.hidden rs_raw_begin\n"
    ".globl rs_raw_end\n.hidden rs_raw_end\n"
    ".globl rankscope_raw\n.type rankscope_raw,@function\n"
    ".globl rs_raw_restorer\n.hidden rs_raw_restorer\n"
    ".globl rs_raw_vfork\n.hidden rs_raw_vfork\n"
    ".globl rs_raw_clone\n.hidden rs_raw_clone\n"
    ".globl rs_raw_call\n.hidden rs_raw_call\n.type rs_raw_call,@function\n"
    ".globl rs_raw_made\n.hidden rs_raw_made\n"
    ".globl rs_raw_told\n.hidden rs_raw_told\n"
    ".globl rs_raw_entry\n.hidden rs_raw_entry\n.type rs_raw_entry,@function\n"
    ".globl rs_raw_entered\n.hidden rs_raw_entered\n"
    "rs_raw_begin:\n"

    /* number, six arguments */
    "rankscope_raw:\n"
    " .cfi_startproc\n"
    " mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n mov %rcx,%rdx\n mov %r8,%r10\n mov %r9,%r8\n mov 8(%rsp),%r9\n"
    " syscall\n"
    " ret\n"
    " .cfi_endproc\n"

    /* The same, after which called_from is 0: whoever interrupts it can tell by both whether the call was made. */
    "rs_raw_call:\n"
    " .cfi_startproc\n"
    " mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n mov %rcx,%rdx\n mov %r8,%r10\n mov %r9,%r8\n mov 8(%rsp),%r9\n"
    " syscall\n"
    "rs_raw_made:\n"
    " mov rankscope_calls_thread@gottpoff(%rip),%rcx\n"
    " movq $0,%fs:72(%rcx)\n"
    "rs_raw_told:\n"
    " ret\n"
    " .cfi_endproc\n"

    /* The handler: as its fourth argument the C part gets what called_from was before. */
    "rs_raw_entry:\n"
    " .cfi_startproc\n"
    " mov rankscope_calls_thread@gottpoff(%rip),%rax\n"
    " mov %fs:72(%rax),%rcx\n"
    " mov 168(%rdx),%r8\n"
    " mov %r8,%fs:72(%rax)\n"
    "rs_raw_entered:\n"
    " jmp rs_dispatch_entered\n"
    " .cfi_endproc\n"

    /* Entered with the stack as a handler's return finds it. Unwinders know it by these very bytes, and look for
     * unwind information one byte before it, where there is none. */
    " nop\n"
    "rs_raw_restorer:\n"
    " .byte 0x48,0xc7,0xc0,0x0f,0x00,0x00,0x00\n"     /* mov $15,%rax */
    " syscall\n"
    " ud2\n"

    /* Entered in the program's own state: a child of vfork goes on in its parent's stack, so nothing of ours may lie
     * there. rax is the call's number. The child is armed, too; its parent stands still until it has gone. */
    "rs_raw_vfork:\n"
    " syscall\n"
    " mov rankscope_calls_thread@gottpoff(%rip),%rcx\n"
    " add %fs:0,%rcx\n"
    " test %rax,%rax\n"
    " jne 1f\n"
    " cmpb $0,1(%rcx)\n"
    " je 1f\n"
    " mov %rdi,24(%rcx)\n mov %rsi,32(%rcx)\n mov %rdx,40(%rcx)\n mov %r10,48(%rcx)\n mov %r8,56(%rcx)\n"
    " mov $59,%edi\n mov $1,%esi\n lea rs_raw_begin(%rip),%rdx\n mov $(rs_raw_end-rs_raw_begin),%r10d\n mov %rcx,%r8\n"
    " mov $157,%eax\n"
    " syscall\n"
    " mov rankscope_calls_thread@gottpoff(%rip),%rcx\n"
    " add %fs:0,%rcx\n"
    " mov 24(%rcx),%rdi\n mov 32(%rcx),%rsi\n mov 40(%rcx),%rdx\n mov 48(%rcx),%r10\n mov 56(%rcx),%r8\n"
    " xor %eax,%eax\n"
    "1: jmp *16(%rcx)\n"

    /* As rankscope_raw for the parent. The child has a stack of its own, on which lie, from its top: how to arm
     * it, the six registers that a call preserves and we do not, rdi, rsi, where to go. */
    "rs_raw_clone:\n"
    " .cfi_startproc\n"
    " mov %rdi,%rax\n mov %rsi,%rdi\n mov %rdx,%rsi\n mov %rcx,%rdx\n mov %r8,%r10\n mov %r9,%r8\n mov 8(%rsp),%r9\n"
    " syscall\n"
    " test %rax,%rax\n"
    " je 2f\n"
    " ret\n"
    " .cfi_endproc\n"
    "2: pop %rcx\n"
    " test %rcx,%rcx\n"
    " je 3f\n"
    " cmp $2,%rcx\n"
    " mov rankscope_calls_thread@gottpoff(%rip),%rcx\n"
    " je 4f\n"
    " add %fs:0,%rcx\n"
    " movb $1,(%rcx)\n"
    " movb $1,1(%rcx)\n"
    " push %rdx\n push %r10\n push %r8\n"
    " mov $59,%edi\n mov $1,%esi\n lea rs_raw_begin(%rip),%rdx\n mov $(rs_raw_end-rs_raw_begin),%r10d\n mov %rcx,%r8\n"
    " mov $157,%eax\n"
    " syscall\n"
    " pop %r8\n pop %r10\n pop %rdx\n"
    " xor %eax,%eax\n"
    "3: pop %rbx\n pop %rbp\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n pop %rdi\n pop %rsi\n pop %rcx\n"
    " jmp *%rcx\n"
    "4: movl $1,%fs:4(%rcx)\n"     /* own: for ever */
    " xor %eax,%eax\n"
    " jmp 3b\n"
    "rs_raw_end:\n"
    ".popsection\n");

#else

#include <errno.h>
#include <unistd.h>

char rs_raw_begin[1], rs_raw_end[1];

__attribute__((visibility("default"))) long rankscope_raw(long number, long a, long b, long c, long d, long e, long f)
{
    int saved = errno;
    long result = syscall(number, a, b, c, d, e, f);
    result = result == -1 ? -errno : result;
    errno = saved;
    return result;
}

#endif
