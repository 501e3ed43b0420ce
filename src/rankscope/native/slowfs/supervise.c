/* Nothing stays mounted: who serves and who watches over it are two processes, and each cleans up after the other. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slow.h"

/* All of them are blocked and waited for, so that none comes between two steps. */
static sigset_t waited_for(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    return signals;
}

static void block_signals(int how) {
    sigset_t signals = waited_for();
    sigprocmask(how, &signals, NULL);
}

static int next_signal(void) {
    sigset_t signals = waited_for();
    int number;
    return sigwait(&signals, &number) == 0 ? number : SIGTERM;
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

static void *end_when_told(void *unused) {
    while (next_signal() == SIGCHLD) continue;
    slow_unmount(slow_settings.mount_point);
    _exit(0);
    return unused;
}

static pid_t start_server(int device) {
    pid_t watcher = getpid(), server = fork();
    if (server != 0) return server;
    pthread_t listener;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != watcher) kill(getpid(), SIGTERM);
    setpgid(0, 0); /* Ctrl-C is for the command; the files must stay until it has ended */
    allow_many_files();
    if (pthread_create(&listener, NULL, end_when_told, NULL) == 0) slow_serve(device);
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
    if (server <= 0) return;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static void go_to_background(void) {
    setsid();
    int nowhere = open("/dev/null", O_RDWR);
    for (int descriptor = 0; nowhere >= 0 && descriptor < 3; descriptor++) dup2(nowhere, descriptor);
    if (chdir("/") != 0) return;
}

static int watch(int device) {
    pid_t server = start_server(device);
    close(device);
    if (slow_settings.foreground) {
        puts("ready");
        fflush(stdout);
    }
    while (next_signal() == SIGCHLD && waitpid(server, NULL, WNOHANG) == 0) continue;
    end_server(server);
    return write_counters() == 0 ? 0 : 1;
}

/* Serves until it is unmounted or told to end; in the background unless --foreground. */
int slow_keep_mounted(void) {
    pid_t starter = getppid();
    int device = mount_source();
    if (device < 0) return 1;
    block_signals(SIG_BLOCK);
    if (slow_settings.foreground) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != starter) kill(getpid(), SIGTERM);
        return watch(device);
    }
    pid_t background = fork();
    if (background != 0) return background < 0 ? 1 : 0;
    go_to_background();
    _exit(watch(device));
}

/* The working folder was entered before the mount: where it lies below, it must be entered again. */
static void enter_mounted_folder(void) {
    char here[4096];
    size_t length = strlen(slow_settings.mount_point);
    if (!getcwd(here, sizeof here) || strncmp(here, slow_settings.mount_point, length) != 0) return;
    if ((here[length] == 0 || here[length] == '/') && chdir(here) != 0)
        slow_complain("%s: not found through the mount: %s", here, strerror(errno));
}

static pid_t start_command(char **command) {
    pid_t watcher = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* without the watcher its files would be gone */
    if (getppid() != watcher) _exit(125);
    block_signals(SIG_UNBLOCK);
    enter_mounted_folder();
    execvp(command[0], command);
    int problem = errno;
    slow_complain("%s: cannot be started: %s", command[0], strerror(problem));
    _exit(problem == ENOENT ? 127 : 126);
}

/* Waits for the command, to which it passes on what would end us; the exit code. */
static int wait_for(pid_t command, pid_t *server) {
    for (;;) {
        int number = next_signal(), status;
        if (number == SIGTERM || number == SIGHUP) kill(command, number); /* SIGINT comes from the terminal, to both */
        if (*server > 0 && waitpid(*server, NULL, WNOHANG) == *server) {
            slow_complain("the server of %s died: the command gets errors from now on", slow_settings.mount_point);
            *server = 0;
        }
        if (waitpid(command, &status, WNOHANG) == command)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

/* The command sees the slow folder and nobody else does. */
int slow_run_command(char **command) {
    pid_t starter = getppid();
    if (slow_enter_namespace() != 0) return 125;
    int device = mount_source();
    if (device < 0) return 125;
    block_signals(SIG_BLOCK);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != starter) kill(getpid(), SIGTERM);
    pid_t server = start_server(device);
    close(device);
    int code = wait_for(start_command(command), &server);
    end_server(server);
    write_counters();
    return code;
}
