"""What does importing a framework cost, by where it lies and how many import it at once, and when does staging pay?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.slowfs.mount import Slowness, bytes_per_second, duration_ns, program, reason_against_running
from rankscope.studies.errors import BadStudy
from rankscope.studies.import_tables import import_series, import_tables
from rankscope.studies.interpreters import Python, Pythons, importable, probe
from rankscope.studies.plan import Cell, CellJob, Missing, Parameter, Settings, Study
from rankscope.studies.programs import path_of
from rankscope.studies.run_study import rankscope

MODULES = {"torch": "torch.distributed", "horovod": "horovod.torch", "mpi4py": "mpi4py.MPI"}  # as the jobs import them
COUNTED = "counted"  # one rank where the framework is, with every system call recorded: no place to be timed at
SLOW = {"slow": "none", "cached": "negative"}  # what the clients of the slow file system remember
PLACES = ("local", *SLOW, "staged")
SYSTEM = ("/", "/usr", "/usr/local")
STARTS_MPI = ("mpi4py", "horovod")  # packages that want a launcher of MPI
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PARAMETERS = {
    "frameworks": Parameter("mpi4py,numpy", "modules to import; NAME=MODULE gives one another name"),
    "calls_of": Parameter("torch", "further modules, of which only system calls are counted"),
    "places": Parameter(
        ",".join(PLACES),
        "local (where it is), slow and cached (the same through a slow file system whose clients cache nothing, or "
        "existing and missing names), staged (copied from slow to the node first), and NAME=FOLDER for an "
        "environment elsewhere",
    ),
    "latency": Parameter("200us", "latency of a metadata operation on the slow file system"),
    "rate": Parameter("20000", "its metadata operations per second, over all ranks"),
    "bandwidth": Parameter("", "its bandwidth over all ranks, in bytes per second, as in 1G"),
    "node_storage": Parameter("", "where staged copies go (default: memory, or the folder for temporary files)"),
    "server": Parameter("600000", "projections: metadata operations per second of the file server"),
    "jobs": Parameter("16,64,512,6144,131072", "projections: job sizes in ranks"),
}


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    check(settings)
    return {"framework": list(frameworks(settings)), "place": [COUNTED, *places(settings)]}


def check(settings: Settings) -> None:
    """Numbers that are none are told before anything runs."""
    try:
        duration_ns(settings["latency"])
        if settings["bandwidth"]:
            bytes_per_second(settings["bandwidth"])
    except ValueError as problem:
        raise BadStudy(str(problem)) from None
    for name in ("rate", "server", "jobs"):
        words = settings[name].split(",") if name == "jobs" else [settings[name]]
        if not all(word.isdecimal() and int(word) > 0 for word in words):
            raise BadStudy(f"--{name} {settings[name]}: give whole numbers above 0")


def frameworks(settings: Settings) -> dict[str, str]:
    """Name to module, of those that are timed and those whose calls alone are counted."""
    timed = modules(settings["frameworks"])
    return timed | {name: module for name, module in modules(settings["calls_of"]).items() if name not in timed}


def modules(text: str) -> dict[str, str]:
    named = {}
    for word in filter(None, text.split(",")):
        name, equals, module = word.partition("=")
        named[name.strip()] = module.strip() if equals else MODULES.get(name.strip(), name.strip())
    return named


def places(settings: Settings) -> dict[str, str]:
    """Name to folder, "" for those that are no folder of the user's."""
    folders = {}
    for word in filter(None, settings["places"].split(",")):
        name, equals, folder = word.partition("=")
        if not equals and name not in PLACES:
            raise BadStudy(f"--places {name}: choose of {', '.join(PLACES)}, or give NAME=FOLDER")
        folders[name] = os.path.abspath(folder) if equals else ""
    return folders


def has(cell: Cell, scales: Sequence[int], settings: Settings) -> bool:
    """System calls are a constant of a rank: they are counted once, and of some frameworks nothing else is asked."""
    if cell["place"] == COUNTED:
        return cell.ranks == min(scales) and cell.repeat == 1
    return cell["framework"] in modules(settings["frameworks"])


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
    place, module = cell["place"], frameworks(settings)[cell["framework"]]
    folder_given = places(settings).get(place, "")
    python = found_python(module, folder_given, pythons)
    if isinstance(python, Missing):
        return python
    by_mpi = module.partition(".")[0] in STARTS_MPI
    if by_mpi and not python.mpirun:
        return Missing(f"no mpirun beside {python.path} or on the PATH: install an MPI")
    python = without_links(python)
    command = (python.path, path_of("imports"), module, folder)
    cell_job = CellJob((*command, python.prefix), "mpirun" if by_mpi else "local", python.path, ONE_THREAD)
    if place == COUNTED:
        return replace(cell_job, record=("--imports", "paths"))
    if folder_given or place == "local":
        return cell_job
    if reason := against_slowness(python):
        return Missing(reason)
    slow = slowed(python, SLOW.get(place, "none"), settings, folder)
    if place in SLOW:
        return replace(cell_job, around=slow)
    copied = replace(cell_job, command=(*command, "not", python.prefix))
    return staged(copied, slow, python, module, settings["node_storage"] or node_storage(), folder)


def without_links(python: Python) -> Python:
    """Started by its real name, so that every path it asks for begins alike: some ask for the real one anyway."""
    prefix = os.path.realpath(python.prefix)
    path = os.path.join(prefix, "bin", os.path.basename(python.path))
    return replace(python, path=path, prefix=prefix) if os.access(path, os.X_OK) else python


def against_slowness(python: Python) -> str:
    """Why this Python's environment cannot be put behind a slow file system, if it cannot."""
    if python.elsewhere:
        return "it needs rankscope itself: run the study where rankscope is installed"
    if reason := reason_against_running():
        return f"no slow file system can be mounted here: {reason}"
    if python.prefix in SYSTEM:
        return f"{python.path} is the system's own Python: name one in a virtual environment with --python"
    return ""


def staged(cell_job: CellJob, slow: tuple[str, ...], python: Python, module: str, to: str, folder: str) -> CellJob:
    """What the import touches is packed once for the whole study; each job brings it to its nodes, from slow."""
    bundle = os.path.normpath(os.path.join(folder, *[os.pardir] * 3, "bundles", f"{module}.bundle"))
    stage = (*rankscope(), "stage", python.prefix, "--bundle", bundle)
    rehearsal = (*stage, "--no-base", "--record", "--", "python", "-c", f"import {module}")
    times = os.path.join(folder, "times")
    inside = (*stage, "--to", to, "--meet", folder, "--strict", "--times", times, "--")
    return replace(cell_job, around=(*slow, *inside), before=rehearsal, makes=bundle)


def found_python(module: str, folder_given: str, pythons: Pythons) -> Python | Missing:
    """The one that has the framework: at the user's place, or the first of those at hand."""
    package = module.partition(".")[0]
    if not folder_given:
        return pythons.having(package) or Missing(pythons.without(package))
    path = os.path.join(folder_given, "bin", "python")
    if not os.access(path, os.X_OK):
        return Missing(f"{path}: no Python there: put an environment there, or name another folder with --places")
    if not importable(path, package):
        return Missing(f"no {package} in {path}: install it there")
    return probe(path)


def slowed(python: Python, cache: str, settings: Settings, folder: str) -> tuple[str, ...]:
    """Every rank is a client with a mount of its own, as if alone on a node; all share the server."""
    slowness = Slowness(
        latency_ns=duration_ns(settings["latency"]),
        operations_per_second=int(settings["rate"]),
        bytes_per_second=bytes_per_second(settings["bandwidth"]) if settings["bandwidth"] else 0,
        cache=cache,
        server=Path(folder, "server"),
    )
    return (program(), "run", *slowness.flags(), python.prefix, python.prefix, "--")  # as `rankscope slowfs run` does


def node_storage() -> str:
    memory = Path("/dev/shm")
    return str(memory) if os.access(memory, os.W_OK) else tempfile.gettempdir()


STUDY = Study(
    "imports",
    "Imports: system calls, time by place and scale, staging, break-even, projection",
    __doc__,
    axes,
    job,
    import_tables,
    PARAMETERS,
    scales=(1, 2, 4, 8),
    repeats=2,
    timeout_s=300,
    series=import_series,
    has=has,
)
