/* A program of OpenCL that counts its own calls: opens the loader it is given, does what its arguments say, and prints what
 * must have been recorded: calls and errors by function, and of each kind of work how often, how many bytes, and how long
 * by its own profiling events. Declares what it uses itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *handle;
typedef uintptr_t word;

/* Every argument is a word; more of them than a function takes do no harm. */
typedef word everything(word, word, word, word, word, word, word, word, word, word, word, word, word, word);
#define W(x) ((word)(x))
#define PADDED(f, a, b, c, d, e, g, h, i, j, k, l, m, n, o, ...) \
    f(W(a), W(b), W(c), W(d), W(e), W(g), W(h), W(i), W(j), W(k), W(l), W(m), W(n), W(o))
#define CALL(f, ...) PADDED(f, __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

#define FUNCTIONS 64
static struct { const char *name; everything *call; long calls, errors; } functions[FUNCTIONS];
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static void *loader;

static int function_of(const char *name)
{
    pthread_mutex_lock(&counting);
    int i = 0;
    while (functions[i].name && strcmp(functions[i].name, name))
        i++;
    if (!functions[i].name) {
        functions[i].call = (everything *)dlsym(loader, name);
        functions[i].name = name;
    }
    pthread_mutex_unlock(&counting);
    return i;
}

static word counted(int at, word result, int failed)
{
    pthread_mutex_lock(&counting);
    functions[at].calls++;
    functions[at].errors += failed;
    pthread_mutex_unlock(&counting);
    return result;
}

/* A call that returns a status, or an object. */
#define ST(name, ...) ({ int at_ = function_of(#name); word r_ = CALL(functions[at_].call, __VA_ARGS__); \
                         (int32_t)counted(at_, r_, (int32_t)r_ != 0); })
#define OB(name, ...) ({ int at_ = function_of(#name); word r_ = CALL(functions[at_].call, __VA_ARGS__); \
                         (handle)counted(at_, r_, !r_); })
#define MUST(x) do { int e_ = (x); if (e_) { fprintf(stderr, "%s: %d\n", #x, e_); exit(3); } } while (0)

enum { KERNEL, READ, WRITE, COPY, FILL, KINDS };
static const char *const kind_names[KINDS] = {"spin", "[OpenCL memcpy DtoH]", "[OpenCL memcpy HtoD]", "[OpenCL memcpy DtoD]",
                                              "[OpenCL memset]"};
static struct { long count; unsigned long long bytes, ns; } works[KINDS];

static handle platform, device, context, program;
static const char *const source =
    "kernel void spin(global float *x, int n) { size_t i = get_global_id(0); float v = x[i];"
    " for (int k = 0; k < n; k++) v = v * 1.0000001f + 1e-7f; x[i] = v; }";

static void set_up(void)
{
    uint32_t count = 0;
    int32_t status = 0;
    MUST(ST(clGetPlatformIDs, 1, W(&platform), W(&count)));
    MUST(ST(clGetDeviceIDs, W(platform), W(0xFFFFFFFFu), 1, W(&device), W(&count)));
    context = OB(clCreateContext, 0, 1, W(&device), 0, 0, W(&status));
    program = OB(clCreateProgramWithSource, W(context), 1, W(&source), 0, W(&status));
    MUST(ST(clBuildProgram, W(program), 1, W(&device), 0, 0, 0));
}

static void note(int kind, uint64_t bytes, handle event, int is_profiled)
{
    uint64_t start = 0, end = 0;
    if (event) {
        MUST(ST(clWaitForEvents, 1, W(&event)));
        int32_t first = ST(clGetEventProfilingInfo, W(event), 0x1282, 8, W(&start), 0);
        int32_t second = ST(clGetEventProfilingInfo, W(event), 0x1283, 8, W(&end), 0);
        if ((first == 0) != is_profiled || (is_profiled ? 0 : first != -7 || second != -7))
            fprintf(stderr, "profiling was told though not asked for: %d %d\n", first, second);
        MUST(ST(clReleaseEvent, W(event)));
    }
    pthread_mutex_lock(&counting);
    works[kind].count++;
    works[kind].bytes += bytes;
    works[kind].ns += end - start;
    pthread_mutex_unlock(&counting);
}

#define BYTES 65536u

struct job { uint64_t seed; int rounds, properties, with_events; };

static uint64_t next(uint64_t *seed) { return *seed = *seed * 6364136223846793005u + 1442695040888963407u; }

static void check_queue(handle queue, uint64_t properties)
{
    uint64_t told = 99;
    MUST(ST(clGetCommandQueueInfo, W(queue), 0x1093, 8, W(&told), 0));
    if (told != properties)
        fprintf(stderr, "the queue has properties %llx\n", (unsigned long long)told);
    uint64_t list[8] = {0};
    size_t size = 99;
    if (ST(clGetCommandQueueInfo, W(queue), 0x1098, sizeof list, W(list), W(&size)) == 0
        && (size != 24 || list[0] != 0x1093 || list[1] != properties || list[2]))
        fprintf(stderr, "the queue has a list of %zu bytes\n", size);
}

static void *do_job(void *given)
{
    struct job *job = given;
    int32_t status = 0;
    uint64_t list[] = {0x1093, (uint64_t)job->properties, 0}, zero = 0;
    int is_profiled = (job->properties & 2) != 0;
    handle queue = OB(clCreateCommandQueueWithProperties, W(context), W(device), W(list), W(&status));
    check_queue(queue, (uint64_t)job->properties);
    handle kernel = OB(clCreateKernel, W(program), W("spin"), W(&status));
    handle one = OB(clCreateBuffer, W(context), 1, BYTES, 0, W(&status));
    handle other = OB(clCreateBuffer, W(context), 1, BYTES, 0, W(&status));
    char *host = calloc(1, BYTES);
    for (int i = 0; i < job->rounds; i++) {
        handle event = NULL;
        word asked = job->with_events || next(&job->seed) >> 63 ? W(&event) : 0;
        uint64_t pick = next(&job->seed) >> 33, bytes = 64 + (next(&job->seed) >> 40) % (BYTES - 64);
        int n = (int)((next(&job->seed) >> 40) % 4000);
        size_t items = 1024;
        switch (pick % KINDS) {
        case KERNEL:
            MUST(ST(clSetKernelArg, W(kernel), 0, sizeof one, W(&one)));
            MUST(ST(clSetKernelArg, W(kernel), 1, sizeof n, W(&n)));
            MUST(ST(clEnqueueNDRangeKernel, W(queue), W(kernel), 1, 0, W(&items), 0, 0, 0, asked));
            bytes = 0;
            break;
        case READ: MUST(ST(clEnqueueReadBuffer, W(queue), W(one), pick & 1 << 20 ? 1 : 0, 0, bytes, W(host), 0, 0, asked)); break;
        case WRITE: MUST(ST(clEnqueueWriteBuffer, W(queue), W(one), 0, 0, bytes, W(host), 0, 0, asked)); break;
        case COPY: MUST(ST(clEnqueueCopyBuffer, W(queue), W(one), W(other), 0, 0, bytes, 0, 0, asked)); break;
        default:
            bytes &= ~(uint64_t)7;
            MUST(ST(clEnqueueFillBuffer, W(queue), W(one), W(&zero), 8, 0, bytes, 0, 0, asked));
        }
        note((int)(pick % KINDS), bytes, event, is_profiled);
        if (job->properties & 1)
            MUST(ST(clFinish, W(queue)));   /* what it does there has no order: host is one buffer */
    }
    MUST(ST(clFinish, W(queue)));
    MUST(ST(clReleaseKernel, W(kernel)));
    MUST(ST(clReleaseMemObject, W(one)));
    MUST(ST(clReleaseMemObject, W(other)));
    MUST(ST(clReleaseCommandQueue, W(queue)));
    free(host);
    return NULL;
}

static void in_threads(int threads, struct job job)
{
    pthread_t all[16];
    struct job jobs[16];
    for (int i = 0; i < threads; i++) {
        jobs[i] = job;
        jobs[i].seed = job.seed * 1000 + (uint64_t)i;
        pthread_create(&all[i], NULL, do_job, &jobs[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
}

/* Errors of the program, commands that never run, references that it counts. */
static void odd_things(void)
{
    int32_t status = 0;
    uint32_t references = 0;
    size_t items = 64;
    int n = 1;
    handle queue = OB(clCreateCommandQueue, W(context), W(device), 0, W(&status));
    handle kernel = OB(clCreateKernel, W(program), W("spin"), W(&status));
    handle one = OB(clCreateBuffer, W(context), 1, BYTES, 0, W(&status)), event = NULL, gate = NULL;
    if (OB(clCreateKernel, W(program), W("missing"), W(&status)))
        fprintf(stderr, "a kernel that is not there\n");
    if (!ST(clEnqueueReadBuffer, W(queue), W(one), 1, BYTES, BYTES, W(&n), 0, 0, 0))
        fprintf(stderr, "read past the end\n");
    MUST(ST(clSetKernelArg, W(kernel), 0, sizeof one, W(&one)));
    MUST(ST(clSetKernelArg, W(kernel), 1, sizeof n, W(&n)));
    gate = OB(clCreateUserEvent, W(context), W(&status));
    MUST(ST(clEnqueueNDRangeKernel, W(queue), W(kernel), 1, 0, W(&items), 0, 1, W(&gate), W(&event)));
    MUST(ST(clGetEventInfo, W(event), 0x11D2, 4, W(&references), 0));
    printf("references_waiting %u\n", references);
    MUST(ST(clSetUserEventStatus, W(gate), 0));
    MUST(ST(clWaitForEvents, 1, W(&event)));
    for (int i = 0; i < 2000; i++) {        /* PoCL's own threads give theirs up some time after the end */
        MUST(ST(clGetEventInfo, W(event), 0x11D2, 4, W(&references), 0));
        if (references <= 2)
            break;
        usleep(1000);
    }
    printf("references_done %u\n", references);
    MUST(ST(clReleaseEvent, W(event)));
    MUST(ST(clReleaseEvent, W(gate)));
    note(KERNEL, 0, NULL, 0);
    MUST(ST(clGetCommandQueueInfo, W(queue), 0x1092, 4, W(&references), 0));
    printf("references_queue %u\n", references);
    MUST(ST(clGetContextInfo, W(context), 0x1080, 4, W(&references), 0));
    printf("references_context %u\n", references);
    MUST(ST(clReleaseMemObject, W(one)));
    MUST(ST(clReleaseKernel, W(kernel)));
    MUST(ST(clReleaseCommandQueue, W(queue)));
}

static void memory(void)
{
    int32_t status = 0;
    handle one = OB(clCreateBuffer, W(context), 1, 1000, 0, W(&status));
    handle two = OB(clCreateBuffer, W(context), 1, 3000, 0, W(&status));
    MUST(ST(clRetainMemObject, W(one)));
    MUST(ST(clReleaseMemObject, W(one)));
    MUST(ST(clReleaseMemObject, W(two)));
    handle three = OB(clCreateBuffer, W(context), 1, 500, 0, W(&status));
    void *shared = OB(clSVMAlloc, W(context), 1, 4096, 0);
    (void)OB(clSVMFree, W(context), W(shared));
    functions[function_of("clSVMFree")].errors = 0;
    (void)three;
}

static void report(void)
{
    for (int i = 0; functions[i].name; i++)
        printf("call %s %ld %ld\n", functions[i].name, functions[i].calls, functions[i].errors);
    for (int i = 0; i < KINDS; i++)
        if (works[i].count)
            printf("work %ld %llu %llu %s\n", works[i].count, works[i].bytes, works[i].ns, kind_names[i]);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    loader = dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL);
    if (!loader) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    const char *what = arguments[2];
    uint64_t seed = count > 3 ? strtoull(arguments[3], NULL, 10) : 1;
    int rounds = count > 4 ? atoi(arguments[4]) : 100;
    set_up();
    if (!strcmp(what, "profiled"))
        do_job(&(struct job){seed, rounds, 2, 1});
    else if (!strcmp(what, "hidden"))
        do_job(&(struct job){seed, rounds, 0, 0});
    else if (!strcmp(what, "unordered"))
        do_job(&(struct job){seed, rounds, 1, 0});
    else if (!strcmp(what, "threads"))
        in_threads(4, (struct job){seed, rounds, 0, 0});
    else if (!strcmp(what, "odd"))
        odd_things();
    else if (!strcmp(what, "memory"))
        memory();
    else if (!strcmp(what, "fork")) {
        do_job(&(struct job){seed, rounds, 0, 0});
        pid_t child = fork();
        if (!child)
            _exit(7);
        int status;
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
    } else if (!strcmp(what, "exit")) {     /* with work that is never finished */
        int32_t status = 0;
        int n = 1;
        size_t items = 64;
        handle queue = OB(clCreateCommandQueue, W(context), W(device), 0, W(&status));
        handle kernel = OB(clCreateKernel, W(program), W("spin"), W(&status));
        handle one = OB(clCreateBuffer, W(context), 1, BYTES, 0, W(&status));
        handle gate = OB(clCreateUserEvent, W(context), W(&status));
        MUST(ST(clSetKernelArg, W(kernel), 0, sizeof one, W(&one)));
        MUST(ST(clSetKernelArg, W(kernel), 1, sizeof n, W(&n)));
        MUST(ST(clEnqueueNDRangeKernel, W(queue), W(kernel), 1, 0, W(&items), 0, 1, W(&gate), 0));
        report();
        _exit(5);
    } else if (!strcmp(what, "kill")) {
        do_job(&(struct job){seed, rounds, 0, 0});
        report();
        kill(getpid(), SIGKILL);
    }
    report();
    return 0;
}
