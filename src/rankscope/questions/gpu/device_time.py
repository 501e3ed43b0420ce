"""Where does the time of each GPU go, and how much of the communication is overlapped with computation?"""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.events.sums import CAUSES
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.activities import say_what_is_lost
from rankscope.questions.gpu.walk import GpuTime
from rankscope.questions.gpu.windows import windows_note
from rankscope.questions.selection import ALL, Selection, arranged, spread, spread_columns

# ---------------------------------------------------------------------------------------------------------------------
# How long are the pauses in which a GPU has nothing to do?
GPU_GAPS_COLUMNS = (
    Column("length", Unit.NAME, "Length of a gap", "a gap shorter than this (and not shorter than the row before)"),
    Column("gaps", Unit.COUNT, "Gaps", "number of such gaps"),
    Column("idle_ns", Unit.NS, "Idle time", "sum of their lengths; over all rows it is `idle_ns` of gpu_time"),
    Column("share", Unit.SHARE, "% of idle", "`idle_ns` ÷ `idle_ns` of all rows"),
    Column("mean_ns", Unit.NS, "Mean", "`idle_ns` ÷ `gaps`"),
    *spread_columns(Unit.NS),
)
GPU_GAPS_SQL = """
    SELECT least_ns, below_ns, rank, sum(gaps), sum(idle_ns)::DOUBLE
    FROM device_gaps JOIN ranks USING (process) WHERE {condition} GROUP BY ALL ORDER BY least_ns, rank"""
UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000}


def gpu_gaps(tables: Tables, selection: Selection = ALL) -> Table:
    """Gaps between activities of a device by their length, and how their time is spread over the ranks."""
    by_length: dict[str, list[tuple[int, int, float]]] = {}
    for least_ns, below_ns, *of_rank in tables.query(GPU_GAPS_SQL.format(condition=selection.condition)):
        length = f"< {_length(below_ns)}" if below_ns is not None else f">= {_length(least_ns)}"
        by_length.setdefault(length, []).append(tuple(of_rank))
    table = Table("gpu_gaps", "GPU idle gaps", GPU_GAPS_COLUMNS, [])
    idle_ns = sum(of_rank_ns for rows in by_length.values() for _, _, of_rank_ns in rows)
    for length, rows in by_length.items():
        gaps, total_ns = sum(row[1] for row in rows), sum(row[2] for row in rows)
        extremes = spread([(of_rank_ns, rank) for rank, _, of_rank_ns in rows])
        share = total_ns / idle_ns if idle_ns else None
        table.rows.append((length, gaps, total_ns, share, total_ns / gaps, *extremes))
    table.notes += windows_note(tables)
    return arranged(table, selection)


def _length(bound_ns: int) -> str:
    unit = next(unit for unit, ns in UNITS.items() if bound_ns >= ns)
    return f"{bound_ns // UNITS[unit]} {unit}"


# ---------------------------------------------------------------------------------------------------------------------
# What do the GPU's streams wait for between two activities?
GPU_IDLE_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("stream", Unit.NAME, "GPU/stream"),
    Column(
        "cause",
        Unit.NAME,
        "Waits for",
        "*host*: the call that launched the next activity began only after the gap had; *next kernel*: else, if the"
        " gap is shorter than 30 µs, as between kernels launched back to back; *other*: a longer gap, as when "
        "streams wait for each other",
    ),
    Column("gaps", Unit.COUNT, "Gaps", "number of gaps of the stream that have this cause"),
    Column("idle_ns", Unit.NS, "Idle", "sum of their lengths"),
    Column("share", Unit.SHARE, "% of idle", "`idle_ns` ÷ all idle time of the stream"),
    Column("median_ns", Unit.NS, "Median", "median length of a gap"),
    Column("max_ns", Unit.NS, "Max", "longest gap"),
)
GPU_IDLE_SQL = """
    SELECT rank, stream, cause, gaps, idle_ns, idle_ns / sum(idle_ns) OVER (PARTITION BY process, place), median_ns,
        gap_sums.max_ns
    FROM gap_sums JOIN ranks USING (process) WHERE {condition} ORDER BY rank, place, list_position({causes}, cause)"""


def gpu_idle(tables: Tables, selection: Selection = ALL) -> Table:
    """Idle time of each stream by cause: launched too late by the host, just starting the next kernel, or else."""
    tables.derive(trace_tables)
    rows = tables.query(GPU_IDLE_SQL.format(condition=selection.condition, causes=list(CAUSES)))
    table = Table("gpu_idle", "GPU idle time", GPU_IDLE_COLUMNS, list(rows))
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


# ---------------------------------------------------------------- device time
DEVICE_TIME_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU", "the GPU's number in that process"),
    Column("span_ns", Unit.NS, "GPU active window", "GPU active window: last end − first start of an activity"),
    Column("busy_ns", Unit.NS, "Busy", "busy(all activities): time in which at least one is running"),
    Column("busy_share", Unit.SHARE, "Busy share", "`busy_ns` ÷ `span_ns`"),
    Column("idle_ns", Unit.NS, "Idle", "`span_ns` − `busy_ns`"),
    Column(
        "compute_ns",
        Unit.NS,
        "Compute",
        "busy(compute): time in which at least one kernel other than communication is running",
    ),
    Column("compute_share", Unit.SHARE, "Compute share", "`compute_ns` ÷ `span_ns`"),
    Column(
        "comm_ns",
        Unit.NS,
        "Communication",
        "busy(communication): time in which at least one kernel of communication is running",
    ),
    Column("copy_ns", Unit.NS, "Copies and memsets", "busy(copies and memsets): time in which at least one is running"),
    Column(
        "hidden_ns",
        Unit.NS,
        "Overlapped comm.",
        "overlapped communication, while something is computed: busy(compute) + busy(communication) −"
        " busy(compute ∪ communication)",
    ),
    Column("hidden_share", Unit.SHARE, "Overlapped share", "`hidden_ns` ÷ `comm_ns`"),
    Column(
        "exposed_ns",
        Unit.NS,
        "Exposed comm.",
        "exposed communication, while nothing is computed: `comm_ns` − `hidden_ns`",
    ),
)
NOTICEABLE = 0.05  # of the span
# The recorder has summed each device up by the same formulas, also where a trace keeps only some of the activities.
RECORDED = """
    SELECT rank, device::VARCHAR, span_ns, busy_ns, compute_ns, communication_ns, copy_ns, hidden_ns
    FROM devices JOIN ranks USING (process) WHERE span_ns IS NOT NULL AND {condition} ORDER BY rank, device"""
SUMMED = """
    SELECT rank, device, span_ns, busy_ns, compute_ns, comm_ns, copy_ns, compute_or_comm_ns
    FROM device_sums JOIN ranks USING (process) WHERE {condition} ORDER BY rank, length(device), device"""


def times(tables: Tables, selection: Selection) -> Iterator[tuple[int, str, GpuTime]]:
    """Rank, device and breakdown, wherever they come from."""
    recorded = tables.query(RECORDED.format(condition=selection.condition))
    summed = {row[0] for row in recorded}
    chosen = {row[0] for row in tables.query(f"SELECT rank FROM ranks WHERE {selection.condition}")}
    if chosen - summed:
        tables.derive(trace_tables)
        for rank, device, *parts in tables.query(SUMMED.format(condition=selection.condition)):
            if rank not in summed:
                yield rank, device, GpuTime(*parts)
    for rank, device, span_ns, busy_ns, compute_ns, comm_ns, copy_ns, hidden_ns in recorded:
        yield rank, device, GpuTime(span_ns, busy_ns, compute_ns, comm_ns, copy_ns, compute_ns + comm_ns - hidden_ns)


def gpu_time(tables: Tables, selection: Selection = ALL) -> Table:
    """Busy, idle, compute, communication and copy time of each GPU of each rank."""
    table = Table("gpu_time", "GPU time", DEVICE_TIME_COLUMNS, [])
    exposed: list[tuple[float, int, str]] = []
    for rank, device, time in times(tables, selection):
        table.rows.append((rank, device, *_cells(time)))
        exposed.append((time.exposed_ns / time.span_ns if time.span_ns else 0.0, rank, device))
    if exposed and max(exposed)[0] >= NOTICEABLE:
        share, rank, name = max(exposed)
        text = f"{100 * share:.0f} % of its time, GPU {name} of rank {rank} communicates and computes nothing"
        table.notes.append(f"{text}: the largest share of exposed communication.")
    table.notes += windows_note(tables)
    return arranged(table, selection)


def _cells(time: GpuTime) -> tuple[int | float | None, ...]:
    of_span = 1 / time.span_ns if time.span_ns else 0.0
    hidden = time.hidden_ns / time.comm_ns if time.comm_ns else None
    return (
        *(time.span_ns, time.busy_ns, time.busy_ns * of_span, time.idle_ns),
        *(time.compute_ns, time.compute_ns * of_span, time.comm_ns, time.copy_ns),
        *(time.hidden_ns, hidden, time.exposed_ns),
    )


# ---------------------------------------------------------------------------------------------------------------------
# How are busy, idle, compute and communication time of the GPUs spread over the ranks?
GPU_SPREAD_COLUMNS = (
    Column("what", Unit.NAME, "GPU time", "the column of gpu_time"),
    Column("total_ns", Unit.NS, "All ranks", "sum of that time over the selected ranks"),
    Column("share", Unit.SHARE, "% of active window", "`total_ns` ÷ the sum of the ranks' `span_ns`"),
    *spread_columns(Unit.NS),
)
MEASURES = {
    "active window": "span_ns",
    "busy": "busy_ns",
    "idle": "idle_ns",
    "compute": "compute_ns",
    "communication": "comm_ns",
    "communication overlapped": "hidden_ns",
    "communication exposed": "exposed_ns",
    "copies and memsets": "copy_ns",
}


def gpu_spread(tables: Tables, selection: Selection = ALL) -> Table:
    """Each part of the GPUs' time: its sum over the selected ranks, and the ranks with the least and the most of it."""
    by_rank: dict[int, list[GpuTime]] = {}
    for rank, _, time in times(tables, selection):
        by_rank.setdefault(rank, []).append(time)
    table = Table("gpu_spread", "GPU time over the ranks", GPU_SPREAD_COLUMNS, [])
    span_ns = sum(time.span_ns for device_times in by_rank.values() for time in device_times)
    for what, field in MEASURES.items():
        values = [(sum(getattr(time, field) for time in device_times), rank) for rank, device_times in by_rank.items()]
        total_ns = sum(value for value, _ in values)
        if total_ns:
            table.rows.append((what, total_ns, total_ns / span_ns if span_ns else None, *spread(values)))
    return arranged(table, selection)
