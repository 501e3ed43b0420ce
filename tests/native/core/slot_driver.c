/* Slots of all kinds of memory: which are replaced, and what the protections are before and after. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "table_slots.c"

struct rs_recorder rs;

int rs_lock_wait(rs_lock *lock) { return rs_lock_try(lock); }

static int first(void) { return 1; }
static int second(void) { return 2; }

static const char *protection_of(void *address)
{
    static char found[2][8];
    static int turn;
    char line[4096], *kept = found[turn = !turn];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char text[8];
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, text) == 3 && (uintptr_t)address >= begin && (uintptr_t)address < end)
            strcpy(kept, text);
    }
    if (maps)
        fclose(maps);
    return kept;
}

static void **page_of(int flags)
{
    void **page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    page[3] = (void *)first;
    return page;
}

static void show(const char *what, int flags, int protection, void *expected, unsigned shift)
{
    struct rs_mapping mapping = {0};
    void **page = page_of(flags), **place = (void **)((char *)&page[3] + shift);
    mprotect(page, 4096, protection);
    const char *before = protection_of(page);
    int done = rs_slot_replace(&mapping, place, expected, (void *)second);
    printf("%s: %d %s %s %d\n", what, done, before, protection_of(page), ((int (*)(void))page[3])());
}

static atomic_int stop, calls, wrong;

static void *call(void *slot)
{
    for (; !stop; calls++) {
        int got = ((int (*)(void))__atomic_load_n((void **)slot, __ATOMIC_ACQUIRE))();
        wrong += got != 1 && got != 2;
    }
    return NULL;
}

int main(void)
{
    show("read-only", MAP_PRIVATE, PROT_READ, (void *)first, 0);
    show("writable", MAP_PRIVATE, PROT_READ | PROT_WRITE, (void *)first, 0);
    show("executable", MAP_PRIVATE, PROT_READ | PROT_EXEC, (void *)first, 0);
    show("shared", MAP_SHARED, PROT_READ, (void *)first, 0);
    show("another pointer", MAP_PRIVATE, PROT_READ, (void *)main, 0);
    show("between two words", MAP_PRIVATE, PROT_READ, (void *)first, 4);

    pthread_t thread;
    void **page = page_of(MAP_PRIVATE), *now = (void *)first;
    mprotect(page, 4096, PROT_READ);
    pthread_create(&thread, NULL, call, &page[3]);
    while (!calls)
        ;
    int done = 0;
    for (int at = 0; at < 2000; at++) {
        struct rs_mapping mapping = {0};
        void *next = now == (void *)first ? (void *)second : (void *)first;
        done += rs_slot_replace(&mapping, &page[3], now, next);
        now = next;
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("while it is called: %d of 2000, %d wrong, %s\n", done, wrong, protection_of(page));
    return 0;
}
