/* A slot is written to only if the kernel says that its page is private to this process, readable and not executable;
 * its protection is afterwards what it was. Threads that call through the table at that moment read either address: the
 * store is one aligned word. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loaded_objects.h"
#include "recorder.h"
#include "table_slots.h"

static rs_lock lock;

static uintptr_t hexadecimal(const char **at)
{
    uintptr_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        unsigned digit = c >= '0' && c <= '9' ? (unsigned)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
        if (digit > 15)
            return value;
        value = value << 4 | digit;
    }
}

/* "7f00-7f10 r--p …"; whether it holds the address. */
static int read_line(const char *line, uintptr_t address, struct rs_mapping *found)
{
    uintptr_t begin = hexadecimal(&line);
    if (*line++ != '-')
        return 0;
    uintptr_t end = hexadecimal(&line);
    if (*line++ != ' ' || address < begin || address >= end || strnlen(line, 4) < 4)
        return 0;
    int protection = (line[0] == 'r' ? PROT_READ : 0) | (line[1] == 'w' ? PROT_WRITE : 0) | (line[2] == 'x' ? PROT_EXEC : 0);
    *found = (struct rs_mapping){begin, end, line[3] == 'p' ? protection : PROT_NONE};
    return 1;
}

static int look_up(uintptr_t address, struct rs_mapping *found)
{
    char text[4096 + 1];
    size_t kept = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), is_found = 0, in_line = 0;
    while (fd >= 0 && !is_found) {
        ssize_t got = read(fd, text + kept, sizeof text - 1 - kept);
        if (got <= 0)
            break;
        kept += (size_t)got;
        text[kept] = 0;
        char *line = text, *end;
        for (; !is_found && (end = memchr(line, '\n', kept - (size_t)(line - text))); line = end + 1, in_line = 0)
            is_found = !in_line && read_line(line, address, found);
        kept -= (size_t)(line - text);
        memmove(text, line, kept);
        if (kept == sizeof text - 1) {          /* a path as long as the buffer: only its end is still to come */
            is_found = !in_line && read_line(text, address, found);
            in_line = 1;
            kept = 0;
        }
    }
    if (fd >= 0)
        close(fd);
    return is_found;
}

static int may_be_written(const struct rs_mapping *mapping)
{
    return mapping->protection == PROT_READ || mapping->protection == (PROT_READ | PROT_WRITE);
}

static int exchange(const struct rs_mapping *mapping, void **place, void *expected, void *value)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)place & ~(page - 1);
    int is_closed = !(mapping->protection & PROT_WRITE);
    if (is_closed && mprotect((void *)first, page, PROT_READ | PROT_WRITE))
        return 0;                               /* sealed, or of huge pages */
    int done = __atomic_compare_exchange_n(place, &expected, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (is_closed)
        mprotect((void *)first, page, mapping->protection);
    return done;
}

int rs_slot_replace(struct rs_mapping *mapping, void **place, void *expected, void *value)
{
    uintptr_t address = (uintptr_t)place;
    if (!expected || address % sizeof *place || !rs_lock_take(&lock))
        return 0;
    int is_known = (address >= mapping->begin && address < mapping->end) || look_up(address, mapping);
    int done = is_known && may_be_written(mapping) && exchange(mapping, place, expected, value);
    rs_lock_give(&lock);
    return done;
}

/* A function that was not called yet has the address of what will look it up, in the library itself. */
RS_EXPORT int rankscope_own_calls(const char *symbol, void *ours, void **original)
{
    struct rs_mapping mapping = {0};
    struct rs_definition definition;
    void **place = rs_find_own_calls(symbol, &definition);
    void *now = place ? __atomic_load_n(place, __ATOMIC_ACQUIRE) : NULL;
    if ((uintptr_t)now < definition.begin || (uintptr_t)now >= definition.end)
        return 0;
    *original = definition.address;
    return rs_slot_replace(&mapping, place, now, ours);
}
