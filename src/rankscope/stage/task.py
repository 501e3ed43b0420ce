"""What one node has to do for a job, and how that went."""

import os

from rankscope.record.place import Place
from rankscope.record.rendezvous import Claimant

# How many ranks share a node, by launcher; ours is for where none of them tells.
LOCAL_RANKS = (
    "RANKSCOPE_STAGE_LOCAL_RANKS",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PALS_LOCAL_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "HOROVOD_LOCAL_SIZE",
)


Report = dict[str, int | str | bool | list[str] | None]


class StageTask:
    """One bundle to bring to one node."""

    def __init__(self, bundle: str, folder: str, asking: Claimant, place: Place) -> None:
        self.bundle = bundle
        self.folder = folder  # ours on the node
        self.asking = asking
        self.place = place
        self.job = ""  # tells this job's processes from others'
        self.local_ranks: int | None = None
        self.expected = ""  # beginning of the identity that the bundle must have
        self.meeting_folder = ""
        self.keep = False
        self.check = "quick"
        self.times = ""  # folder for reports
        self.patience_s = 600.0

    @property
    def alone(self) -> bool:
        """Whether no other node takes part."""
        return not self.place.shared or (self.place.ranks is not None and self.place.ranks == self.local_ranks)


class StageOutcome:
    """Where the copy is, or why there is none."""

    def __init__(self, copy: str, reason: str, report: Report | None = None, summary: str = "") -> None:
        self.copy = copy
        self.reason = reason
        self.summary = summary  # how it went, for people
        self.report: Report = report or {}

    @property
    def line(self) -> str:
        return "\t".join([self.copy, *(" ".join(text.split()) for text in (self.reason, self.summary))]) + "\n"


def outcome_from(line: str) -> StageOutcome:
    copy, reason, summary = [*line.rstrip("\n").split("\t"), "", ""][:3]
    return StageOutcome(copy, reason, None, summary)


def local_ranks(environment: dict[str, str]) -> int | None:
    """How many ranks of the job run on this node; Slurm writes 3 or 3(x4), and 3,2 where nodes differ."""
    for name in LOCAL_RANKS:
        value = environment.get(name, "").partition("(x")[0]
        if value.isascii() and value.isdigit():
            return int(value)
    return None


def node_name(folder: str) -> str:
    """A name for this node (and the folder, where several stand for nodes on one host) in reports."""
    import zlib

    return f"{os.uname().nodename}-{zlib.crc32(os.fsencode(folder)):08x}"
