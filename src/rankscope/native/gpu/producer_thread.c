/* The thread of a producer: it takes a turn about once a second until the process ends. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu.h"

#define TURN_NS 1000000000u
#define EXIT_NS 400000000u          /* how long the end of the process waits for it */

struct timespec rs_gpu_after(uint64_t ns)
{
    uint64_t at = rs_clock_ns(CLOCK_MONOTONIC) + ns;
    return (struct timespec){(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
}

static void *take_turns(void *memory)
{
    struct rs_gpu_thread *thread = memory;
    prctl(PR_SET_NAME, "rankscope");
    __atomic_store_n(&thread->tid, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELAXED);
    pthread_mutex_lock(&thread->lock);
    for (int is_last = 0; !is_last;) {
        struct timespec until = rs_gpu_after(thread->pause_ns ? thread->pause_ns() : TURN_NS);
        while (!thread->asked_to_end && pthread_cond_timedwait(&thread->wake, &thread->lock, &until) == 0)
            continue;
        is_last = thread->asked_to_end;
        pthread_mutex_unlock(&thread->lock);
        if (!is_last || thread->has_last)
            thread->turn(is_last);
        pthread_mutex_lock(&thread->lock);
    }
    thread->has_ended = 1;
    pthread_cond_broadcast(&thread->ended);
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

/* With all signals blocked: those of the program are for its own threads. */
void rs_gpu_thread_start(struct rs_gpu_thread *thread)
{
    sigset_t all, before;
    pthread_t id;
    pthread_attr_t attributes;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->wake, &monotonic);
    pthread_cond_init(&thread->ended, &monotonic);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread->is_there = pthread_create(&id, &attributes, take_turns, thread) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    pthread_condattr_destroy(&monotonic);
}

int rs_gpu_thread_end(struct rs_gpu_thread *thread)
{
    if (!thread->is_there)
        return 1;
    struct timespec until = rs_gpu_after(EXIT_NS);
    pthread_mutex_lock(&thread->lock);
    thread->asked_to_end = 1;
    pthread_cond_broadcast(&thread->wake);
    while (!thread->has_ended && pthread_cond_timedwait(&thread->ended, &thread->lock, &until) == 0)
        continue;
    int has_ended = thread->has_ended;
    pthread_mutex_unlock(&thread->lock);
    return has_ended;
}

void rs_gpu_thread_forget(struct rs_gpu_thread *thread)
{
    pthread_mutex_init(&thread->lock, NULL);
    thread->is_there = thread->asked_to_end = thread->has_ended = 0;
    thread->tid = 0;
}
