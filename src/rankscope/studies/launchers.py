"""How the ranks of a cell are started: one function for each launcher, from a rank's command to the whole command."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope.studies.errors import BadStudy
from rankscope.studies.plan import CellJob
from rankscope.studies.programs import beside, version_of

MPI_KINDS = ("openmpi", "mpich", "impi")
LONGEST_QUEUE_S = 30 * 86400.0
BATCH = """\
name=rankscope-$(uname -n)-$$-$(date +%s)
trap 'scancel --name="$name"; exit 143' TERM INT HUP
sbatch=$1; shift
"$sbatch" --job-name="$name" "$@" &
wait "$!"
"""


@dataclass(frozen=True)
class LaunchOptions:
    """What the user said about launching."""

    launcher: str = "auto"
    per_node: int | None = None  # ranks on each node
    more: tuple[str, ...] = ()  # further arguments for the launcher
    template: str = ""
    elsewhere: str = ""  # Python of another machine, for which commands are written that nobody can try here

    @property
    def python(self) -> str:
        """The one that runs our own parts."""
        return self.elsewhere or sys.executable


@dataclass(frozen=True)
class JobStart:
    """One job to be started."""

    command: tuple[str, ...]  # of one rank
    ranks: int
    wanted: LaunchOptions
    job: CellJob
    folder: str  # for what the launcher itself needs to leave
    timeout_s: float = 600.0

    @property
    def nodes(self) -> int:
        return -(-self.ranks // (self.wanted.per_node or self.ranks))


def launched(start: JobStart) -> tuple[list[str], dict[str, str]]:
    """The command, and the variables it needs."""
    kind = chosen(start)
    return LAUNCHERS[kind](start)


def allowed_s(start: JobStart) -> float:
    """After which time the launcher itself is stopped."""
    return LONGEST_QUEUE_S if chosen(start) == "sbatch" else start.timeout_s


def chosen(start: JobStart) -> str:
    """The user's launcher; else that of the allocation we are in; else what the job needs on one machine."""
    kind = start.wanted.launcher
    if kind == "auto":
        kind = (not start.wanted.elsewhere and allocation()) or start.job.launcher
    if kind == "mpirun" and start.wanted.elsewhere:
        raise BadStudy(f"which MPI is on the other machine? Choose --launcher {', '.join(MPI_KINDS)}, srun or pals")
    if kind == "mpirun":
        kind = mpi_kind(mpirun_of(start))
    if kind not in LAUNCHERS:
        raise BadStudy(f"--launcher {kind}: choose one of auto, {', '.join(LAUNCHERS)}")
    return kind


def allocation() -> str:
    """The launcher of the batch system in whose job we run."""
    if os.environ.get("SLURM_JOB_ID") and "SLURM_STEP_ID" not in os.environ:
        return "srun"
    if os.environ.get("PBS_NODEFILE") and os.environ.get("PALS_ROOT", os.environ.get("PBS_JOBID")):
        return "pals" if on_path("mpiexec") and "PALS" in version_of("mpiexec") else ""
    return ""


def local(start: JobStart) -> tuple[list[str], dict[str, str]]:
    if start.wanted.more or start.nodes > 1:
        raise BadStudy("--launcher local starts processes on this machine: it takes no --ppn and no further arguments")
    return [start.wanted.python, beside("local"), str(start.ranks), "--", *start.command], {}


def openmpi(start: JobStart) -> tuple[list[str], dict[str, str]]:
    words = [mpirun_of(start), "-n", str(start.ranks), *start.wanted.more]
    if start.wanted.per_node:
        words += ["--map-by", f"ppr:{start.wanted.per_node}:node"]
    elsewhere = bool(start.wanted.elsewhere)
    if not start.wanted.per_node and (elsewhere or start.ranks > len(os.sched_getaffinity(0))):
        words += ["--oversubscribe", "--bind-to", "none"]
    root = elsewhere or os.geteuid() == 0
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if root else {}
    return [*words, *start.command], as_root


def hydra(start: JobStart) -> tuple[list[str], dict[str, str]]:
    """MPICH, and the words of Intel MPI."""
    words = [mpirun_of(start), "-n", str(start.ranks), *start.wanted.more]
    if start.wanted.per_node:
        words += ["-ppn", str(start.wanted.per_node)]
    return [*words, *start.command], {}


def impi(start: JobStart) -> tuple[list[str], dict[str, str]]:
    """Its mpirun finds its own parts by the PATH only."""
    command, variables = hydra(start)
    folder = os.path.dirname(command[0])
    if folder and not start.wanted.elsewhere:
        variables = {**variables, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    return command, variables


def torchrun(start: JobStart) -> tuple[list[str], dict[str, str]]:
    """On one machine; over several it is started by the batch system, as in a template."""
    words = [start.job.python or start.wanted.python, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node"]
    more = start.wanted.more or ("--standalone",)
    return [*words, str(start.ranks), *more, *start.command], {}


def srun(start: JobStart) -> tuple[list[str], dict[str, str]]:
    return [*srun_words(start), *start.command], {}


def srun_words(start: JobStart) -> list[str]:
    per_node = [f"--ntasks-per-node={start.wanted.per_node}"] if start.wanted.per_node else []
    mine = [f"--nodes={start.nodes}", f"--ntasks={start.ranks}", *per_node]
    return ["srun", "--kill-on-bad-exit=1", "--export=ALL", *mine, *start.wanted.more]


def sbatch(start: JobStart) -> tuple[list[str], dict[str, str]]:
    """A job of its own for the cell: waits for its end, and takes it out of the queue where we are stopped.

    Its time is counted from its start: how long it stands in the queue is not its own doing.
    """
    limit = ["timeout", "-k", "10", f"{start.timeout_s:g}"]
    inner = shlex.join([*limit, "srun", "--kill-on-bad-exit=1", *start.command])
    per_node = [f"--ntasks-per-node={start.wanted.per_node}"] if start.wanted.per_node else []
    mine = [f"--nodes={start.nodes}", f"--ntasks={start.ranks}", *per_node, f"--output={start.folder}/job.txt"]
    words = ["sbatch", "--wait", "--export=ALL", *mine, *start.wanted.more, f"--wrap=exec {inner}"]
    return ["sh", "-c", BATCH, "rankscope", *words], {}


def pals(start: JobStart) -> tuple[list[str], dict[str, str]]:
    per_node = ["--ppn", str(start.wanted.per_node)] if start.wanted.per_node else []
    return ["mpiexec", "-n", str(start.ranks), *per_node, *start.wanted.more, *start.command], {}


def template(start: JobStart) -> tuple[list[str], dict[str, str]]:
    """The user's own words, with {ranks}, {nodes}, {ppn} and {command} filled in."""
    if "{command}" not in start.wanted.template:
        raise BadStudy("--template needs {command}, as in 'aprun -n {ranks} -N {ppn} {command}'")
    words: list[str] = []
    for word in shlex.split(start.wanted.template):
        if word == "{command}":
            words += start.command
            continue
        per_node = start.wanted.per_node or start.ranks
        for name, value in {"ranks": start.ranks, "nodes": start.nodes, "ppn": per_node}.items():
            word = word.replace(f"{{{name}}}", str(value))
        words.append(word.replace("{command}", shlex.join(start.command)))
    return words, {}


LAUNCHERS: dict[str, Callable[[JobStart], tuple[list[str], dict[str, str]]]] = {
    "local": local,
    "openmpi": openmpi,
    "mpich": hydra,
    "impi": impi,
    "torchrun": torchrun,
    "srun": srun,
    "sbatch": sbatch,
    "pals": pals,
    "template": template,
}


def mpirun_of(start: JobStart) -> str:
    """The one in the environment of the job's Python, or on the PATH."""
    folder = os.path.dirname(start.job.python)
    local_mpirun = os.path.join(folder, "mpirun") if folder else ""
    if start.wanted.elsewhere:
        return local_mpirun or "mpirun"
    if local_mpirun and os.access(local_mpirun, os.X_OK):
        return local_mpirun
    if on_path("mpirun"):
        return "mpirun"
    raise BadStudy(
        f"no mpirun beside {start.job.python or sys.executable} or on the PATH: install an MPI, or choose --launcher"
    )


def on_path(program: str) -> bool:
    return any(
        os.access(os.path.join(place, program), os.X_OK) for place in os.environ.get("PATH", "").split(os.pathsep)
    )


def mpi_kind(mpirun: str) -> str:
    """Whose launcher it is, by what it says of itself."""
    version = version_of(mpirun)
    if "Open MPI" in version or "OpenRTE" in version or "prrte" in version.lower():
        return "openmpi"
    return "impi" if "Intel" in version else "mpich"


def kinds() -> Sequence[str]:
    return ("auto", "mpirun", *LAUNCHERS)
