"""The forms in which tables can be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rankscope.api.run import Run, Selection
from rankscope.model import Table
from rankscope.output.cells import printable
from rankscope.output.csv import csv_pieces, to_csv
from rankscope.output.json import to_json
from rankscope.output.markdown import to_markdown
from rankscope.output.plain_html import to_plain_html
from rankscope.output.text import to_text
from rankscope.pictures import Graph
from rankscope.questions.events.events import EVENTS_COLUMNS as EVENT_COLUMNS
from rankscope.questions.events.events import events_sql

__all__ = ["EVENT_COLUMNS", "FORMS", "PAGES", "events_csv", "page", "printable", "to_text"]

FORMS: dict[str, Callable[[Sequence[Table]], str]] = {"csv": to_csv, "json": to_json, "markdown": to_markdown}
# where there is no page with pictures: of what is no run
PAGES: dict[str, Callable[[Sequence[Table]], str]] = {**FORMS, "html": to_plain_html}


def page(tables: Sequence[Table], graphs: Mapping[str, Sequence[Graph]], title: str) -> str:
    """One page with graphs under the tables they belong to."""
    return to_plain_html(tables, graphs, title)


def events_csv(run: Run, selection: Selection) -> Iterator[str]:
    """The events in pieces, as they may be more than memory holds."""
    run.ranks_shown(selection)
    return csv_pieces(EVENT_COLUMNS, run.batches(events_sql(selection)))
