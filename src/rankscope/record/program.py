"""Finding a program as a shell does, and becoming it."""

from __future__ import annotations

import errno
import os

DEFAULT_PATH = "/bin:/usr/bin"
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class NoProgram(Exception):
    """The command cannot be started, with the exit code a shell would give."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def find_program(word: str, environment: dict[str, str]) -> str:
    """The file that this word of a command line starts."""
    if "/" in word:
        return checked(word, [word])
    folders = environment.get("PATH", DEFAULT_PATH).split(":")
    return checked(word, [os.path.join(folder or ".", word) for folder in folders])


def checked(word: str, paths: list[str]) -> str:
    """The first of these paths that is an executable file."""
    found = False
    for path in paths:
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        found = found or os.path.lexists(path)
    if found:
        raise NoProgram(f"{word}: permission denied or not a program", NOT_EXECUTABLE)
    raise NoProgram(f"{word}: command not found", NOT_FOUND)


def become(program: str, command: list[str], environment: dict[str, str]) -> NoProgram:
    """Replace this process; comes back only with the reason why that was impossible."""
    try:
        os.execve(program, command, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without #!: shells and execvp let sh read it
            return become("/bin/sh", ["/bin/sh", program, *command[1:]], environment)
        exit_code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        return NoProgram(f"{command[0]}: {error.strerror}", exit_code)
