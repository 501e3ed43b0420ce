"""A table of thousands of ranks in the size of a picture: by host, as percentiles, and the ranks that stand out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.model import Cell, Column, Table, Unit

MOST_ROWS = 512  # of one picture
OUTLIERS = 20
PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
MEASURED = (Unit.NS, Unit.BYTES, Unit.SHARE, Unit.NUMBER, Unit.RATE, Unit.COUNT)


@dataclass(frozen=True, slots=True)
class Condensed:
    """What is drawn, by which column its rows are named, and all tables that stand for the whole one."""

    drawn: Table
    label: str
    row_axis: str
    tables: list[Table]

    @property
    def whole(self) -> bool:
        return self.label == "rank"


def condensed(table: Table, hosts: Mapping[int, str], key: str) -> Condensed:
    """The table itself where a picture can hold it; `key` is the column by which ranks stand out otherwise."""
    if len(table.rows) <= MOST_ROWS:
        return Condensed(table, "rank", "rank", [table])
    names = [column.name for column in table.columns]
    groups, label = _groups([_rank(row[names.index("rank")]) for row in table.rows], hosts)
    drawn = _means(table, groups, label)
    told = f"{len(table.rows)} ranks: rankscope report --table {table.name} --format csv has each of them."
    drawn.notes.insert(0, told)
    outliers, percentiles = _outliers(table, names.index(key)), _percentiles(table)
    return Condensed(drawn, label, label.replace("_", " of "), [drawn, percentiles, outliers])


def _rank(cell: Cell) -> int:
    return cell if isinstance(cell, int) else -1


def _groups(ranks: Sequence[int], hosts: Mapping[int, str]) -> tuple[dict[str, list[int]], str]:
    """Rows by host; where there are too many hosts or only one, by neighbours."""
    by_host: dict[str, list[int]] = {}
    for at, rank in enumerate(ranks):
        by_host.setdefault(hosts.get(rank, ""), []).append(at)
    if 1 < len(by_host) <= MOST_ROWS:
        return by_host, "host"
    if len(by_host) > 1:
        units, label = list(by_host.items()), "hosts"
    else:
        units, label = [(str(rank), [at]) for at, rank in enumerate(ranks)], "ranks"
    size = -(-len(units) // MOST_ROWS)
    pieces = [units[at : at + size] for at in range(0, len(units), size)]
    return {f"{piece[0][0]} … {piece[-1][0]}": [at for _, rows in piece for at in rows] for piece in pieces}, label


def _means(table: Table, groups: Mapping[str, list[int]], label: str) -> Table:
    kept = [at for at, column in enumerate(table.columns) if column.unit in MEASURED]
    columns = [Column(label, Unit.NAME, label.capitalize()), Column("ranks_seen", Unit.COUNT, "Ranks")]
    columns += [table.columns[at] for at in kept]
    numbers = {at: _numbers(table, at) for at in kept}
    rows: list[tuple[Cell, ...]] = []
    for name, members in groups.items():
        rows.append((name, len(members), *(_mean(numbers[at][members]) for at in kept)))
    made = Table(f"{table.name}_by_{label}", f"{table.title}: means by {label.rstrip('s')}", columns, rows)
    made.notes += table.notes
    return made


def _numbers(table: Table, at: int) -> np.ndarray:
    values = [row[at] for row in table.rows]
    return np.array([value if isinstance(value, int | float) else np.nan for value in values], np.float64)


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _percentiles(table: Table) -> Table:
    """Each measured column on its own: what no more than so many of a hundred ranks exceed."""
    kept = [at for at, column in enumerate(table.columns) if column.unit in MEASURED]
    columns = [Column("percentile", Unit.NAME, "Percentile"), *(table.columns[at] for at in kept)]
    found = []
    for at in kept:
        values = _numbers(table, at)
        values = values[~np.isnan(values)]
        found.append(np.percentile(values, PERCENTILES).tolist() if len(values) else [None] * len(PERCENTILES))
    rows = [(f"p{share}", *cells) for share, *cells in zip(PERCENTILES, *found, strict=True)]
    return Table(f"{table.name}_percentiles", f"{table.title}: percentiles over the ranks", columns, rows)


def _outliers(table: Table, at: int) -> Table:
    """The ranks farthest from the median in one column."""
    values = _numbers(table, at)
    far = np.where(np.isnan(values), -1.0, np.abs(values - np.nanmedian(values)))
    rows = [table.rows[place] for place in np.argsort(-far, kind="stable")[:OUTLIERS].tolist()]
    title = f"{table.title}: the {len(rows)} ranks farthest from the median in {table.columns[at].title}"
    return Table(f"{table.name}_outliers", title, table.columns, rows)
