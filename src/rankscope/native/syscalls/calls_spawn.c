/* Calls that make processes and threads. Dispatch is off in what they make, and their child may share our stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "calls_layer.h"

#if defined(__x86_64__)

#define ON_CHILDS_STACK 10      /* words that calls_raw.c takes from it */
#define MOST_ARGUMENTS 128      /* bytes of clone3's */
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

#define LEAST_STACK (32u << 10)
#define SMALL_STACKS "system calls of threads with stacks of less than 32 KiB are not counted"

/* What becomes of the child's dispatch: calls_raw.c knows the numbers. */
enum arming { LEAVE_OFF = 0, ARM = 1, KEEP_AWAY = 2 };

/* stack_top 0: the parent's stack. stack_bytes 0: not told. */
struct request { uint64_t flags, stack_top, stack_bytes, arguments_bytes; };

/* The fields of struct clone_args that we need. */
struct clone3_arguments { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; };

static int request_of(const struct rs_call *call, struct request *request)
{
    memset(request, 0, sizeof *request);
    switch (call->number) {
    case SYS_fork:
        return 1;
    case SYS_vfork:
        request->flags = CLONE_VM | CLONE_VFORK;
        return 1;
    case SYS_clone:
        request->flags = (uint64_t)call->arguments[0];
        request->stack_top = (uint64_t)call->arguments[1];
        return 1;
    case SYS_clone3: {
        struct clone3_arguments asked;
        request->arguments_bytes = (uint64_t)call->arguments[1];
        if (!call->arguments[0] || request->arguments_bytes < sizeof asked || request->arguments_bytes > MOST_ARGUMENTS)
            return 1;   /* the kernel says what is wrong with it */
        memcpy(&asked, (void *)call->arguments[0], sizeof asked);
        request->flags = asked.flags;
        request->stack_top = asked.stack ? asked.stack + asked.stack_size : 0;
        request->stack_bytes = asked.stack_size;
        return 1;
    }
    }
    return 0;
}

static uintptr_t libc_begin, libc_end;

void rs_spawn_prepare(void)
{
    Dl_info info;
    if (!dladdr((void *)exit, &info))
        return;
    uintptr_t base = (uintptr_t)info.dli_fbase;
    const ElfW(Ehdr) *head = info.dli_fbase;
    const ElfW(Phdr) *part = (const ElfW(Phdr) *)(base + head->e_phoff);
    libc_begin = base;
    for (int i = 0; i < head->e_phnum; i++)
        if (part[i].p_type == PT_LOAD)
            libc_end = base + part[i].p_vaddr + part[i].p_memsz;
}

/* The thread-local data of a thread that libc makes are laid out as ours are; of others who knows. */
static int in_libc(uintptr_t address) { return address > libc_begin && address < libc_end; }

/* What the child finds on its stack: see rs_raw_clone. */
static uint64_t *prepare_stack(uint64_t stack_top, const greg_t *registers, enum arming arm)
{
    uint64_t *top = (uint64_t *)(stack_top & ~7ull) - ON_CHILDS_STACK;
    const int order[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15, REG_RDI, REG_RSI, REG_RIP};
    top[0] = (uint64_t)arm;
    for (int i = 0; i < ON_CHILDS_STACK - 1; i++)
        top[i + 1] = (uint64_t)registers[order[i]];
    return top;
}

/* A trap takes some of the thread's stack: one that has little is not trapped, nor counted in wrapped functions. */
static enum arming arming_of(const struct request *request, const greg_t *registers)
{
    if (!(request->flags & CLONE_VM) || !in_libc((uintptr_t)registers[REG_RIP]))
        return LEAVE_OFF;
    if (!request->stack_bytes || request->stack_bytes >= LEAST_STACK || !(request->flags & CLONE_THREAD))
        return ARM;
    rs_calls_say(SMALL_STACKS);
    return KEEP_AWAY;
}

static long clone_with_stack(const struct rs_call *call, const struct request *request, const greg_t *registers)
{
    const long *a = call->arguments;
    uint64_t *top = prepare_stack(request->stack_top, registers, arming_of(request, registers));
    if (call->number == SYS_clone)
        return rs_raw_clone(call->number, a[0], (long)top, a[2], a[3], a[4], a[5]);
    union { struct clone3_arguments fields; char bytes[MOST_ARGUMENTS]; } copy;
    memcpy(&copy, (void *)a[0], request->arguments_bytes);
    copy.fields.stack_size -= ON_CHILDS_STACK * sizeof *top;
    return rs_raw_clone(call->number, (long)&copy, a[1], a[2], a[3], a[4], a[5]);
}

/* A child of vfork runs on in our frames: the call is made after the handler, in the program's own state. A handler of
 * the program that comes in between and uses vfork itself would find its return address overwritten. */
static void vfork_later(struct rs_calls_thread *self, greg_t *registers, const struct rs_call *call)
{
    self->return_to = (uint64_t)registers[REG_RIP];
    registers[REG_RAX] = call->number;
    registers[REG_RIP] = (greg_t)rs_raw_vfork;
}

int rs_spawn_call(struct rs_calls_thread *self, void *context, const struct rs_call *call)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const long *a = call->arguments;
    struct request request;
    struct rs_call counted = *call;
    if (call->number == SYS_execve || call->number == SYS_execveat) {
        rankscope_calls_add(self, &counted);    /* it may not return */
        registers[REG_RAX] = rankscope_raw(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
        counted.taken_back = 1;
        rankscope_calls_add(self, &counted);
        counted.taken_back = 0;
        counted.result = registers[REG_RAX];
        rankscope_calls_add(self, &counted);
        return 1;
    }
    if (call->number == SYS_exit || call->number == SYS_exit_group) {
        rankscope_calls_add(self, call);
        rankscope_raw(call->number, a[0], 0, 0, 0, 0, 0);
    }
    if (!request_of(call, &request))
        return 0;
    if (request.flags & CLONE_VM && !request.stack_top && request.flags & CLONE_VFORK) {
        rankscope_calls_add(self, call);
        vfork_later(self, registers, call);
        return 1;
    }
    counted.result = request.stack_top ? clone_with_stack(call, &request, registers)
                                       : rankscope_raw(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    registers[REG_RAX] = counted.result;
    if (!request.stack_top && counted.result == 0)
        self->armed = self->selector = 0;   /* a forked child: its recorder starts anew */
    else
        rankscope_calls_add(self, &counted);
    return 1;
}

#endif
