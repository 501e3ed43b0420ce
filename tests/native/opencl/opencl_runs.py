"""Programs of OpenCL on PoCL, whose device is the processor: built once, run recorded, and what they say they did."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

import hatch_build
from native.builds import HERE, compile_c, recording
from native.gpu import device_runs
from native.gpu.device_runs import Sums, told_call

PLACES = (".envs/opencl", "build/opencl-env")
LIBRARY = hatch_build.NATIVE / "librankscope.so"


class OpenCl:
    """An environment with pyopencl, the loader in its wheel, and PoCL."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python"
        (packages,) = folder.glob("lib/python*/site-packages")
        self.packages = packages
        self.loader = next(iter(sorted(packages.glob("pyopencl/.libs/libOpenCL*"))), None)
        self.drivers = packages / "pyopencl" / ".libs"

    def variables(self, cache: Path) -> dict[str, str]:
        """Compiled kernels are kept where nobody else's tests look."""
        home = self.drivers.parent  # of the drivers that the loader in the wheel knows
        return {
            "PYOPENCL_HOME": str(home),
            "LD_LIBRARY_PATH": str(self.drivers),
            "POCL_CACHE_DIR": str(cache),
            "POCL_MAX_PTHREAD_COUNT": "2",
        }


COMPILES = """
import pyopencl as cl
cl.Program(cl.create_some_context(interactive=False), "kernel void nothing(global int *a) {}").build()
"""


@functools.cache
def problem_of(place: Path) -> str:
    """Why PoCL cannot compile a kernel here, recorded or not: its LLVM does not know every processor."""
    found = OpenCl(place)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **found.variables(Path(cache))}
        command = [str(found.python), "-c", COMPILES]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    return "" if done.returncode == 0 else (errors or ["it failed"])[-1]


def find_opencl() -> OpenCl:
    for place in PLACES:
        folder = hatch_build.ROOT / place
        if (folder / "bin" / "python").exists():
            found = OpenCl(folder.resolve())
            if found.loader and list(found.drivers.glob("*.icd")):
                if problem := problem_of(folder.resolve()):
                    pytest.skip(f"PoCL cannot compile for this processor: {problem}")
                return found
    pytest.skip("no PoCL: run make env-opencl")


def make_program(folder: Path) -> Path:
    return compile_c(folder / "opencl_program", HERE / "opencl" / "opencl_program.c", "-O1")


class Told:
    """What a program has printed of what it did."""

    def __init__(self, text: str) -> None:
        self.calls: dict[str, tuple[int, int]] = {}
        self.works: dict[str, Sums] = {}
        self.rest: dict[str, str] = {}
        for line in text.splitlines():
            word, _, given = line.partition(" ")
            if word == "call":
                name, counts = told_call(given)
                self.calls[name] = counts
            elif word == "work":
                count, size, ns, name = given.split(maxsplit=3)
                self.works[name] = int(count), int(size), int(ns)
            else:
                self.rest[word] = given


class Recorded(device_runs.Recorded):
    """The same of a rank file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "opencl")
        self.works = self.works_by_name()

    def counts(self) -> dict[str, tuple[int, int]]:
        return {name: sums[:2] for name, sums in self.works.items()}


def variables_of_run(folder: Path, opencl: OpenCl, cache: Path, **settings: str) -> dict[str, str]:
    ours = {"LD_PRELOAD": str(LIBRARY), "OPENCL_LAYERS": str(LIBRARY)}
    return recording(folder, **{**ours, **opencl.variables(cache), **settings})


def run(
    program: Path, opencl: OpenCl, folder: Path | None, *arguments: str | int, code: int = 0, **settings: str
) -> Told:
    """What one run says of itself; bare without a folder."""
    cache = program.parent / "cache"
    bare = {**os.environ, **opencl.variables(cache)}
    environment = bare if folder is None else variables_of_run(folder, opencl, cache, **settings)
    command = [str(program), str(opencl.loader), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (code, ""), done
    return Told(done.stdout)
