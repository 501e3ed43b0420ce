"""How long are the pauses in which a GPU has nothing to do?"""

from __future__ import annotations

from rankscope.analyse.spread import spread, spread_columns
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("length", Unit.NAME, "Length of a gap"),
    Column("gaps", Unit.COUNT, "Gaps"),
    Column("idle_ns", Unit.NS, "Idle in them"),
    Column("share", Unit.SHARE, "Of idle"),
    Column("mean_ns", Unit.NS, "Mean"),
    *spread_columns(Unit.NS),
)
COUNTED, TIMED = "idle gaps ", "idle in gaps "
SQL = f"""
    SELECT rank, name, value FROM figures JOIN ranks USING (process)
    WHERE series LIKE 'GPU %' AND (name LIKE '{COUNTED}%' OR name LIKE '{TIMED}%') AND {{condition}}"""


def gpu_gaps(tables: Tables, selection: Selection = ALL) -> Table:
    """Gaps between activities of a device by their length, and how their time is spread over the ranks."""
    counts: dict[str, int] = {}
    times: dict[str, dict[int, float]] = {}
    for rank, name, value in tables.query(SQL.format(condition=selection.condition)):
        if name.startswith(COUNTED):
            length = name.removeprefix(COUNTED)
            counts[length] = counts.get(length, 0) + int(value)
        else:
            of_length = times.setdefault(name.removeprefix(TIMED), {})
            of_length[rank] = of_length.get(rank, 0.0) + value
    table = Table("gpu_gaps", "GPU idle gaps", COLUMNS, [])
    idle_ns = sum(sum(of_length.values()) for of_length in times.values())
    for length in sorted(times, key=_order):
        total_ns, gaps = sum(times[length].values()), counts.get(length, 0)
        told = spread([(value, rank) for rank, value in times[length].items()])
        table.rows.append((length, gaps, total_ns, total_ns / idle_ns, total_ns / gaps if gaps else None, *told))
    return arranged(table, selection)


def _order(length: str) -> tuple[bool, int, float]:
    """By unit and number: `< 10 us` before `< 1 ms`, what has no end last."""
    sign, number, unit = length.split()
    return sign != "<", ("us", "ms", "s").index(unit), float(number)
