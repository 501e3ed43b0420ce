"""Which collectives wait rather than move data, and how fast are they once everybody is there?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.collectives.matching import Array, CollectiveLog
from rankscope.questions.collectives.operations import BY_PARTS_IN_NCCL, OPERATIONS, Operation, Volume, Waits
from rankscope.questions.collectives.wait_and_transfer import Collectives, Split, collectives_of, usually_asked
from rankscope.questions.mpi.messages import edges
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import counted

# ---------------------------------------------------------------------------------------------------------------------
# Which NCCL operations ran, by which algorithm and protocol, and how long did they take on the device?
NCCL_COLUMNS = (
    Column("name", Unit.NAME, "Operation"),
    Column(
        "algorithm",
        Unit.NAME,
        "Algorithm",
        "algorithm and protocol, as in `RING LL128`; `CE`: by copy engines; empty for point-to-point",
    ),
    Column(
        "group",
        Unit.NAME,
        "Communicator",
        "communicator: the name the program gave it or `NCCL`, `#`, and the last eight digits of NCCL's own hash of"
        " it, which is equal on all its ranks",
    ),
    Column(
        "calls", Unit.COUNT, "Calls", "number of operations enqueued (of replayed CUDA graphs: those that NCCL reports)"
    ),
    Column(
        "bytes",
        Unit.BYTES,
        "Bytes",
        "NCCL's count × size of the element: all-gather: this rank's part; reduce-scatter: the part this rank receives",
    ),
    Column(
        "device_ns",
        Unit.NS,
        "On device",
        "from the start of the first channel to the end of the last, wait for other ranks included: by the GPU's "
        "clock from NCCL 2.27 on, as the proxy thread saw it in 2.26, empty before and with `RANKSCOPE_NCCL=calls`",
    ),
    Column("mean_ns", Unit.NS, "Mean", "`device_ns` ÷ operations whose time is known"),
    Column("min_ns", Unit.NS, "Min", "shortest operation"),
    Column("max_ns", Unit.NS, "Max", "longest operation"),
    Column("rate", Unit.RATE, "Rate", "bytes of operations whose time is known ÷ `device_ns`"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that have it"),
)
UNTOLD = "{} of {} operations: when they ran on the device is not known (an NCCL before 2.26, or RANKSCOPE_NCCL=calls)."
SQL = """
    WITH summed AS (
        SELECT split_part(name, ' ', 1) AS operation, name, "group", sum(calls)::BIGINT AS calls,
            sum(bytes)::BIGINT AS bytes, sum(total_ns) FILTER (kind = 'progress') AS device_ns,
            sum(calls) FILTER (kind = 'progress') AS timed, sum(bytes) FILTER (kind = 'progress') AS timed_bytes,
            min(min_ns) FILTER (kind = 'progress') AS min_ns, max(max_ns) FILTER (kind = 'progress') AS max_ns,
            count(DISTINCT process) AS ranks
        FROM tallies JOIN ranks USING (process) WHERE layer = 'nccl_algo' AND {condition} GROUP BY ALL)
    SELECT operation, trim(substr(name, length(operation) + 1)), "group", calls, bytes, device_ns, device_ns / timed,
        min_ns, max_ns, timed_bytes / nullif(device_ns, 0) * 1e9, ranks, coalesce(timed, 0)
    FROM summed ORDER BY device_ns DESC NULLS LAST, calls DESC, name, "group\""""


def nccl(tables: Tables, selection: Selection = ALL) -> Table:
    """Operations by algorithm, protocol and communicator, the longest on the device first."""
    rows = tables.query(SQL.format(condition=selection.condition))
    table = Table("nccl", "NCCL operations", NCCL_COLUMNS, [tuple(row[:-1]) for row in rows])
    calls, timed = sum(row[3] for row in rows), sum(int(row[-1]) for row in rows)
    if calls > timed:
        table.notes.append(UNTOLD.format(calls - timed, calls))
    return arranged(table, selection)


# ---------------------------------------------------------------------------------------------------------------------
# How fast do collectives move data once everybody is there, as nccl-tests count it?
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Moved:
    """Of each collective of a group: what nccl-tests call its size, and the times that belong to it."""

    volume_bytes: Array  # K; 0 where nothing is moved
    transfer_ns: Array  # K: mean over the members that have to wait for data
    stay_ns: Array  # K: the same, waiting included
    bus_factor: Array  # K


def moved(log: CollectiveLog, split: Split) -> Moved:
    """Volume, time and bus factor of every collective of a group."""
    count, members = split.wait_ns.shape
    volume, factor = np.zeros(count), np.ones(count)
    receiving = np.ones((count, members), bool)
    for code in np.unique(split.group.operation):
        name = log.operations[code]
        rows = np.flatnonzero(split.group.operation == code)
        volume[rows] = _volume(split, rows, name, OPERATIONS[name])
        factor[rows] = OPERATIONS[name].bus_factor(members)
        receiving[rows] = _receiving(split, rows, OPERATIONS[name])
    share = receiving / receiving.sum(axis=1, keepdims=True)
    transfer = (split.moving_ns * share).sum(axis=1)
    return Moved(volume, transfer, (split.stay_ns * share).sum(axis=1), factor)


def _volume(split: Split, rows: Array, name: str, operation: Operation) -> Array:
    sent = split.group.bytes[rows]
    if operation.volume is Volume.NONE:
        return np.zeros(len(rows))
    if operation.volume is Volume.SUM or (split.group.layer == "nccl" and name == BY_PARTS_IN_NCCL):
        return sent.sum(axis=1)
    return sent.max(axis=1)


def _receiving(split: Split, rows: Array, operation: Operation) -> Any:
    """The members whose stay lasts until data has come: a sender may leave earlier."""
    is_root = np.arange(split.wait_ns.shape[1]) == split.group.root[rows][:, None]
    if operation.waits is Waits.ALL_FOR_ROOT:
        return ~is_root
    return is_root if operation.waits is Waits.ROOT_FOR_ALL else True


def rate(volume_bytes: float, time_ns: float) -> float | None:
    """Bytes per second."""
    return volume_bytes / time_ns * NS_PER_S if volume_bytes > 0 and time_ns > 0 else None


# ---------------------------------------------------------------- collectives
COLLECTIVES_COLUMNS = (
    Column("name", Unit.NAME, "Operation"),
    Column("members", Unit.COUNT, "Group size", "size of the group"),
    Column("up_to_bytes", Unit.BYTES, "Size up to", "upper edge of the size class of the largest bytes of any member"),
    Column(
        "kind",
        Unit.NAME,
        "Timing",
        "call: the time of blocking calls, or of kernels on the device (NCCL); progress: from start to completion "
        "of a nonblocking operation, which overlaps with computing: its wait is no cost by itself",
    ),
    Column("collectives", Unit.COUNT, "Collectives", "number of matched collectives"),
    Column("wait_ns", Unit.NS, "Wait, all ranks", "sum of the wait over the collectives and the selected ranks"),
    Column(
        "wait_error_ns",
        Unit.NS,
        "Clock uncertainty",
        "how much of `wait_ns`, more or less, may be the clocks' error: sum over ranks and collectives of the "
        "errors of the two clocks involved, 0 between ranks of one clock, each at most the stay",
    ),
    Column(
        "transfer_ns", Unit.NS, "Transfer, all ranks", "sum of the transfer over the collectives and the selected ranks"
    ),
    Column(
        "leaving_ns",
        Unit.NS,
        "Exit skew, all ranks",
        "sum of the exit skew over the collectives and the selected ranks",
    ),
    Column("wait_share", Unit.SHARE, "Wait share", "`wait_ns` ÷ (`wait_ns` + `transfer_ns` + `leaving_ns`)"),
    Column(
        "late_p50_ns",
        Unit.NS,
        "Arrival skew p50",
        "median over the collectives of the arrival skew: entry of the member that most wait for − the last entry "
        "of all others, at least 0",
    ),
    Column(
        "late_p99_ns",
        Unit.NS,
        "Arrival skew p99",
        "99th percentile over the collectives of the arrival skew, as in `late_p50_ns`",
    ),
    Column(
        "algorithm_rate",
        Unit.RATE,
        "Algorithm bw",
        "algorithm bandwidth: sum of *size* ÷ sum of *time*; *time* of a collective: the shortest stay of any member "
        "where all wait for all, else the mean transfer of the members that data comes to (after a root: the others; "
        "to a root: the root)",
    ),
    Column("bus_rate", Unit.RATE, "Bus bw", "bus bandwidth: sum of *size* × *factor* ÷ sum of *time*"),
    Column(
        "naive_rate",
        Unit.RATE,
        "Bandwidth incl. wait",
        "bandwidth with wait included: sum of *size* ÷ sum of the whole stay of the same members",
    ),
)
NOTICEABLE = 0.5  # of the time in collectives


Key = tuple[str, int, int, str]


@dataclass(slots=True)
class _Class:
    """Sums over the collectives of one operation, group size and size class."""

    collectives: int = 0
    wait_ns: float = 0.0
    error_ns: float = 0.0
    transfer_ns: float = 0.0
    leaving_ns: float = 0.0
    volume_bytes: float = 0.0
    bus_bytes: float = 0.0
    moving_ns: float = 0.0  # of one member, on average
    stay_ns: float = 0.0
    late_ns: list[Array] = field(default_factory=list)

    @property
    def total_ns(self) -> float:
        return self.wait_ns + self.transfer_ns + self.leaving_ns

    def add(self, other: _Class) -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def row(self, name: str, members: int, size_class: int, kind: str) -> tuple[Cell, ...]:
        p50, p99 = np.percentile(np.concatenate(self.late_ns), (50, 99)).tolist()
        return (
            name, members, edges(size_class)[1], kind, self.collectives, self.wait_ns, self.error_ns, self.transfer_ns,
            self.leaving_ns, self.wait_ns / self.total_ns if self.total_ns else None, p50, p99,
            rate(self.volume_bytes, self.moving_ns), rate(self.bus_bytes, self.moving_ns),
            rate(self.volume_bytes, self.stay_ns),
        )  # fmt: skip


def collectives(tables: Tables, selection: Selection = ALL) -> Table:
    """Matched collectives by operation, group size and size class, the one with the most waiting first."""
    known = collectives_of(tables)
    sums: dict[Key, _Class] = {}
    for classes in known.of_each(_classes if selection.ranks is None else partial(_classes_of, ranks=selection.ranks)):
        for key, of_split in classes.items():
            sums.setdefault(key, _Class()).add(of_split)
    ordered = sorted(sums.items(), key=lambda item: (-item[1].total_ns, item[0]))
    table = Table(
        "collectives",
        "Collectives: wait and transfer",
        COLLECTIVES_COLUMNS,
        [size_class.row(*key) for key, size_class in ordered],
    )
    table.notes += _comments(known, sums)
    return arranged(table, selection)


@usually_asked
def _classes(log: CollectiveLog, split: Split) -> dict[Key, _Class]:
    return _classes_of(log, split, None)


def _classes_of(log: CollectiveLog, split: Split, ranks: Collection[int] | None) -> dict[Key, _Class]:
    members = split.group.members
    wanted: Any = slice(None)
    if ranks is not None:
        wanted = np.array([log.ranks[place] in ranks for place in members.tolist()])
        if not wanted.any():
            return {}
    group, about = split.group, moved(log, split)
    size_class = np.where(group.bytes.max(axis=1) > 0, _size_classes(group.bytes.max(axis=1)), 0)
    keys = np.stack([group.name, size_class, group.progress], axis=1)
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    which = which.reshape(-1)
    sums = {}
    for number, (name, size, progress) in enumerate(unique.tolist()):
        rows = which == number
        of_class = _Class(int(rows.sum()))
        of_class.wait_ns = float(split.wait_ns[rows][:, wanted].sum())
        of_class.error_ns = float(split.error_ns[rows][:, wanted].sum())
        of_class.transfer_ns = float(split.transfer_ns[rows][:, wanted].sum())
        of_class.leaving_ns = float(split.leaving_ns[rows][:, wanted].sum())
        of_class.volume_bytes = float(about.volume_bytes[rows].sum())
        of_class.bus_bytes = float((about.volume_bytes * about.bus_factor)[rows].sum())
        of_class.moving_ns = float(about.transfer_ns[rows].sum())
        of_class.stay_ns = float(about.stay_ns[rows].sum())
        of_class.late_ns.append(split.late_ns[rows])
        sums[log.names[name], len(members), size, "progress" if progress else "call"] = of_class
    return sums


def _size_classes(size_bytes: Array) -> Array:
    """As rankfile.size_class: 1 for 1 byte, k for more than 2^(k-2) and at most 2^(k-1)."""
    return np.where(size_bytes > 1, np.ceil(np.log2(np.maximum(size_bytes, 2))) + 1, size_bytes).astype(np.int64)


def _comments(known: Collectives, sums: dict[Key, _Class]) -> list[str]:
    comments = []
    if known.log.by_order:
        text = f"{counted(known.log.by_order, 'collective')} have no sequence number in the trace"
        comments.append(f"{text}: they are matched by group and order.")
    for kind, inside in (
        ("call", "the time in these collectives"),
        ("progress", "the time that collectives are in progress"),
    ):
        some = [size_class for key, size_class in sums.items() if key[-1] == kind]
        wait_ns, stay_ns = (
            sum(size_class.wait_ns for size_class in some),
            sum(size_class.total_ns for size_class in some),
        )
        if wait_ns > NOTICEABLE * stay_ns:
            comments.append(
                f"{100 * wait_ns / stay_ns:.0f} % of {inside} is spent waiting for the last rank to arrive: see "
                "waiting."
            )
    for reason, count in known.log.left_out.most_common():
        if count:
            comments.append(f"Left out: {counted(count, 'collective')} {reason}.")
    return comments
