"""Tables somebody made by hand, in Markdown or comma-separated values, with a column that is a scale."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from rankscope.formats.handmade.checks import table_problems
from rankscope.formats.handmade.claims import claim_problems
from rankscope.formats.handmade.columns import Measured, columns_of, read_mapping
from rankscope.formats.handmade.grid import UNITS, Document, page_of, stated_unit
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Note, RankFacts, Reading, Severity

RULE = re.compile(rb"^\|(?: {0,3}:?-{1,60}:? {0,3}\|){2,}", re.M)
CSV_HEAD = re.compile(rb'"?(#?nodes?|ranks?|gpus?|hosts?|processes|world size|batch(?: size)?)"? {0,3},', re.I)
CSV_ROW = re.compile(rb'\n"?\d{1,9}"? {0,3},')
COUNT = re.compile(r"\b(\d{1,12}) (Hostnames|Processes|Threads|Devices|Subdevices)\b")
OTHER = "what the table shows"


def sniff(head: bytes) -> bool:
    """A Markdown table whose rows begin with rising numbers, or values separated by commas under such a header."""
    if CSV_HEAD.match(head) and CSV_ROW.search(head):
        return True
    if not RULE.search(head):
        return False
    page = page_of(Source(Path("head"), content=head))
    return bool(columns_of(page, read_mapping(None)).measured)


def read(source: Source) -> Iterator[Reading]:
    """One reading with a figure for each cell, and a note for each thing that is off."""
    page = page_of(source)
    columns = columns_of(page, read_mapping(source.hints.mapping))
    if not columns.measured and not columns.labelled:
        raise source.bad("no table with a column of nodes, ranks or another scale: name it in a mapping (--map)")
    reading = Reading(RankFacts(versions="hand-made tables", source=str(source)))
    reading.figures = [figure for column in columns.measured for figure in _figures(column)]
    reading.figures += [
        Figure(
            label.label,
            _heading(page, label.line),
            label.quantity.value,
            _label_unit(page, label.line, label.quantity.kind),
        )
        for label in columns.labelled
    ]
    reading.figures += _profile_counts(page)
    problems = [*table_problems(columns.measured), *claim_problems(page, columns)]
    reading.notes = [Note(text, Severity.WARNING, source.at(line)) for line, text in dict.fromkeys(problems) if text]
    yield reading


def _figures(column: Measured) -> Iterator[Figure]:
    """Cells of another kind than their column are told of, not passed on."""
    for point in column.points:
        if point.quantity.kind in ("", column.kind):
            value, unit = point.quantity.value, column.kind or "number"
            yield Figure(column.series, column.name or OTHER, value, unit, point.scale, column.scale_name)


def _profile_counts(page: Document) -> Iterator[Figure]:
    """Hosts, processes, threads and devices of profiles whose header lines stand beside the tables."""
    for _, text in page.text:
        if "Hostnames" in text and len(text) < 1000:
            series = text.partition("|")[0].strip()
            for match in COUNT.finditer(text):
                yield Figure(series, match[2].lower(), float(match[1]), "count")


def _heading(page: Document, line: int) -> str:
    return next((grid.heading for grid in page.grids if any(row.line == line for row in grid.rows)), "") or OTHER


def _label_unit(page: Document, line: int, kind: str) -> str:
    unit = stated_unit(_heading(page, line))
    return kind or (UNITS[unit][0] if unit else "number")
