/* Nothing stays mounted: who serves and who watches over it are two processes, and each cleans up after the other. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slow.h"

static volatile sig_atomic_t asked_to_end;
static volatile pid_t command_process;

static void note_signal(int signal_number) {
    asked_to_end = signal_number;
    if (command_process > 0) kill(command_process, signal_number);
}

static void on_signals(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler}; /* no SA_RESTART: waiting must end */
    const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t place = 0; place < sizeof signals / sizeof *signals; place++) sigaction(signals[place], &action, NULL);
}

static void unmount_and_end(int signal_number) {
    (void)signal_number;
    slow_unmount(slow_settings.mount_point);
    _exit(0);
}

/* Files the clients hold open are descriptors here. */
static void allow_many_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int mount_source(void) {
    struct stat root;
    if (slow_nodes_start(slow_settings.source) != 0 || fstat(slow_source, &root) != 0) {
        slow_complain("%s: %s: give a folder that can be read", slow_settings.source, strerror(errno));
        return -1;
    }
    if (slow_pace_start() != 0) {
        slow_complain("--server %s: %s: give a file that can be written and is no other program's",
                      slow_settings.server_file ? slow_settings.server_file : "(memory)", strerror(errno));
        return -1;
    }
    return slow_mount(slow_settings.mount_point, &root);
}

static pid_t start_server(int device) {
    pid_t watcher = getpid(), server = fork();
    if (server != 0) return server;
    on_signals(unmount_and_end);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != watcher) unmount_and_end(0);
    setpgid(0, 0); /* Ctrl-C is for the command; the files must stay until it has ended */
    allow_many_files();
    slow_serve(device);
    _exit(0);
}

static int write_counters(void) {
    char text[4096];
    if (!slow_settings.counters_file) return 0;
    size_t length = slow_counters_text(slow_counters, text, sizeof text);
    FILE *file = fopen(slow_settings.counters_file, "w");
    bool good = file && fwrite(text, 1, length, file) == length;
    if (file && fclose(file) != 0) good = false;
    if (!good) slow_complain("--counters %s: cannot be written: %s", slow_settings.counters_file, strerror(errno));
    return good ? 0 : -1;
}

static void end_server(pid_t server) {
    slow_unmount(slow_settings.mount_point);
    kill(server, SIGKILL);
    while (waitpid(server, NULL, 0) < 0 && errno == EINTR) continue;
}

static void go_to_background(void) {
    fflush(NULL);
    setsid();
    int nowhere = open("/dev/null", O_RDWR);
    for (int descriptor = 0; nowhere >= 0 && descriptor < 3; descriptor++) dup2(nowhere, descriptor);
    if (chdir("/") != 0) return;
}

static int watch(int device) {
    on_signals(note_signal);
    pid_t server = start_server(device);
    close(device);
    if (slow_settings.foreground) {
        puts("ready");
        fflush(stdout);
    }
    while (!asked_to_end && waitpid(server, NULL, 0) < 0 && errno == EINTR) continue;
    end_server(server);
    return write_counters() == 0 ? 0 : 1;
}

/* Serves until it is unmounted or told to end; in the background unless --foreground. */
int slow_keep_mounted(void) {
    pid_t starter = getppid();
    int device = mount_source();
    if (device < 0) return 1;
    if (slow_settings.foreground) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != starter) return slow_unmount(slow_settings.mount_point), 1;
        return watch(device);
    }
    pid_t background = fork();
    if (background != 0) return background < 0 ? 1 : 0;
    go_to_background();
    _exit(watch(device));
}

static pid_t start_command(char **command) {
    pid_t watcher = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* without the watcher its files would be gone */
    if (getppid() != watcher) _exit(125);
    on_signals(SIG_DFL);
    execvp(command[0], command);
    slow_complain("%s: cannot be started: %s", command[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/* The command sees the slow folder and nobody else does. */
int slow_run_command(char **command) {
    int status = 0;
    pid_t starter = getppid();
    if (slow_enter_namespace() != 0) return 125;
    int device = mount_source();
    if (device < 0) return 125;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    on_signals(note_signal);
    if (getppid() != starter) asked_to_end = SIGTERM;
    pid_t server = start_server(device);
    close(device);
    command_process = start_command(command);
    if (asked_to_end) kill(command_process, asked_to_end);
    while (waitpid(command_process, &status, 0) < 0 && errno == EINTR) continue;
    command_process = 0;
    end_server(server);
    write_counters();
    return exit_code(status);
}
