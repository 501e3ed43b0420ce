"""Who has to wait for whom in a collective, by what the operation means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache


class Waits(Enum):
    """Which members of a group cannot leave before which others have entered."""

    ALL_FOR_ALL = "all for all"
    ALL_FOR_ROOT = "all for the root"
    ROOT_FOR_ALL = "the root for all"
    FOR_LOWER = "each for the lower ranks"
    FOR_BELOW = "each for the ranks below it"  # the lower ones and not itself


class Proof(Enum):
    """Whether leaving proves that others have entered, as the estimate of clocks needs it."""

    ALWAYS = "always"
    WITH_BYTES = "of members that give or get bytes"
    NEVER = "counts may be 0 for single pairs"


class Volume(Enum):
    """What nccl-tests call the size of an operation, from the bytes of its members (docs/reference/metrics.md)."""

    OWN = "the bytes of a member"
    SUM = "the sum over the members"
    NONE = "moves nothing"


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of collective."""

    waits: Waits
    volume: Volume = Volume.OWN
    parts: bool = False  # of n parts each member keeps its own: bus bandwidth has the factor (n - 1) / n
    twice: bool = False  # every byte goes round twice: the factor 2
    proof: Proof = Proof.WITH_BYTES

    def bus_factor(self, members: int) -> float:
        """What bus bandwidth is of algorithm bandwidth, as nccl-tests define it."""
        return (2.0 if self.twice else 1.0) * ((members - 1) / members if self.parts else 1.0)


_EXCHANGED = Operation(Waits.ALL_FOR_ALL, Volume.OWN, parts=True)
_GATHERED = Operation(Waits.ALL_FOR_ALL, Volume.SUM, parts=True)
_TO_ROOT = Operation(Waits.ROOT_FOR_ALL, Volume.SUM, parts=True)
_FROM_ROOT = Operation(Waits.ALL_FOR_ROOT, Volume.SUM, parts=True)
_UNEVEN = Operation(Waits.ALL_FOR_ALL, Volume.OWN, parts=True, proof=Proof.NEVER)

OPERATIONS: Mapping[str, Operation] = {
    "barrier": Operation(Waits.ALL_FOR_ALL, Volume.NONE, proof=Proof.ALWAYS),
    "allreduce": Operation(Waits.ALL_FOR_ALL, Volume.OWN, parts=True, twice=True),
    "allgather": _GATHERED,
    "allgatherv": _GATHERED,
    "reducescatter": _EXCHANGED,
    "reducescatterv": _UNEVEN,
    "alltoall": _EXCHANGED,
    "alltoallv": _UNEVEN,
    "bcast": Operation(Waits.ALL_FOR_ROOT),
    "reduce": Operation(Waits.ROOT_FOR_ALL),
    "gather": _TO_ROOT,
    "scatter": _FROM_ROOT,
    "scan": Operation(Waits.FOR_LOWER),
    "exscan": Operation(Waits.FOR_BELOW),
}
# other spellings, in small letters and without underscores
SPELLINGS = {
    "broadcast": "bcast",
    "reducescatterblock": "reducescatter",
    "reducescatterbase": "reducescatter",
    "reducescattertensor": "reducescatter",
    "allgatherbase": "allgather",
    "allgatherintotensor": "allgather",
    "allreducecoalesced": "allreduce",
    "alltoallw": "alltoallv",
    "alltoallbase": "alltoall",
    "alltoallsingle": "alltoall",
    "gatherv": "gather",
    "scatterv": "scatter",
}
BY_PARTS_IN_NCCL = "reducescatter"  # NCCL's recorder counts the part a rank gets, the others the whole input


@cache
def operation_of(layer: str, name: str) -> str:
    """The operation that a routine carries out, "" for one without a rule."""
    text = name.lower().rpartition(":")[2]
    if layer == "mpi" and text in ("mpi_reduce_scatter", "mpi_reduce_scatter_c", "mpi_ireduce_scatter"):
        return "reducescatterv"
    text = (
        text.removeprefix("mpi_")
        .removeprefix("nccl")
        .removeprefix("oneccl")
        .removesuffix("_c")
        .removesuffix("_init")
        .replace("_", "")
    )
    for candidate in (text, text.removeprefix("i")):
        operation = SPELLINGS.get(candidate, candidate)
        if operation in OPERATIONS:
            return operation
    return ""
