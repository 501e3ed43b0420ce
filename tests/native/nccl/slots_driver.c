/* A slot that could not be had once: what is under way in it later is still found. */
#include <stdio.h>

#include "nccl.c"

struct rs_recorder rs;
__thread struct rs_thread *rs_self;

int rs_lock_wait(rs_lock *lock) { return rs_lock_try(lock); }

/* What the linker leaves in, and nobody calls. */
struct rs_tally *rs_tally_find(struct rs_thread *thread, uint64_t key) { return (void)thread, (void)key, NULL; }
void rs_tally_lost(uint64_t ticks) { (void)ticks; }
void rs_trace_add(const struct rs_thread *thread, uint64_t key, uint64_t start, uint64_t duration, uint64_t bytes,
                  int failed)
{
    (void)thread, (void)key, (void)start, (void)duration, (void)bytes, (void)failed;
}

static struct rs_thread thread;

static void *begin(void)
{
    struct operation *operation = take_slot(&thread, NULL, NULL);
    void *handle = operation ? handle_of(operation, operation->generation, RS_NCCL_TASK) : NULL;
    if (operation)
        rs_lock_give(&operation->lock);
    return handle;
}

int main(void)
{
    static struct rs_header file;
    void *first = NULL, *last = NULL;
    rs.file = &file;
    printf("%d", rs_lock_try(&slots[5].lock));
    for (unsigned i = 0; i < SLOTS; i++) {
        void *handle = begin();
        first = i == 0 ? handle : first;
        if (i == 5) {
            printf(" %d", handle == NULL);
            rs_lock_give(&slots[5].lock);
        }
    }
    for (unsigned i = 0; i <= 5; i++)
        last = begin();
    printf(" %d %d\n", rs_nccl_is_under_way(last), rs_nccl_is_under_way(first));
    return 0;
}
