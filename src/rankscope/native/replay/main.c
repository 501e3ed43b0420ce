/* rankscope-replay: what `rankscope imports replay` starts; each client is a process, and all begin at one moment. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "replay.h"

enum { CLIENTS = 256, OPERATIONS, TIMES, START, NO_READS };
static const struct option options[] = {
    {"clients", required_argument, NULL, CLIENTS}, {"operations", required_argument, NULL, OPERATIONS},
    {"times", required_argument, NULL, TIMES},     {"start-ns", required_argument, NULL, START},
    {"no-reads", no_argument, NULL, NO_READS},     {NULL, 0, NULL, 0},
};

static int complain(const char *what) {
    fprintf(stderr, "rankscope imports replay: %s: %s\n", what, strerror(errno));
    return 1;
}

static char *whole_file(const char *path, size_t *size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat found;
    if (file < 0 || fstat(file, &found) != 0) return NULL;
    *size = (size_t)found.st_size;
    char *text = calloc(1, *size + 1); /* closed by a zero byte, whatever the file holds */
    for (size_t have = 0; text && have < *size;) {
        ssize_t got = read(file, text + have, *size - have);
        if (got <= 0) {
            free(text);
            text = NULL;
        } else {
            have += (size_t)got;
        }
    }
    close(file);
    return text;
}

static int load(struct replay_plan *plan, const char *path) {
    size_t size = 0, count = 0;
    char *text = whole_file(path, &size);
    if (!text) return -1;
    for (size_t place = 0; place < size; place++) count += text[place] == 0;
    plan->operations = calloc(count + 1, sizeof *plan->operations);
    if (!plan->operations) return -1;
    for (char *at = text; at + 2 < text + size; at += strlen(at) + 1)
        plan->operations[plan->operation_count++] = (struct replay_operation){at[0], at[1], at + 2};
    return 0;
}

static void *shared(size_t size, int file) {
    int flags = MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0);
    void *memory = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, flags, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int make_room(struct replay_plan *plan, const char *times_path) {
    size_t size = (size_t)plan->client_count * plan->operation_count * sizeof *plan->times;
    int file = open(times_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)size) != 0) return -1;
    plan->times = shared(size, file);
    plan->clients = shared((size_t)plan->client_count * sizeof *plan->clients, -1);
    close(file);
    return plan->times && plan->clients ? 0 : -1;
}

static void be_client(const struct replay_plan *plan, int number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct timespec start = {plan->start_ns / 1000000000, plan->start_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL) == EINTR) continue;
    replay_operations(plan, number);
    _exit(0);
}

static int run_clients(struct replay_plan *plan) {
    int lost = 0, status;
    int64_t soonest_ns = replay_now_ns() + 50000000 + plan->client_count * 2000000ll;
    if (plan->start_ns < soonest_ns) plan->start_ns = soonest_ns;
    for (int number = 0; number < plan->client_count; number++) {
        pid_t child = fork();
        if (child == 0) be_client(plan, number);
        if (child < 0) return -1;
    }
    while (wait(&status) > 0) lost += status != 0;
    return lost == 0 ? 0 : -1;
}

static void print(const struct replay_plan *plan) {
    for (int number = 0; number < plan->client_count; number++) {
        const struct replay_client *client = &plan->clients[number];
        printf("%d %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", number, client->begin_ns,
               client->end_ns, client->failed, client->otherwise, client->reads, client->bytes);
    }
}

int main(int count, char **words) {
    struct replay_plan plan = {.client_count = 1, .reads = true};
    const char *operations = NULL, *times = NULL;
    for (int option; (option = getopt_long(count, words, "", options, NULL)) != -1;) switch (option) {
        case CLIENTS: plan.client_count = atoi(optarg); break;
        case OPERATIONS: operations = optarg; break;
        case TIMES: times = optarg; break;
        case START: plan.start_ns = atoll(optarg); break;
        case NO_READS: plan.reads = false; break;
        default: return 2;
        }
    if (!operations || !times || plan.client_count < 1) return errno = EINVAL, complain("--clients --operations --times") + 1;
    if (load(&plan, operations) != 0) return complain(operations);
    if (make_room(&plan, times) != 0) return complain(times);
    if (run_clients(&plan) != 0) return complain("a client was lost");
    print(&plan);
    return 0;
}
