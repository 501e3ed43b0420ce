"""Builds the recorder, the fake MPI and the driver together, plainly or with a sanitizer."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import hatch_build
from programs.jobs import WARNINGS

HERE = Path(__file__).parent
KEPT = hatch_build.ROOT / "build" / "tests"  # for the next run
QUICKLY = ("-fno-omit-frame-pointer", "-O0", "-DRS_HOT=static inline")
SANITIZERS = {
    "plain": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", *QUICKLY),
    "thread": ("-fsanitize=thread", "-Wno-tsan", *QUICKLY),
}
# How a program built with one says what it has found.
STRICT = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "exitcode=99:halt_on_error=0",
}


@dataclass(frozen=True)
class Driver:
    """The driver program, linked with the recorder in front of the fake MPI."""

    recorded: Path
    bare: Path
    folder: Path

    def command(self, *arguments: str | int) -> list[str]:
        return [str(self.recorded), *map(str, arguments)]


@cache
def compiler_has(sanitizer: str) -> bool:
    command = [*hatch_build.compiler(), *SANITIZERS[sanitizer], "-x", "c", "-", "-o", "/dev/null"]
    return subprocess.run(command, input="int main(void) { return 0; }", text=True, capture_output=True).returncode == 0


@cache
def _built(flags: tuple[str, ...]) -> Path:
    """Compiled once for these sources, whichever worker asks first; the one beside the sources will do if it is new."""
    if not flags and _is_new(hatch_build.NATIVE / "librankscope.so"):
        return hatch_build.NATIVE / "librankscope.so"
    folder = KEPT / _name_of(flags)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "librankscope.so").exists():
            hatch_build.build_library(hatch_build.libraries()["librankscope.so"], folder / "librankscope.so", flags)
    return folder / "librankscope.so"


def _name_of(flags: tuple[str, ...]) -> str:
    """The same for the same compiler, flags and sources only."""
    digest = hashlib.sha256(repr((hatch_build.compiler(), flags)).encode())
    for path in [Path(hatch_build.__file__), *sorted(hatch_build.NATIVE.rglob("*.[ch]"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _is_new(library: Path) -> bool:
    made_of = [*library.parent.rglob("*.[ch]"), Path(hatch_build.__file__)]
    return library.exists() and all(path.stat().st_mtime < library.stat().st_mtime for path in made_of)


def place_recorder(folder: Path, flags: tuple[str, ...]) -> Path:
    """The recorder, compiled with these flags, in a folder of one's own."""
    return Path(shutil.copy2(_built(flags), folder / "librankscope.so"))


def make_driver(folder: Path, sanitizer: str = "plain") -> Driver:
    flags = SANITIZERS[sanitizer]
    place_recorder(folder, flags)
    compile_c(folder / "libfakempi.so", HERE / "mpi" / "fake_mpi.c", "-fPIC", "-shared")
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed")
    bare = compile_c(folder / "bare", HERE / "mpi" / "driver.c", *flags, *found, "-lfakempi")
    recorded = compile_c(folder / "recorded", HERE / "mpi" / "driver.c", *flags, *found, "-lrankscope", "-lfakempi")
    return Driver(recorded, bare, folder)


def compile_c(target: Path, source: Path, *flags: str) -> Path:
    command = [*hatch_build.compiler(), *WARNINGS, str(source), "-o", str(target), *flags, "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def recording(folder: Path, **settings: str) -> dict[str, str]:
    """The environment of a recorded driver."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}
    return {**kept, "RANKSCOPE_DIR": str(folder), **settings}
