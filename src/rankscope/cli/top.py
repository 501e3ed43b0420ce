"""`rankscope top`: a live view of a running job."""

from __future__ import annotations

import argparse
import gc
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rankscope.api.runs import Watched, watch
from rankscope.cli.report import SCREEN_ROWS, colour_wanted, deliver, width
from rankscope.model import Table
from rankscope.output.text import to_text
from rankscope.questions.live.hang import OVER, verdict
from rankscope.questions.live.standing import Standing, paces
from rankscope.questions.live.top import (
    job_table,
    live_behaviour,
    many_tables,
    outlying_places,
    ranks_table,
    slowest_of_many,
)
from rankscope.questions.ranks.behaviour import Behaviour
from rankscope.questions.selection import MANY_RANKS
from rankscope.store.folder import NoRun, host_groups


# ---------------------------------------------------------------------------------------------------------------------
# Single keys from the terminal, and the terminal as it was afterwards.
class Keys:
    """Listens to the keyboard without a need for Enter; Ctrl-C stays what it is."""

    def __enter__(self) -> Keys:
        self._saved = None
        if sys.stdin is not None and sys.stdin.isatty():
            self._saved = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._saved is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    def pressed(self, seconds: float, wanted: str) -> bool:
        """Waits so long, or until one of these keys is pressed."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._saved is None:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                typed = os.read(sys.stdin.fileno(), 64)
                if not typed or set(typed.decode("latin-1")) & set(wanted):
                    return True
        return False


# ---------------------------------------------------------------- top
HELP = "watch a running job"
RECORDS = 64  # newest collectives of a rank: enough to see who waits for whom
FEW_RECORDS = 16  # of each of very many ranks
VERY_MANY_RANKS = 1024
OUTLIERS = 10  # ranks, places and groups of each kind that are shown of many,
FEWER = (5, 3, 1)  # and where these do not fit on the screen
NOTHING = Behaviour([], [], [])
READING_SHARE = 0.2  # of the time at most is spent on reading, whatever the interval
PATIENCE_NS = 10_000_000_000
AROUND_ROWS = 4  # lines of the screen that are neither the job's nor a rank's


def run(argv: list[str]) -> int:
    """0: looked at until it ended or was left; 2: there was nothing to look at."""
    options = parser().parse_args(argv)
    if options.interval <= 0 or options.rows < 0:
        print("rankscope: give --interval more than 0 seconds and --rows at least 0", file=sys.stderr)
        return 2
    try:
        watched = watch(options.run)
        view = View(watched, options.rows, host_groups(options.groups, watched.folder))
        if options.once or not sys.stdout.isatty():
            time.sleep(options.interval)
            view.look()
            deliver(view.text(width(None), SCREEN_ROWS), None)
        else:
            live(view, options.interval)
    except NoRun as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass  # the way to leave it
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "rankscope top",
        description="Watch a running job: where its ranks are, how fast, who waits and for whom. Reads the rank files "
        "and changes nothing. q or Ctrl-C leaves it; it ends with the job.",
    )
    made.add_argument("run", nargs="?", type=Path, metavar="RUN", help="folder of the run (default: the latest)")
    made.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="time between two looks (default: 2)"
    )
    made.add_argument(
        "--once", action="store_true", help="look twice, print one frame and end; so it is without a terminal"
    )
    made.add_argument(
        "--rows",
        type=int,
        default=0,
        metavar="N",
        help=f"ranks to show (0: what fits, or {SCREEN_ROWS} with --once); from {MANY_RANKS} ranks on: rows of each "
        f"table (0: {OUTLIERS}, or what fits)",
    )
    made.add_argument(
        "--groups", type=Path, metavar="FILE", help="lines of host,group, as those of one switch (RUN/groups.csv)"
    )
    return made


@contextmanager
def uncollected() -> Iterator[None]:
    """Hundreds of thousands of objects are made, no two in a circle: looking for one would take longest of all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class View:
    """The job at the two newest moments."""

    def __init__(self, watched: Watched, rows: int, group_of: Mapping[str, str] | None = None) -> None:
        self.watched, self.rows, self.group_of = watched, rows, group_of or {}
        self.reading_s = 0.0
        self.before = self.now = self._look()
        self._work_out()

    def look(self) -> None:
        self.before, self.now = self.now, self._look()
        self._work_out()

    def _look(self) -> Standing:
        began = time.monotonic()
        with uncollected():
            found = self.watched.look(lambda files: FEW_RECORDS if files > VERY_MANY_RANKS else RECORDS)
        self.reading_s = time.monotonic() - began
        return found

    def _work_out(self) -> None:
        """What a frame is made of, however many rows of it fit."""
        self.many = len(self.now.ranks) >= MANY_RANKS
        with uncollected():
            self.verdict = verdict(self.before, self.now, PATIENCE_NS)
            self.pace = paces(self.before, self.now)
            self.found = live_behaviour(self.now, self.pace) if self.many else NOTHING
            self.by_place = outlying_places(self.found, self.group_of)

    def text(self, wide: int, rows: int, colour: bool = False) -> str:
        """One frame."""
        with uncollected():
            shown = self.tables(self.rows or (min(rows, OUTLIERS) if self.many else rows))
        return to_text(shown, wide, colour)

    def tables(self, most: int) -> list[Table]:
        """The job, and its ranks: each of them, or of many only what tells them apart."""
        if not self.many:
            ranks = ranks_table(self.now, self.verdict, self.pace, most)
            return [job_table(self.title(), self.now, self.verdict, self.pace), ranks]
        slowest = slowest_of_many(self.found, self.by_place)
        job = job_table(self.title(), self.now, self.verdict, self.pace, slowest)
        return [job, *many_tables(self.now, self.pace, self.found, self.by_place, most)]

    def title(self) -> str:
        bad = f", {len(self.watched.bad)} files unreadable" if self.watched.bad else ""
        clock = time.strftime("%H:%M:%S")
        return f"{self.watched.folder}  {clock}  read in {self.reading_s * 1e3:.0f} ms{bad}"


def live(view: View, interval: float) -> None:
    """Frames on the terminal until the job ends or somebody leaves."""
    console = Console()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as screen:
        while view.verdict.kind not in OVER:
            if keys.pressed(max(interval, view.reading_s / READING_SHARE), "qQ"):
                return
            view.look()
            screen.update(Text.from_ansi(frame(view, console)), refresh=True)
    deliver(view.text(width(None), SCREEN_ROWS, colour_wanted()), None)
    print(f"The job has ended; rankscope report {view.watched.folder} shows what was recorded.")


def frame(view: View, console: Console) -> str:
    """As many rows as the screen has room for."""
    wide, high = console.size
    text = view.text(wide, high, colour_wanted())
    over = len(text.splitlines()) - high + AROUND_ROWS
    for rows in FEWER if view.many else (max(1, high - max(0, over)),):
        if over > 0 and not view.rows:
            text = view.text(wide, rows, colour_wanted())
            over = len(text.splitlines()) - high + 1
    return fitting(text.splitlines(), high)


def fitting(lines: Sequence[str], high: int) -> str:
    return "\n".join(lines[:high])
