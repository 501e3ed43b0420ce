"""What do the GPU's streams wait for between two activities?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.analyse.gpu_activities import say_what_is_lost
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.model import Column, Table, Tables, Unit

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("stream", Unit.NAME, "GPU/stream"),
    Column("cause", Unit.NAME, "Waits for"),
    Column("gaps", Unit.COUNT, "Gaps"),
    Column("idle_ns", Unit.NS, "Idle"),
    Column("share", Unit.SHARE, "Of idle"),
    Column("median_ns", Unit.NS, "Median"),
    Column("max_ns", Unit.NS, "Max"),
)
HOST, NEXT, OTHER = CAUSES = ("host", "next kernel", "other")
BACK_TO_BACK_NS = 30_000  # a shorter gap is what starting the next kernel takes
SQL = """
    SELECT activity."group" AS stream, activity.start_ns, activity.end_ns, coalesce(call.start_ns, -1) AS launch_ns
    FROM events AS activity LEFT JOIN (
        SELECT correlation, min(start_ns) AS start_ns FROM events
        WHERE process = $1 AND layer IN ('cuda_api', 'hip_api', 'xpu_api') GROUP BY correlation
    ) AS call USING (correlation)
    WHERE process = $1 AND layer = 'gpu' AND end_ns IS NOT NULL"""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gaps:
    """The pauses of one stream, and why each was."""

    length_ns: Ints
    cause: NDArray[np.int8]  # a number into CAUSES

    def of(self, cause: str) -> Ints:
        return np.asarray(self.length_ns[self.cause == CAUSES.index(cause)], np.int64)


def gaps_of(start_ns: Ints, end_ns: Ints, launch_ns: Ints) -> Gaps:
    """The gaps between the activities of one stream; launch_ns is negative where the launching call is not known."""
    order = np.argsort(start_ns, kind="stable")
    done_ns = np.maximum.accumulate(end_ns[order])[:-1]
    length_ns = start_ns[order][1:] - done_ns
    late = launch_ns[order][1:] > done_ns  # it was launched only after all before it was done
    cause = np.where(late, 0, np.where(length_ns < BACK_TO_BACK_NS, 1, 2)).astype(np.int8)
    return Gaps(length_ns[length_ns > 0], cause[length_ns > 0])


def gpu_idle(tables: Tables, selection: Selection = ALL) -> Table:
    """Idle time of each stream by cause: launched too late by the host, just starting the next kernel, or else."""
    table = Table("gpu_idle", "GPU idle time", COLUMNS, [])
    having = "process IN (SELECT process FROM events WHERE layer = 'gpu')"
    sql = f"SELECT process, rank FROM ranks WHERE {selection.condition} AND {having} ORDER BY rank"
    for process, rank in tables.query(sql):
        columns = tables.columns(SQL, [process])
        streams = columns["stream"]
        for code, stream in enumerate(streams.values):
            rows = streams.codes == code
            times = (columns[name][rows] for name in ("start_ns", "end_ns", "launch_ns"))
            table.rows += _rows(rank, stream, gaps_of(*times))
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


def _rows(rank: int, stream: str, gaps: Gaps) -> list[tuple[str | int | float | None, ...]]:
    total_ns = int(gaps.length_ns.sum())
    rows: list[tuple[str | int | float | None, ...]] = []
    for cause in CAUSES:
        found = gaps.of(cause)
        if len(found):
            idle_ns = int(found.sum())
            median_ns, max_ns = float(np.median(found)), int(found.max())
            rows.append((rank, stream, cause, len(found), idle_ns, idle_ns / total_ns, median_ns, max_ns))
    return rows
