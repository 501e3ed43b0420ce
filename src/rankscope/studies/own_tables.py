"""The tables of a study of one's own."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rankscope.analyse.scale_series import of_run
from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.studies.outcome import Outcome
from rankscope.studies.rows import by_place


def results(outcomes: Sequence[Outcome], axes: Sequence[str]) -> Table:
    """The numbers that the ranks have left: medians over all ranks and repeats."""
    found = {
        place: [one for outcome in repeats for one in outcome.results]
        for place, repeats in by_place(outcomes, *axes).items()
    }
    every = [name for ranks in found.values() for rank in ranks for name, value in rank.items() if is_number(value)]
    names = [name for name in dict.fromkeys(every) if name != "rank"]
    columns = [Column(axis, Unit.NAME, axis) for axis in axes] + [Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(name, Unit.NUMBER, name) for name in names]
    rows: list[tuple[Value, ...]] = []
    for place, ranks in found.items():
        values = [[rank[name] for rank in ranks if is_number(rank.get(name))] for name in names]
        rows.append((*place, *(statistics.median(one) if one else None for one in values)))
    return Table("results", "What the ranks have left", columns, rows)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def figures(outcomes: Sequence[Outcome], axes: Sequence[str]) -> Table:
    """What every recorded run has: elapsed time, phases, steps and their parts; medians over the repeats."""
    found = {
        place: [dict(of_run(one.run.store())) for one in repeats]
        for place, repeats in by_place(outcomes, *axes).items()
    }
    names = list(dict.fromkeys(name for runs in found.values() for run in runs for name in run))
    columns = [Column(axis, Unit.NAME, axis) for axis in axes] + [Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(f"{name.replace(', ', '_').replace(' ', '_')}_ns", Unit.NS, name) for name in names]
    rows: list[tuple[Value, ...]] = []
    for place, runs in found.items():
        values = [[run[name] for run in runs if name in run] for name in names]
        rows.append((*place, *(statistics.median(one) if one else None for one in values)))
    return Table("figures", "Where the time goes", columns, rows)


def joined(outcomes: Sequence[Outcome], axes: Sequence[str], name: str) -> Table:
    """One table of each run, one under the other."""
    whole: Table | None = None
    for outcome in outcomes:
        if not outcome.done:
            continue
        frame = outcome.run.table(name)
        if whole is None:
            head = [Column(axis, Unit.NAME, axis) for axis in axes]
            head += [Column("job_ranks", Unit.COUNT, "Job's ranks"), Column("repeat", Unit.COUNT, "Repeat")]
            whole = Table(name, frame.title, [*head, *frame.table.columns], [])
        place = [dict(outcome.cell.values)[axis] for axis in axes]
        whole.rows += [(*place, outcome.cell.ranks, outcome.cell.repeat, *row) for row in frame.rows]
    return whole or Table(name, name, (), [])
