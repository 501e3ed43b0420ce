/* Programs that a recorded process starts. One that cannot take the recorder must run as without it: the dynamic loader
 * of another C library or of an older glibc ends the program when it cannot bind our library, a sanitizer's runtime when
 * it does not come first, and where our path is not there (a container, a changed root) every process would complain of
 * it. So the program is looked at before it is started, and what is ours is taken out of its environment.
 *
 * Runs in children of vfork, in signal handlers and on small stacks: system calls only, nothing that lasts is written
 * but a line in the folder of the run. None of these calls is a point of cancellation, and none counts as the program's. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "calls_layer.h"
#include "process.h"
#include "recorder.h"

#define MOST_INTERPRETERS 4     /* of a script whose interpreter is a script */
#define MOST_PATH 1024
#define MOST_NEEDED 24          /* a sanitizer's runtime is among the first */
#define MOST_VARIABLES 16384    /* the stack has room for no more */
#define MOST_NOTES_BYTES 65536

static char own_library[512], own_package[512];     /* empty: nothing was recorded here, nothing is looked at */
static size_t own_package_length;
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));     /* of this library, as mapped */

/* --- what a file is --- */

struct finding {
    const char *why;            /* NULL: it can be recorded */
    int take_out;               /* and our libraries would harm it */
};

static const struct finding recordable = {NULL, 0};

static long at(long fd, void *to, size_t bytes, uint64_t offset)
{
    return rankscope_raw(SYS_pread64, fd, (long)to, (long)bytes, (long)offset, 0, 0);
}

static int starts_with(const char *text, const char *beginning) { return !strncmp(text, beginning, strlen(beginning)); }

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ld-linux-x86-64.so.2, ld64.so.2 and, before 2.34, ld-2.31.so. */
static int is_glibc_loader(const char *path)
{
    const char *name = base_name(path);
    return starts_with(name, "ld-linux") || starts_with(name, "ld64.so") || starts_with(name, "ld-2.")
        || starts_with(name, "ld.so");
}

/* Before 2.34 the loader was called ld-2.31.so, and its well-known name was a link to that. */
static int loader_version(const char *path)
{
    char target[128];
    long length = rankscope_raw(SYS_readlinkat, AT_FDCWD, (long)path, (long)target, sizeof target - 1, 0, 0);
    target[length > 0 ? length : 0] = 0;
    const char *name = base_name(length > 0 ? target : path);
    int minor = 0;
    if (!starts_with(name, "ld-2."))
        return RS_ASKED_GLIBC > 34 ? RS_ASKED_GLIBC : 34;
    for (const char *digit = name + strlen("ld-2."); *digit >= '0' && *digit <= '9'; digit++)
        minor = minor * 10 + (*digit - '0');
    return minor;
}

static struct finding by_loader(const char *path)
{
    if (!is_glibc_loader(path))
        return (struct finding){"another C library than glibc", 1};
    if (loader_version(path) < RS_ASKED_GLIBC)
        return (struct finding){"an older glibc than the recorder needs", 1};
    return recordable;
}

static int must_be_first(const char *library)
{
    static const char *const runtimes[] = {"libasan.", "libhwasan.", "libtsan.", "libclang_rt.asan", "libclang_rt.hwasan",
                                           "libclang_rt.tsan"};
    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++)
        if (starts_with(library, runtimes[i]))
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

static struct finding by_elf(long fd, const ElfW(Ehdr) *head, const char *path)
{
    if (head->e_ident[EI_CLASS] != __ehdr_start.e_ident[EI_CLASS] || head->e_machine != __ehdr_start.e_machine)
        return (struct finding){"made for another processor", 1};
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
    if (!loader[0] && starts_with(base_name(path), "ld"))   /* a loader, called with the program as an argument */
        return starts_with(base_name(path), "ld-musl") || is_glibc_loader(path) ? by_loader(path) : recordable;
    if (!loader[0])
        return (struct finding){"statically linked", 0};
    struct finding found = by_loader(loader);
    if (!found.why && dynamic.p_filesz && needs_sanitizer(fd, head, &dynamic))
        return (struct finding){"a sanitizer whose runtime must come first", 1};
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
static struct finding by_content(long fd, const char *called, char *path)
{
    union { char text[256]; ElfW(Ehdr) elf; } head;
    const char *name = called;
    struct finding found = recordable;
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

/* --- what is started --- */

enum how { BY_PATH, BY_NAME, BY_DESCRIPTOR, BY_FOLDER, SPAWN, SPAWN_BY_NAME };

struct request {
    enum how how;
    int folder, flags;
    const char *path;
    char *const *arguments;
    pid_t *pid;
    const posix_spawn_file_actions_t *actions;
    const posix_spawnattr_t *attributes;
};

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

static struct finding find(const struct request *request)
{
    char path[MOST_PATH];
    const char *called = request->path;
    long fd = -1;
    int named = request->how == BY_NAME || request->how == SPAWN_BY_NAME;
    if (rankscope_raw(SYS_faccessat, AT_FDCWD, (long)own_library, R_OK, 0, 0, 0) != 0)
        return (struct finding){"the recorder is not in its file system", 1};
    if (request->how == BY_DESCRIPTOR || (request->how == BY_FOLDER && called && !called[0])) {
        if (request->folder < 0)
            return recordable;
        descriptor_path(request->folder, path);
        fd = open_to_look(AT_FDCWD, path);
    } else if (!called || !called[0]) {
        return recordable;
    } else if (named && !strchr(called, '/')) {
        fd = search(called, path);
    } else if (may_execute(request->folder, called)) {
        fd = open_to_look(request->folder, called);
    }
    return fd < 0 ? recordable : by_content(fd, called ? called : "", path);
}

/* --- the real calls --- */

static int (*real_execve)(const char *, char *const *, char *const *);
static int (*real_execvpe)(const char *, char *const *, char *const *);
static int (*real_fexecve)(int, char *const *, char *const *);
static int (*real_spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                         char *const *, char *const *);
static __typeof__(real_spawn) real_spawnp;

struct wanted { const char *name; uint32_t hash; int past_us; void *found; };

/* The default version of it in this object: the others are hidden. */
static void *defined_in(const struct dl_phdr_info *info, const struct wanted *wanted)
{
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const uint32_t *hash = NULL;
    const ElfW(Half) *versions = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        ElfW(Addr) pointer = entry->d_un.d_ptr;
        const void *place = (const void *)(pointer < info->dlpi_addr ? info->dlpi_addr + pointer : pointer);
        switch (entry->d_tag) {
        case DT_SYMTAB: symbols = place; break;
        case DT_STRTAB: strings = place; break;
        case DT_GNU_HASH: hash = place; break;
        case DT_VERSYM: versions = place; break;
        }
    }
    if (!symbols || !strings || !hash || !hash[0])
        return NULL;
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(hash + 4) + hash[2]), *chain = bucket + hash[0];
    for (uint32_t index = bucket[wanted->hash % hash[0]]; index >= hash[1] && index; index++) {
        const ElfW(Sym) *symbol = &symbols[index];
        if (symbol->st_shndx != SHN_UNDEF && !(versions && versions[index] & 0x8000)
            && !strcmp(strings + symbol->st_name, wanted->name))
            return (void *)(info->dlpi_addr + symbol->st_value);
        if (chain[index - hash[1]] & 1)
            break;
    }
    return NULL;
}

static int look_behind_us(struct dl_phdr_info *info, size_t size, void *data)
{
    struct wanted *wanted = data;
    (void)size;
    if (wanted->past_us)
        wanted->found = defined_in(info, wanted);
    wanted->past_us |= info->dlpi_addr == (ElfW(Addr))&__ehdr_start;
    return wanted->found != NULL;
}

/* Who comes after us with this name. Before 2.34 dlsym is in libdl, which a program may do without. */
void *rs_next(const char *name)
{
    struct wanted wanted = {name, 5381, 0, NULL};
    if (dlsym)
        return dlsym(RTLD_NEXT, name);
    for (const uint8_t *letter = (const uint8_t *)name; *letter; letter++)
        wanted.hash = wanted.hash * 33 + *letter;
    dl_iterate_phdr(look_behind_us, &wanted);
    return wanted.found;
}

static void find_real(void)
{
    real_execve = (__typeof__(real_execve))rs_next("execve");
    real_execvpe = (__typeof__(real_execvpe))rs_next("execvpe");
    real_fexecve = (__typeof__(real_fexecve))rs_next("fexecve");
    real_spawn = (__typeof__(real_spawn))rs_next("posix_spawn");
    real_spawnp = (__typeof__(real_spawnp))rs_next("posix_spawnp");
}

static int result_of(long result)
{
    if (result >= 0)
        return (int)result;
    errno = (int)-result;
    return -1;
}

static int call(const struct request *request, char *const *environment)
{
    char *const *arguments = request->arguments;
    switch (request->how) {
    case BY_PATH:
        return real_execve ? real_execve(request->path, arguments, environment)
                           : result_of(rankscope_raw(SYS_execve, (long)request->path, (long)arguments, (long)environment, 0, 0, 0));
    case BY_NAME:
        return real_execvpe(request->path, arguments, environment);
    case BY_DESCRIPTOR:
        return real_fexecve(request->folder, arguments, environment);
    case BY_FOLDER:
        return result_of(rankscope_raw(SYS_execveat, request->folder, (long)request->path, (long)arguments, (long)environment,
                                       request->flags, 0));
    case SPAWN:
        return real_spawn(request->pid, request->path, request->actions, request->attributes, arguments, environment);
    default:
        return real_spawnp(request->pid, request->path, request->actions, request->attributes, arguments, environment);
    }
}

/* --- the environment without us --- */

static int is_ours(const char *word, size_t length)
{
    return own_package_length && length > own_package_length && !memcmp(word, own_package, own_package_length);
}

/* The value of this entry, if it is a variable that we write to; *between: what stands between its words. */
static const char *our_value(const char *entry, const char **between)
{
    static const struct { const char *name, *between; } written[] = {
        {"LD_PRELOAD=", ": "}, {"LD_AUDIT=", ":"}, {"PYTHONPATH=", ":"}, {"CUDA_INJECTION64_PATH=", ""},
        {"NVTX_INJECTION64_PATH=", ""}, {"NCCL_PROFILER_PLUGIN=", ""}};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        if (starts_with(entry, written[i].name)) {
            *between = written[i].between;
            return entry + strlen(written[i].name);
        }
    return NULL;
}

/* Bytes of text that the entry needs once our words are out: 0 if it has none, 1 if nothing is left. */
static size_t without_us(const char *entry, char *text)
{
    const char *between, *value = our_value(entry, &between);
    size_t used = value ? (size_t)(value - entry) : 0;
    int kept = 0, ours = 0;
    if (!value)
        return 0;
    if (text)
        memcpy(text, entry, used);
    while (*value) {
        size_t length = *between ? strcspn(value, between) : strlen(value);
        if (is_ours(value, length)) {
            ours = 1;
        } else if (length) {
            if (text && kept)
                text[used] = value[-1];
            used += kept ? 1 : 0;
            if (text)
                memcpy(text + used, value, length);
            used += length;
            kept = 1;
        }
        value += length + (value[length] != 0);
    }
    if (text)
        text[used] = 0;
    return !ours ? 0 : kept ? used + 1 : 1;
}

size_t rs_bare_environment_bytes(char *const *environment)
{
    size_t bytes = sizeof *environment;
    for (; *environment; environment++)
        bytes += sizeof *environment + without_us(*environment, NULL);
    return bytes;
}

/* Into memory of the size that rs_bare_environment_bytes says. */
char **rs_bare_environment(char *const *environment, void *memory)
{
    size_t count = 0, kept = 0;
    while (environment[count])
        count++;
    char **made = memory, *text = (char *)(made + count + 1);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = without_us(environment[i], NULL);
        if (bytes > 1) {
            without_us(environment[i], text);
            made[kept++] = text;
            text += bytes;
        } else if (!bytes) {
            made[kept++] = environment[i];
        }
    }
    made[kept] = NULL;
    return made;
}

/* --- what stays of it in the run --- */

static size_t append(char *to, size_t used, size_t most, const char *text)
{
    size_t length = strlen(text);
    if (used + length + 1 > most)
        length = most - used - 1;
    memcpy(to + used, text, length);
    to[used + length] = 0;
    return used + length;
}

static long open_notes(void)
{
    struct utsname host;
    char path[768];
    const char *folder = getenv("RANKSCOPE_COLLECT");
    if (!folder || !folder[0])
        folder = getenv("RANKSCOPE_DIR");
    if (!folder || !folder[0] || rankscope_raw(SYS_uname, (long)&host, 0, 0, 0, 0, 0) != 0)
        return -1;
    size_t used = append(path, 0, sizeof path, folder);
    used = append(path, used, sizeof path, "/unrecorded");
    size_t beside = append(path, used, sizeof path, "/");
    append(path, beside, sizeof path, host.nodename);
    for (char *letter = path + beside; *letter; letter++)
        if (*letter == '/')
            *letter = '_';
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
    long fd = rankscope_raw(SYS_openat, AT_FDCWD, (long)path, flags, 0644, 0, 0);
    if (fd != -ENOENT)
        return fd;
    path[used] = 0;
    rankscope_raw(SYS_mkdirat, AT_FDCWD, (long)path, 0755, 0, 0, 0);
    path[used] = '/';
    return rankscope_raw(SYS_openat, AT_FDCWD, (long)path, flags, 0644, 0, 0);
}

static int leave_note(const char *why, const char *program)
{
    char line[256];
    long fd = open_notes();
    if (fd < 0)
        return 0;
    size_t used = append(line, 0, sizeof line - 1, why), name = append(line, used, sizeof line - 1, "\t");
    used = append(line, name, sizeof line - 1, base_name(program));
    for (char *letter = line + name; *letter; letter++)
        if (*letter == '\t' || *letter == '\n')
            *letter = '?';
    line[used] = '\n';
    if (rankscope_raw(SYS_lseek, fd, 0, SEEK_END, 0, 0, 0) < MOST_NOTES_BYTES)
        rankscope_raw(SYS_write, fd, (long)line, (long)used + 1, 0, 0, 0);
    rankscope_raw(SYS_close, fd, 0, 0, 0, 0, 0);
    return 1;
}

/* The next image of this process will not say of the file of this one that it took its place. */
static int told_replaced(const struct request *request, int is_noted)
{
    struct rs_header *file = rs.file;
    if (!file || request->how >= SPAWN || rs.pid != rankscope_raw(SYS_getpid, 0, 0, 0, 0, 0, 0) || file->state != RS_RUNNING)
        return 0;
    if (!is_noted)      /* the folder of the run is out of reach, too */
        __atomic_fetch_or(&file->flags, RS_WENT_ON_UNRECORDED, __ATOMIC_RELAXED);
    __atomic_store_n(&file->state, RS_REPLACED, __ATOMIC_RELEASE);
    return 1;
}

/* --- the functions --- */

static int names_us(char *const *environment)
{
    const char *between;
    size_t count = 0;
    int found = 0;
    for (; environment && environment[count]; count++)
        if (starts_with(environment[count], "LD_PRELOAD=") || starts_with(environment[count], "LD_AUDIT=")) {
            const char *value = our_value(environment[count], &between);
            found |= value && strstr(value, own_package) != NULL;
        }
    return found && count < MOST_VARIABLES;
}

static __attribute__((noinline)) int call_bare(const struct request *request, char *const *environment)
{
    uint64_t memory[rs_bare_environment_bytes(environment) / sizeof(uint64_t) + 1];
    return call(request, rs_bare_environment(environment, memory));
}

static int start(const struct request *request, char *const *environment)
{
    if (!own_package_length || !names_us(environment))
        return call(request, environment);
    struct finding found = find(request);
    if (!found.why)
        return call(request, environment);
    const char *first = request->arguments && request->arguments[0] ? request->arguments[0] : "";
    int is_noted = leave_note(found.why, request->path && request->path[0] ? request->path : first);
    int replaced = told_replaced(request, is_noted);
    int result = found.take_out ? call_bare(request, environment) : call(request, environment);
    if (replaced)       /* it has failed */
        __atomic_store_n(&rs.file->state, RS_RUNNING, __ATOMIC_RELEASE);
    return result;
}

static int execute(enum how how, const char *path, char *const *arguments, char *const *environment)
{
    const struct request request = {.how = how, .folder = AT_FDCWD, .path = path, .arguments = arguments};
    if ((how == BY_NAME && !real_execvpe) || (how == BY_PATH && !real_execve))
        find_real();
    return start(&request, environment);
}

RS_EXPORT int execve(const char *path, char *const arguments[], char *const environment[])
{
    return execute(BY_PATH, path, arguments, environment);
}

RS_EXPORT int execv(const char *path, char *const arguments[]) { return execute(BY_PATH, path, arguments, environ); }

RS_EXPORT int execvp(const char *name, char *const arguments[]) { return execute(BY_NAME, name, arguments, environ); }

RS_EXPORT int execvpe(const char *name, char *const arguments[], char *const environment[])
{
    return execute(BY_NAME, name, arguments, environment);
}

/* The arguments of a call that lists them, and the environment after them where it has one. */
#define LISTED(how, path, has_environment)                                                                             \
    va_list rest;                                                                                                      \
    size_t count = 1;                                                                                                  \
    va_start(rest, first);                                                                                             \
    while (va_arg(rest, char *))                                                                                       \
        count++;                                                                                                       \
    va_end(rest);                                                                                                      \
    char *arguments[count + 1];                                                                                        \
    arguments[0] = (char *)first;                                                                                      \
    va_start(rest, first);                                                                                             \
    for (size_t i = 1; i <= count; i++)                                                                                \
        arguments[i] = va_arg(rest, char *);                                                                           \
    char *const *environment = has_environment ? va_arg(rest, char *const *) : environ;                                \
    va_end(rest);                                                                                                      \
    return execute(how, path, arguments, environment);

RS_EXPORT int execl(const char *path, const char *first, ...) { LISTED(BY_PATH, path, 0) }
RS_EXPORT int execle(const char *path, const char *first, ...) { LISTED(BY_PATH, path, 1) }
RS_EXPORT int execlp(const char *path, const char *first, ...) { LISTED(BY_NAME, path, 0) }

RS_EXPORT int fexecve(int fd, char *const arguments[], char *const environment[])
{
    const struct request request = {.how = BY_DESCRIPTOR, .folder = fd, .arguments = arguments};
    if (!real_fexecve)
        find_real();
    return start(&request, environment);
}

RS_EXPORT int execveat(int folder, const char *path, char *const arguments[], char *const environment[], int flags)
{
    const struct request request = {.how = BY_FOLDER, .folder = folder, .path = path, .arguments = arguments, .flags = flags};
    return start(&request, environment);
}

RS_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    const struct request request = {.how = SPAWN, .folder = AT_FDCWD, .path = path, .arguments = arguments, .pid = pid,
                                    .actions = actions, .attributes = attributes};
    if (!real_spawn)
        find_real();
    return start(&request, environment);
}

RS_EXPORT int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    const struct request request = {.how = SPAWN_BY_NAME, .folder = AT_FDCWD, .path = name, .arguments = arguments,
                                    .pid = pid, .actions = actions, .attributes = attributes};
    if (!real_spawnp)
        find_real();
    return start(&request, environment);
}

static int find_own_path(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (info->dlpi_addr != (ElfW(Addr))&__ehdr_start)
        return 0;
    if (info->dlpi_name && strlen(info->dlpi_name) < sizeof own_library)
        strcpy(own_library, info->dlpi_name);
    return 1;
}

/* From the new root neither the folder of the run nor a file of ours may be in reach: if this process is to say that it went
 * on unrecorded there, its file must be there before. */
RS_EXPORT int chroot(const char *path)
{
    static int (*real)(const char *);
    if (own_package_length && rs_recording())
        rs_telling();
    if (!real)
        real = (__typeof__(real))rs_next("chroot");
    return real ? real(path) : result_of(rankscope_raw(SYS_chroot, (long)path, 0, 0, 0, 0, 0));
}

/* At load: <package>/native/librankscope.so is this library, and everything of ours lies in <package>. */
void rs_exec_prepare(void)
{
    find_real();
    dl_iterate_phdr(find_own_path, NULL);
    strcpy(own_package, own_library);
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(own_package, '/');
        if (!slash)
            return;
        *slash = 0;
    }
    strcat(own_package, "/");
    own_package_length = strlen(own_package);
}
