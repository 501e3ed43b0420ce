"""Builds the recorder, the fake MPI and the driver together, plainly or with a sanitizer."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import hatch_build
from programs.jobs import WARNINGS

HERE = Path(__file__).parent
SANITIZERS = {
    "plain": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"),
    "thread": ("-fsanitize=thread", "-fno-omit-frame-pointer", "-Wno-tsan"),
}


@dataclass(frozen=True)
class Driver:
    """The driver program, linked with the recorder in front of the fake MPI."""

    recorded: Path
    bare: Path
    folder: Path

    def command(self, *arguments: str | int) -> list[str]:
        return [str(self.recorded), *map(str, arguments)]


def make_driver(folder: Path, sanitizer: str = "plain") -> Driver:
    flags = SANITIZERS[sanitizer]
    hatch_build.build_library(hatch_build.libraries()["librankscope.so"], folder / "librankscope.so", flags)
    compile_c(folder / "libfakempi.so", HERE / "fake_mpi.c", "-fPIC", "-shared")
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed")
    bare = compile_c(folder / "bare", HERE / "driver.c", *flags, *found, "-lfakempi")
    recorded = compile_c(folder / "recorded", HERE / "driver.c", *flags, *found, "-lrankscope", "-lfakempi")
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
