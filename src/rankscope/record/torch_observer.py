"""The observer of torch, compiled for the next job where the torch in use can be seen from here."""

import os
import sys

from rankscope.record.program import PYTHON_STARTERS, NoProgram, find_program

LIBRARIES = ("lib", "lib64", "local/lib")
PACKAGES = ("site-packages", "dist-packages")
LEAST_IMPORTANT = 19


def prepare(command: list[str], environment: dict[str, str]) -> bool:
    """Have it compiled beside the job if it is not in the cache; whether that was begun."""
    if environment.get("RANKSCOPE_TORCH") in ("0", "python") or os.getpid() == 1:
        return False  # as process 1 of a container we would become the compiler's parent
    torch_folder = find_torch(command, environment)
    if not torch_folder:
        return False
    from rankscope.agent import build

    try:
        path = build.library_path(os.path.realpath(torch_folder))
        if os.path.exists(path) or build.failure(path) or build.is_being_compiled(path) or not build.compilers():
            return False
    except (build.NotBuilt, OSError):
        return False
    start_beside(build.__file__, torch_folder, environment)
    return True


def start_beside(program: str, torch_folder: str, environment: dict[str, str]) -> None:
    """Start the compilation as nobody's child, with nothing of the job's open, where nothing else wants to compute."""
    from rankscope.agent.build import cache_folder, plain_environment

    words = [sys.executable, "-I", "-S", program, torch_folder, os.path.abspath(cache_folder())]
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.chdir("/")
        os.umask(0o077)
        os.nice(LEAST_IMPORTANT)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))  # a rank may be bound to the processor that it computes on
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                os.set_inheritable(number, number < 3)  # who reads a pipe of the job's would wait for us
            except OSError:
                pass  # the listing's own
        os.execve(sys.executable, words, plain_environment())
    finally:
        os._exit(1)


def find_torch(command: list[str], environment: dict[str, str]) -> str:
    """The torch that the first Python of the command would import, "" where that cannot be seen."""
    for word in command:
        name = os.path.basename(word)
        if name.startswith("python") or name in PYTHON_STARTERS:
            try:
                program = find_program(word, environment)
            except NoProgram:
                return ""
            above = [folder for folder in environment.get("PYTHONPATH", "").split(":") if folder]
            return torch_beside(os.path.dirname(os.path.dirname(os.path.abspath(program))), above)
    return ""


def torch_beside(prefix: str, above: list[str]) -> str:
    """In one of the folders that are searched first, else in the environment."""
    folders = list(above)
    for library in LIBRARIES:
        try:
            versions = [name for name in os.listdir(f"{prefix}/{library}") if name.startswith("python3")]
        except OSError:
            continue
        folders += [f"{prefix}/{library}/{version}/{packages}" for version in versions for packages in PACKAGES]
    for folder in folders:
        if os.path.exists(f"{folder}/torch/version.py"):
            return f"{folder}/torch"
    return ""
