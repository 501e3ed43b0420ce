"""A study as a document: what ran and what did not, the study's own tables, and how its figures grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.output.html import to_html
from rankscope.output.markdown import to_markdown
from rankscope.pictures import Graph
from rankscope.questions.scaling.break_even import BYTES
from rankscope.questions.scaling.crossovers import crossovers
from rankscope.questions.scaling.growth import Growth, Series, growth
from rankscope.questions.scaling.models import BY_SCALE, BY_SIZE
from rankscope.questions.scaling.page import Scaling, growth_page
from rankscope.questions.scaling.scaling import graphs, laws, projection, shown, speed_up
from rankscope.questions.wording import counted
from rankscope.studies.builtin import STUDIES
from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json, write_text
from rankscope.studies.ledger import STUDY, Ledger
from rankscope.studies.plan import Cell, Outcome, Settings, Study
from rankscope.studies.toml_study import figures

# ---------------------------------------------------------------------------------------------------------------------
# Which series do the tables of a study hold: times, rates and throughputs over ranks, and over sizes of messages?
SCALES = ("ranks", "job_ranks", "nodes", "trainers", "devices")  # columns that are the scale, the first of them
PER_SECOND = "_per_s"  # columns of a throughput: of the whole job, so that a speed-up can be told
NO_KEY = ("repeat",)
OPERATIONS = ("collectives", "calls")  # columns that count them


@dataclass(frozen=True, slots=True)
class DocumentColumns:
    """Which columns of a table are what."""

    scale: int
    keys: list[int]  # by which rows of one scale differ
    values: list[int]


def series_of_tables(tables: Sequence[Table]) -> list[Series]:
    """Told apart by what stands left of the first value; what two tables show alike counts once."""
    titles = [title_of(column) for table in tables for column in table.columns if is_value(column)]
    listed: list[Series] = []
    for table in tables:
        before = {
            (series.unit, series.axis, series.points) for series in listed
        }  # a table of its own names them otherwise
        layout = layout_of(table)
        candidates = (
            [series for at in layout.values for series in of_column(table, layout, at, titles)] if layout else []
        )
        listed += [
            candidate for candidate in candidates if (candidate.unit, candidate.axis, candidate.points) not in before
        ]
    return listed


def layout_of(table: Table) -> DocumentColumns | None:
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
            return DocumentColumns(scale, keys, values)
    return None


def of_column(table: Table, layout: DocumentColumns, at: int, titles: Sequence[str]) -> Iterator[Series]:
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
        yield from over(table, sizes[0], others, at, (BYTES, name, what))


def over(table: Table, along: int, keys: Sequence[int], at: int, labels: tuple[str, str, str]) -> Iterator[Series]:
    """One column along another: a series for each combination of the keys, named by the first of them."""
    axis, name, what = labels
    points: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in table.rows:
        value, scale = row[at], row[along]
        if isinstance(value, int | float) and isinstance(scale, int | float):
            key = _key_words(row, table, keys)
            points.setdefault(key, []).append((float(scale), float(value)))
    laws = BY_SIZE if axis == BYTES else BY_SCALE
    for key, point in points.items():
        words = [name, *key] if name else list(key)
        yield Series(
            words[0],
            ", ".join(word for word in (what, *words[1:]) if word),
            unit_of(table.columns[at]),
            axis,
            tuple(point),
            laws,
        )


def _key_words(row: Sequence[Value], table: Table, keys: Sequence[int]) -> tuple[str, ...]:
    """What tells a series from the others; how many operations there are stands behind their name."""
    counts = [key for key in keys if table.columns[key].name in OPERATIONS and isinstance(row[key], int)]
    names = [key for key in keys if table.columns[key].unit is Unit.NAME]
    if not counts or not names:
        return tuple(word(row[key], table.columns[key]) for key in keys)
    words = {key: word(row[key], table.columns[key]) for key in keys if key not in counts}
    words[names[-1]] += "".join(f" ({row[key]:,})" for key in counts)
    return tuple(words.values())


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


# ---------------------------------------------------------------------------------------------------------------------
# How do the figures of a study grow with the number of ranks? Its tables as series, and what is told of those.
MOST_LAWS, MOST_PAIRS = 40, 30  # rows of the section: the document is to be read


def growing(study: Study, outcomes: Sequence[Outcome], settings: Settings) -> list[Growth]:
    """Every series of the study with at least two scales; each repeat is a point of its own."""
    if study.series is not None:
        listed = study.series(outcomes, settings)
    else:
        listed = _of_repeats(study, outcomes, settings)
    growing_series = [series for series in listed if len({scale for scale, value in series.points if value > 0}) > 1]
    return [growth(series) for series in growing_series]


def growth_tables(grown: Sequence[Growth], to: Sequence[float] = ()) -> list[Table]:
    """Laws, speed-up of throughputs, break-evens, and projections; none where there is one scale only."""
    by_size = [growth_of for growth_of in grown if growth_of.series.axis == BYTES]
    by_scale = [growth_of for growth_of in grown if growth_of.series.axis != BYTES]
    tables = [steepest(by_scale), speed_up(by_scale), crossovers(by_scale, most=MOST_PAIRS)]
    if to:
        tables.append(projection(by_scale, to))
    sizes = replace(steepest(by_size), name="size_laws", title="How it grows with message size")
    meeting = crossovers(by_size, most=MOST_PAIRS)
    tables += [sizes, replace(meeting, name="size_break_even", title="Break-evens by message size")]
    return [table for table in tables if table.rows or (table.notes and table.name.endswith("break_even"))]


def steepest(grown: Sequence[Growth]) -> Table:
    """The laws of those that grow most."""
    most = sorted(grown, key=lambda growth_of: abs(growth_of.exponent or 0), reverse=True)[:MOST_LAWS]
    table = laws([growth_of for growth_of in grown if growth_of in most])
    if len(grown) > MOST_LAWS:
        table.notes.append(f"The {MOST_LAWS} steepest of {len(grown)} series; `rankscope scale` shows all.")
    return table


def growth_graphs(grown: Sequence[Growth], to: Sequence[float] = ()) -> dict[str, list[Graph]]:
    """By the name of the table under which they belong."""
    return {
        "scale_laws": graphs([growth_of for growth_of in grown if growth_of.series.axis != BYTES], to),
        "size_laws": graphs([growth_of for growth_of in grown if growth_of.series.axis == BYTES]),
    }


def _of_repeats(study: Study, outcomes: Sequence[Outcome], settings: Settings) -> list[Series]:
    joined: dict[tuple[str, str, str, str], Series] = {}
    for repeat in sorted({outcome.cell.repeat for outcome in outcomes if outcome.done}):
        tables = study.tables([outcome for outcome in outcomes if outcome.cell.repeat == repeat], settings)
        for series in series_of_tables(tables):
            key = (series.name, series.what, series.unit, series.axis)
            before = joined[key].points if key in joined else ()
            joined[key] = replace(series, points=(*before, *series.points))
    return list(joined.values())


def is_study(folder: Path) -> bool:
    return (folder / STUDY).is_file()


def series_in(folder: Path) -> list[Series]:
    """The series of a study that was run, as far as its cells are done."""
    ledger = Ledger(folder)
    identity = ledger.description().get("identity") or {}
    outcomes = [ledger.outcome(cell) for cell in cells_in(folder)]
    if not any(outcome.done for outcome in outcomes):
        raise BadStudy(f"{folder}: no cell of this study has finished: continue it with rankscope study --resume")
    study = STUDIES.get(str(identity.get("study"))) or own_study(str(identity.get("study")), outcomes)
    return [growth_of.series for growth_of in growing(study, outcomes, identity.get("settings", {}))]


def cells_in(folder: Path) -> list[Cell]:
    """Every cell that has ended, by what it left."""
    records = [read_json(path) for path in sorted(folder.glob("cells/*/cell.json"))]
    return [
        Cell(tuple(record["values"].items()), int(record["ranks"]), int(record["repeat"]))
        for record in records
        if record and {"values", "ranks", "repeat"} <= set(record)
    ]


def own_study(name: str, outcomes: Sequence[Outcome]) -> Study:
    """A study whose file is not at hand: what every recorded run has."""
    axes = list(dict.fromkeys(axis for outcome in outcomes for axis, _ in outcome.cell.values))

    def no_job(*_: object) -> object:
        raise BadStudy(f"{name}: cannot be run from its folder")

    return Study(name, name, "", lambda _: {}, no_job, lambda done, _: [figures(done, axes)])  # type: ignore[arg-type]


# ---------------------------------------------------------------- document
WHERE = (Column("what", Unit.NAME, "What"), Column("value", Unit.NAME, "Value"))


def document(
    study: Study,
    outcomes: Sequence[Outcome],
    settings: Settings,
    environment: Mapping[str, Any],
    grown: Sequence[Growth] | None = None,
    to: Sequence[float] = (),
) -> list[Table]:
    """All tables, in the order in which they are read."""
    tables = study.tables(outcomes, settings) if any(outcome.done for outcome in outcomes) else []
    grown = growing(study, outcomes, settings) if grown is None else grown
    return [*tables, *growth_tables(grown, to), cells_table(study, outcomes), where_table(environment)]


def cells_table(study: Study, outcomes: Sequence[Outcome]) -> Table:
    """Every cell with how it ended: what is not shown above, and why."""
    axes = list(dict.fromkeys(axis for outcome in outcomes for axis, _ in outcome.cell.values))
    columns = [Column(axis, Unit.NAME, axis.replace("_", " ").capitalize()) for axis in axes]
    columns += [
        Column("ranks", Unit.COUNT, "Ranks"),
        Column("repeat", Unit.COUNT, "Repeat"),
        Column("state", Unit.NAME, "State"),
    ]
    columns += [Column("seconds_ns", Unit.NS, "Took"), Column("reason", Unit.NAME, "Because")]
    rows: list[tuple[Value, ...]] = []
    for outcome in outcomes:
        took_ns = outcome.seconds * 1e9 if outcome.seconds is not None else None
        place = dict(outcome.cell.values)
        rows.append(
            (
                *(place.get(axis, "") for axis in axes),
                outcome.cell.ranks,
                outcome.cell.repeat,
                outcome.state,
                took_ns,
                outcome.reason,
            )
        )
    done = sum(outcome.done for outcome in outcomes)
    table = Table("cells", f"Cells: {done} of {len(outcomes)} done", columns, rows)
    if done < len(outcomes):
        table.warnings.append(f"{len(outcomes) - done} of {len(outcomes)} cells are missing from the tables: see Cells")
    return table


def where_table(environment: Mapping[str, Any]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for name, value in environment.items():
        if isinstance(value, Mapping):
            value = "; ".join(f"{key} {item}".strip() for key, item in value.items())
        elif isinstance(value, list):
            value = "; ".join(
                " ".join(map(str, item.values())) if isinstance(item, Mapping) else str(item) for item in value
            )
        if value not in ("", None):
            rows.append((name.replace("_", " "), str(value)))
    return Table("environment", "Where it ran", WHERE, rows)


def write(
    folder: Path,
    study: Study,
    outcomes: Sequence[Outcome],
    tables: Sequence[Table],
    grown: Sequence[Growth],
    to: Sequence[float],
) -> list[Path]:
    """The document in each form, whole or not at all; only the page has graphs."""
    markdown, page = folder / f"{study.name}.md", folder / f"{study.name}.html"
    write_text(markdown, f"# {study.title}\n\n{to_markdown(tables)}")
    scaling = Scaling(study.title, _facts(folder, outcomes), grown, tables, growth_graphs(grown, to), to)
    write_text(page, to_html(growth_page(scaling, "Study")))
    return [markdown, page]


def _facts(folder: Path, outcomes: Sequence[Outcome]) -> list[str]:
    done = sum(outcome.done for outcome in outcomes)
    ranks = sorted({outcome.cell.ranks for outcome in outcomes})
    span = counted(ranks[0], "rank") if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]} ranks"
    repeats = max((outcome.cell.repeat for outcome in outcomes), default=1)
    return [folder.name, f"{done} of {counted(len(outcomes), 'cell')} done", span, counted(repeats, "repeat")]
