"""How a study goes on: a line for each cell that has ended, and on a terminal a bar with the time left below."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rankscope.api.forms import printable
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell
from rankscope.studies.run_study import Teller

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REFRESH_PER_S = 2  # drawing must not take the time of what is measured


class Lines:
    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None: ...

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None:
        left = f" [about {duration(left_s)} left]" if left_s is not None and place < count else ""
        print(f"{line_of(outcome, place, count)}{left}", file=sys.stderr, flush=True)


class Bar:
    """Lines pass by above it."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None:
        until = time.monotonic() + left_s if left_s is not None else None
        self.progress.update(self.task, total=count, completed=place - 1, cell=printable(cell.label), until=until)

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None:
        self.progress.console.print(line_of(outcome, place, count), markup=False, highlight=False)
        self.progress.update(self.task, completed=place)


@contextmanager
def teller() -> Iterator[Teller]:
    """The bar where somebody looks, else lines only."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Left(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            until = task.fields.get("until")
            return Text("" if until is None else f"about {duration(max(0.0, until - time.monotonic()))} left")

    cell = TextColumn("{task.fields[cell]}", markup=False)
    shown = Progress(
        *(BarColumn(), MofNCompleteColumn(), Left(), cell),
        console=Console(file=sys.stderr),
        transient=True,
        refresh_per_second=REFRESH_PER_S,
    )
    with shown:
        yield Bar(shown, shown.add_task("", total=1, cell="", until=None))


def line_of(outcome: Outcome, place: int, count: int) -> str:
    took = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
    because = f": {outcome.reason}" if outcome.reason else ""
    return f"[{place}/{count}] {printable(f'{outcome.cell.label}: {outcome.state}{took}{because}')}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
