"""The libraries by which ranks talk to each other, and what each needs to run here."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.studies.errors import BadStudy
from rankscope.studies.plan import Job, Missing
from rankscope.studies.programs import path_of
from rankscope.studies.pythons import Pythons

NEEDS: dict[str, tuple[tuple[str, ...], str]] = {  # modules, launcher on one machine
    "mpi4py": (("mpi4py", "numpy"), "mpirun"),
    "gloo": (("torch",), "local"),
    "nccl": (("torch",), "local"),
}


def backends(named: str) -> list[str]:
    """Those of a comma-separated list."""
    found = [word.strip() for word in named.split(",") if word.strip()]
    unknown = [word for word in found if word not in NEEDS]
    if unknown or not found:
        raise BadStudy(f"--backends {named}: choose of {', '.join(NEEDS)}")
    return found


def job_of(
    backend: str, workload: str, options: Sequence[str], pythons: Pythons, folder: str, record: Sequence[str] = ()
) -> Job | Missing:
    """The workload by this backend, in the first Python that has it."""
    modules, launcher = NEEDS[backend]
    python = pythons.having(*modules)
    if python is None:
        return Missing(pythons.without(*modules))
    if launcher == "mpirun" and not python.mpirun:
        return Missing(f"no mpirun beside {python.path} nor on the PATH: install an MPI, or choose --launcher")
    command = (python.path, path_of(workload), "--backend", backend, "--into", folder, *options)
    return Job(command, launcher, python.path, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}, tuple(record))
