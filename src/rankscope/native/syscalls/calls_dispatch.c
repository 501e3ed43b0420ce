/* System call user dispatch (Linux 5.11): the kernel sends SIGSYS in place of each call, the handler makes the call
 * itself and counts it. No ptrace, no root, the dynamic loader's own calls included.
 *
 * The handler makes the call with the thread's own signal mask, so that waiting calls are interrupted as without us;
 * handlers of the program may run inside it, leave by longjmp, and make calls of their own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "calls_layer.h"
#include "recorder.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

#if defined(__x86_64__)

#define USER_DISPATCH 2                 /* si_code */
#define X86_64 0xC000003Eu              /* si_arch */
#define SA_RESTORER_FLAG 0x04000000

struct code { uintptr_t begin, end; };
static struct code loader, ours;

/* The executable part of what is loaded at `base`. */
static struct code code_of(uintptr_t base)
{
    struct code code = {0, 0};
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)base;
    if (!base)
        return code;
    const ElfW(Phdr) *part = (const ElfW(Phdr) *)(base + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        if (part[i].p_type == PT_LOAD && part[i].p_flags & PF_X)
            code = (struct code){base + part[i].p_vaddr, base + part[i].p_vaddr + part[i].p_memsz};
    return code;
}

int rs_dispatch_is_ours(uintptr_t address) { return address >= ours.begin && address < ours.end; }

static volatile int filtered;   /* by the program: a call of ours may be its end */

void rs_dispatch_disarm_here(void)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    self->selector = self->armed = 0;
    if (!filtered)
        rankscope_raw(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0);
}

void rs_dispatch_filtered(void)
{
    rs_dispatch_disarm_here();
    filtered = 1;
}

/* Once more, untrapped: what we do not know how to make. The next wrapped function traps again. */
static void let_go(struct rs_calls_thread *self, greg_t *registers)
{
    self->selector = 0;
    registers[REG_RIP] -= 2;
}

static void make_call(struct rs_calls_thread *self, void *context, struct rs_call *call)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long *a = call->arguments;
    if (rs_spawn_call(self, context, call))
        return;
    uint64_t begin = rs_ticks();
    if (!rs_signal_call(self, context, call, &call->result))
        call->result = rs_raw_call(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    call->ticks = rs_ticks() - begin;
    registers[REG_RAX] = call->result;
    rankscope_calls_add(self, call);
}

static void on_dispatch(struct rs_calls_thread *self, int signal, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (info->si_code != USER_DISPATCH || !self->armed) {
        rs_signal_pass_on(signal, info, context);
        return;
    }
    if (info->si_arch != X86_64) {
        let_go(self, registers);
        return;
    }
    uintptr_t from = (uintptr_t)registers[REG_RIP];
    struct rs_call call = {
        .number = info->si_syscall,
        .arguments = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX], registers[REG_R10], registers[REG_R8],
                      registers[REG_R9]},
        .in_loader = from > loader.begin && from <= loader.end};
    if (call.number == SYS_rt_sigreturn) {      /* needs the stack as it is: from our own code, after this handler */
        rankscope_calls_add(self, &call);
        sigdelset(&((ucontext_t *)registers[REG_RSP])->uc_sigmask, SIGSYS);
        registers[REG_RIP] = (greg_t)rs_raw_restorer;
        return;
    }
    make_call(self, context, &call);
    if (!rankscope_calls_counting && self->armed)
        rs_dispatch_disarm_here();
}

/* From rs_raw_entry. Handlers of the program run inside calls, and make calls of their own: called_from is as it was. */
__attribute__((visibility("hidden"))) void rs_dispatch_entered(int signal, siginfo_t *info, void *context, uint64_t before);
void rs_dispatch_entered(int signal, siginfo_t *info, void *context, uint64_t before)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    on_dispatch(self, signal, info, context);
    self->called_from = before;
}

/* As the kernel has it: libc would put its own restorer there, whose call is trapped. */
struct kernel_action { void *handler; unsigned long flags; void *restorer; unsigned long mask; };

static int arm_here(void)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    unsigned long only = 1ul << (SIGSYS - 1), before = 0;
    rankscope_raw(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&only, (long)&before, 8, 0, 0);
    self->sigsys_blocked = (before & only) != 0;
    self->selector = 0;
    long failed = rankscope_raw(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 1, (long)rs_raw_begin,
                                rs_raw_end - rs_raw_begin, (long)&self->selector, 0);
    if (failed)
        return (int)-failed;
    self->armed = 1;
    if (!self->own)
        self->selector = 1;
    return 0;
}

int rs_dispatch_arm(const char **why_not)
{
    struct kernel_action action = {(void *)rs_raw_entry, SA_SIGINFO | SA_NODEFER | SA_RESTORER_FLAG, (void *)rs_raw_restorer, 0};
    struct kernel_action theirs = {0, 0, 0, 0};
    Dl_info here;
    loader = code_of(getauxval(AT_BASE));
    if (dladdr((void *)rs_dispatch_arm, &here))
        ours = code_of((uintptr_t)here.dli_fbase);
    rs_spawn_prepare();
    rankscope_raw(SYS_rt_sigaction, SIGSYS, 0, (long)&theirs, 8, 0, 0);
    if (theirs.handler && theirs.handler != (void *)rs_raw_entry) {
        *why_not = "the program has a handler for SIGSYS already";
        return 0;
    }
    if (rankscope_raw(SYS_rt_sigaction, SIGSYS, (long)&action, 0, 8, 0, 0) != 0) {
        *why_not = "no handler for SIGSYS may be installed";
        return 0;
    }
    int failed = arm_here();
    if (!failed)
        return 1;
    rankscope_raw(SYS_rt_sigaction, SIGSYS, (long)&theirs, 0, 8, 0, 0);
    *why_not = failed == EINVAL ? "this kernel has no system call user dispatch (Linux 5.11 has)"
                                : "system call user dispatch is not allowed here";
    return 0;
}

#else

int rs_dispatch_arm(const char **why_not)
{
    *why_not = "system call user dispatch is there for x86-64 only";
    return 0;
}

void rs_dispatch_disarm_here(void) {}
int rs_dispatch_is_ours(uintptr_t address) { return address == 0; }
void rs_dispatch_filtered(void) {}

#endif
