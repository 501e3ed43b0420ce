"""The compiled observer of one torch: looked up by every rank, compiled beside the job for the next one.

No rank compiles or waits. `rankscope run` starts this file as a program of its own where the library is missing, and
`rankscope doctor --prepare` compiles before any job.
"""

from __future__ import annotations

import os
import time

SOURCE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "native", "torch", "torch_observer.cpp"
)
STANDARDS = ("-std=c++17", "-std=c++20")
LONGEST_BUILD_S = 600  # beside a job, at the lowest priority
RETRY_S = 24 * 3600
OLDEST = (2, 1)
# Behind the library's own bytes, which the loader does not mind: what they must hash to. One file is renamed at once,
# where two could come from two compilers.
TRAILER = b"rankscope observer\n"
DIGEST_BYTES = 32
WRITABLE_BY_OTHERS, STICKY = 0o022, 0o1000


class NotBuilt(Exception):
    """Why there is no compiled observer."""


def find(torch_folder: str) -> str:
    """The library for the torch in this folder, checked; never waits and never compiles."""
    path = library_path(os.path.realpath(torch_folder))
    try:
        check(path)
    except FileNotFoundError:
        raise NotBuilt(why_missing(path)) from None
    except OSError as error:
        raise NotBuilt(f"{path}: {error.strerror}") from None
    return path


def check(path: str) -> bytes:
    """What was written into the cache; raise unless it is whole and nobody but us and root can change it."""
    folder = os.stat(os.path.dirname(path))
    foreign = folder.st_uid not in (0, os.geteuid()) or folder.st_mode & 0o002
    if (foreign or (folder.st_mode & 0o020 and folder.st_gid != os.getegid())) and not folder.st_mode & STICKY:
        raise NotBuilt(f"{os.path.dirname(path)} is writable by other users; chmod go-w, or set RANKSCOPE_CACHE")
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(file)
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & WRITABLE_BY_OTHERS:
            raise NotBuilt(f"{path} is writable by other users; remove it")
        with os.fdopen(file, "rb", closefd=False) as opened:
            content = opened.read()
    finally:
        os.close(file)
    if not is_whole(content):
        raise NotBuilt(f"{path} is damaged; remove it")
    return content[: -len(TRAILER) - DIGEST_BYTES]


def keep(path: str, content: bytes) -> None:
    """Write a file of the cache, aside and renamed: who looks finds all of it or nothing."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    fresh = f"{path}.{unique()}"
    file = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content + TRAILER + digest(content))
        os.chmod(fresh, 0o644)
        os.rename(fresh, path)
    finally:
        remove(fresh)


def is_whole(content: bytes) -> bool:
    length = len(content) - len(TRAILER) - DIGEST_BYTES
    return length > 0 and content[length:] == TRAILER + digest(content[:length])


def digest(content: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(content).digest()


def why_missing(path: str) -> str:
    """What a rank says that finds no library."""
    failed = failure(path)
    if failed:
        return failed
    if is_being_compiled(path):
        return "the observer is being compiled for the next run"
    return "the observer is not compiled yet: rankscope doctor --prepare"


def failure(path: str) -> str:
    """Why the last attempt failed, "" if there was none for long: what has failed will fail again."""
    try:
        if time.time() - os.path.getmtime(path + ".failed") < RETRY_S:
            with open(path + ".failed", encoding="utf-8") as file:
                return file.read()
    except OSError:
        pass
    return ""


def is_being_compiled(path: str) -> bool:
    """Whether somebody says so, who has not been killed since."""
    try:
        if time.time() - os.path.getmtime(path + ".compiling") > LONGEST_BUILD_S:
            return False
        with open(path + ".compiling", encoding="utf-8") as file:
            host, pid, _ = file.read().rsplit(".", 2)
    except OSError:
        return False
    except ValueError:
        return True  # not written yet
    return host != os.uname().nodename or os.path.exists(f"/proc/{pid}")


def build(torch_folder: str) -> str:
    """Compile, unless another process does; the library's path, or the reason why there is none."""
    torch_folder = os.path.realpath(torch_folder)
    path = library_path(torch_folder)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if not is_being_compiled(path):
            remove(path + ".compiling")  # of one that was killed
        file = os.open(path + ".compiling", os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        os.write(file, f"{unique()}\n".encode())
        os.close(file)
    except FileExistsError:
        raise NotBuilt("another process is compiling it") from None
    except OSError as error:
        raise NotBuilt(f"{error.filename}: {error.strerror}") from None
    try:
        compile_to(path, torch_folder)
        remove(path + ".failed")
    except (NotBuilt, OSError) as reason:
        with open(path + ".failed", "w", encoding="utf-8") as text:
            text.write(str(reason))
        raise NotBuilt(str(reason)) from None
    finally:
        remove(path + ".compiling")
    return path


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def unique() -> str:
    """A process of any host that shares the folder, and of any time."""
    return f"{os.uname().nodename}.{os.getpid()}.{time.time_ns()}"


def library_path(torch_folder: str) -> str:
    """Where the library lies: one for each torch, each of its ABIs, and each state of our source."""
    try:
        with open(os.path.join(torch_folder, "version.py"), encoding="utf-8") as file:
            version = file.read().partition("__version__ = ")[2].split("\n")[0].strip("'\" ")
        with open(SOURCE, "rb") as source:
            source_code = source.read()
    except OSError as error:
        raise NotBuilt(f"{error.filename}: {error.strerror}") from None
    numbers = version.split("+")[0].split(".")[:2]
    if not all(number.isdigit() for number in numbers) or tuple(map(int, numbers)) < OLDEST:
        raise NotBuilt(f"torch {version or 'of unknown version'} is older than 2.1")
    import zlib

    name = f"torch-{version}-{os.uname().machine}-{zlib.crc32(source_code + TRAILER + torch_folder.encode()):08x}.so"
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

    fresh = f"{path}.{unique()}"
    problem = "no C++ compiler (g++, c++ or clang++)"
    try:
        for command in commands(torch_folder, fresh):
            try:
                done = subprocess.run(
                    command,
                    env=plain_environment(),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=LONGEST_BUILD_S / 2,
                )
            except (OSError, subprocess.SubprocessError) as error:
                problem = f"{command[0]}: {error}"
                continue
            if done.returncode == 0:
                seal(fresh)
                os.rename(fresh, path)
                return
            problem = f"{command[0]} failed: " + done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
    finally:
        remove(fresh)
    raise NotBuilt(problem)


def seal(path: str) -> None:
    """Write the hash behind the library, and let nobody else write to it."""
    with open(path, "r+b") as file:
        file.write(TRAILER + digest(file.read()))
    os.chmod(path, 0o755)


def compilers() -> list[list[str]]:
    """How the compiler is called: the one asked for, else the first that is there."""
    import shlex
    import shutil

    given = shlex.split(os.environ.get("CXX", ""))
    return [given] if given else [[name] for name in ("g++", "c++", "clang++") if shutil.which(name)][:1]


def commands(torch_folder: str, target: str) -> list[list[str]]:
    folder = os.path.join(torch_folder, "lib")
    flags = ["-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", f"-D_GLIBCXX_USE_CXX11_ABI={abi(folder)}"]
    for include in ("include", "include/torch/csrc/api/include"):
        flags += ["-isystem", os.path.join(torch_folder, include)]
    rest = [SOURCE, "-o", target, f"-L{folder}", "-lc10", "-ltorch_cpu"]
    return [[*compiler, standard, *flags, *rest] for compiler in compilers() for standard in STANDARDS]


def abi(library_folder: str) -> int:
    """Which of the two ABIs of C++ strings this torch was built with; its own names show it."""
    try:
        with open(os.path.join(library_folder, "libc10.so"), "rb") as file:
            return int(b"NSt7__cxx1112basic_string" in file.read())
    except OSError:
        return 1


def plain_environment() -> dict[str, str]:
    """The compiler is not part of the job: it is not recorded."""
    ours = ("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH")
    return {key: value for key, value in os.environ.items() if key not in ours and not key.startswith("RANKSCOPE_")}


if __name__ == "__main__":
    import sys

    try:
        os.environ["RANKSCOPE_CACHE"] = sys.argv[2]
        build(sys.argv[1])
    except NotBuilt:  # the ranks of the next run say why
        pass
