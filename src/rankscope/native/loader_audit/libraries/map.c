/* Reads and checks the map of libraries. */
#define _GNU_SOURCE
#include "map.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../core/fnv.h"

enum { FIELDS = 6, SLOTS = 8192 };   /* at most half of the slots are used */

struct found {
    uint64_t chain;
    const char *name, *path;
    long long size, mtime_ns;
};

static char *text;
static struct found slots[SLOTS];
static unsigned used;
static int checked;          /* 0: not yet, 1: all as recorded, -1: not */
static char **conditions;    /* lines D, M and C, looked at when a library is first searched */
static unsigned condition_count;

uint64_t rs_chain(uint64_t loader, const char *name)
{
    return rs_fnv64_byte(rs_fnv64(loader ? loader : RS_FNV64, name), 0xff);
}

static long long ns(struct timespec time)
{
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static unsigned slot_of(uint64_t chain, const char *name)
{
    return (unsigned)(rs_chain(chain, name) % SLOTS);
}

/* Cuts a line at its tabs; the last field keeps what is left. */
static int split(char *line, char *fields[FIELDS], int most)
{
    int count = 0;
    for (char *at = line; at && count < most; count++) {
        fields[count] = at;
        at = count + 1 < most ? strchr(at, '\t') : NULL;
        if (at)
            *at++ = 0;
    }
    return count;
}

static void add(char *line)
{
    char *fields[FIELDS];
    if (used >= SLOTS / 2 || split(line, fields, 6) != 6)
        return;
    struct found one = {strtoull(fields[1], NULL, 16), fields[2], fields[5], atoll(fields[3]), atoll(fields[4])};
    unsigned at = slot_of(one.chain, one.name);
    while (slots[at].name)
        at = (at + 1) % SLOTS;
    slots[at] = one;
    used++;
}

static int same_text(const char *line, const char *now)
{
    return !strcmp(line + 2, now ? now : "");
}

/* Whether a line lets the map be used; those of the file system are kept for later. */
static int take(char *line)
{
    char program[4096];
    ssize_t length;
    switch (line[0] && line[1] == '\t' ? line[0] : 0) {
    case 'E':
        length = readlink("/proc/self/exe", program, sizeof program - 1);
        program[length > 0 ? length : 0] = 0;
        return same_text(line, program);
    case 'V': return same_text(line, getenv("LD_LIBRARY_PATH"));
    case 'G': return same_text(line, getenv("GLIBC_TUNABLES"));
    case 'F': add(line); return 1;
    case 'D': case 'M': case 'C': conditions[condition_count++] = line; return 1;
    default: return 0;
    }
}

static char *content(const char *path)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NULL;
    char *data = NULL;
    int ours = !rs_fstat(file, &status) && (status.st_uid == 0 || status.st_uid == geteuid()) && !(status.st_mode & 022);
    if (ours && status.st_size < 16 << 20 && (data = malloc((size_t)status.st_size + 1))) {
        ssize_t length = read(file, data, (size_t)status.st_size);
        data[length > 0 ? length : 0] = 0;
    }
    close(file);
    return data;
}

int rs_map_open(const char *path)
{
    static const char begin[] = "rankscope libraries 1\n", end[] = "end\n";
    text = content(path);
    size_t length = text ? strlen(text) : 0;
    if (length < sizeof begin + sizeof end || strncmp(text, begin, sizeof begin - 1)
        || strcmp(text + length - (sizeof end - 1), end))
        return 0;
    text[length - (sizeof end - 1)] = 0;
    size_t lines = 1;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    conditions = calloc(lines, sizeof *conditions);
    if (!conditions)
        return 0;
    char *rest = text + sizeof begin - 1;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line && !take(line))
            return 0;
    return used > 0;
}

static int holds(char *line)
{
    char *fields[FIELDS];
    struct stat status;
    switch (line[0]) {
    case 'M': return rs_stat(line + 2, &status) != 0;
    case 'C':
        return split(line, fields, 4) == 4 && !rs_stat(fields[3], &status) && status.st_size == atoll(fields[1])
               && ns(status.st_mtim) == atoll(fields[2]);
    default:
        return split(line, fields, 5) == 5 && !rs_stat(fields[4], &status)
               && status.st_ino == strtoull(fields[1], NULL, 10) && ns(status.st_mtim) == atoll(fields[2])
               && ns(status.st_ctim) == atoll(fields[3]);
    }
}

static int all_hold(void)
{
    for (unsigned i = 0; !checked && i < condition_count; i++)
        if (!holds(conditions[i]))
            checked = -1;
    if (!checked)
        checked = 1;
    return checked > 0;
}

const char *rs_map_find(uint64_t chain, const char *name)
{
    struct stat status;
    for (unsigned at = slot_of(chain, name); slots[at].name; at = (at + 1) % SLOTS) {
        const struct found *one = &slots[at];
        if (one->chain == chain && !strcmp(one->name, name))
            return all_hold() && !rs_stat(one->path, &status) && status.st_size == one->size
                   && ns(status.st_mtim) == one->mtime_ns ? one->path : NULL;
    }
    return NULL;
}
