"""How many bytes are copied and set on the GPUs, in which direction, how fast?"""

from __future__ import annotations

from rankscope.analyse.gpu_ranks import COPIES
from rankscope.analyse.spread import spread, spread_columns
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.gpu.kernels import ONCE
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("name", Unit.NAME, "Direction"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("mean_bytes", Unit.BYTES, "Mean size"),
    Column("total_ns", Unit.NS, "Time"),
    Column("rate", Unit.RATE, "Bandwidth"),
    *spread_columns(Unit.RATE),
)
SQL = f"""
    SELECT name, rank, sum(calls)::BIGINT, sum(bytes)::BIGINT, sum(total_ns)
    FROM tallies JOIN ranks USING (process)
    WHERE layer = 'gpu' AND bytes > 0 AND {COPIES} AND {ONCE} AND {{condition}} GROUP BY name, rank"""


def gpu_copies(tables: Tables, selection: Selection = ALL) -> Table:
    """Copies and sets by direction with their bandwidth while they run, and its spread over the ranks."""
    found: dict[str, list[tuple[int, int, int, float]]] = {}
    for name, *row in tables.query(SQL.format(condition=selection.condition)):
        found.setdefault(name, []).append(tuple(row))
    table = Table("gpu_copies", "GPU copies and sets", COLUMNS, [])
    for name, rows in found.items():
        calls, size, total_ns = (sum(row[at] or 0 for row in rows) for at in (1, 2, 3))
        told = spread([(1e9 * row[2] / row[3], row[0]) for row in rows if row[3]])
        rate = 1e9 * size / total_ns if total_ns else None
        table.rows.append((name, calls, size, size / calls if calls else None, total_ns, rate, *told))
    table.rows.sort(key=lambda row: -float(row[4] or 0))
    return arranged(table, selection)
