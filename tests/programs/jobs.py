"""Builds the test programs and runs them on an MPI, bare or with the recorder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpis import ROOT, Mpi, find_mpi

PROGRAMS = Path(__file__).parent
RECORDER = ROOT / "src" / "rankscope" / "native" / "librankscope.so"
WARNINGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Job:
    """How one program ended."""

    code: int
    out: str
    err: str


def recorder() -> Path:
    assert RECORDER.exists(), "the recorder is not built: run make native"
    return RECORDER


def build(target: Path, compiler: Path | str, sources: Sequence[Path], *flags: str) -> Path:
    done = subprocess.run(
        [str(compiler), *WARNINGS, *flags, "-o", str(target), *map(str, sources), "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def build_with_mpi(mpi: Mpi, folder: Path, name: str, *flags: str) -> Path:
    """programs/<name>.c or programs/<name>/*.c, compiled once per MPI; Intel's runs what MPICH's compiler makes."""
    target = folder / "-".join([name, mpi.name, *(flag.strip("-") for flag in flags)])
    if target.exists():
        return target
    mpicc = mpi.mpicc or find_mpi("mpich").mpicc
    assert mpicc is not None
    source = PROGRAMS / name
    sources = sorted(source.glob("*.c")) if source.is_dir() else [source.with_suffix(".c")]
    return build(target, mpicc, sources, *flags)


def variables(mpi: Mpi) -> dict[str, str]:
    """What a job on this MPI needs besides the launcher's own environment."""
    if mpi.name == "impi":  # a program linked with MPICH finds Intel's library of the same name
        return {"LD_LIBRARY_PATH": str(mpi.folder / "lib")}
    if mpi.name == "openmpi":  # its UCX part prints an error per window on machines without UCX
        return {"OMPI_MCA_osc": "^ucx"}
    return {}


def recording(folder: Path | None, **settings: str) -> list[str]:
    """What goes between the launcher and the program; nothing for a bare run."""
    if folder is None:
        return []
    if not folder.exists():
        folder.mkdir()
    told = {"LD_PRELOAD": str(recorder()), "RANKSCOPE_DIR": str(folder), **settings}
    return ["env", *(f"{name}={value}" for name, value in told.items())]


def run(mpi: Mpi, ranks: int, folder: Path | None, *argv: str | Path, timeout_s: float = 100, **settings: str) -> Job:
    """Runs argv on so many ranks; with a folder, recorded there."""
    command = [*recording(folder, **settings), *map(str, argv)]
    done = mpi.run(ranks, *command, timeout_s=timeout_s, **variables(mpi))
    return Job(done.returncode, done.stdout, done.stderr)
