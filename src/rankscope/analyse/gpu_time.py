"""Where does the time of each GPU go, and how much of the communication is hidden behind computation?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope.analyse.gpu_activities import COMMUNICATION, COMPUTE, KINDS, Busy, Device, processes
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.model import Column, Table, Tables, Unit

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU"),
    Column("span_ns", Unit.NS, "First to last"),
    Column("busy_ns", Unit.NS, "Busy"),
    Column("busy_share", Unit.SHARE, "Busy share"),
    Column("idle_ns", Unit.NS, "Idle"),
    Column("compute_ns", Unit.NS, "Compute"),
    Column("compute_share", Unit.SHARE, "Compute share"),
    Column("comm_ns", Unit.NS, "Communication"),
    Column("copy_ns", Unit.NS, "Copies and sets"),
    Column("hidden_ns", Unit.NS, "Comm. hidden"),
    Column("hidden_share", Unit.SHARE, "Hidden share"),
    Column("exposed_ns", Unit.NS, "Comm. exposed"),
)
NOTICEABLE = 0.05  # of the span
# The recorder has summed each device up by the same formulas, also where a trace keeps only some of the activities.
RECORDED = """
    SELECT rank, substr(series, 5), name, value FROM figures JOIN ranks USING (process)
    WHERE series LIKE 'GPU %' AND unit = 'ns' AND {condition} ORDER BY rank, length(series), series"""


@dataclass(frozen=True, slots=True)
class GpuTime:
    """How long one GPU was busy, with what."""

    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int  # copies and sets
    compute_or_comm_ns: int

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @property
    def hidden_ns(self) -> int:
        """Communication while something is computed too."""
        return self.compute_ns + self.comm_ns - self.compute_or_comm_ns

    @property
    def exposed_ns(self) -> int:
        """Communication while nothing is computed."""
        return self.comm_ns - self.hidden_ns


def time_of(device: Device) -> GpuTime:
    """The breakdown of one device."""
    everything, compute, comm, copy, compute_or_comm = busy = [Busy() for _ in range(5)]
    first_ns = None
    for start_ns, end_ns, kind in device.in_order():
        if not len(kind):
            continue
        first_ns = int(start_ns[0]) if first_ns is None else first_ns
        computes, communicates = kind == KINDS.index(COMPUTE), kind == KINDS.index(COMMUNICATION)
        either = computes | communicates
        for one, rows in zip(busy, (slice(None), computes, communicates, ~either, either), strict=True):
            one.add(start_ns[rows], end_ns[rows])
    span_ns = everything.covered_ns - first_ns if first_ns is not None else 0
    return GpuTime(span_ns, *(one.total_ns for one in (everything, compute, comm, copy, compute_or_comm)))


def recorded(sums: Mapping[str, float]) -> GpuTime:
    """The breakdown that a recorder made while the program ran."""
    names = ("first to last", "busy", "compute", "communication", "copy", "communication hidden")
    span_ns, busy_ns, compute_ns, comm_ns, copy_ns, hidden_ns = (int(sums.get(name, 0)) for name in names)
    return GpuTime(span_ns, busy_ns, compute_ns, comm_ns, copy_ns, compute_ns + comm_ns - hidden_ns)


def times(tables: Tables, selection: Selection) -> Iterator[tuple[int, str, GpuTime]]:
    """Rank, device and breakdown, wherever they come from."""
    devices: dict[tuple[int, str], dict[str, float]] = {}
    for rank, gpu, what, value in tables.query(RECORDED.format(condition=selection.condition)):
        devices.setdefault((rank, gpu), {})[what] = value
    summed = {rank for (rank, _), sums in devices.items() if "first to last" in sums}
    for rank, found in processes(tables, selection):
        for name, device in found.devices.items() if rank not in summed else ():
            yield rank, name, time_of(device)
    for (rank, gpu), sums in devices.items():
        if "first to last" in sums:
            yield rank, gpu, recorded(sums)


def gpu_time(tables: Tables, selection: Selection = ALL) -> Table:
    """Busy, idle, compute, communication and copy time of each GPU of each rank."""
    table = Table("gpu_time", "GPU time", COLUMNS, [])
    exposed: list[tuple[float, int, str]] = []
    for rank, device, time in times(tables, selection):
        table.rows.append((rank, device, *_cells(time)))
        exposed.append((time.exposed_ns / time.span_ns if time.span_ns else 0.0, rank, device))
    if exposed and max(exposed)[0] >= NOTICEABLE:
        share, rank, name = max(exposed)
        told = f"{share:.0%} of its time, GPU {name} of rank {rank} communicates and computes nothing"
        table.notes.append(f"{told}: the largest share of exposed communication.")
    return arranged(table, selection)


def _cells(time: GpuTime) -> tuple[int | float | None, ...]:
    of_span = 1 / time.span_ns if time.span_ns else 0.0
    hidden = time.hidden_ns / time.comm_ns if time.comm_ns else None
    return (
        *(time.span_ns, time.busy_ns, time.busy_ns * of_span, time.idle_ns),
        *(time.compute_ns, time.compute_ns * of_span, time.comm_ns, time.copy_ns),
        *(time.hidden_ns, hidden, time.exposed_ns),
    )
