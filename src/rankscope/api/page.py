"""The page about a run: one HTML file that works offline."""

from __future__ import annotations

from functools import partial

from rankscope.analyse.import_icicle import import_icicle
from rankscope.analyse.sections import Wanted, page_of
from rankscope.api.run import LOGS_UNASKED, Run
from rankscope.model import Table
from rankscope.questions.selection import ALL, Selection
from rankscope.report.html import to_html

UNREAD = f"More than {LOGS_UNASKED} processes: without the logs of collectives. --logs reads them."


def page_text(run: Run, selection: Selection = ALL, kernels: str = "short", logs: bool = False) -> str:
    """The page; the logs of collectives are in it where there are few ranks or they are asked for."""
    events = logs or run.is_small
    store = run.store(events=events)
    run.ranks_shown(selection)
    chosen = Selection(selection.ranks)
    more = {name: partial(_answer, run, name, chosen, kernels) for name in run.default_tables()}
    notes = [] if events else [UNREAD]
    wanted = Wanted(chosen, run.kernel_names(kernels), more, notes, import_icicle(store, chosen))
    return to_html(page_of(store, run.folder.resolve().name, wanted))


def _answer(run: Run, name: str, selection: Selection, kernels: str) -> Table:
    """With what was read: a page must not read the logs behind the reader's back."""
    return run.answer_as_read(name, selection, kernels)
