"""The compiled observer of one torch: found in the cache, or compiled once by whoever comes first."""

from __future__ import annotations

import os
import time

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "native", "torch_observer.cpp")
STANDARDS = ("-std=c++17", "-std=c++20")
LONGEST_BUILD_S = 120
LONGEST_WAIT_S = 60
RETRY_S = 600
OLDEST = (2, 1)


class NotBuilt(Exception):
    """Why there is no compiled observer."""


def find_or_build(torch_folder: str) -> str:
    """The library for the torch in this folder."""
    torch_folder = os.path.realpath(torch_folder)
    path = library_path(torch_folder)
    if os.path.exists(path):
        return path
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lock = os.open(path + ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise NotBuilt(f"{os.path.dirname(path)}: {error.strerror}") from None
    try:
        if take(lock, path):
            check_failed(path)
            compile_or_say(path, torch_folder)
    finally:
        os.close(lock)
    return path


def compile_or_say(path: str, torch_folder: str) -> None:
    try:
        compile_to(path, torch_folder)
    except NotBuilt as reason:
        with open(path + ".failed", "w", encoding="utf-8") as file:
            file.write(str(reason))
        raise


def check_failed(path: str) -> None:
    """What has failed a moment ago fails again: a thousand ranks need not all try."""
    try:
        if time.time() - os.path.getmtime(path + ".failed") < RETRY_S:
            with open(path + ".failed", encoding="utf-8") as file:
                raise NotBuilt(file.read())
    except OSError:
        pass


def take(lock: int, path: str) -> bool:
    """Whether we are to compile; false once another process has done so."""
    import fcntl

    for _ in range(LONGEST_WAIT_S * 10):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return not os.path.exists(path)
        except BlockingIOError:
            time.sleep(0.1)
        except OSError as error:  # a file system without locks
            raise NotBuilt(f"{path}.lock: {error.strerror}") from None
        if os.path.exists(path):
            return False
    raise NotBuilt("another process is still compiling it")


def library_path(torch_folder: str) -> str:
    """Where the library lies: one for each torch, each of its ABIs, and each state of our source."""
    try:
        with open(os.path.join(torch_folder, "version.py"), encoding="utf-8") as file:
            version = file.read().partition("__version__ = ")[2].split("\n")[0].strip("'\" ")
        with open(SOURCE, "rb") as source:
            told = source.read()
    except OSError as error:
        raise NotBuilt(f"{error.filename}: {error.strerror}") from None
    numbers = version.split("+")[0].split(".")[:2]
    if not all(number.isdigit() for number in numbers) or tuple(map(int, numbers)) < OLDEST:
        raise NotBuilt(f"torch {version or 'of no version'} is older than 2.1")
    import zlib

    name = f"torch-{version}-{os.uname().machine}-{zlib.crc32(told + torch_folder.encode()):08x}.so"
    return os.path.join(cache_folder(), name.replace("/", "-"))


def cache_folder() -> str:
    given = os.environ.get("RANKSCOPE_CACHE")
    if given:
        return given
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "rankscope")


def compile_to(path: str, torch_folder: str) -> None:
    """Compile aside and rename: who looks finds all of it or nothing."""
    import subprocess

    fresh = f"{path}.{os.getpid()}"
    problem = "no C++ compiler (g++, c++ or clang++)"
    for command in commands(torch_folder, fresh):
        try:
            done = subprocess.run(
                command, env=plain_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST_BUILD_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"{command[0]}: {error}"
            continue
        if done.returncode == 0:
            os.rename(fresh, path)
            return
        problem = f"{command[0]} failed: " + done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    raise NotBuilt(problem)


def commands(torch_folder: str, target: str) -> list[list[str]]:
    import shlex
    import shutil

    asked = shlex.split(os.environ.get("CXX", ""))
    found = [asked] if asked else [[name] for name in ("g++", "c++", "clang++") if shutil.which(name)][:1]
    folder = os.path.join(torch_folder, "lib")
    flags = ["-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi(folder)}"]
    for include in ("include", "include/torch/csrc/api/include"):
        flags += ["-isystem", os.path.join(torch_folder, include)]
    rest = [SOURCE, "-o", target, f"-L{folder}", "-lc10", "-ltorch_cpu"]
    return [[*compiler, standard, *flags, *rest] for compiler in found for standard in STANDARDS]


def abi(library_folder: str) -> int:
    """Which of the two ABIs of C++ strings this torch was built with; its own names show it."""
    try:
        with open(os.path.join(library_folder, "libc10.so"), "rb") as file:
            return int(b"NSt7__cxx1112basic_string" in file.read())
    except OSError:
        return 1


def plain_environment() -> dict[str, str]:
    """The compiler is not part of the job: it is not recorded."""
    ours = ("LD_PRELOAD", "PYTHONPATH")
    return {key: value for key, value in os.environ.items() if key not in ours and not key.startswith("RANKSCOPE_")}
