"""Which kernels and copies take the time of the GPUs, and do the ranks agree?"""

from __future__ import annotations

from typing import Any

from rankscope.analyse.spread import spread_columns
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("name", Unit.NAME, "Name"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("share", Unit.SHARE, "Of all"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("bytes", Unit.BYTES, "Bytes"),
    *spread_columns(Unit.NS),
)
# Kernels and copies of a rank once: what is attributed to a range is counted there once more and left out here.
ONCE = "coalesce(within, '') = '' AND kind = 'call'"
COLLECTIVES = "[nr]ccl|msccl|oneccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_?kernel"
COMMUNICATES = f"regexp_matches(name, '(?i){COLLECTIVES}') AND NOT starts_with(name, '[')"
WHOLES = """
    SELECT process, max(value) AS whole_ns FROM figures
    WHERE series = ? AND name = 'time of all rows' GROUP BY process"""
ACTIVITIES = f"""
    WITH by_rank AS (
        SELECT name, rank, sum(calls)::BIGINT AS calls, sum(total_ns) AS total_ns, min(min_ns) AS min_ns,
            max(max_ns) AS max_ns, nullif(sum(bytes), 0)::BIGINT AS bytes,
            sum(calls) FILTER (total_ns IS NOT NULL) AS timed_calls
        FROM tallies JOIN ranks USING (process) WHERE layer = ? AND {ONCE} AND {{condition}} GROUP BY name, rank)
    SELECT name, sum(calls)::BIGINT, sum(total_ns), min(min_ns), max(max_ns), sum(bytes)::BIGINT,
        count(DISTINCT rank), sum(timed_calls)::BIGINT,
        min(total_ns), arg_min(rank, total_ns), quantile_disc(total_ns, 0.5), max(total_ns), arg_max(rank, total_ns)
    FROM by_rank GROUP BY name ORDER BY 3 DESC NULLS LAST, name"""
ALL_NS = f"""
    WITH wholes AS ({WHOLES}),
    sums AS (SELECT process, sum(total_ns) AS sum_ns FROM tallies WHERE layer = ? AND {ONCE} GROUP BY process)
    SELECT coalesce(sum(greatest(sum_ns, coalesce(whole_ns, 0))), 0)
    FROM sums JOIN ranks USING (process) LEFT JOIN wholes USING (process) WHERE {{condition}}"""


def gpu(tables: Tables, selection: Selection = ALL) -> Table:
    """Kernels, copies and sets over the selected ranks, and how their time is spread over them."""
    return activities(tables, selection, "gpu", "GPU activities")


def activities(tables: Tables, selection: Selection, layer: str, title: str) -> Table:
    """Everything of one layer by name."""
    condition = selection.condition
    all_ns = float(tables.query(ALL_NS.format(condition=condition), (layer, layer))[0][0])
    found = tables.query(ACTIVITIES.format(condition=condition), (layer,))
    table = Table(layer, title, COLUMNS, [_row(row, all_ns) for row in found])
    listed_ns = sum(float(row[2] or 0) for row in found)
    if all_ns > 1.005 * listed_ns > 0:
        table.warnings.append(f"{100 * (1 - listed_ns / all_ns):.0f} % of the time is in rows that the source left out")
    return arranged(table, selection)


def _row(found: tuple[Any, ...], all_ns: float) -> tuple[Cell, ...]:
    name, calls, total_ns, min_ns, max_ns, size, ranks, timed_calls, *spread = found
    share = total_ns / all_ns if all_ns and total_ns is not None else None
    mean_ns = total_ns / timed_calls if timed_calls and total_ns is not None else None
    if ranks < 2:
        spread = [None] * 5
    return name, calls, total_ns, share, mean_ns, min_ns, max_ns, size, ranks, *spread
