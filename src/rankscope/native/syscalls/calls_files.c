/* Which file system a call goes to, and whether the file is one of ours. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls_layer.h"
#include "recorder.h"

#define DESCRIPTORS 1024
#define MOST_MOUNTS 256
#define TEXT_BYTES (64u << 10)

static struct { const char *place; uint32_t length; uint16_t string; const char *type; } mounts[MOST_MOUNTS];
static int mounts_used;
static char *text;                          /* /proc/self/mountinfo, cut into words */
static uint16_t descriptor_mount[DESCRIPTORS];
static uint8_t descriptor_own[DESCRIPTORS];

/* By the numbers of x86-64, which every machine uses in the file. */
enum rs_about rs_call_about(const struct rs_call *call)
{
    switch (call->number) {
    case 2: case 4: case 6: case 21: case 89: case 85: case 76: case 80: case 82: case 83: case 84: case 86: case 87:
    case 88: case 90: case 92: case 94: case 132: case 133: case 137: case 191: case 192: case 194: case 195: case 59:
    case 235:
        return RS_ABOUT_PATH;
    case 257: case 262: case 269: case 267: case 332: case 437: case 439: case 258: case 263: case 268: case 280:
    case 322:
        return RS_ABOUT_PATH_AT;
    case 0: case 1: case 3: case 5: case 8: case 16: case 17: case 18: case 19: case 20: case 72: case 73: case 74:
    case 75: case 77: case 78: case 81: case 91: case 93: case 138: case 217: case 221: case 187: case 285: case 295:
        return RS_ABOUT_DESCRIPTOR;
    case 9:
        return RS_ABOUT_MAPPING;
    }
    return RS_ABOUT_NOTHING;
}

const char *rs_call_path(const struct rs_call *call)
{
    enum rs_about about = rs_call_about(call);
    if (call->result == -EFAULT || (about != RS_ABOUT_PATH && about != RS_ABOUT_PATH_AT))
        return NULL;
    const char *path = (const char *)call->arguments[about == RS_ABOUT_PATH_AT];
    return path && path[0] ? path : NULL;       /* empty: the status of a descriptor */
}

static long descriptor_of(const struct rs_call *call)
{
    switch (rs_call_about(call)) {
    case RS_ABOUT_DESCRIPTOR: case RS_ABOUT_PATH_AT:
        return (int)call->arguments[0];
    case RS_ABOUT_MAPPING:
        return call->arguments[3] & 0x20 ? -1 : (int)call->arguments[4];    /* MAP_ANONYMOUS */
    default:
        return -1;
    }
}

int rs_call_is_own(const struct rs_call *call)
{
    const char *path = rs_call_path(call);
    if (path) {
        const char *own = rs_calls_own_folder();
        size_t length = strlen(own);
        return length && !strncmp(path, own, length) && (path[length] == '/' || !path[length]);
    }
    long descriptor = descriptor_of(call);
    return descriptor >= 0 && descriptor < DESCRIPTORS && descriptor_own[descriptor];
}

static int lies_in(const char *path, int at)
{
    uint32_t length = mounts[at].length;
    return length == 1 || (!strncmp(path, mounts[at].place, length) && (path[length] == '/' || !path[length]));
}

/* Not on the stack, of which threads may have little. */
static char both[640];
static volatile int both_busy;

static __attribute__((noinline)) uint16_t string_of(int at)
{
    size_t type = strlen(mounts[at].type), place = mounts[at].length;
    if (mounts[at].string || type + place + 2 > sizeof both || !rs_calls_try(&both_busy))
        return mounts[at].string;
    memcpy(both, mounts[at].type, type);
    both[type] = ' ';
    memcpy(both + type + 1, mounts[at].place, place);
    both[type + 1 + place] = 0;
    mounts[at].string = rs_intern(both);
    rs_calls_done(&both_busy);
    return mounts[at].string;
}

/* By the longest mount point that the path as written lies in: links are not followed. */
static uint16_t mount_of(const char *path)
{
    int best = -1;
    for (int at = 0; at < mounts_used; at++)
        if ((best < 0 || mounts[at].length >= mounts[best].length) && lies_in(path, at))
            best = at;
    return best < 0 ? 0 : string_of(best);
}

static uint16_t mount_of_here(void)
{
    static char here[PATH_MAX];
    static volatile int here_busy;
    if (!rs_calls_try(&here_busy))
        return 0;
    uint16_t mount = rankscope_raw(SYS_getcwd, (long)here, sizeof here, 0, 0, 0, 0) > 0 ? mount_of(here) : 0;
    rs_calls_done(&here_busy);
    return mount;
}

uint16_t rs_call_mount(const struct rs_call *call)
{
    const char *path = rs_call_path(call);
    if (path && path[0] == '/')
        return mount_of(path);
    long descriptor = descriptor_of(call);
    if (descriptor >= 0)
        return descriptor < DESCRIPTORS ? descriptor_mount[descriptor] : 0;
    return path ? mount_of_here() : 0;
}

/* Remembers for calls on the descriptor what is known of its path. */
void rs_call_opened(const struct rs_call *call, uint16_t mount, int own)
{
    long descriptor = -1;
    if (call->number == 257 || call->number == 2 || call->number == 437)
        descriptor = call->result;
    if (call->number == 3)
        descriptor = call->arguments[0], mount = 0, own = 0;
    if (descriptor >= 0 && descriptor < DESCRIPTORS) {
        descriptor_mount[descriptor] = mount;
        descriptor_own[descriptor] = (uint8_t)own;
    }
}

/* A space in a place is written \040. */
static void unescape(char *word)
{
    char *to = word;
    for (char *from = word; *from; from++)
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
            *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 3;
        } else {
            *to++ = *from;
        }
    *to = 0;
}

static void take_line(char *line)
{
    char *field = line, *place = NULL;
    for (int number = 1; field; number++) {
        char *space = strchr(field, ' ');
        if (space)
            *space++ = 0;
        if (number == 5)
            place = field;
        if (number > 6 && !strcmp(field, "-") && place && space && mounts_used < MOST_MOUNTS) {
            char *end = strchr(space, ' ');
            if (end)
                *end = 0;
            unescape(place);
            mounts[mounts_used].place = place;
            mounts[mounts_used].length = (uint32_t)strlen(place);
            mounts[mounts_used].string = 0;
            mounts[mounts_used++].type = space;
            return;
        }
        field = space;
    }
}

/* Once, at load: later mounts count as the file system they lie in. */
void rs_mounts_read(void)
{
    if (mounts_used || (!text && !(text = rs_memory(TEXT_BYTES))))
        return;
    int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = 0, all = 0;
    while (fd >= 0 && all < (ssize_t)TEXT_BYTES - 1 && (got = read(fd, text + all, TEXT_BYTES - 1 - (size_t)all)) > 0)
        all += got;
    if (fd >= 0)
        close(fd);
    text[all] = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        take_line(line);
    }
}

void rs_mounts_forget(void)
{
    for (int at = 0; at < mounts_used; at++)
        mounts[at].string = 0;
    memset(descriptor_mount, 0, sizeof descriptor_mount);
}
