/* The rank file on disk: made, mapped, reserved. No descriptor stays open: programs close descriptors they
 * did not open, and a number used again would be somebody else's file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "process.h"
#include "recorder.h"

#define FIRST_RESERVE (16u * RS_PAGE)
#define RESERVE_STEP (64u * RS_PAGE)

static rs_lock chunk_lock;
static char problem[160];
static dev_t file_device;
static ino_t file_inode;
static uint64_t set_aside;

const char *rs_file_problem(void) { return problem; }

void rs_file_forget(void)
{
    set_aside = 0;
}

void rs_file_set_aside(uint64_t bytes) { set_aside = bytes; }

static void say(const char *what)
{
    snprintf(problem, sizeof problem, "%.100s: %.50s", what, strerror(errno));
}

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

void *rs_memory(size_t bytes)
{
    int saved = errno;
    rs_own_enter();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rs_own_leave();
    errno = saved;
    return memory == MAP_FAILED ? NULL : memory;
}

void rs_memory_free(void *memory, size_t bytes)
{
    rs_own_enter();
    if (memory && bytes)
        munmap(memory, bytes);
    rs_own_leave();
}

void rs_pause(long us)
{
    struct timespec time = {0, us * 1000};
    int saved = errno;
    syscall(SYS_nanosleep, &time, NULL);
    errno = saved;
}

/* Some ten to a hundred cycles, in which the holder has the core's other half to itself. */
static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Bounded: a signal handler that interrupted the holder must not wait for it for ever. Who sleeps, be it for no time,
 * sleeps for 50 µs: far longer than a lock is held, unless its holder has lost its CPU. */
int rs_lock_wait(rs_lock *lock)
{
    for (int spin = 0; spin < 20000; spin++) {
        if (rs_lock_try(lock))
            return 1;
        if (spin > 64)
            rs_pause(spin > 1000 ? 50 : 0);
        else
            relax();
    }
    return 0;
}

/* Real blocks, so that a page of ours that is touched later can never be the one the full disk has no room for. */
static int reserve(int fd, uint64_t from, uint64_t to)
{
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) == 0)
        return 1;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return 0;
    static const char zeros[RS_PAGE];
    for (uint64_t at = from; at < to; at += RS_PAGE)
        if (pwrite(fd, zeros, RS_PAGE, (off_t)at) != (ssize_t)RS_PAGE)
            return 0;
    return 1;
}

/* A limit on file sizes would kill the program with SIGXFSZ if we crossed it. */
static uint64_t within_limit(uint64_t bound_bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bound_bytes)
        bound_bytes = limit.rlim_cur / RS_PAGE * RS_PAGE;
    return bound_bytes;
}

static int open_in(const char *folder, const char *host, char *path, size_t size, int take)
{
    int length = take ? snprintf(path, size, "%s/ranks/%s/%d-%d.rank", folder, host, (int)getpid(), take)
                      : snprintf(path, size, "%s/ranks/%s/%d.rank", folder, host, (int)getpid());
    if (length >= (int)size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

/* Node-local folders are made on every node by whoever comes first; a shared run folder that is gone stays gone. */
static void make_local_folder(const char *folder)
{
    char path[512];
    const char *collect = getenv("RANKSCOPE_COLLECT");
    if (!collect || !collect[0] || snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path)
        return;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    mkdir(path, 0755);
}

void rs_file_make_folders(const char *folder, const char *host)
{
    char path[512];
    snprintf(path, sizeof path, "%s/ranks", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/ranks/%s", folder, host);
    mkdir(path, 0755);
}

/* Two programs that one process became in turn; not two processes of equal number. */
int rs_file_is_of_same_process(const struct rs_header *one, const struct rs_header *other)
{
    return !memcmp(one->magic, RS_MAGIC, sizeof one->magic) && one->pid == other->pid
        && one->start_jiffies == other->start_jiffies && one->boot_id == other->boot_id
        && one->pid_namespace == other->pid_namespace;
}

/* The program image this process had before exec left its file running: say what became of it. */
static void close_earlier_image(const char *path, const struct rs_header *identity)
{
    struct rs_header old;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    if (pread(fd, &old, sizeof old, 0) == (ssize_t)sizeof old && rs_file_is_of_same_process(&old, identity)
        && old.state == RS_RUNNING) {
        uint32_t replaced = RS_REPLACED;
        if (pwrite(fd, &replaced, sizeof replaced, offsetof(struct rs_header, state)) < 0)
            errno = 0;
    }
    close(fd);
}

static int open_new(const char *folder, const struct rs_header *identity)
{
    const char *host = identity->host;
    int made = 0;
    for (int take = 0; take < RS_NAMES_PER_PID; take++) {
        int fd = open_in(folder, host, rs.path, sizeof rs.path, take);
        if (fd < 0 && errno == ENOENT && !made++) {
            make_local_folder(folder);
            rs_file_make_folders(folder, host);
            fd = open_in(folder, host, rs.path, sizeof rs.path, take);
        }
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            return -1;
        close_earlier_image(rs.path, identity);
    }
    return -1;
}

static void *map_new(int fd, uint64_t bound_bytes)
{
    struct stat status;
    if (ftruncate(fd, (off_t)bound_bytes) != 0 || !reserve(fd, 0, FIRST_RESERVE) || rs_fstat(fd, &status) != 0)
        return NULL;
    void *base = mmap(NULL, bound_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return NULL;
    madvise(base, bound_bytes, MADV_RANDOM);    /* no read-ahead: the first touch would fill in the whole bound */
    file_device = status.st_dev;
    file_inode = status.st_ino;
    return base;
}

/* Everything but the magic, which the caller writes last: without it the file is not there yet for a reader. */
struct rs_header *rs_file_create(const char *folder, uint64_t bound_bytes, const struct rs_header *identity)
{
    bound_bytes = within_limit(bound_bytes);
    if (bound_bytes < FIRST_RESERVE) {
        snprintf(problem, sizeof problem, "the limit on file sizes leaves no room");
        return NULL;
    }
    int fd = open_new(folder, identity);
    if (fd < 0) {
        say(folder);
        return NULL;
    }
    struct rs_header *file = map_new(fd, bound_bytes);
    if (!file) {
        say(rs.path);
        unlink(rs.path);
    }
    close(fd);
    if (!file)
        return NULL;
    *file = *identity;
    memset(file->magic, 0, sizeof file->magic);
    file->bound_bytes = bound_bytes;
    file->reserved_bytes = FIRST_RESERVE;
    file->used_bytes = RS_PAGE;
    return file;
}

/* Only the file we mapped: its name may belong to another one by now. */
static int reopen(void)
{
    struct stat status;
    int fd = open(rs.path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (rs_fstat(fd, &status) != 0 || status.st_dev != file_device || status.st_ino != file_inode)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int reserve_up_to(uint64_t wanted)
{
    struct rs_header *file = rs.file;
    if (wanted > file->bound_bytes)
        return 0;
    if (wanted <= file->reserved_bytes)
        return 1;
    uint64_t target = round_up(wanted, RESERVE_STEP);
    if (target > file->bound_bytes)
        target = file->bound_bytes;
    int cancel = rs_cancel_off(), fd = reopen(), done = 0;
    if (fd >= 0) {
        done = reserve(fd, file->reserved_bytes, target);
        close(fd);
    }
    rs_cancel_back(cancel);
    if (done)
        file->reserved_bytes = target;
    return done;
}

void rs_file_reserve(uint64_t up_to_bytes)
{
    rs_own_enter();
    if (rs.file && rs_lock_take(&chunk_lock)) {
        int saved = errno;
        reserve_up_to(up_to_bytes < rs.file->bound_bytes ? up_to_bytes : rs.file->bound_bytes);
        errno = saved;
        rs_lock_give(&chunk_lock);
    }
    rs_own_leave();
}

static struct rs_chunk *new_chunk(uint32_t kind, uint32_t thread, uint32_t row_bytes, uint64_t chunk_bytes)
{
    if (!rs.file || !rs_lock_take(&chunk_lock))
        return NULL;
    int saved = errno;
    struct rs_chunk *chunk = NULL;
    uint64_t at = rs.file->used_bytes;
    chunk_bytes = round_up(chunk_bytes, RS_PAGE);
    uint64_t kept_free = kind == RS_CHUNK_TRACE ? 0 : set_aside;
    if (at + chunk_bytes + kept_free <= rs.file->bound_bytes && reserve_up_to(at + chunk_bytes)) {
        if (kind == RS_CHUNK_TRACE)
            set_aside = 0;
        chunk = (struct rs_chunk *)((char *)rs.file + at);
        chunk->kind = kind;
        chunk->thread = thread;
        chunk->row_bytes = row_bytes;
        chunk->chunk_bytes = (uint32_t)chunk_bytes;
        __atomic_store_n(&rs.file->used_bytes, at + chunk_bytes, __ATOMIC_RELEASE);
    }
    rs_lock_give(&chunk_lock);
    errno = saved;
    return chunk;
}

/* The chunk's header is written before used_bytes makes it visible. NULL where the file is full. For tallies it is asked
 * once: every call that is lost from then on would ask again. */
struct rs_chunk *rs_chunk_new(uint32_t kind, uint32_t thread, uint32_t row_bytes, uint64_t chunk_bytes)
{
    if (kind == RS_CHUNK_TALLIES && __atomic_load_n(&rs.full, __ATOMIC_RELAXED))
        return NULL;
    rs_own_enter();
    struct rs_chunk *chunk = new_chunk(kind, thread, row_bytes, chunk_bytes);
    rs_own_leave();
    if (kind == RS_CHUNK_TALLIES && !chunk)
        RS_SET(rs.full, 1);
    return chunk;
}

/* What only its parent knows: that a signal ended a child, and when a child was gone: one that ends itself says so before
 * its memory is given back, which takes long where there is much of it or the processors are busy. */
int rs_file_child_ended(const char *folder, const char *host, int32_t pid, int signal)
{
    char path[640];
    int done = 0;
    for (int take = 0; take < RS_NAMES_PER_PID && !done; take++) {
        struct rs_header child;
        uint32_t number = (uint32_t)signal, state = RS_SIGNALLED;
        if (take)
            snprintf(path, sizeof path, "%s/ranks/%s/%d-%d.rank", folder, host, pid, take);
        else
            snprintf(path, sizeof path, "%s/ranks/%s/%d.rank", folder, host, pid);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return 0;
        if (pread(fd, &child, sizeof child, 0) == (ssize_t)sizeof child && !child.reaped_ticks
            && child.state == (signal ? RS_RUNNING : RS_EXITED)
            && child.pid == pid && child.boot_id == rs_boot_id() && child.pid_namespace == rs_pid_namespace()) {
            uint64_t now = child.tick_source == rs_tick_source ? rs_ticks() : 0;
            done = 1;
            if (now && child.header_bytes >= sizeof child)
                done = pwrite(fd, &now, sizeof now, offsetof(struct rs_header, reaped_ticks)) > 0;
            if (signal)
                done = pwrite(fd, &number, sizeof number, offsetof(struct rs_header, end_signal)) > 0
                    && pwrite(fd, &state, sizeof state, offsetof(struct rs_header, state)) > 0;
        }
        close(fd);
    }
    return done;
}

/* The header of another process, to be counted in; unmapped by the caller. */
struct rs_header *rs_file_map_head(const char *folder, const char *host, const char *name)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s/ranks/%s/%s.rank", folder, host, name) >= (int)sizeof path)
        return NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat status;
    struct rs_header *head = MAP_FAILED;
    if (rs_fstat(fd, &status) == 0 && status.st_size >= (off_t)RS_PAGE)    /* not one that was cut: touching it would kill */
        head = mmap(NULL, RS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (head == MAP_FAILED)
        return NULL;
    if (!memcmp(head->magic, RS_MAGIC, sizeof head->magic) && head->header_bytes >= sizeof *head)
        return head;
    munmap(head, RS_PAGE);
    return NULL;
}
