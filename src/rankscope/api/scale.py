"""Quantities over the scale, out of runs of several sizes or of documents that tabulate them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from rankscope.api.compare import side_of
from rankscope.api.run import Run
from rankscope.formats.handmade import read
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Note, Severity
from rankscope.model.tables import Table, Wrong
from rankscope.output.html import to_html
from rankscope.questions.scaling.crossovers import crossovers
from rankscope.questions.scaling.growth import Growth, Series, growth
from rankscope.questions.scaling.page import Scaling, growth_page
from rankscope.questions.scaling.scaling import (
    AXES,
    graphs,
    laws,
    of_documents,
    of_figures,
    of_runs,
    projection,
    speed_up,
    summed,
)

__all__ = ["AXES", "Scaled", "Series", "chosen", "published", "scaled", "series_of", "with_sums"]

WARNINGS = "SELECT text FROM notes WHERE severity = 'warning' AND tool = 'handmade'"
MOST_WARNINGS = 12


class Scaled:
    """How each series grows."""

    def __init__(self, series_list: Sequence[Series], against: str = "", warnings: Sequence[str] = ()) -> None:
        self.grown: list[Growth] = [growth(series) for series in series_list]
        self.against = [grown for grown in self.grown if against and re.search(against, grown.series.name)]
        self.warnings = list(warnings)
        if against and not self.against:
            names = sorted({series.name for series in series_list})
            raise Wrong(f"--against {against}: matches no series; available: {'; '.join(names[:12])}")

    def tables(self, to: Sequence[float] = ()) -> list[Table]:
        """Laws, speed-up, break-evens, and projections to the scales `to`."""
        tables = [laws(self.grown), speed_up(self.grown), crossovers(self.grown, self.against)]
        tables[0].warnings += self.warnings[:MOST_WARNINGS]
        return [*tables, projection(self.grown, to)] if to else tables

    def page_text(self, name: str, to: Sequence[float] = ()) -> str:
        """The growth as one HTML file that works offline."""
        drawn = {"scale_laws": graphs(self.grown, to)}
        facts = [f"{len(self.grown)} series"]
        return to_html(growth_page(Scaling(name, facts, self.grown, self.tables(to), drawn, to)))


def scaled(sources: Sequence[str | PathLike[str]], axis: str = "ranks", only: str = "") -> Scaled:
    """The series of all these runs whose name or quantity matches `only`; a source may be a folder of runs."""
    series, warnings = series_of(sources, axis)
    return Scaled(chosen(series, only), warnings=warnings)


def series_of(sources: Sequence[str | PathLike[str]], axis: str = "ranks") -> tuple[list[Series], list[str]]:
    """All series of these runs, and what the readers of documents warn of."""
    folders = dict.fromkeys(folder for source in sources for folder in side_of(str(source))[1])
    stores = [Run(folder).store(events=True) for folder in folders]
    warnings = [str(text) for store in stores for (text,) in store.query(WARNINGS)]
    return [series for store in stores for series in of_documents(store)] + of_runs(stores, axis), warnings


def chosen(series_list: Sequence[Series], only: str) -> list[Series]:
    """Those whose name or quantity matches; none at all is an error."""
    matching = [series for series in series_list if not only or re.search(only, f"{series.name} {series.what}")]
    if not matching:
        known = sorted({f"{series.name}: {series.what}" for series in series_list})
        why = f"none matches {only!r}; there are {'; '.join(known[:8])}" if known else "runs of one size show no growth"
        raise Wrong(f"no series over several sizes: {why}")
    return matching


def with_sums(given: Sequence[Series], sums: Sequence[str]) -> list[Series]:
    """And one more for each NAME=SERIES+SERIES, of every quantity that has all of them."""
    extended = list(given)
    for text in sums:
        name, equals, rest = text.partition("=")
        parts = [part.strip("\t") for part in rest.split("+")]
        if not equals or len(parts) < 2:
            raise Wrong(f"--sum {text}: give a name and the series to add, as in staged=transfer+import")
        groups = {(series.what, series.unit, series.axis) for series in given}
        groups_of_series = [
            [series for series in given if (series.what, series.unit, series.axis) == group] for group in sorted(groups)
        ]
        picked = [
            [next((series for series in group if series.name == part), None) for part in parts]
            for group in groups_of_series
        ]
        added = [summed(name, [series for series in group if series]) for group in picked if all(group)]
        if not added:
            known = sorted({series.name for series in given})
            raise Wrong(f"--sum {text}: no quantity has all these series; available: {'; '.join(known[:12])}")
        extended += added
    return extended


def published(
    path: Path, mapping: Path | None = None, per_node: int | None = None, only: str = "", tag: str = "published"
) -> tuple[list[Series], list[str]]:
    """The series of a document by hand, to be laid over measured ones; its nodes as ranks where `per_node` is given."""
    try:
        (reading,) = read(Source(path, Hints(mapping=mapping)))
    except (BadFile, OSError) as problem:
        raise Wrong(f"--overlay {path}: {problem}") from None
    rows = [
        (figure.series, figure.name, figure.statistic, figure.scale_name, figure.unit, figure.scale, figure.value)
        for figure in reading.figures
        if figure.scale is not None
    ]
    published_series = [replace(series, name=f"{series.name} ({tag})", published=True) for series in of_figures(rows)]
    published_series = [series for series in published_series if re.search(only, f"{series.name} {series.what}")]
    if per_node:
        published_series = [_as_ranks(series, per_node) for series in published_series]
    return published_series, [f"{path.name}: {note.text}" for note in reading.notes if is_warning(note)]


def is_warning(note: Note) -> bool:
    return note.severity is Severity.WARNING


def _as_ranks(series: Series, per_node: int) -> Series:
    if series.axis not in ("nodes", "hosts"):
        return series
    return replace(series, axis="ranks", points=tuple((scale * per_node, value) for scale, value in series.points))
