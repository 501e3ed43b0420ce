"""A study as a document: what ran and what did not, the study's own tables, and how its figures grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.api.forms import PAGES, page
from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.pictures import Graph
from rankscope.questions.scaling.growth import Growth
from rankscope.studies.growing import growing, growth_tables
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Settings, Study

FORMS = {"markdown": "md", "html": "html"}
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
    made = study.tables(outcomes, settings) if any(one.done for one in outcomes) else []
    grown = growing(study, outcomes, settings) if grown is None else grown
    return [*made, *growth_tables(grown, to), cells_table(study, outcomes), where_table(environment)]


def cells_table(study: Study, outcomes: Sequence[Outcome]) -> Table:
    """Every cell with how it ended: what is not shown above, and why."""
    axes = list(dict.fromkeys(axis for one in outcomes for axis, _ in one.cell.values))
    columns = [Column(axis, Unit.NAME, axis.replace("_", " ").capitalize()) for axis in axes]
    columns += [
        Column("ranks", Unit.COUNT, "Ranks"),
        Column("repeat", Unit.COUNT, "Repeat"),
        Column("state", Unit.NAME, "State"),
    ]
    columns += [Column("seconds_ns", Unit.NS, "Took"), Column("reason", Unit.NAME, "Because")]
    rows: list[tuple[Value, ...]] = []
    for one in outcomes:
        took_ns = one.seconds * 1e9 if one.seconds is not None else None
        place = dict(one.cell.values)
        rows.append(
            (*(place.get(axis, "") for axis in axes), one.cell.ranks, one.cell.repeat, one.state, took_ns, one.reason)
        )
    done = sum(one.done for one in outcomes)
    made = Table("cells", f"Cells: {done} of {len(outcomes)} done", columns, rows)
    if done < len(outcomes):
        made.warnings.append(f"{len(outcomes) - done} of {len(outcomes)} cells are missing in the tables: see Cells")
    return made


def where_table(environment: Mapping[str, Any]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for name, value in environment.items():
        if isinstance(value, Mapping):
            value = "; ".join(f"{key} {one}".strip() for key, one in value.items())
        elif isinstance(value, list):
            value = "; ".join(
                " ".join(map(str, one.values())) if isinstance(one, Mapping) else str(one) for one in value
            )
        if value not in ("", None):
            rows.append((name.replace("_", " "), str(value)))
    return Table("environment", "Where it ran", WHERE, rows)


def write(
    folder: Path, study: Study, tables: Sequence[Table], graphs: Mapping[str, Sequence[Graph]] | None = None
) -> list[Path]:
    """The document in each form, whole or not at all; only a page has graphs."""
    made = []
    for form, suffix in FORMS.items():
        path = folder / f"{study.name}.{suffix}"
        text = page(tables, graphs or {}, study.title) if form == "html" else PAGES[form](tables)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(f"# {study.title}\n\n{text}" if form == "markdown" else text, encoding="utf-8")
        beside.replace(path)
        made.append(path)
    return made
