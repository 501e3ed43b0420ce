/* Calls that change what signals do. SIGSYS must never be blocked while calls are trapped: the kernel would end the
 * program. The program is left to believe that it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "calls_layer.h"
#include "process.h"

#if defined(__x86_64__)

#define MASK_BYTES 8
#define SIGSYS_BIT (1ul << (SIGSYS - 1))
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

#define CANCEL 32               /* glibc's signal to the thread that is to be cancelled */

struct kernel_action { void *handler; unsigned long flags; void *restorer; unsigned long mask; };

static struct kernel_action theirs;     /* what the program wants done at SIGSYS */
static struct kernel_action libcs;      /* what libc does at CANCEL */

static long raw(const struct rs_call *call, const long *a)
{
    return rs_raw_call(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The kernel checks and changes; the mask that holds after the handler is the one in its frame. */
static long change_mask(struct rs_calls_thread *self, ucontext_t *context, const struct rs_call *call)
{
    const long *a = call->arguments;
    unsigned long now = 0, *old = (unsigned long *)a[2];
    int believed = self->sigsys_blocked;
    long result = raw(call, a);
    if (result != 0)
        return result;
    if (a[1]) {
        rankscope_raw(SYS_rt_sigprocmask, SIG_SETMASK, 0, (long)&now, MASK_BYTES, 0, 0);
        unsigned long asked = 0;
        memcpy(&asked, (void *)a[1], sizeof asked);
        if (a[0] == SIG_SETMASK)
            self->sigsys_blocked = (asked & SIGSYS_BIT) != 0;
        else if (asked & SIGSYS_BIT)
            self->sigsys_blocked = a[0] == SIG_BLOCK;
        now &= ~SIGSYS_BIT;
        memcpy(&context->uc_sigmask, &now, sizeof now);
    }
    if (old && believed)
        *old |= SIGSYS_BIT;
    return 0;
}

static int alone(void)
{
    rs_own_enter();
    int threads = (int)rs_process_stat().threads;
    rs_own_leave();
    return threads == 1;
}

/* A program that wants SIGSYS for itself gets it, and we step aside. Not where other threads are trapped by now: there
 * ours stays and passes on what is not its own. */
static long change_sigsys(const struct rs_call *call)
{
    const long *a = call->arguments;
    struct kernel_action before = theirs;
    if (a[1])
        memcpy(&theirs, (void *)a[1], sizeof theirs);
    if (a[2])
        memcpy((void *)a[2], &before, sizeof before);
    if (theirs.handler != (void *)SIG_DFL && theirs.handler != (void *)SIG_IGN && alone()) {
        rs_calls_stand_aside("the program has a handler for SIGSYS of its own: counted until then");
        rs_dispatch_disarm_here();
        return rankscope_raw(SYS_rt_sigaction, SIGSYS, (long)&theirs, 0, MASK_BYTES, 0, 0);
    }
    return 0;
}

/* Where the call was trapped, if it was not made yet; else 0. Handlers of the program that interrupt it are not in
 * our code. */
static uint64_t not_yet_made(const struct rs_calls_thread *self, const greg_t *registers)
{
    uintptr_t at = (uintptr_t)registers[REG_RIP];
    if (at >= (uintptr_t)rs_raw_entry && at < (uintptr_t)rs_raw_entered)
        return (uint64_t)((ucontext_t *)registers[REG_RDX])->uc_mcontext.gregs[REG_RIP];
    if (at >= (uintptr_t)rs_raw_made && at < (uintptr_t)rs_raw_told)
        return 0;
    return rs_dispatch_is_ours(at) ? self->called_from : 0;
}

/* From version 2.41 on, glibc cancels a thread where its own system call instruction was interrupted and has the kernel
 * restart all other calls. We make that call elsewhere: libc is shown where it believes to be. Older versions cancel
 * wherever the signal finds the thread: not while it counts, with locks held. */
static void on_cancel(int signal, siginfo_t *info, void *context)
{
    struct rs_calls_thread *self = &rankscope_calls_thread;
    void (*handler)(int, siginfo_t *, void *) = (void (*)(int, siginfo_t *, void *))libcs.handler;
    uint64_t from = not_yet_made(self, ((ucontext_t *)context)->uc_mcontext.gregs);
    if (self->counting) {
        self->cancelled = 1;
    } else if (!from) {
        handler(signal, info, context);
    } else {
        ucontext_t shown = *(ucontext_t *)context;
        shown.uc_mcontext.gregs[REG_RIP] = (greg_t)from - 2;    /* the instruction itself */
        handler(signal, info, &shown);
        ((ucontext_t *)context)->uc_sigmask = shown.uc_sigmask;
    }
}

void rs_signal_cancel_again(struct rs_calls_thread *self)
{
    self->cancelled = 0;
    long thread = rankscope_raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
    rankscope_raw(SYS_tgkill, rankscope_raw(SYS_getpid, 0, 0, 0, 0, 0, 0), thread, CANCEL, 0, 0, 0);
}

static long change_cancel(const struct rs_call *call)
{
    long a[6];
    struct kernel_action before = libcs, ours, was;
    memcpy(a, call->arguments, sizeof a);
    if (a[1]) {
        memcpy(&ours, (void *)a[1], sizeof ours);
        libcs = ours;
        if (ours.flags & SA_SIGINFO)
            ours.handler = (void *)on_cancel;
        ours.mask &= ~SIGSYS_BIT;
        a[1] = (long)&ours;
    }
    a[2] = (long)&was;
    long result = raw(call, a);
    if (result)
        libcs = before;
    else if (call->arguments[2])
        memcpy((void *)call->arguments[2], was.handler == (void *)on_cancel ? &before : &was, sizeof was);
    return result;
}

static long change_action(const struct rs_call *call)
{
    long a[6];
    struct kernel_action copy;
    memcpy(a, call->arguments, sizeof a);
    if (a[0] == CANCEL && a[3] == MASK_BYTES)
        return change_cancel(call);
    if (a[0] == SIGSYS && a[3] == MASK_BYTES)
        return change_sigsys(call);
    if (a[1] && a[3] == MASK_BYTES) {
        memcpy(&copy, (void *)a[1], sizeof copy);
        copy.mask &= ~SIGSYS_BIT;
        a[1] = (long)&copy;
    }
    return raw(call, a);
}

/* Calls that wait with another mask: argument number `at` points to it. */
static long wait_with_mask(const struct rs_call *call, int at)
{
    long a[6];
    unsigned long mask;
    memcpy(a, call->arguments, sizeof a);
    if (a[at]) {
        memcpy(&mask, (void *)a[at], sizeof mask);
        mask &= ~SIGSYS_BIT;
        a[at] = (long)&mask;
    }
    return raw(call, a);
}

static long select_with_mask(const struct rs_call *call)
{
    long a[6];
    struct { const unsigned long *mask; size_t bytes; } both;
    unsigned long mask;
    memcpy(a, call->arguments, sizeof a);
    if (a[5]) {
        memcpy(&both, (void *)a[5], sizeof both);
        if (both.mask) {
            mask = *both.mask & ~SIGSYS_BIT;
            both.mask = &mask;
        }
        a[5] = (long)&both;
    }
    return raw(call, a);
}

/* The return from our handler puts back the stack for signals that it finds in its frame. */
static long change_stack(ucontext_t *context, const struct rs_call *call)
{
    long result = raw(call, call->arguments);
    if (result == 0 && call->arguments[0])
        memcpy(&context->uc_stack, (void *)call->arguments[0], sizeof context->uc_stack);
    return result;
}

/* A filter may end the process at calls that only we make: from now on we make none. */
static int is_filter(const struct rs_call *call)
{
    return call->number == SYS_seccomp || (call->number == SYS_prctl && call->arguments[0] == PR_SET_SECCOMP);
}

int rs_signal_call(struct rs_calls_thread *self, void *context, const struct rs_call *call, long *result)
{
    if (call->number == SYS_prctl && call->arguments[0] == PR_SET_SYSCALL_USER_DISPATCH) {
        rs_calls_stand_aside("the program uses system call user dispatch itself: counted until then");
        rs_dispatch_disarm_here();
        *result = raw(call, call->arguments);
    } else if (is_filter(call)) {
        rs_calls_stand_aside("the program filters its system calls (seccomp): counted until then");
        rs_dispatch_filtered();
        *result = raw(call, call->arguments);
    } else if (call->number == SYS_ptrace && call->arguments[0] == PTRACE_TRACEME) {
        /* A further trap would stop it for a tracer that may wait in vfork until it executes, as gdb does. Of this task
         * only: what else a child of vfork writes is its parent's. */
        rankscope_raw(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0);
        *result = raw(call, call->arguments);
    } else if (call->number == SYS_rt_sigprocmask) {
        *result = change_mask(self, context, call);
    } else if (call->number == SYS_rt_sigaction) {
        *result = change_action(call);
    } else if (call->number == SYS_rt_sigsuspend) {
        *result = wait_with_mask(call, 0);
    } else if (call->number == SYS_ppoll) {
        *result = wait_with_mask(call, 3);
    } else if (call->number == SYS_epoll_pwait || call->number == SYS_epoll_pwait2) {
        *result = wait_with_mask(call, 4);
    } else if (call->number == SYS_pselect6) {
        *result = select_with_mask(call);
    } else if (call->number == SYS_sigaltstack) {
        *result = change_stack(context, call);
    } else {
        return 0;
    }
    return 1;
}

static void by_default(void)
{
    struct kernel_action normal = {0, 0, 0, 0};
    rankscope_raw(SYS_rt_sigaction, SIGSYS, (long)&normal, 0, MASK_BYTES, 0, 0);
    long thread = rankscope_raw(SYS_gettid, 0, 0, 0, 0, 0, 0);
    rankscope_raw(SYS_tgkill, rankscope_raw(SYS_getpid, 0, 0, 0, 0, 0, 0), thread, SIGSYS, 0, 0, 0);
}

/* A SIGSYS that is not ours: of a seccomp filter, of kill, of the program's own dispatch. */
void rs_signal_pass_on(int signal, void *info, void *context)
{
    if (theirs.handler == (void *)SIG_IGN && ((siginfo_t *)info)->si_code <= 0)
        return;
    if (theirs.handler == (void *)SIG_DFL || theirs.handler == (void *)SIG_IGN)
        by_default();
    else if (theirs.flags & SA_SIGINFO)
        ((void (*)(int, void *, void *))theirs.handler)(signal, info, context);
    else
        ((void (*)(int))theirs.handler)(signal);
}

#else

void rs_signal_cancel_again(struct rs_calls_thread *self) { self->cancelled = 0; }

#endif
