/* Answers the dynamic loader's searches from the map that RANKSCOPE_LIBRARIES names, or writes down what it finds, for
   such a map, to the file RANKSCOPE_LIBRARIES_RECORD. Loaded by LD_AUDIT: so the loader itself still opens the library
   and binds its symbols in the scopes that they have without us, which opening them beforehand would change. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "map.h"

#define PUBLIC __attribute__((visibility("default")))

struct object {
    uint64_t chain;
};

/* The search that is going on; the loader's lock lets only one be. */
static struct {
    const struct object *loader;
    char name[1024], tried[4096];
    int is_search;
} now;

static int record = -1;
static int is_used;

/* Before 2.35 a program with an auditor paid for every call between libraries. */
static int is_cheap(void)
{
    int major = 0, minor = 0;
    return sscanf(gnu_get_libc_version(), "%d.%d", &major, &minor) == 2 && (major > 2 || minor >= 35);
}

PUBLIC unsigned la_version(unsigned version)
{
    (void)version;
    const char *map = getenv("RANKSCOPE_LIBRARIES"), *log = getenv("RANKSCOPE_LIBRARIES_RECORD");
    if (log && *log && is_cheap())
        record = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    else if (map && *map && is_cheap())
        is_used = rs_map_open(map);
    return LAV_CURRENT;   /* never 0: the loader would have to take us out again, which it does not do well */
}

static void begin_search(const char *name, const struct object *loader)
{
    now.loader = loader;
    now.tried[0] = 0;
    now.is_search = !strchr(name, '/') && strlen(name) < sizeof now.name;
    if (now.is_search)
        strcpy(now.name, name);
}

PUBLIC char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    const struct object *loader = (const struct object *)*cookie;
    if (flag == LA_SER_ORIG) {
        begin_search(name, loader);
        const char *known = is_used && now.is_search && loader ? rs_map_find(loader->chain, name) : NULL;
        return (char *)(known ? known : name);
    }
    if (record >= 0 && now.is_search) {
        dprintf(record, "T\t%u\t%s\n", flag, name);
        snprintf(now.tried, sizeof now.tried, "%s", name);
    }
    return (char *)name;
}

PUBLIC unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    struct object *object = space == LM_ID_BASE ? malloc(sizeof *object) : NULL;
    if (object)
        object->chain = rs_chain(now.loader ? now.loader->chain : 0, map->l_name);
    *cookie = (uintptr_t)object;
    if (record >= 0 && now.is_search && now.loader && !strcmp(now.tried, map->l_name))
        dprintf(record, "F\t%016llx\t%s\t%s\n", (unsigned long long)now.loader->chain, now.name, map->l_name);
    now.loader = NULL;
    now.is_search = 0;
    return 0;
}
