"""How are busy, idle, compute and communication time of the GPUs spread over the ranks?"""

from __future__ import annotations

from rankscope.analyse.spread import spread, spread_columns
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.gpu.device_time import times
from rankscope.questions.gpu.walk import GpuTime
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("what", Unit.NAME, "GPU time"),
    Column("total_ns", Unit.NS, "All ranks"),
    Column("share", Unit.SHARE, "Of first to last"),
    *spread_columns(Unit.NS),
)
MEASURES = {
    "first to last": "span_ns",
    "busy": "busy_ns",
    "idle": "idle_ns",
    "compute": "compute_ns",
    "communication": "comm_ns",
    "communication hidden": "hidden_ns",
    "communication exposed": "exposed_ns",
    "copies and sets": "copy_ns",
}


def gpu_spread(tables: Tables, selection: Selection = ALL) -> Table:
    """Each part of the GPUs' time: its sum over the selected ranks, and the ranks with the least and the most of it."""
    by_rank: dict[int, list[GpuTime]] = {}
    for rank, _, time in times(tables, selection):
        by_rank.setdefault(rank, []).append(time)
    table = Table("gpu_spread", "GPU time over the ranks", COLUMNS, [])
    span_ns = sum(time.span_ns for found in by_rank.values() for time in found)
    for what, field in MEASURES.items():
        values = [(sum(getattr(time, field) for time in found), rank) for rank, found in by_rank.items()]
        total_ns = sum(value for value, _ in values)
        if total_ns:
            table.rows.append((what, total_ns, total_ns / span_ns if span_ns else None, *spread(values)))
    return arranged(table, selection)
