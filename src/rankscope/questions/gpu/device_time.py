"""Where does the time of each GPU go, and how much of the communication is hidden behind computation?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.walk import GpuTime
from rankscope.questions.selection import ALL, Selection, arranged

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
SUMMED = """
    SELECT rank, device, span_ns, busy_ns, compute_ns, comm_ns, copy_ns, compute_or_comm_ns
    FROM device_sums JOIN ranks USING (process) WHERE {condition} ORDER BY rank, length(device), device"""


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
    chosen = {row[0] for row in tables.query(f"SELECT rank FROM ranks WHERE {selection.condition}")}
    if chosen - summed:
        tables.derive(trace_tables)
        for rank, device, *parts in tables.query(SUMMED.format(condition=selection.condition)):
            if rank not in summed:
                yield rank, device, GpuTime(*parts)
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
