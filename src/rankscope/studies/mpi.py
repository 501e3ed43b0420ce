"""What does data-parallel training ask of MPI: which routines, which sizes, how evenly, and how much is negotiation?"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rankscope.model import Table
from rankscope.studies.asking import is_elsewhere, is_true, said
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Python, Pythons
from rankscope.studies.launchers import MPI_KINDS, mpi_kind
from rankscope.studies.mpi_tables import balance, layout, negotiation, routines, sizes
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell, Job, Missing, Parameter, Settings, Study
from rankscope.studies.programs import path_of
from rankscope.studies.rows import by_place

AXES = ("library", "mpi")
MODULES = {"mpi4py": ("mpi4py", "numpy"), "horovod": ("horovod", "torch", "numpy"), "torch": ("torch", "numpy")}
ANY = "any"


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    return {"library": words(settings, "libraries", tuple(MODULES)), "mpi": words(settings, "mpi", (ANY, *MPI_KINDS))}


def words(settings: Settings, option: str, known: Sequence[str]) -> list[str]:
    found = [word.strip() for word in settings[option].split(",") if word.strip()]
    if not found or any(word not in known for word in found):
        raise BadStudy(f"--{option} {settings[option]}: choose of {', '.join(known)}, parted by commas")
    return found


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> Job | Missing:
    library, device = cell["library"], settings["device"]
    modules = MODULES[library] if device == "cpu" else tuple({*MODULES[library], "torch"})
    having = [one for one in pythons.all if all(name in one.modules for name in modules)]
    if not having:
        return Missing(pythons.without(*modules))
    python = next((one for one in having if fits(one, cell["mpi"])), None)
    if python is None:
        return Missing(f"no {cell['mpi']} beside {', '.join(one.path for one in having)}: name one with --python")
    why = "" if is_elsewhere(python) else lacking(python, library, device)
    if why:
        return Missing(why)
    told = {"into": folder, "library": library, "device": device}
    told |= {name: settings[name] for name in PARAMETERS if name not in ("libraries", "mpi", "device")}
    options = [word for name, value in told.items() for word in (f"--{name.replace('_', '-')}", value)]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return Job((python.path, path_of("mpi_training"), *options), "mpirun", python.path, one_thread)


def fits(python: Python, kind: str) -> bool:
    return bool(python.mpirun) and kind in (ANY, mpi_kind(python.mpirun))


def lacking(python: Python, library: str, device: str) -> str:
    """Why it cannot run there, with the next action; "" where nothing speaks against it."""
    if library == "torch" and not is_true(python.path, "torch", "torch.distributed.is_mpi_available()"):
        return f"the torch of {python.path} is built without MPI: build it from source beside an MPI, or use mpi4py"
    if library == "horovod" and not is_true(python.path, "horovod.torch", "horovod.torch.mpi_built()"):
        return f"the Horovod of {python.path} is built without MPI: build it with HOROVOD_WITH_MPI=1"
    if device == "cuda" and library == "torch":
        return "gradients on a GPU go by mpi4py only: choose --libraries mpi4py, or --device cpu"
    if device == "cuda" and not takes_gpu_buffers(python):
        return f"the MPI of {python.path} is not CUDA-aware: build it with CUDA, or choose --device cpu"
    return ""


def takes_gpu_buffers(python: Python) -> bool:
    """As the MPI's own tool says."""
    beside = os.path.dirname(python.mpirun)
    if mpi_kind(python.mpirun) == "openmpi":
        return "mpi_built_with_cuda_support:value:true" in said(f"{beside}/ompi_info", "--parsable", "--all")
    return "cuda" in said(f"{beside}/mpichversion").lower()


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    places = by_place(outcomes, *AXES)
    made = [negotiation(places), routines(places), sizes(places), balance(places)]
    largest = {place[:-1]: place for place in sorted(places, key=lambda one: int(one[-1]))}
    return [*made, *(layout(place, places[place][0]) for place in largest.values())]


PARAMETERS = {
    "libraries": Parameter("mpi4py", "that sum the gradients: mpi4py, horovod, torch (its MPI backend)"),
    "mpi": Parameter(ANY, "openmpi, mpich, impi: found beside the Pythons; any: that of the first Python"),
    "device": Parameter("cpu", "cpu; cuda where the MPI is CUDA-aware"),
    "epochs": Parameter("2", "the first is not measured"),
    "steps": Parameter("25", "in an epoch"),
    "batch": Parameter("64", "samples of each rank"),
    "hidden": Parameter("384", "width of the hidden layers"),
    "layers": Parameter("3", "of the network"),
    "negotiate": Parameter("tensor", "agree in eight bytes before each tensor, each step, or no"),
    "slow_rank": Parameter("-1", "this rank sleeps in every step"),
    "slow_ms": Parameter("5", "for so long"),
}
STUDY = Study(
    "mpi",
    "MPI in data-parallel training: routines, sizes, balance, negotiation",
    __doc__,
    axes,
    job,
    tables,
    PARAMETERS,
    scales=(1, 2, 4),
    timeout_s=300,
)
