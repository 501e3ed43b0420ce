/* Reads the kernel's requests, in as many threads as there are clients waiting, and answers each after its delay. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "slow.h"

/* The kernel wants room for a whole write, although none is ever sent. */
#define REQUEST_BYTES (FUSE_MIN_READ_BUFFER + 8192)
#define ANSWER_BYTES (sizeof(struct fuse_out_header) + SLOW_BIGGEST_READ)

struct answer {
    slow_handler *handler;
    enum slow_operation operation;
};

/* Python asks every file it opens whether it is a terminal; a client knows that without asking its server. */
static ssize_t refuse_ioctl(struct slow_request *request) {
    (void)request;
    return -ENOTTY;
}

/* What is not here is refused with ENOSYS, which for most requests the kernel remembers and asks no more. */
static const struct answer answers[] = {
    [FUSE_INIT] = {slow_do_init, SLOW_other},
    [FUSE_LOOKUP] = {slow_do_lookup, SLOW_lookup},
    [FUSE_GETATTR] = {slow_do_getattr, SLOW_getattr},
    [FUSE_ACCESS] = {slow_do_access, SLOW_access},
    [FUSE_READLINK] = {slow_do_readlink, SLOW_readlink},
    [FUSE_STATFS] = {slow_do_statfs, SLOW_statfs},
    [FUSE_OPEN] = {slow_do_open, SLOW_open},
    [FUSE_READ] = {slow_do_read, SLOW_read},
    [FUSE_RELEASE] = {slow_do_release, SLOW_release},
    [FUSE_OPENDIR] = {slow_do_opendir, SLOW_opendir},
    [FUSE_READDIR] = {slow_do_readdir, SLOW_readdir},
    [FUSE_IOCTL] = {refuse_ioctl, SLOW_ioctl},
    [FUSE_RELEASEDIR] = {slow_do_releasedir, SLOW_releasedir},
};

static int device;
static atomic_int idle_threads, all_threads;
static pthread_mutex_t ended_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended_signal = PTHREAD_COND_INITIALIZER;
static bool ended;

static void *serve_thread(void *unused);

static void start_thread(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    idle_threads++;
    all_threads++;
    if (pthread_create(&thread, &attributes, serve_thread, NULL) != 0) {
        idle_threads--;
        all_threads--;
    }
    pthread_attr_destroy(&attributes);
}

static void send_answer(uint64_t unique, char *answer, ssize_t result) {
    struct fuse_out_header *header = (struct fuse_out_header *)answer;
    header->unique = unique;
    header->error = result < 0 ? (int)result : 0;
    header->len = (uint32_t)(sizeof *header + (result > 0 ? (size_t)result : 0));
    if (write(device, answer, header->len) < 0) return; /* ENOENT: the client was killed meanwhile */
}

static void forget(const struct fuse_in_header *header, const char *body) {
    if (header->opcode == FUSE_FORGET) {
        slow_count(SLOW_forget, false, 0);
        slow_node_forget(header->nodeid, ((const struct fuse_forget_in *)body)->nlookup);
        return;
    }
    const struct fuse_batch_forget_in *batch = (const void *)body;
    const struct fuse_forget_one *one = (const void *)(batch + 1);
    for (uint32_t place = 0; place < batch->count; place++) {
        slow_count(SLOW_forget, false, 0);
        slow_node_forget(one[place].nodeid, one[place].nlookup);
    }
}

static void answer_request(const struct fuse_in_header *header, size_t size, char *answer, int64_t begin_ns) {
    struct slow_request request = {
        .header = header,
        .body = header + 1,
        .body_size = size - sizeof *header,
        .out = answer + sizeof(struct fuse_out_header),
        .out_capacity = SLOW_BIGGEST_READ,
        .uncounted = header->nodeid == SLOW_COUNTERS_ID,
    };
    bool known = header->opcode < sizeof answers / sizeof *answers && answers[header->opcode].handler;
    enum slow_operation operation = known ? answers[header->opcode].operation : SLOW_other;
    ssize_t result = known ? answers[header->opcode].handler(&request) : -ENOSYS;
    if (!request.uncounted) {
        slow_count(operation, request.missing, request.bytes);
        slow_delay(operation, begin_ns, request.bytes);
    }
    send_answer(header->unique, answer, result);
}

/* One request; false when there will be no more. */
static bool serve_one(char *request, char *answer) {
    ssize_t size = read(device, request, REQUEST_BYTES);
    int64_t begin_ns = slow_now_ns();
    if (size < 0) return errno == EINTR || errno == EAGAIN || errno == ENOENT;
    const struct fuse_in_header *header = (const void *)request;
    if ((size_t)size < sizeof *header) return false;
    if (header->opcode == FUSE_FORGET || header->opcode == FUSE_BATCH_FORGET) {
        forget(header, request + sizeof *header);
        return true;
    }
    if (header->opcode == FUSE_INTERRUPT) return true; /* the answer is on its way */
    if (header->opcode == FUSE_DESTROY) return false;
    /* Everybody is waiting: the next client must find somebody listening. */
    if (atomic_fetch_sub(&idle_threads, 1) == 1 && all_threads < slow_settings.threads) start_thread();
    answer_request(header, (size_t)size, answer, begin_ns);
    idle_threads++;
    return true;
}

static void tell_ended(void) {
    pthread_mutex_lock(&ended_lock);
    ended = true;
    pthread_cond_signal(&ended_signal);
    pthread_mutex_unlock(&ended_lock);
}

static void *serve_thread(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1); /* else every sleep is 50 µs too long */
    char *request = malloc(REQUEST_BYTES), *answer = malloc(ANSWER_BYTES);
    if (request && answer) {
        while (serve_one(request, answer)) continue;
        tell_ended();
    }
    free(request);
    free(answer);
    return NULL;
}

void slow_serve(int device_descriptor) {
    device = device_descriptor;
    start_thread();
    pthread_mutex_lock(&ended_lock);
    while (!ended) pthread_cond_wait(&ended_signal, &ended_lock);
    pthread_mutex_unlock(&ended_lock);
}
