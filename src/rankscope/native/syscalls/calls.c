/* Which system calls are counted, from when until when, and where. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls_layer.h"
#include "imports.h"
#include "recorder.h"

RS_EXPORT __thread struct rs_calls_thread rankscope_calls_thread __attribute__((tls_model("initial-exec")));
RS_EXPORT volatile int rankscope_calls_counting;

#define UNSEEN_START "what the dynamic loader did before the recorder was there is not counted (no ptrace here)"

static char own_folder[512];
static uint8_t with_paths, until_steps;

const char *rs_calls_own_folder(void) { return own_folder; }

/* The agent's: <package>/native/librankscope.so is this library. */
static void find_own_folder(void)
{
    Dl_info here;
    if (own_folder[0] || !dladdr((void *)rs_calls_begin, &here) || strlen(here.dli_fname) >= sizeof own_folder)
        return;
    strcpy(own_folder, here.dli_fname);
    for (int level = 0; level < 2; level++) {
        char *slash = strrchr(own_folder, '/');
        if (!slash)
            slash = own_folder;
        *slash = 0;
    }
    strncat(own_folder, "/agent", sizeof own_folder - strlen(own_folder) - 1);
}

static uint64_t key_of(uint32_t module, uint8_t cause, long number, uint16_t mount)
{
    return (uint64_t)(module & 0xFFFFF) | (uint64_t)cause << 20 | (uint64_t)(number & 0xFFF) << 24
         | (uint64_t)mount << 36 | (uint64_t)1 << 63;
}

void rs_calls_count(struct rs_calls_thread *self, const struct rs_call *call)
{
    int own = rs_call_is_own(call);
    uint16_t mount = own ? 0 : rs_call_mount(call);
    if (!own) {
        uint8_t cause = call->in_loader ? RS_CAUSE_LOADER : self->cause;
        rs_calls_row_add(self, key_of(self->module, cause, call->number, mount), call);
        if (with_paths)
            rs_path_add(self->module, cause, call);
    }
    rs_call_opened(call, mount, own);
}

/* May run in a signal handler; errno is the caller's. */
RS_EXPORT void rankscope_calls_add(struct rs_calls_thread *self, const struct rs_call *call)
{
    if (!rankscope_calls_counting || self->own || !rs.file)
        return;
    uint32_t before = self->counting;
    self->counting = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    rs_calls_count(self, call);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    self->counting = before;
    if (self->cancelled && !before)
        rs_signal_cancel_again(self);
}

static void note(const char *text)
{
    if (rs.file && text && text[0])
        rs.file->calls_note = rs_intern(text);
}

void rs_calls_say(const char *text)
{
    rs_own_enter();
    if (rs.file && !rs.file->calls_note)
        note(text);
    rs_own_leave();
}

/* Every thread ends its own dispatch at its next call. */
static void stop(void) { rankscope_calls_counting = 0; }

void rs_calls_stand_aside(const char *why)
{
    if (!rankscope_calls_counting)
        return;
    rs_own_enter();
    note(why);
    rs_own_leave();
    stop();
}

void rs_calls_enter_phase(uint8_t phase)
{
    if (until_steps && phase >= RS_PHASE_FIRST_STEP)
        stop();
}

/* They watch system calls and signals themselves, or would report what our handler does. */
static int sanitizer_is_here(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 1;
#else
    static const char *const marks[] = {"__asan_init", "__tsan_init",   "__lsan_init", "__msan_init",
                                        "__hwasan_init", "_vgnU_freeres" /* valgrind's */};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (dlsym(RTLD_DEFAULT, marks[i]))
            return 1;
    return getenv("VALGRIND_LIB") != NULL;
#endif
}

/* Each SIGSYS of ours would stop the program for whoever traces it. */
static int is_traced(void)
{
    char text[2048];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = 0;
    const char *tracer = strstr(text, "\nTracerPid:\t");
    return tracer && tracer[12] != '0';
}

static const char *choose_method(int traced)
{
    const char *why = "RANKSCOPE_DISPATCH=0 forbids system call user dispatch", *asked = getenv("RANKSCOPE_DISPATCH");
    if (traced)
        why = "a debugger or tracer watches the process: only calls of wrapped functions are counted";
    else if (!(asked && !strcmp(asked, "0")) && rs_dispatch_arm(&why)) {
        rs.file->calls_method = RS_CALLS_DISPATCH;
        return rs.file->loader_calls || rs.file->flags & RS_FORKED ? NULL : UNSEEN_START;
    }
    if (dlsym(RTLD_DEFAULT, "rankscope_calls_wrappers"))
        rs.file->calls_method = RS_CALLS_PRELOAD;
    return why;
}

void rs_calls_begin(int forked)
{
    const char *until = getenv("RANKSCOPE_IMPORTS_UNTIL");
    uint32_t mode = rs_imports_mode();
    rs.file->imports_mode = mode;
    if (mode < RS_IMPORTS_CALLS)
        return;
    if (sanitizer_is_here()) {
        note("a sanitizer or valgrind is in the process: system calls are not counted");
        return;
    }
    int traced = is_traced();
    with_paths = mode == RS_IMPORTS_PATHS;
    until_steps = !until || strcmp(until, "end");
    find_own_folder();
    rs_mounts_read();
    if (!rs_calls_table_open() || (with_paths && !rs_paths_open())) {
        note("the rank file has no room for system calls (raise --size)");
        return;
    }
    if (!forked && !traced)
        rs_loader_replay();
    rankscope_calls_counting = 1;
    const char *why = choose_method(traced);
    note(why);
    if (rs.file->calls_method == RS_CALLS_NONE)
        stop();
}

void rs_calls_forget(void)
{
    stop();
    rs_calls_table_forget();
    rs_paths_forget();
    rs_mounts_forget();
    rankscope_calls_thread.armed = rankscope_calls_thread.selector = 0;
}
