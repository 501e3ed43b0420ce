"""The libraries by which ranks talk to each other, and what each needs to run here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Python, Pythons, is_elsewhere, is_true_after_import
from rankscope.studies.plan import CellJob, Missing, Settings
from rankscope.studies.programs import path_of

HERE = "here"  # as a list of backends: all that can be run with the Pythons at hand
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Horovod speaks to MPI from a thread of its own: bound to one CPU, it and the program would take turns. As two versions
# of Open MPI call it.
UNBOUND = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}
ONECCL = ("oneccl", "oneccl-devel", "numpy")


@dataclass(frozen=True)
class BackendNeeds:
    """Of one backend."""

    modules: tuple[str, ...]
    launcher: str = "local"  # on one machine
    asks: str = ""  # what must be true of torch and its module `distributed`
    built: str = ""  # what must be true of the first of the modules, whose interface for torch is imported for it
    install: str = ""  # how to get it, where that is not plain
    environment: Mapping[str, str] = field(default_factory=dict)
    record: tuple[str, ...] = ()  # options of `rankscope run` without which its calls are not seen


NEEDS: dict[str, BackendNeeds] = {
    "mpi4py": BackendNeeds(("mpi4py", "numpy"), "mpirun"),
    "gloo": BackendNeeds(("torch",), asks="distributed.is_gloo_available()"),
    "nccl": BackendNeeds(("torch",), asks="distributed.is_nccl_available() and torch.cuda.device_count()"),
    "horovod": BackendNeeds(
        ("horovod", "torch"), "mpirun", install="make env-horovod (docs/studies/backends.md)", environment=UNBOUND
    ),
    "horovod_gloo": BackendNeeds(
        ("horovod", "torch"), install="make env-horovod (docs/studies/backends.md)", built="horovod.torch.gloo_built()"
    ),
    "oneccl": BackendNeeds(ONECCL, install="make env-oneccl (docs/studies/backends.md)"),
    "oneccl_mpi": BackendNeeds(
        ONECCL,
        "mpirun",
        install="make env-oneccl (docs/studies/backends.md)",
        environment={"CCL_ATL_TRANSPORT": "mpi"},
        record=("--lookups",),
    ),
    "torch_mpi": BackendNeeds(("torch",), "mpirun", asks="distributed.is_mpi_available()"),
    "ucc": BackendNeeds(("torch",), asks="distributed.is_ucc_available()"),
    "xccl": BackendNeeds(("torch",), asks="distributed.is_xccl_available() and torch.xpu.device_count()"),
}
ASSUMED = ("gloo",)  # every torch has it that people install: not worth importing torch for


def backends(named: str) -> list[str]:
    """Those of a comma-separated list."""
    names = [word.strip() for word in named.split(",") if word.strip()]
    unknown = [word for word in names if word not in NEEDS]
    if unknown or not names:
        raise BadStudy(f"--backends {named}: choose of {', '.join(NEEDS)}, or {HERE} for all that can be run here")
    return names


def settled(settings: Settings, pythons: Pythons) -> Settings:
    """The settings with the backends that are here, where all of them were asked for."""
    if settings["backends"] != HERE:
        return settings
    names = [name for name in NEEDS if isinstance(python_for(name, pythons), Python)]
    if not names:
        known = ", ".join(python.path for python in pythons.all)
        raise BadStudy(f"none of {', '.join(NEEDS)} is in {known}: name a Python that has one with --python")
    return {**settings, "backends": ",".join(names)}


def python_for(backend: str, pythons: Pythons) -> Python | Missing:
    """The first Python that has the backend, and a launcher for it."""
    needs = NEEDS[backend]
    having = [python for python in pythons.all if all(name in python.modules for name in needs.modules)]
    if not having:
        reason = pythons.without(*needs.modules)
        return Missing(f"{reason}; {needs.install}" if needs.install else reason)
    able = [python for python in having if not needs.asks or backend in ASSUMED or python.answers(needs.asks)]
    if not able:
        return Missing(f"torch in {having[0].path} has no {backend} that works here ({needs.asks} is not true)")
    if (
        needs.built
        and not is_elsewhere(able[0])
        and not is_true_after_import(able[0].path, "horovod.torch", needs.built)
    ):
        return Missing(f"{needs.modules[0]} in {able[0].path} was built without it ({needs.built} is not true)")
    if needs.launcher == "mpirun" and not able[0].mpirun:
        return Missing(f"no mpirun beside {able[0].path} or on the PATH: install an MPI, or choose --launcher")
    return able[0]


def job_of(
    backend: str,
    workload: str,
    options: Sequence[str],
    pythons: Pythons,
    folder: str,
    record: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> CellJob | Missing:
    """The workload by this backend, in the first Python that has it."""
    python = python_for(backend, pythons)
    if isinstance(python, Missing):
        return python
    needs = NEEDS[backend]
    command = (python.path, path_of(workload), "--backend", backend, "--into", folder, *options)
    variables = {**ONE_THREAD, **needs.environment, **(environment or {})}
    binaries = os.path.dirname(python.path)
    if needs.launcher == "mpirun" and os.path.exists(os.path.join(binaries, "impi_info")):
        variables["PATH"] = os.pathsep.join(
            [binaries, os.environ.get("PATH", os.defpath)]
        )  # its mpirun looks there only
    return CellJob(command, needs.launcher, python.path, variables, (*needs.record, *record))
