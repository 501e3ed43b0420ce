/* Starts a program by the function that is named, and says with which error that failed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int waited(pid_t pid)
{
    int status = 0;
    waitpid(pid, &status, 0);
    printf("%s %d\n", WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return 0;
}

static int start(const char *how, const char *path, char **arguments)
{
    pid_t pid = 0;
    int error;
    if (!strcmp(how, "execve"))
        return execve(path, arguments, environ);
    if (!strcmp(how, "execve-no-environment"))
        return execve(path, arguments, NULL);
    if (!strcmp(how, "execv"))
        return execv(path, arguments);
    if (!strcmp(how, "execvp"))
        return execvp(path, arguments);
    if (!strcmp(how, "execvpe"))
        return execvpe(path, arguments, environ);
    if (!strcmp(how, "execl"))
        return execl(path, arguments[0], "one", "two", (char *)NULL);
    if (!strcmp(how, "execlp"))
        return execlp(path, arguments[0], "one", "two", (char *)NULL);
    if (!strcmp(how, "execle"))
        return execle(path, arguments[0], "one", "two", (char *)NULL, environ);
    if (!strcmp(how, "fexecve"))
        return fexecve(open(path, O_RDONLY), arguments, environ);
    if (!strcmp(how, "execveat"))
        return execveat(AT_FDCWD, path, arguments, environ, 0);
    if (!strcmp(how, "execveat-empty"))
        return execveat(open(path, O_PATH), "", arguments, environ, AT_EMPTY_PATH);
    if (!strcmp(how, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            execve(path, arguments, environ);
            _exit(errno);
        }
        return waited(pid);
    }
    if (!strcmp(how, "posix_spawn"))
        error = posix_spawn(&pid, path, NULL, NULL, arguments, environ);
    else
        error = posix_spawnp(&pid, path, NULL, NULL, arguments, environ);
    if (!error)
        return waited(pid);
    errno = error;
    return -1;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 3)
        return 2;
    errno = 0;
    if (start(argv[1], argv[2], argv + 2) < 0)
        printf("failed: %s\n", strerror(errno));
    return 5;
}
