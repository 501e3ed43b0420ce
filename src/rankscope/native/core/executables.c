/* What a program file needs, and so whether it can take the recorder: the loader that it names (PT_INTERP), the libraries
 * that it wants (DT_NEEDED), the interpreter of a script. One that cannot must run as without us: the dynamic loader of
 * another C library or of an older glibc ends the program when it cannot bind our library, a sanitizer's runtime when it
 * does not come first.
 *
 * Asked by exec.c, before it starts a program: rs_program_at, rs_program_named, rs_program_of_descriptor, at the end. Under
 * its conditions: system calls only, nothing that lasts is written. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls_layer.h"
#include "executables.h"
#include "recorder.h"

#define MOST_INTERPRETERS 4     /* of a script whose interpreter is a script */
#define MOST_PATH 1024
#define MOST_NEEDED 24          /* a sanitizer's runtime is among the first */

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));     /* of this library, as mapped */

static const struct rs_finding recordable = {NULL, 0};

static long at(long fd, void *to, size_t bytes, uint64_t offset)
{
    return rankscope_raw(SYS_pread64, fd, (long)to, (long)bytes, (long)offset, 0, 0);
}

/* ld-linux-x86-64.so.2, ld64.so.2 and, before 2.34, ld-2.31.so. */
static int is_glibc_loader(const char *path)
{
    const char *name = rs_base_name(path);
    return rs_starts_with(name, "ld-linux") || rs_starts_with(name, "ld64.so") || rs_starts_with(name, "ld-2.")
        || rs_starts_with(name, "ld.so");
}

/* Before 2.34 the loader was called ld-2.31.so, and its well-known name was a link to that. */
static int loader_version(const char *path)
{
    char target[128];
    long length = rankscope_raw(SYS_readlinkat, AT_FDCWD, (long)path, (long)target, sizeof target - 1, 0, 0);
    target[length > 0 ? length : 0] = 0;
    const char *name = rs_base_name(length > 0 ? target : path);
    int minor = 0;
    if (!rs_starts_with(name, "ld-2."))
        return RS_ASKED_GLIBC > 34 ? RS_ASKED_GLIBC : 34;
    for (const char *digit = name + strlen("ld-2."); *digit >= '0' && *digit <= '9'; digit++)
        minor = minor * 10 + (*digit - '0');
    return minor;
}

static struct rs_finding by_loader(const char *path)
{
    if (!is_glibc_loader(path))
        return (struct rs_finding){"another C library than glibc", 1};
    if (loader_version(path) < RS_ASKED_GLIBC)
        return (struct rs_finding){"an older glibc than the recorder needs", 1};
    return recordable;
}

static int must_be_first(const char *library)
{
    static const char *const runtimes[] = {"libasan.", "libhwasan.", "libtsan.", "libclang_rt.asan", "libclang_rt.hwasan",
                                           "libclang_rt.tsan"};
    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++)
        if (rs_starts_with(library, runtimes[i]))
            return 1;
    return 0;
}

/* Where in the file lies what is at this address in memory. */
static uint64_t offset_of(long fd, const ElfW(Ehdr) *head, uint64_t address)
{
    ElfW(Phdr) part;
    for (int i = 0; i < head->e_phnum; i++)
        if (at(fd, &part, sizeof part, head->e_phoff + (uint64_t)i * sizeof part) == (long)sizeof part
            && part.p_type == PT_LOAD && address >= part.p_vaddr && address - part.p_vaddr < part.p_filesz)
            return address - part.p_vaddr + part.p_offset;
    return 0;
}

static int needs_sanitizer(long fd, const ElfW(Ehdr) *head, const ElfW(Phdr) *dynamic)
{
    uint64_t names[MOST_NEEDED], strings = 0;
    int needed = 0, ended = 0;
    ElfW(Dyn) entries[16];
    for (uint64_t from = 0; !ended && from + sizeof *entries <= dynamic->p_filesz; from += sizeof entries) {
        long got = at(fd, entries, sizeof entries, dynamic->p_offset + from);
        if (got <= 0)
            return 0;
        for (int i = 0; i < (int)((size_t)got / sizeof *entries) && !ended; i++) {
            ended = entries[i].d_tag == DT_NULL;
            if (entries[i].d_tag == DT_NEEDED && needed < MOST_NEEDED)
                names[needed++] = entries[i].d_un.d_val;
            else if (entries[i].d_tag == DT_STRTAB)
                strings = entries[i].d_un.d_ptr;
        }
    }
    uint64_t offset = strings ? offset_of(fd, head, strings) : 0;
    for (int i = 0; offset && i < needed; i++) {
        char name[32] = "";
        if (at(fd, name, sizeof name - 1, offset + names[i]) > 0 && must_be_first(name))
            return 1;
    }
    return 0;
}

static struct rs_finding by_elf(long fd, const ElfW(Ehdr) *head, const char *path)
{
    if (head->e_ident[EI_CLASS] != __ehdr_start.e_ident[EI_CLASS] || head->e_machine != __ehdr_start.e_machine)
        return (struct rs_finding){"made for another processor", 1};
    char loader[256] = "";
    ElfW(Phdr) part, dynamic = {0};
    if (head->e_phentsize != sizeof part)
        return recordable;      /* exec says what is wrong */
    for (int i = 0; i < head->e_phnum; i++) {
        if (at(fd, &part, sizeof part, head->e_phoff + (uint64_t)i * sizeof part) != (long)sizeof part)
            return recordable;
        if (part.p_type == PT_INTERP && at(fd, loader, sizeof loader - 1, part.p_offset) > 0)
            loader[part.p_filesz < sizeof loader ? part.p_filesz : sizeof loader - 1] = 0;
        else if (part.p_type == PT_DYNAMIC)
            dynamic = part;
    }
    if (!loader[0] && rs_starts_with(rs_base_name(path), "ld"))   /* a loader, called with the program as an argument */
        return rs_starts_with(rs_base_name(path), "ld-musl") || is_glibc_loader(path) ? by_loader(path) : recordable;
    if (!loader[0])
        return (struct rs_finding){"statically linked", 0};
    struct rs_finding found = by_loader(loader);
    if (!found.why && dynamic.p_filesz && needs_sanitizer(fd, head, &dynamic))
        return (struct rs_finding){"a sanitizer whose runtime must come first", 1};
    return found;
}

/* The interpreter of a script, in place of its path: 1. Without one /bin/sh reads it where the caller is execvp. */
static int interpreter_of(const char *head, char *path)
{
    if (head[0] != '#' || head[1] != '!') {
        strcpy(path, "/bin/sh");
        return 1;
    }
    const char *from = head + 2 + strspn(head + 2, " \t");
    size_t length = strcspn(from, " \t\n");
    if (!length || length >= MOST_PATH)
        return 0;
    memcpy(path, from, length);
    path[length] = 0;
    return 1;
}

static long open_to_look(int folder, const char *path)
{
    return rankscope_raw(SYS_openat, folder, (long)path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0, 0, 0);
}

/* What cannot be looked at is left to exec. */
static struct rs_finding by_content(long fd, const char *called, char *path)
{
    union { char text[256]; ElfW(Ehdr) elf; } head;
    const char *name = called;
    struct rs_finding found = recordable;
    for (int level = 0; fd >= 0; level++) {
        memset(&head, 0, sizeof head);
        long got = at(fd, &head, sizeof head - 1, 0);
        int is_elf = got >= (long)sizeof head.elf && !memcmp(head.text, ELFMAG, SELFMAG);
        if (is_elf)
            found = by_elf(fd, &head.elf, name);
        rankscope_raw(SYS_close, fd, 0, 0, 0, 0, 0);
        if (is_elf || got <= 0 || level == MOST_INTERPRETERS || !interpreter_of(head.text, path))
            break;
        name = path;
        fd = open_to_look(AT_FDCWD, path);
    }
    return found;
}

static int may_execute(int folder, const char *path)
{
    return rankscope_raw(SYS_faccessat, folder, (long)path, X_OK, 0, 0, 0) == 0;
}

/* The file that a search along PATH comes to, opened. */
static long search(const char *name, char *path)
{
    const char *folders = getenv("PATH"), *end;
    for (const char *from = folders ? folders : "/bin:/usr/bin"; from; from = *end ? end + 1 : NULL) {
        end = from + strcspn(from, ":");
        size_t length = (size_t)(end - from), name_length = strlen(name);
        if (length + name_length + 2 > MOST_PATH)
            continue;
        memcpy(path, from, length);
        path[length] = '/';
        memcpy(path + (length ? length + 1 : 0), name, name_length + 1);
        char byte;
        long fd = may_execute(AT_FDCWD, path) ? open_to_look(AT_FDCWD, path) : -ENOENT;
        if (fd == -EACCES)      /* may be executed but not read */
            return -1;
        if (fd >= 0 && at(fd, &byte, 1, 0) == 1)
            return fd;
        if (fd >= 0)
            rankscope_raw(SYS_close, fd, 0, 0, 0, 0, 0);
    }
    return -1;
}

static void descriptor_path(int fd, char *path)
{
    char digits[12], *digit = digits + sizeof digits - 1;
    for (*digit = 0; fd > 0 || !*digit; fd /= 10)
        *--digit = (char)('0' + fd % 10);
    strcpy(path, "/proc/self/fd/");
    strcat(path, digit);
}

struct rs_finding rs_program_of_descriptor(int fd, const char *called)
{
    char path[MOST_PATH];
    if (fd < 0)
        return recordable;
    descriptor_path(fd, path);
    return by_content(open_to_look(AT_FDCWD, path), called, path);
}

struct rs_finding rs_program_named(const char *name)
{
    char path[MOST_PATH];
    return by_content(search(name, path), name, path);
}

struct rs_finding rs_program_at(int folder, const char *called)
{
    char path[MOST_PATH];
    return may_execute(folder, called) ? by_content(open_to_look(folder, called), called, path) : recordable;
}
