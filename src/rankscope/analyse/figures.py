"""Which numbers had somebody summed up already, by series and scale?"""

from __future__ import annotations

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.gpu.memory import FIGURES as GPU_MEMORY
from rankscope.questions.gpu.memory import PINNED
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("series", Unit.NAME, "Series"),
    Column("name", Unit.NAME, "What"),
    Column("statistic", Unit.NAME, "Statistic"),
    Column("scale", Unit.NUMBER, "At"),
    Column("scale_name", Unit.NAME, "Of"),
    Column("value_ns", Unit.NS, "Time"),
    Column("value_bytes", Unit.BYTES, "Size"),
    Column("value_count", Unit.COUNT, "Number"),
    Column("value_share", Unit.SHARE, "Share"),
    Column("value_bytes_per_s", Unit.RATE, "Rate"),
    Column("value", Unit.NUMBER, "Value"),
    Column("unit", Unit.NAME, "Unit"),
    Column("rank", Unit.NAME, "Rank"),
)
UNITS = ("ns", "bytes", "count", "share", "bytes/s")  # in the order of the columns above
# Sums that a recorder makes of each GPU and that have tables of their own.
ELSEWHERE = (
    *("activities", "first to last", "busy", "compute", "communication", "communication hidden", "copy"),
    *GPU_MEMORY,
    PINNED,
)
SQL = f"""
    SELECT series, name, statistic, scale, scale_name, value, unit, rank
    FROM (SELECT *, row_number() OVER () AS place FROM figures) JOIN ranks USING (process)
    WHERE ({{condition}} OR (role = 'document' AND {{everybody}}))
    AND NOT (coalesce(tool, '') = '' AND (series LIKE 'GPU %' OR series = 'host')
             AND (name IN {ELSEWHERE} OR name LIKE 'idle%gaps %'))
    AND NOT (coalesce(tool, '') = '' AND series = 'CUPTI clock')
    ORDER BY min(place) OVER (PARTITION BY series, name, statistic), scale, place"""


def figures(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per figure, each value in the column of its unit; series in the order of their files."""
    everybody = "true" if selection.ranks is None else "false"  # a document belongs to no rank
    found = tables.query(SQL.format(condition=selection.condition, everybody=everybody))
    return arranged(Table("figures", "Figures", COLUMNS, [_row(*row) for row in found]), selection)


def _row(
    series: str, name: str, statistic: str, scale: float | None, scale_name: str, value: float, unit: str, rank: Cell
) -> tuple[Cell, ...]:
    values = [_whole(value) if unit == known else None for known in UNITS]
    other = (None, "") if unit in UNITS else (value, unit)
    return series, name, statistic, _whole(scale), scale_name, *values, *other, rank


def _whole(number: float | None) -> Cell:
    """A whole number without its fraction, as a count is written."""
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else number
