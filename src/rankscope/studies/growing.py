"""How do the figures of a study grow with the number of ranks? Its tables as series, and what is told of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.analyse.scale_graphs import graphs
from rankscope.model import Table
from rankscope.pictures import Graph
from rankscope.questions.scaling.crossovers import crossovers
from rankscope.questions.scaling.growth import Growth, Series, growth
from rankscope.questions.scaling.scaling import laws, projection, speed_up
from rankscope.studies.builtin import STUDIES
from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json
from rankscope.studies.ledger import STUDY, Ledger
from rankscope.studies.outcome import Outcome
from rankscope.studies.own_tables import figures
from rankscope.studies.plan import Cell, Settings, Study
from rankscope.studies.table_series import BY_BYTES, series_of_tables

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
    by_size = [one for one in grown if one.series.axis == BY_BYTES]
    by_scale = [one for one in grown if one.series.axis != BY_BYTES]
    made = [steepest(by_scale), speed_up(by_scale), crossovers(by_scale, most=MOST_PAIRS)]
    if to:
        made.append(projection(by_scale, to))
    sizes = replace(steepest(by_size), name="size_laws", title="How it grows with the size of the message")
    meeting = crossovers(by_size, most=MOST_PAIRS)
    made += [sizes, replace(meeting, name="size_break_even", title="Break-evens by the size of the message")]
    return [table for table in made if table.rows or (table.notes and table.name.endswith("break_even"))]


def steepest(grown: Sequence[Growth]) -> Table:
    """The laws of those that grow most."""
    most = sorted(grown, key=lambda one: abs(one.exponent or 0), reverse=True)[:MOST_LAWS]
    made = laws([one for one in grown if one in most])
    if len(grown) > MOST_LAWS:
        made.notes.append(f"The {MOST_LAWS} steepest of {len(grown)} series; `rankscope scale` shows all.")
    return made


def growth_graphs(grown: Sequence[Growth], to: Sequence[float] = ()) -> dict[str, list[Graph]]:
    """By the name of the table under which they belong."""
    return {
        "scale_laws": graphs([one for one in grown if one.series.axis != BY_BYTES], to),
        "size_laws": graphs([one for one in grown if one.series.axis == BY_BYTES]),
    }


def _of_repeats(study: Study, outcomes: Sequence[Outcome], settings: Settings) -> list[Series]:
    whole: dict[tuple[str, str, str, str], Series] = {}
    for repeat in sorted({one.cell.repeat for one in outcomes if one.done}):
        made = study.tables([one for one in outcomes if one.cell.repeat == repeat], settings)
        for series in series_of_tables(made):
            key = (series.name, series.what, series.unit, series.axis)
            before = whole[key].points if key in whole else ()
            whole[key] = replace(series, points=(*before, *series.points))
    return list(whole.values())


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
