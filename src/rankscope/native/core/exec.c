/* Programs that a recorded process starts: exec and posix_spawn in all their forms. Each comes to `start`, which has the
 * program looked at (executables.c) before it is started: one that cannot take the recorder runs with what is ours taken
 * out of its environment, and a line in the folder of the run says so. Where our path is not there (a container, a changed
 * root) every process would complain of it.
 *
 * Runs in children of vfork, in signal handlers and on small stacks: system calls only, nothing that lasts is written
 * but that line. None of these calls is a point of cancellation, and none counts as the program's. */
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
#include "executables.h"
#include "process.h"
#include "recorder.h"

#define MOST_VARIABLES 16384    /* the stack has room for no more */
#define MOST_NOTES_BYTES 65536

static char own_library[512], own_package[512];     /* empty: nothing was recorded here, nothing is looked at */
static size_t own_package_length;
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));     /* of this library, as mapped */

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

static struct rs_finding find(const struct request *request)
{
    const char *called = request->path;
    int named = request->how == BY_NAME || request->how == SPAWN_BY_NAME;
    if (rankscope_raw(SYS_faccessat, AT_FDCWD, (long)own_library, R_OK, 0, 0, 0) != 0)
        return (struct rs_finding){"the recorder is not in its file system", 1};
    if (request->how == BY_DESCRIPTOR || (request->how == BY_FOLDER && called && !called[0]))
        return rs_program_of_descriptor(request->folder, called ? called : "");
    if (!called || !called[0])
        return (struct rs_finding){NULL, 0};
    return named && !strchr(called, '/') ? rs_program_named(called) : rs_program_at(request->folder, called);
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
        {"NVTX_INJECTION64_PATH=", ""}, {"NCCL_PROFILER_PLUGIN=", ""}, {"OPENCL_LAYERS=", ":"}};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        if (rs_starts_with(entry, written[i].name)) {
            *between = written[i].between;
            return entry + strlen(written[i].name);
        }
    return NULL;
}

/* What the job had in a variable that holds one path: `rankscope run` keeps it under a longer name. */
static char *theirs_in(char *const *environment, const char *entry)
{
    static const char longer[] = "RANKSCOPE_";
    const char *between;
    const char *value = our_value(entry, &between);
    if (!value || *between)
        return NULL;
    for (; *environment; environment++)
        if (rs_starts_with(*environment, longer)
            && !strncmp(*environment + sizeof longer - 1, entry, (size_t)(value - entry)))
            return *environment + sizeof longer - 1;
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
    char **made = memory, *text = (char *)(made + count + 1), *theirs;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = without_us(environment[i], NULL);
        if (bytes > 1) {
            without_us(environment[i], text);
            made[kept++] = text;
            text += bytes;
        } else if (!bytes) {
            made[kept++] = environment[i];
        } else if ((theirs = theirs_in(environment, environment[i]))) {
            made[kept++] = theirs;
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
    used = append(line, name, sizeof line - 1, rs_base_name(program));
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
        if (rs_starts_with(environment[count], "LD_PRELOAD=") || rs_starts_with(environment[count], "LD_AUDIT=")) {
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
    struct rs_finding found = find(request);
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
