"""Compiles the native part with the C compiler alone: as a build hook of pip, from make, and for sanitizer builds."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script by a Python without hatchling
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "src" / "rankscope" / "native"
RECORDER_FOLDERS = (
    *("core", "mpi", "gpu", "cuda", "level_zero", "opencl", "rocm"),
    *("nccl", "oneccl", "horovod", "torch", "jax", "syscalls"),
)
READER_FOLDER = "read"
WRAPPERS_SOURCE = "calls_wrappers.c"
SHIM_SOURCES = ("shim.c", "pace.c", "counters.c")
OLDEST_LIBC = "core/oldest_libc.h"

# The only place where flags are written down.
# No vectorizer: it loads in one wide piece what was just stored in small ones, which stalls the hot path.
COMPILE_FLAGS = (
    "-std=gnu11", "-O2", "-g1", "-fno-tree-vectorize", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
)  # fmt: skip
# initial-exec: other thread-local data need __tls_get_addr, and with it the dynamic loader of glibc by name.
PRELOADED_FLAGS = ("-DRS_PRELOADED", "-ftls-model=initial-exec")
STRICT_FLAGS = ("-Werror",)  # our own builds; a compiler newer than ours must not refuse a user's install
# Pages may have 64 KiB; the symbol table, which mpi_exports.c writes to, must share none with code. A linker that does
# not know separate-code puts them apart anyway.
PAGE_FLAGS = {"aarch64": ("-Wl,-z,max-page-size=65536", "-Wl,-z,separate-code")}
# nodelete: whoever opened the recorder may close it (NCCL does), but handlers of ours are registered by then.
LINK_FLAGS = ("-shared", "-Wl,-z,now", "-Wl,-z,nodelete", "-Wl,--as-needed", "-ldl", "-pthread")
PROGRAM_LINK_FLAGS = ("-pie", "-pthread")

SHT_GNU_VERNEED = 0x6FFFFFFE

# The slow file system speaks the kernel's protocol itself; before 7.31 that lacks what it needs.
SLOW_PROGRAM = "rankscope-slowfs"
FUSE_PROBE = """
#include <linux/fuse.h>
#if FUSE_KERNEL_MINOR_VERSION < 31
#error too old
#endif
"""


class BuildError(Exception):
    """Why the native part could not be built, in one line with the next action."""


def version() -> str:
    text = (ROOT / "src" / "rankscope" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise BuildError("src/rankscope/__init__.py has no __version__: restore it")
    return found[1]


def compiler() -> list[str]:
    """The C compiler to use: $CC if set, else the first of cc, gcc and clang."""
    asked = shlex.split(os.environ.get("CC", ""))
    for candidate in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(candidate[0]):
            return candidate
    tried = f"CC={asked[0]}" if asked else "cc, gcc, clang"
    raise BuildError(
        f"no C compiler found (tried {tried}): install gcc or clang, or set CC, or install a prebuilt wheel"
    )


@cache
def machine() -> str:
    """The processor that is compiled for, as uname calls it."""
    done = subprocess.run([*compiler(), "-dumpmachine"], capture_output=True, text=True, check=False)
    return done.stdout.partition("-")[0].strip() or os.uname().machine


@cache
def links_with(flag: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        probe = [*compiler(), "-shared", "-x", "c", "-", "-o", f"{folder}/probe.so", flag]
        return subprocess.run(probe, input="", capture_output=True, text=True, check=False).returncode == 0


def libraries() -> dict[str, list[Path]]:
    """Each shared library with its sources: the recorder, what readers and analyses do row by row, functions of libc
    that go through the recorder where it counts system calls, the slow shim, and two auditors of the dynamic loader:
    one answers its searches, the other hands out our MPI functions."""
    sources = [source for folder in RECORDER_FOLDERS for source in sorted((NATIVE / folder).glob("*.c"))]
    reader, wrappers = sorted((NATIVE / READER_FOLDER).glob("*.c")), NATIVE / "syscalls" / WRAPPERS_SOURCE
    recorder = [source for source in sources if source != wrappers]
    if not reader or wrappers not in sources or not recorder:
        raise BuildError(f"C sources are missing in {NATIVE}: get a complete source tree")
    shim = [NATIVE / "slowfs" / name for name in SHIM_SOURCES]
    return {
        "librankscope.so": recorder,
        "librankscope_read.so": reader,
        "librankscope_calls.so": [wrappers],
        "librankscope_slow.so": shim,
        "librankscope_libraries.so": sorted((NATIVE / "loader_audit" / "libraries").glob("*.c")),
        "librankscope_lookups.so": sorted((NATIVE / "loader_audit" / "lookups").glob("*.c")),
    }


def programs() -> dict[str, list[Path]]:
    """Each program with its sources, those that cannot be built here left out with a line that says why."""
    slow = [source for source in sorted((NATIVE / "slowfs").glob("*.c")) if source.name != "shim.c"]
    made = {"rankscope-replay": sorted((NATIVE / "replay").glob("*.c")), SLOW_PROGRAM: slow}
    if not has_fuse_header():
        print(f"rankscope: {SLOW_PROGRAM} is left out: no <linux/fuse.h> of 5.4 or later", file=sys.stderr)
        del made[SLOW_PROGRAM]
    return made


def has_fuse_header() -> bool:
    probe = [*compiler(), "-fsyntax-only", "-x", "c", "-"]
    return subprocess.run(probe, input=FUSE_PROBE, capture_output=True, text=True, check=False).returncode == 0


def compile_command(source: Path, target: Path, extra_flags: Sequence[str] = ()) -> list[str]:
    define = f'-DRANKSCOPE_VERSION="{version()}"'
    first = ["-include", str(NATIVE / OLDEST_LIBC), *(PRELOADED_FLAGS if is_preloaded(source) else ())]
    first += quoted_folders() if source.parent.name in (*RECORDER_FOLDERS, READER_FOLDER) else []
    return [*compiler(), *COMPILE_FLAGS, define, *first, *extra_flags, "-c", str(source), "-o", str(target)]


def quoted_folders() -> list[str]:
    """Where headers of the recorder are looked for; only those in quotes: some are called as others' are."""
    return [word for folder in RECORDER_FOLDERS for word in ("-iquote", str(NATIVE / folder))]


def is_preloaded(source: Path) -> bool:
    """Whether it becomes part of a library that is loaded into programs that nobody here has compiled."""
    return source.parent.name in RECORDER_FOLDERS or source.name in SHIM_SOURCES


def link_command(
    sources: Sequence[Path],
    objects: Sequence[Path],
    target: Path,
    extra_flags: Sequence[str] = (),
    beside: Path = NATIVE,
) -> list[str]:
    link: tuple[str, ...] = LINK_FLAGS if target.suffix == ".so" else PROGRAM_LINK_FLAGS
    link = (*filter(links_with, PAGE_FLAGS.get(machine(), ())), *link)
    if sources[0].parent.name in ("libraries", "lookups"):
        link = auditor_flags(link)
    if sources[0].name == WRAPPERS_SOURCE:  # uses the recorder that lies beside it
        link = (*link, f"-L{beside}", "-l:librankscope.so", "-Wl,-rpath,$ORIGIN")
    return [*compiler(), *extra_flags, *map(str, objects), "-o", str(target), *link]


def auditor_flags(link: Sequence[str]) -> tuple[str, ...]:
    """The loader must be able to take an auditor out again. Its own libc is looked for where the system has it, before
    LD_LIBRARY_PATH (hence the old kind of entry), whose length is what the auditor is to save."""
    folders = f"/lib/{machine()}-linux-gnu:/lib64:/usr/lib64"
    kept = tuple(flag for flag in link if "nodelete" not in flag)
    return (*kept, "-Wl,--disable-new-dtags", f"-Wl,-rpath,{folders}")


def build_library(sources: Sequence[Path], target: Path, extra_flags: Sequence[str] = ()) -> None:
    """Compiles as many sources at a time as there are processors, and links them."""
    # Never written in place: a running job may have the old library mapped.
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as folder:
        fresh, objects = Path(folder) / target.name, [Path(folder) / f"{source.stem}.o" for source in sources]
        commands = [compile_command(*pair, extra_flags) for pair in zip(sources, objects, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            is_compiled = all(list(pool.map(succeeds, commands)))
        if not is_compiled or not succeeds(link_command(sources, objects, fresh, extra_flags, target.parent)):
            raise BuildError(f"the C compiler failed on {target.name}: see its messages above")
        fresh.replace(target)


def succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0


def build(out: Path = NATIVE, extra_flags: Sequence[str] = (), only: str = "") -> list[Path]:
    """Compiles the libraries, then the programs (or one of them), into a folder and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    built = []
    for wanted in (libraries, programs):
        for name, sources in wanted().items():
            if only and name != only:
                continue
            build_library(sources, out / name, extra_flags)
            built.append(out / name)
    return built


def asked_of_glibc(path: Path) -> dict[tuple[int, ...], str]:
    """The versions of glibc that a library or program asks for, each with the file that is to have it."""
    octets = path.read_bytes()
    first, size, count = struct.unpack_from("<40xQ10xHH", octets)
    sections = [struct.unpack_from("<IIQQQQII", octets, first + size * n) for n in range(count)]
    asked = {}
    for kind, at, link in ((section[1], section[4], section[6]) for section in sections):
        while kind == SHT_GNU_VERNEED:
            _, entries, file, entry, following = struct.unpack_from("<HHIII", octets, at)
            entry += at
            for _ in range(entries):
                _, _, _, name, next_entry = struct.unpack_from("<IHHII", octets, entry)
                names = [octets[sections[link][4] + where :].partition(b"\0")[0].decode() for where in (name, file)]
                version = re.fullmatch(r"GLIBC_([0-9.]+)", names[0])
                if version:
                    asked[tuple(map(int, version[1].split(".")))] = names[1]
                entry += next_entry
            at += following
            kind = kind if following else 0
    return asked


def check_promise(built: Sequence[Path], platform: str) -> None:
    """Raise if what was built would not load where a wheel of this platform may be installed."""
    promised = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", platform)
    if promised is None or promised[3] != machine():
        raise BuildError(f"RANKSCOPE_WHEEL_PLATFORM={platform} is not manylinux_X_Y_{machine()}")
    newest = (int(promised[1]), int(promised[2]))
    for path in built:
        beyond = [".".join(map(str, version)) for version in sorted(asked_of_glibc(path)) if version > newest]
        if beyond:
            raise BuildError(
                f"{path.name} asks for glibc {', '.join(beyond)}, {platform} promises that 2.{newest[1]} will do"
            )


def wheel_tag() -> str:
    """Any Python 3, this platform or the one that was promised: the libraries do not use Python's own interface."""
    platform = os.environ.get("RANKSCOPE_WHEEL_PLATFORM") or re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"py3-none-{platform}"


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles before a wheel or an editable install is put together."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        promised = os.environ.get("RANKSCOPE_WHEEL_PLATFORM", "")
        try:
            built = build()
            if promised:
                check_promise(built, promised)
        except BuildError as error:
            self.app.abort(f"rankscope: {error}")
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=NATIVE, help="folder for the libraries (default: beside the sources)"
    )
    parser.add_argument("--extra-flags", default="", help='more compiler flags, as in "-fsanitize=address -O1"')
    parser.add_argument("--only", default="", help="only this library or program")
    options = parser.parse_args()
    try:
        build(options.out, [*STRICT_FLAGS, *shlex.split(options.extra_flags)], options.only)
    except BuildError as error:
        print(f"rankscope: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
