/* Threads of the program, and how one that is alone does without locks. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "imports.h"
#include "recorder.h"

#define MOST_UNRETURNED 64u     /* slots, where the ends of threads are not told */

__thread struct rs_thread *rs_self __attribute__((tls_model("initial-exec")));

/* Stands in every empty cache slot: no real row has its key. */
static struct rs_tally nobody = {.name = 0xFFFF, .group = 0xFFFF, .layer = 0xFF, .phase = 0xFF};

static rs_lock thread_lock;
static struct rs_thread *free_threads, *all_threads;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static int has_key;     /* before, and where the program has used up all, thread_key is a key of somebody else */
static uint32_t slots_used;
static struct rs_chunk *thread_rows;
static struct rs_thread_row no_row;     /* of threads for which the file has no room */

void rs_thread_clear(struct rs_thread *thread)
{
    for (uint32_t i = 0; i < RS_CACHE_ROWS; i++)
        thread->cache[i] = &nobody;
    memset(thread->alike, 0, sizeof thread->alike);
    thread->last_type_epoch = thread->last_group_epoch = UINT64_MAX;
}

static void thread_ended(void *memory)
{
    struct rs_thread *thread = memory;
    rs_self = NULL;
    rs_imports_thread_ended();
    rs_call_ended(thread);      /* it may have ended inside of one */
    if (!rs_lock_take(&thread_lock))
        return;
    thread->next_free = free_threads;
    free_threads = thread;
    rs_lock_give(&thread_lock);
}

/* Whether the kernel can end solo use for us; without it there is none. */
static int barrier_works;

void rs_solo_prepare(void)
{
#if defined(__SANITIZE_THREAD__)
    barrier_works = 0;  /* the sanitizer does not know membarrier */
#else
    barrier_works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
    rs.concurrent = !barrier_works;
}

static void end_solo(const struct rs_thread *newcomer)
{
    if (rs.concurrent)
        return;
    __atomic_store_n(&rs.concurrent, 1, __ATOMIC_SEQ_CST);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        rs_pause(10000);  /* longer than any thread stays in a critical section of some instructions */
    for (struct rs_thread *thread = all_threads; thread; thread = thread->next)
        for (int wait = 0; thread != newcomer && __atomic_load_n(&thread->solo, __ATOMIC_ACQUIRE) && wait < 10000; wait++)
            rs_pause(10);
}

static void make_thread_key(void) { has_key = pthread_key_create(&thread_key, thread_ended) == 0; }

static struct rs_thread_row *write_thread_row(uint32_t slot, uint32_t tid, const char *name)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_THREADS, .row_bytes = sizeof(struct rs_thread_row), .chunk_bytes = RS_PAGE};
    struct rs_thread_row *row = rs_row_place(&thread_rows, like, sizeof *row);
    if (!row)
        return &no_row;
    row->slot = slot;
    row->tid = tid;
    row->first_ticks = rs_ticks();
    memcpy(row->name, name, sizeof row->name);
    rs_row_publish(thread_rows, 1);
    return row;
}

static struct rs_thread *new_slot(uint32_t tid, const char *name)
{
    struct rs_thread *thread = rs_memory(sizeof *thread);
    if (!thread)
        return NULL;
    thread->slot = slots_used++;
    thread->next = all_threads;
    all_threads = thread;
    rs_thread_clear(thread);
    thread->row = write_thread_row(thread->slot, tid, name);
    return thread;
}

/* The slot of a thread that has ended is used again: thousands of short threads do not fill the file. */
static struct rs_thread *take_slot(void)
{
    char name[16] = "";
    struct rs_thread *thread = free_threads;
    if (thread) {
        free_threads = thread->next_free;
        return thread;
    }
    if (!has_key && slots_used >= MOST_UNRETURNED)
        return NULL;
    prctl(PR_GET_NAME, name);
    return new_slot((uint32_t)syscall(SYS_gettid), name);
}

/* Never handed on; whoever asked for it writes its rows from one thread at a time. */
RS_COLD struct rs_thread *rs_thread_of(uint32_t tid, const char *name)
{
    char cut[16] = "";
    if (!rs.file || !rs_lock_take(&thread_lock))
        return NULL;
    strncpy(cut, name, sizeof cut - 1);
    struct rs_thread *thread = new_slot(tid, cut);
    rs_lock_give(&thread_lock);
    return thread;
}

RS_COLD struct rs_thread *rs_thread_start(void)
{
    int saved = errno;
    pthread_once(&thread_key_once, make_thread_key);
    if (!rs.file || !rs_lock_take(&thread_lock))
        return NULL;
    rs_own_enter();
    struct rs_thread *thread = take_slot();
    if (thread && rs.file->threads_seen)
        end_solo(thread);
    if (thread)
        rs.file->threads_seen++;
    rs_own_leave();
    rs_lock_give(&thread_lock);
    errno = saved;
    if (!thread)
        return NULL;
    thread->depth = 0;
    thread->refresh_at = rs_ticks() + rs.refresh_ticks;
    if (has_key)
        pthread_setspecific(thread_key, thread);
    rs_self = thread;
    return thread;
}

static void free_thread(struct rs_thread *thread)
{
    rs_memory_free(thread->index, thread->index_capacity * sizeof *thread->index);
    rs_memory_free(thread->peers, thread->peers_capacity * sizeof *thread->peers);
    rs_memory_free(thread->scratch, thread->scratch_bytes);
    rs_memory_free(thread, sizeof *thread);
}

/* In the child of a fork, for the thread that called it: at once, whatever becomes of the others' slots. */
void rs_thread_forget(void)
{
    if (has_key && rs_self)
        pthread_setspecific(thread_key, NULL);
    rs_self = NULL;
}

/* In the child of a fork. keep: the stack still uses them. */
void rs_threads_forget(int keep)
{
    if (has_key)
        pthread_setspecific(thread_key, NULL);
    for (struct rs_thread *thread = all_threads, *next; thread; thread = next) {
        next = thread->next;
        thread->row = &no_row;
        if (!keep)
            free_thread(thread);
    }
    all_threads = free_threads = NULL;
    slots_used = 0;
    thread_rows = NULL;
    rs_self = NULL;
}
