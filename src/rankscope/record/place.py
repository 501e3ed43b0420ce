"""Where this process stands in a job: which launcher started it, as which rank of how many, and the job's key."""

import os
import time
from itertools import pairwise

from rankscope.record.program import content

# launcher; variables that its ranks have (the first of them only its ranks, not its daemons); rank, local rank, ranks;
# what identifies the job (all that are set). The innermost launcher comes first: torchrun inside mpirun inside Slurm.
Row = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]
LAUNCHERS: tuple[Row, ...] = (
    ("torchrun", ("TORCHELASTIC_RUN_ID",), ("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), ("TORCHELASTIC_RUN_ID",)),
    ("local", ("RANKSCOPE_LOCAL_JOB",), ("RANK",), ("LOCAL_RANK",), ("WORLD_SIZE",), ("RANKSCOPE_LOCAL_JOB",)),
    (
        "openmpi",
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"),
    ),
    (
        "intelmpi",
        ("PMI_RANK", "I_MPI_HYDRA_UUID"),
        ("PMI_RANK",),
        ("MPI_LOCALRANKID",),
        ("PMI_SIZE",),
        ("I_MPI_HYDRA_UUID",),
    ),
    ("mpich", ("PMI_RANK", "HYDI_CONTROL_FD"), ("PMI_RANK",), ("MPI_LOCALRANKID",), ("PMI_SIZE",), ()),
    ("pals", ("PALS_RANKID", "PALS_APID"), ("PALS_RANKID",), ("PALS_LOCAL_RANKID",), ("PMI_SIZE",), ("PALS_APID",)),
    ("flux", ("FLUX_TASK_RANK",), ("FLUX_TASK_RANK",), ("FLUX_TASK_LOCAL_ID",), ("FLUX_JOB_SIZE",), ("FLUX_JOB_ID",)),
    (
        "slurm",
        ("SLURM_STEP_ID",),
        ("SLURM_PROCID",),
        ("SLURM_LOCALID",),
        ("SLURM_STEP_NUM_TASKS",),
        ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID"),
    ),
    (
        "horovod",
        ("HOROVOD_RANK",),
        ("HOROVOD_RANK",),
        ("HOROVOD_LOCAL_RANK",),
        ("HOROVOD_SIZE",),
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ),
    ("pmix", ("PMIX_RANK",), ("PMIX_RANK",), (), (), ("PMIX_NAMESPACE",)),
    (
        "pmi",
        ("PMI_RANK",),
        ("PMI_RANK",),
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        ("PMI_SIZE",),
        ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"),
    ),
)
# Ranks that a script, a person or Kubernetes starts one by one: what torch's init_method env:// reads.
ONE_BY_ONE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MOST_ANCESTORS = 32
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
LONGEST_NAME = 100


class Place:
    """What the launcher's variables say."""

    def __init__(
        self,
        launcher: str = "",
        marker: str = "",
        rank: int | None = None,
        local_rank: int | None = None,
        ranks: int | None = None,
        job: str = "",
    ) -> None:
        self.launcher = launcher
        self.marker = marker
        self.rank = rank
        self.local_rank = local_rank
        self.ranks = ranks
        self.job = job

    @property
    def shared(self) -> bool:
        """Whether other processes run `rankscope run` for the same job."""
        return bool(self.launcher) and self.ranks != 1

    @property
    def one_by_one(self) -> bool:
        """Whether the ranks have no launcher in common: nothing but their variables says that they are one job."""
        return self.launcher == "environment"

    @property
    def speaks(self) -> bool:
        """Whether this process is the one of its node that tells the user something."""
        return not self.local_rank


class ProcessIdentity:
    """One process on one machine, told from a later one with the same id."""

    def __init__(self, pid: int, start_ticks: int) -> None:
        self.pid = pid
        self.start_ticks = start_ticks

    @property
    def identity(self) -> str:
        return f"{self.pid}.{self.start_ticks}"

    @property
    def started_ns(self) -> int:
        """Unix time of its start, early by up to one tick of 10 ms."""
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.start_ticks / os.sysconf("SC_CLK_TCK")
        return time.time_ns() - int(age_s * 1e9)


def find_place(environment: dict[str, str]) -> Place:
    """The place in the innermost job: the launcher's, unless its tasks start ranks themselves, in another number."""
    launched, single = launched_place(environment), one_by_one_place(environment)
    if launched.launcher in ("torchrun", "local") or (launched.launcher and launched.ranks in (None, single.ranks)):
        return launched
    return single if single.launcher else launched


def one_by_one_place(environment: dict[str, str]) -> Place:
    """What RANK and its companions say, where all of them are there and make sense."""
    rank, ranks = number(environment, ("RANK",)), number(environment, ("WORLD_SIZE",))
    if rank is None or ranks is None or rank >= ranks or not all(environment.get(name) for name in ONE_BY_ONE):
        return Place()
    job = f"{master_host(environment['MASTER_ADDR'])}-{environment['MASTER_PORT']}"
    return Place("environment", "RANK", rank, number(environment, ("LOCAL_RANK",)), ranks, job)


def master_host(address: str) -> str:
    """One name for rank 0's host: operators of Kubernetes call it localhost in rank 0 and by its name elsewhere."""
    if address in ("localhost", "::1") or address.startswith("127."):
        address = os.uname().nodename
    first = address.partition(".")[0]
    return address if first.isdigit() else first


def launched_place(environment: dict[str, str]) -> Place:
    """The place in the innermost launcher's job."""
    for launcher, marks, ranks, local_ranks, sizes, keys in LAUNCHERS:
        if all(mark in environment for mark in marks):
            return Place(
                launcher,
                marks[0],
                number(environment, ranks),
                number(environment, local_ranks),
                number(environment, sizes),
                job_key(launcher, keys, environment),
            )
    return Place()


def number(environment: dict[str, str], names: tuple[str, ...]) -> int | None:
    """The first of these variables that is set to a number."""
    for name in names:
        value = environment.get(name, "")
        if value.isascii() and value.isdigit():
            return int(value)
    return None


def job_key(launcher: str, names: tuple[str, ...], environment: dict[str, str]) -> str:
    """What the launcher calls this job on every node, or "" where it has no name for it."""
    values = [environment[name] for name in names if environment.get(name)]
    if launcher == "torchrun" and values == ["none"]:  # the default of every job that was not given a name
        values += [environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")]
    return "-".join(values)


def launcher_process(marker: str) -> tuple[ProcessIdentity | None, bool]:
    """The nearest ancestor that is not part of the rank, and whether something (a shell) stands in between."""
    pid, between = os.getppid(), False
    for _ in range(MOST_ANCESTORS):
        if not has_variable(pid, marker):
            return process(pid), between
        pid, between = parent_of(pid), True
    return None, between


def rank_process(rank: int | None) -> ProcessIdentity | None:
    """The outermost process of this rank, itself or a script around it: as long as that runs, so does the rank."""
    pid, entry = os.getpid(), b"\0RANK=%d\0" % (rank or 0)
    for _ in range(MOST_ANCESTORS):
        above = parent_of(pid)
        try:
            if not above or entry not in b"\0" + content(f"/proc/{above}/environ"):
                break
        except OSError:
            break
        pid = above
    return process(pid)


def has_variable(pid: int, name: str) -> bool:
    """Whether the process was started with this variable; one that we may not look into is not ours, so: no."""
    try:
        return b"\0" + os.fsencode(name) + b"=" in b"\0" + content(f"/proc/{pid}/environ")
    except OSError:
        return False


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may itself hold blanks and brackets."""
    return os.fsdecode(content(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def process(pid: int) -> ProcessIdentity | None:
    """The process with this id, if there is one."""
    try:
        return ProcessIdentity(pid, int(stat_of(pid)[19]))
    except (OSError, IndexError, ValueError):
        return None


FIRST_PID_NAMESPACE = 0xEFFFFFFC  # of the machine itself; all others are below it


def namespace_of(pid: int | str) -> int:
    """The inode of a process's pid namespace, 0 where it cannot be seen."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


def boot() -> int:
    """What the recorder calls this boot of the machine."""
    try:
        return int(content("/proc/sys/kernel/random/boot_id").replace(b"-", b"")[:16], 16)
    except (OSError, ValueError):
        return 0


def may_run(pid: int, start_ticks: int, namespace: int, boot_id: int) -> bool:
    """Whether a process that is known by these runs here, or may run where we cannot look."""
    if boot_id and boot_id != boot():
        return False
    ours = namespace_of("self")
    if namespace in (0, ours):
        process_identity = process(pid)
        return process_identity is not None and process_identity.start_ticks == start_ticks
    others = [name for name in os.listdir("/proc") if name.isdecimal() and namespace_of(name) == namespace]
    if others:  # a container that we see from outside, under other numbers
        return any(int(stat_of(int(other))[19]) == start_ticks for other in others if process(int(other)))
    return ours != FIRST_PID_NAMESPACE


def parent_of(pid: int) -> int:
    try:
        return int(stat_of(pid)[1])
    except (OSError, IndexError, ValueError):
        return 0


def hydra_port(pid: int) -> str:
    """Host and port of the mpiexec that the node's MPICH proxy obeys: the same on every node of the job."""
    try:
        words = os.fsdecode(content(f"/proc/{pid}/cmdline")).split("\0")
    except OSError:
        return ""
    for word, following in pairwise(words):
        if word == "--control-port":
            return following
    return ""


def cleaned(text: str) -> str:
    """The text as (part of) a file name."""
    return "".join(letter if letter in LETTERS else "-" for letter in text)[:LONGEST_NAME].strip("-.") or "run"
