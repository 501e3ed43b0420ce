"""Which series do the tables of a study hold: times, rates and throughputs over ranks, and over sizes of messages?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.questions.scaling.growth import Series
from rankscope.questions.scaling.models import BY_SCALE, BY_SIZE
from rankscope.questions.scaling.scaling import shown

SCALES = ("ranks", "job_ranks", "nodes", "trainers", "devices")  # columns that are the scale, the first of them
PER_SECOND = "_per_s"  # columns of a throughput: of the whole job, so that a speed-up can be told
BY_BYTES = "bytes"  # the axis of series over sizes
NO_KEY = ("repeat",)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a table are what."""

    scale: int
    keys: list[int]  # by which rows of one scale differ
    values: list[int]


def series_of_tables(tables: Sequence[Table]) -> list[Series]:
    """Told apart by what stands left of the first value; what two tables show alike counts once."""
    titles = [title_of(column) for table in tables for column in table.columns if is_value(column)]
    found: list[Series] = []
    for table in tables:
        before = {(one.unit, one.axis, one.points) for one in found}  # a table of its own names them otherwise
        layout = layout_of(table)
        made = [one for at in layout.values for one in of_column(table, layout, at, titles)] if layout else []
        found += [one for one in made if (one.unit, one.axis, one.points) not in before]
    return found


def layout_of(table: Table) -> Layout | None:
    """None where it is no table of values by scale."""
    names = [column.name for column in table.columns]
    scale = next((names.index(name) for name in SCALES if name in names), None)
    values = [at for at, column in enumerate(table.columns) if is_value(column)]
    if scale is None or not values:
        return None
    left = [at for at in range(values[0]) if at != scale and names[at] not in NO_KEY]
    named = [at for at in left if table.columns[at].unit in (Unit.NAME, Unit.BYTES)]
    counts = [at for at in left if at in named or table.columns[at].unit is Unit.COUNT]  # a count may belong to a name
    for keys in (named, counts):
        if len({(row[scale], *(row[at] for at in keys)) for row in table.rows}) == len(table.rows):
            return Layout(scale, keys, values)
    return None


def of_column(table: Table, layout: Layout, at: int, titles: Sequence[str]) -> Iterator[Series]:
    """By ranks; times of messages by their size too."""
    title = title_of(table.columns[at])
    keys = own_keys(table, layout.keys, at)
    if any(table.columns[key].unit is Unit.NAME for key in keys):
        name, what = "", title if titles.count(title) == 1 else f"{table.title}: {title}"
    else:
        name, what = title, table.title
    axis = table.columns[layout.scale].name.removeprefix("job_")
    yield from over(table, layout.scale, keys, at, (axis, name, what))
    sizes = [key for key in keys if table.columns[key].unit is Unit.BYTES][:1]
    if sizes and table.columns[at].unit is Unit.NS:
        others = [*(key for key in keys if key not in sizes), layout.scale]
        yield from over(table, sizes[0], others, at, (BY_BYTES, name, what))


def over(table: Table, along: int, keys: Sequence[int], at: int, told: tuple[str, str, str]) -> Iterator[Series]:
    """One column along another: a series for each combination of the keys, named by the first of them."""
    axis, name, what = told
    points: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in table.rows:
        value, scale = row[at], row[along]
        if isinstance(value, int | float) and isinstance(scale, int | float):
            key = tuple(word(row[place], table.columns[place]) for place in keys)
            points.setdefault(key, []).append((float(scale), float(value)))
    laws = BY_SIZE if axis == BY_BYTES else BY_SCALE
    for key, found in points.items():
        words = [name, *key] if name else list(key)
        yield Series(words[0], ", ".join([what, *words[1:]]), unit_of(table.columns[at]), axis, tuple(found), laws)


def own_keys(table: Table, keys: list[int], at: int) -> list[int]:
    """Where tables stand side by side, each with a column of the same title that names it, the nearest such column."""
    first = [key for key in keys if table.columns[key].unit is Unit.NAME][:1]
    again = [place for place in range(at) if first and table.columns[place].title == table.columns[first[0]].title]
    nearest = [place for place in again if table.columns[place].unit is Unit.NAME][-1:]
    return [*nearest, *(key for key in keys if key not in first)]


def is_value(column: Column) -> bool:
    return column.unit in (Unit.NS, Unit.RATE) or column.name.endswith(PER_SECOND)


def unit_of(column: Column) -> str:
    return "/s" if column.name.endswith(PER_SECOND) else column.unit.value


def title_of(column: Column) -> str:
    return column.title or column.name


def word(value: Value, column: Column) -> str:
    if isinstance(value, int | float) and column.unit is Unit.BYTES:
        return shown(float(value), "bytes") if value >= 1024 else f"{value:g} B"
    if column.name in SCALES:
        counted = column.name.removeprefix("job_")
        return f"{value} {counted.removesuffix('s') if value == 1 else counted}"
    return "" if value is None else str(value)
