"""A slow folder that is mounted for as long as a Python block lasts, or until it is told to go."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

# ---------------------------------------------------------------------------------------------------------------------
# Where the native parts are, and whether the file system can be mounted here.
NATIVE = Path(__file__).resolve().parent.parent / "native"
PROGRAM = NATIVE / "rankscope-slowfs"
SHIM = NATIVE / "librankscope_slow.so"


class Unavailable(Exception):
    """Why it cannot be done here, in one line with the next action."""


def program() -> str:
    if not PROGRAM.is_file():
        raise Unavailable("rankscope-slowfs was not built: install the kernel's headers (linux/fuse.h) and build again")
    return str(PROGRAM)


@cache
def reason_against_running() -> str | None:
    """Why no command can be run on a mounted slow folder here; None if it can, found out by doing it."""
    try:
        binary = program()
    except Unavailable as problem:
        return str(problem)
    with tempfile.TemporaryDirectory(prefix="rankscope-slowfs-") as folder:
        words = [binary, "run", folder, folder, "--", "true"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else last_line(done.stderr) or f"exit code {done.returncode}"


def last_line(text: str) -> str:
    """What went wrong, without the name of who says it."""
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("rankscope slowfs: ") if lines else ""


# ---------------------------------------------------------------------------------------------------------------------
# The counters of a mount or of a server, read while it works.
COUNTERS_NAME = ".rankscope-slowfs"  # in every mount: not listed, not counted, not slow


def parsed(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {name: int(value) for name, value in pairs}


def of_mount(mount_point: Path) -> dict[str, int]:
    try:
        return parsed((mount_point / COUNTERS_NAME).read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise Unavailable(f"{mount_point}: no slow file system is mounted there") from None


def of_server(server: Path) -> dict[str, int]:
    """The sum over all that share a server file, also when they are gone."""
    done = subprocess.run([program(), "stats", server], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(last_line(done.stderr))
    return parsed(done.stdout)


# ---------------------------------------------------------------------------------------------------------------------
# How slow the file system shall be, and how that is said to the native part.
CACHES = ("none", "positive", "negative")
NS_OF = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
BYTES_OF = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True)
class Slowness:
    """What a client of the file system meets."""

    latency_ns: int = 0  # of a metadata operation
    read_latency_ns: int = 0
    bytes_per_second: int = 0  # 0: unlimited
    operations_per_second: int = 0  # metadata, shared over all that name the same server; 0: unlimited
    cache: str = "none"
    cache_ns: int = 3600 * 10**9
    page_cache: bool | None = None  # None: as the cache of names
    server: Path | None = None  # the file by which mounts share rates and counters

    def flags(self) -> list[str]:
        """The options of the native program."""
        numbers = {
            "latency-ns": self.latency_ns,
            "read-latency-ns": self.read_latency_ns,
            "bytes-per-second": self.bytes_per_second,
            "ops-per-second": self.operations_per_second,
            "cache-ns": self.cache_ns,
        }
        flags = [f"--cache={self.cache}", *(f"--{name}={value}" for name, value in numbers.items())]
        if self.page_cache is not None:
            flags.append(f"--page-cache={'on' if self.page_cache else 'off'}")
        return [*flags, f"--server={self.server}"] if self.server is not None else flags

    def sharing(self, server: Path) -> Slowness:
        return replace(self, server=server)


def duration_ns(text: str) -> int:
    """Nanoseconds of `1ms`, `250us`, `2 s`; a bare number is not a time."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]+)", text.strip())
    if match is None or match[2] not in NS_OF:
        raise ValueError(f"{text}: give a time with its unit, as in 250us, 1ms or 2s")
    return round(float(match[1]) * NS_OF[match[2]])


def bytes_per_second(text: str) -> int:
    """Bytes a second of `1G`, `200M`, `64Mi`, also with B or B/s behind."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(|k|M|G|Ki|Mi|Gi)(?:B(?:/s)?)?", text.strip())
    if match is None:
        raise ValueError(f"{text}: give bytes a second, as in 200M or 1G")
    return round(float(match[1]) * BYTES_OF[match[2]])


# ---------------------------------------------------------------------------------------------------------------------
# The second best where nothing can be mounted: a preloaded library that delays and counts calls of libc.
BLIND_SPOTS = (
    "the shim sees calls through libc only: not the dynamic loader's own, not what libc asks by itself (realpath), "
    "no reads, no static programs; a path is one operation, however many folders it has"
)


def shim_environment(folder: Path, slowness: Slowness, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables under which a command is slowed below a folder."""
    if not SHIM.is_file():
        raise Unavailable(f"{SHIM.name} was not built: run hatch_build.py")
    if slowness.cache != "none" or slowness.read_latency_ns or slowness.bytes_per_second:
        raise Unavailable("the shim knows no caches and sees no reads: leave out --cache, --read-latency, --bandwidth")
    if slowness.server is None:
        raise Unavailable("the shim counts in a server file: name one")
    variables = dict(os.environ if base is None else base)
    variables["LD_PRELOAD"] = ":".join(filter(None, [str(SHIM), variables.get("LD_PRELOAD", "")]))
    variables["RANKSCOPE_SLOWFS_FOLDER"] = str(folder.resolve())
    variables["RANKSCOPE_SLOWFS_SERVER"] = str(slowness.server.resolve())
    variables["RANKSCOPE_SLOWFS_LATENCY_NS"] = str(slowness.latency_ns)
    variables["RANKSCOPE_SLOWFS_OPS_PER_SECOND"] = str(slowness.operations_per_second)
    return variables


# ---------------------------------------------------------------- mount
@dataclass(frozen=True)
class SlowMount:
    """A mounted slow folder."""

    path: Path
    process: subprocess.Popen[str]

    def counters(self) -> dict[str, int]:
        return of_mount(self.path)


def checked(source: Path, mount_point: Path) -> tuple[Path, Path]:
    """Both as the mount table will name them."""
    for folder in (source, mount_point):
        if not folder.is_dir():
            raise Unavailable(f"{folder}: is no folder: make it, or name another")
    return source.resolve(), mount_point.resolve()


@contextmanager
def mounted(source: Path, mount_point: Path, slowness: Slowness) -> Iterator[SlowMount]:
    """Mounts for the block; the native program also ends and unmounts when this process dies."""
    source, mount_point = checked(source, mount_point)
    words = [program(), "mount", "--foreground", *slowness.flags(), str(source), str(mount_point)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline() != "ready\n":
            process.wait()
            raise Unavailable(last_line(process.stderr.read()))
        yield SlowMount(mount_point, process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def mount(source: Path, mount_point: Path, slowness: Slowness) -> None:
    """Mounts in the background, until unmount()."""
    source, mount_point = checked(source, mount_point)
    words = [program(), "mount", *slowness.flags(), str(source), str(mount_point)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(last_line(done.stderr))


def unmount(mount_point: Path) -> bool:
    """Takes the mount away, also where its server has died; False if there is none of ours."""
    # Not resolve(): that asks the mount itself, which may be dead.
    place = mount_point.parent.resolve() / mount_point.name
    return subprocess.run([program(), "unmount", place], check=False).returncode == 0
