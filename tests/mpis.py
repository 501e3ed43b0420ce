"""The three MPIs that `make envs` installs, each in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LAUNCHER_FLAGS = {"openmpi": ["--oversubscribe", "--bind-to", "none"], "mpich": [], "impi": []}
LAUNCHER_VARIABLES = {
    "openmpi": {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {},
    "mpich": {},
    "impi": {"I_MPI_PIN": "off"},
}
# Ranks that wait give their processor away: there are more of them than processors, in every worker. Ranks that spin
# make MPICH's 8-byte Allreduce on 4 ranks and 2 busy processors seven times as long.
WAITING_VARIABLES = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "I_MPI_THREAD_YIELD": "2",
}


@dataclass(frozen=True)
class Mpi:
    """One installed MPI: what starts its jobs, and the Python and compiler that use it."""

    name: str
    folder: Path
    python: Path
    mpirun: list[str]  # append "-n", the number of ranks and the command
    mpicc: Path | None  # impi-rt has no compiler and no headers
    environment: dict[str, str] = field(repr=False)

    def command(self, ranks: int, *argv: str | Path) -> list[str]:
        """The command line that starts argv on so many ranks."""
        if self.name == "openmpi":
            remove_left_sessions()
        return [*self.mpirun, "-n", str(ranks), *map(str, argv)]

    def run(
        self, ranks: int, *argv: str | Path, timeout_s: float = 100, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs argv on so many ranks and returns its output and exit code, whatever they are."""
        return subprocess.run(
            self.command(ranks, *argv),
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def remove_left_sessions() -> None:
    """Open MPI names a folder after the process of mpirun: a killed one leaves it, the next of that number fails."""
    for folder in Path(tempfile.gettempdir()).glob("ompi.*"):
        number = folder.name.partition(".")[2]
        if number.isdecimal() and not Path("/proc", number).exists():
            shutil.rmtree(folder, ignore_errors=True)


def find_mpi(name: str) -> Mpi:
    """The MPI of that name under .envs, or a skip that says how to get it."""
    folder = ROOT / ".envs" / name
    binaries = folder / "bin"
    if not (binaries / "python").exists() or not (binaries / "mpirun").exists():
        pytest.skip(f".envs/{name} is missing: run make envs")
    mpicc = binaries / "mpicc"
    return Mpi(
        name=name,
        folder=folder,
        python=binaries / "python",
        mpirun=[str(binaries / "mpirun"), *LAUNCHER_FLAGS[name]],
        mpicc=mpicc if mpicc.exists() else None,
        environment=job_environment(binaries, LAUNCHER_VARIABLES[name]),
    )


def job_environment(binaries: Path, variables: dict[str, str]) -> dict[str, str]:
    """The environment of a job: no rankscope variable of an outer run, one computing thread per rank."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
    # Intel's mpirun finds its own parts through PATH only.
    path = f"{binaries}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}
