"""A table of thousands of ranks in the size of a picture: by host, as percentiles, and the ranks that stand out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model.tables import Column, Table, Unit


# ---------------------------------------------------------------------------------------------------------------------
# Which ranks share a row of a picture that cannot hold them all.
@dataclass(frozen=True, slots=True)
class Lanes:
    """The rows of a picture: their labels, and the row of each rank (by its place)."""

    kind: str  # what a row is: "rank", "host", "hosts" or "ranks"
    labels: list[str | int]
    of: Any  # array of int
    sizes: Any  # array of int: ranks in each row

    @property
    def whole(self) -> bool:
        return self.kind == "rank"


def lanes(ranks: Sequence[int], hosts: Sequence[str], most: int) -> Lanes:
    """One row a rank; where these are too many, one a host; where those are, some neighbours in each."""
    if len(ranks) <= most:
        return Lanes("rank", list(ranks), np.arange(len(ranks)), np.ones(len(ranks), np.int64))
    places = {host: at for at, host in enumerate(dict.fromkeys(hosts))}
    if len(places) > 1:
        return _joined("host", list(places), np.array([places[host] for host in hosts], np.int64), most)
    return _joined("rank", [str(rank) for rank in ranks], np.arange(len(ranks)), most)


def _joined(kind: str, labels: Sequence[str], of: Any, most: int) -> Lanes:
    """The same with as many neighbours in a row as it takes."""
    size = -(-len(labels) // most)
    names: list[str | int] = list(labels)
    if size > 1:
        kind, of = f"{kind}s", of // size
        names = [f"{labels[at]} … {labels[min(at + size, len(labels)) - 1]}" for at in range(0, len(labels), size)]
    return Lanes(kind, names, of, np.bincount(of, minlength=len(names)))


# ---------------------------------------------------------------- condense
Array = Any  # of numpy

MOST_ROWS = 512  # of one picture
PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
MEASURED = (Unit.NS, Unit.BYTES, Unit.SHARE, Unit.NUMBER, Unit.RATE, Unit.COUNT)


@dataclass(frozen=True, slots=True)
class Condensed:
    """What is drawn, by which column its rows are named, and all tables that stand for the whole one."""

    drawn: Table
    label: str
    tables: list[Table]
    key: str
    outliers: Table | None = None  # the ranks that the table `outliers` names, where there are many
    median: float = 0.0  # of the key

    def orders(self, *more: str) -> tuple[str, ...]:
        """The columns by which a picture of it can be ordered."""
        names = [column.name for column in self.drawn.columns]
        return (self.label, *(name for name in more if name in names and name != self.label))


def condensed(
    table: Table, hosts: Mapping[int, str], key: str, outlying: Sequence[int] = (), most: int = MOST_ROWS
) -> Condensed:
    """The table itself where a picture can hold it; those ranks of it, of which the column `key` is told, besides."""
    names = [column.name for column in table.columns]
    outliers = _of_ranks(table, names.index("rank"), outlying)
    median = float(np.nanmedian(_numbers(table, names.index(key)))) if outliers is not None else 0.0
    beside = [outliers] if outliers is not None else []
    if len(table.rows) <= most:
        return Condensed(table, "rank", [table, *beside], key, outliers, median)
    ranks = [int(str(row[names.index("rank")])) for row in table.rows]
    drawn = _means(table, lanes(ranks, [hosts.get(rank, "") for rank in ranks], most))
    text = f"Of {len(table.rows)} ranks: rankscope report --table {table.name} --format csv has each of them."
    drawn.notes.insert(0, text)
    return Condensed(drawn, drawn.columns[0].name, [drawn, *beside, percentiles(table)], key, outliers, median)


def _means(table: Table, rows: Lanes) -> Table:
    measured = [at for at, column in enumerate(table.columns) if column.unit in MEASURED]
    columns = [
        Column(rows.kind, Unit.NAME, rows.kind.capitalize()),
        Column("ranks_seen", Unit.COUNT, "Ranks", "number of ranks that the row is the mean of"),
    ]
    columns += [table.columns[at] for at in measured]
    means = [_means_of(_numbers(table, at), rows) for at in measured]
    means_table = Table(f"{table.name}_by_{rows.kind}", f"{table.title}: means by {rows.kind}", columns, [])
    for lane, label in enumerate(rows.labels):
        means_table.rows.append((label, int(rows.sizes[lane]), *(values[lane] for values in means)))
    means_table.notes += table.notes
    return means_table


def _means_of(values: Array, rows: Lanes) -> list[float | None]:
    known = ~np.isnan(values)
    counts = np.bincount(rows.of[known], minlength=len(rows.labels))
    sums = np.bincount(rows.of[known], values[known], len(rows.labels))
    return [float(total / count) if count else None for total, count in zip(sums, counts, strict=True)]


def _numbers(table: Table, at: int) -> Array:
    values = [row[at] for row in table.rows]
    return np.array([value if isinstance(value, int | float) else np.nan for value in values], np.float64)


def percentiles(table: Table, shares: Sequence[int] = PERCENTILES) -> Table:
    """Each measured column on its own: what no more than so many of a hundred ranks exceed."""
    measured = [at for at, column in enumerate(table.columns) if column.unit in MEASURED]
    columns = [Column("percentile", Unit.NAME, "Percentile"), *(table.columns[at] for at in measured)]
    percentile_columns = []
    for at in measured:
        values = _numbers(table, at)
        values = values[~np.isnan(values)]
        cells: list[Any] = np.percentile(values, shares).tolist() if len(values) else [None] * len(shares)
        are_whole = table.columns[at].unit is Unit.COUNT and len(values) and all(cell.is_integer() for cell in cells)
        percentile_columns.append([int(cell) for cell in cells] if are_whole else cells)
    rows = [(f"p{share}", *cells) for share, *cells in zip(shares, *percentile_columns, strict=True)]
    return Table(f"{table.name}_percentiles", f"{table.title}: percentiles over the ranks", columns, rows)


def _of_ranks(table: Table, at: int, ranks: Sequence[int]) -> Table | None:
    """The rows of these ranks, in their order."""
    places = {rank: place for place, rank in enumerate(ranks)}
    rows = [row for row in table.rows if row[at] in places]
    rows.sort(key=lambda row: places[int(str(row[at]))])
    title = f"{table.title}: the ranks of the table outliers, in its order"
    return Table(f"{table.name}_outliers", title, table.columns, rows) if rows else None
