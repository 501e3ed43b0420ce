"""How do the figures of a study grow with the number of ranks? Its tables as series, and what is told of those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.analyse.crossovers import crossovers
from rankscope.analyse.growth import Growth, Series, growth
from rankscope.analyse.scale_graphs import graphs
from rankscope.analyse.scaling import laws, projection, shown, speed_up
from rankscope.model import Cell as Value
from rankscope.model import Column, Graph, Table, Unit
from rankscope.studies.builtin import STUDIES
from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json
from rankscope.studies.ledger import STUDY, Ledger
from rankscope.studies.outcome import Outcome
from rankscope.studies.own import figures
from rankscope.studies.plan import Cell, Settings, Study

SCALES = ("ranks", "job_ranks", "nodes", "trainers", "devices")  # columns that are the scale, the first of them
PER_SECOND = "_per_s"  # columns of a throughput: of the whole job, so that a speed-up can be told
NO_KEY = ("repeat",)
MOST_LAWS, MOST_PAIRS = 40, 30  # rows of the section: the document is to be read


def growing(study: Study, outcomes: Sequence[Outcome], settings: Settings) -> list[Growth]:
    """Every series of the study with at least two scales; each repeat is a point of its own."""
    if study.series is not None:
        found = study.series(outcomes, settings)
    else:
        found = _of_repeats(study, outcomes, settings)
    whole = [one for one in found if len({scale for scale, value in one.points if value > 0}) > 1]
    return [growth(one) for one in whole]


def growth_tables(grown: Sequence[Growth], to: Sequence[float] = ()) -> list[Table]:
    """Laws, speed-up of throughputs, break-evens, and what is foretold; none where there is one scale only."""
    if not grown:
        return []
    most = sorted(grown, key=lambda one: abs(one.exponent or 0), reverse=True)[:MOST_LAWS]
    made = [laws([one for one in grown if one in most]), speed_up(grown), crossovers(grown, most=MOST_PAIRS)]
    if len(grown) > MOST_LAWS:
        made[0].notes.append(f"The {MOST_LAWS} steepest of {len(grown)} series; `rankscope scale` shows all.")
    if to:
        made.append(projection(grown, to))
    return [table for table in made if table.rows or (table.notes and table.name == "scale_break_even")]


def growth_graphs(grown: Sequence[Growth], to: Sequence[float] = ()) -> dict[str, list[Graph]]:
    """By the name of the table under which they belong."""
    return {"scale_laws": graphs(grown, to)}


def _of_repeats(study: Study, outcomes: Sequence[Outcome], settings: Settings) -> list[Series]:
    whole: dict[tuple[str, str, str, str], Series] = {}
    for repeat in sorted({one.cell.repeat for one in outcomes if one.done}):
        made = study.tables([one for one in outcomes if one.cell.repeat == repeat], settings)
        for series in series_of_tables(made):
            key = (series.name, series.what, series.unit, series.axis)
            before = whole[key].points if key in whole else ()
            whole[key] = replace(series, points=(*before, *series.points))
    return list(whole.values())


def series_of_tables(tables: Sequence[Table]) -> list[Series]:
    """Times, rates and throughputs by ranks, told apart by what stands left of the first of them."""
    titles = [_title(column) for table in tables for column in table.columns if _is_value(column)]
    return [series for table in tables for series in _of_table(table, titles)]


def _of_table(table: Table, titles: Sequence[str]) -> Iterator[Series]:
    names = [column.name for column in table.columns]
    scale = next((names.index(name) for name in SCALES if name in names), None)
    values = [at for at, column in enumerate(table.columns) if _is_value(column)]
    if scale is None or not values:
        return
    keys = _keys(table, scale, values[0])
    if keys is None:
        return
    axis = "ranks" if names[scale] == "job_ranks" else names[scale]
    for at in values:
        title = _title(table.columns[at])
        what = table.title if not keys else title if titles.count(title) == 1 else f"{table.title}: {title}"
        points: dict[tuple[str, ...], list[tuple[float, float]]] = {}
        own = _own_keys(table, keys, at)
        for row in table.rows:
            key = tuple(_word(row[place], table.columns[place]) for place in own)
            if isinstance(row[at], int | float) and isinstance(row[scale], int | float):
                points.setdefault(key, []).append((float(row[scale] or 0), float(row[at] or 0)))
        for key, found in points.items():
            name, *rest = key or (title,)
            yield Series(name, ", ".join([what, *rest]), _unit(table.columns[at]), axis, tuple(found))


def _own_keys(table: Table, keys: list[int], at: int) -> list[int]:
    """Where tables stand side by side, each with a column of the same title that names it, the nearest such column."""
    first = [key for key in keys if table.columns[key].unit is Unit.NAME][:1]
    again = [place for place in range(at) if first and table.columns[place].title == table.columns[first[0]].title]
    nearest = [place for place in again if table.columns[place].unit is Unit.NAME][-1:]
    return [*nearest, *(key for key in keys if key not in first)]


def _keys(table: Table, scale: int, end: int) -> list[int] | None:
    """The columns left of the values by which rows of one scale differ; None where they do not: no series then."""
    left = [at for at in range(end) if at != scale and table.columns[at].name not in NO_KEY]
    names = [at for at in left if table.columns[at].unit in (Unit.NAME, Unit.BYTES)]
    counts = [at for at in left if at in names or table.columns[at].unit is Unit.COUNT]  # a count may belong to a name
    for keys in (names, counts):
        if len({(row[scale], *(row[at] for at in keys)) for row in table.rows}) == len(table.rows):
            return keys
    return None


def _is_value(column: Column) -> bool:
    return column.unit in (Unit.NS, Unit.RATE) or column.name.endswith(PER_SECOND)


def _unit(column: Column) -> str:
    return "/s" if column.name.endswith(PER_SECOND) else column.unit.value


def _title(column: Column) -> str:
    return column.title or column.name


def _word(value: Value, column: Column) -> str:
    if isinstance(value, int | float) and column.unit is Unit.BYTES:
        return shown(float(value), "bytes") if value >= 1024 else f"{value:g} B"
    return "" if value is None else str(value)


def is_study(folder: Path) -> bool:
    return (folder / STUDY).is_file()


def series_in(folder: Path) -> list[Series]:
    """The series of a study that was run, as far as its cells are done."""
    ledger = Ledger(folder)
    told = ledger.description().get("identity") or {}
    outcomes = [ledger.outcome(cell) for cell in cells_in(folder)]
    if not any(one.done for one in outcomes):
        raise BadStudy(f"{folder}: no cell of this study is done: go on with it by rankscope study --resume")
    study = STUDIES.get(str(told.get("study"))) or own_study(str(told.get("study")), outcomes)
    return [one.series for one in growing(study, outcomes, told.get("settings", {}))]


def cells_in(folder: Path) -> list[Cell]:
    """Every cell that has ended, by what it left."""
    found = [read_json(path) for path in sorted(folder.glob("cells/*/cell.json"))]
    return [
        Cell(tuple(one["values"].items()), int(one["ranks"]), int(one["repeat"]))
        for one in found
        if one and {"values", "ranks", "repeat"} <= set(one)
    ]


def own_study(name: str, outcomes: Sequence[Outcome]) -> Study:
    """A study whose file is not at hand: what every recorded run has."""
    axes = list(dict.fromkeys(axis for one in outcomes for axis, _ in one.cell.values))

    def no_job(*_: object) -> object:
        raise BadStudy(f"{name}: cannot be run from its folder")

    return Study(name, name, "", lambda _: {}, no_job, lambda done, _: [figures(done, axes)])  # type: ignore[arg-type]
