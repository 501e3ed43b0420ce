/* Whether a program file can take the recorder. */
#ifndef RANKSCOPE_EXECUTABLES_H
#define RANKSCOPE_EXECUTABLES_H

#include <string.h>

struct rs_finding {
    const char *why;            /* NULL: it can be recorded */
    int take_out;               /* and our libraries would harm it */
};

/* Of what cannot be looked at they say that it can: exec says what is wrong. */
struct rs_finding rs_program_at(int folder, const char *path);
struct rs_finding rs_program_named(const char *name);                       /* looked for along PATH */
struct rs_finding rs_program_of_descriptor(int fd, const char *called);

static inline int rs_starts_with(const char *text, const char *beginning)
{
    return !strncmp(text, beginning, strlen(beginning));
}

static inline const char *rs_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

#endif
