"""Finding a program as a shell does, and becoming it in the state in which it would have started without us."""

import _signal  # type: ignore[import-not-found]  # the module signal would also import enum
import errno
import os

DEFAULT_PATH = "/bin:/usr/bin"
NOT_FOUND, NOT_EXECUTABLE = 127, 126
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "busybox")
BLOCK_BYTES = 65536
PYTHON_STARTERS = ("torchrun", "accelerate", "deepspeed", "lightning")  # start Python without naming it


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
    for path in paths:
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    if any(os.path.lexists(path) for path in paths):
        raise NoProgram(f"{word}: permission denied or not a program", NOT_EXECUTABLE)
    raise NoProgram(f"{word}: command not found", NOT_FOUND)


def become(program: str, command: list[str], environment: dict[str, str]) -> NoProgram:
    """Replace this process; comes back only with the reason why that was impossible."""
    try:
        os.execve(program, command, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC and not content(program, 4).startswith(b"\x7fELF"):
            # a script without #!: shells and execvp let sh read it
            return become("/bin/sh", ["/bin/sh", program, *command[1:]], environment)
        exit_code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
        return NoProgram(f"{command[0]}: {error.strerror}", exit_code)


def content(path: str, most_bytes: int | None = None) -> bytes:
    """The file, or its beginning; plain system calls, where open() would ask for the file's status twice."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        blocks = [os.read(file, most_bytes or BLOCK_BYTES)]
        while blocks[-1] and most_bytes is None:
            blocks.append(os.read(file, BLOCK_BYTES))
    finally:
        os.close(file)
    return b"".join(blocks)


def first_environment() -> dict[str, str]:
    """The environment this process was given: os.environ may also hold an LC_CTYPE that Python put there itself."""
    try:
        block = content("/proc/self/environ")
    except OSError:
        return dict(os.environ)
    environment: dict[str, str] = {}
    for entry in os.fsdecode(block).split("\0"):
        name, equals, value = entry.partition("=")
        if equals:
            environment.setdefault(name, value)
    return environment


def restore_signals() -> None:
    """Undo that Python ignores SIGPIPE and SIGXFSZ, unless our parent passed that on to us.

    What we were given can no longer be read. A shell that ignores a signal passes it on; other parents that ignore
    one (Python, daemons) set it back for their children.
    """
    ignored = ignored_by_shell(os.getppid())
    for signal in (_signal.SIGPIPE, _signal.SIGXFSZ):
        if not ignored >> (signal - 1) & 1:
            _signal.signal(signal, _signal.SIG_DFL)


def ignored_by_shell(pid: int) -> int:
    """The bit mask of signals that this process ignores if it is a shell, else 0."""
    try:
        lines = os.fsdecode(content(f"/proc/{pid}/status")).split("\n")
    except OSError:
        return 0
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(fields.get("SigIgn", "0"), 16) if fields.get("Name") in SHELLS else 0
