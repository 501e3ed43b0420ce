"""`rankscope top`: a live view of a running job."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rankscope.api.live import MANY_RANKS, OUTLIERS, LiveView, NoRun, live_view
from rankscope.cli.printing import RUN_HELP, SCREEN_ROWS, colour_wanted, deliver, width
from rankscope.output.text import to_text


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
FEWER = (5, 3, 1)  # rows of each table of many ranks, where OUTLIERS do not fit on the screen
READING_SHARE = 0.2  # of the time at most is spent on reading, whatever the interval
AROUND_ROWS = 4  # lines of the screen that are neither the job's nor a rank's


def run(argv: list[str]) -> int:
    """0: looked at until it ended or was left; 2: there was nothing to look at."""
    options = parser().parse_args(argv)
    if options.interval <= 0 or options.rows < 0:
        print("rankscope: give --interval more than 0 seconds and --rows at least 0", file=sys.stderr)
        return 2
    try:
        view = live_view(options.run, options.rows, options.groups)
        if options.once or not sys.stdout.isatty():
            time.sleep(options.interval)
            view.look()
            deliver(text_of(view, width(None), SCREEN_ROWS), None)
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
    arguments = argparse.ArgumentParser(
        "rankscope top",
        description="Watch a running job: where its ranks are, how fast they are, who waits and for whom. Reads the "
        "rank files and changes nothing. q or Ctrl-C quits; it ends with the job.",
    )
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    arguments.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="time between two readings (default: 2)"
    )
    arguments.add_argument("--once", action="store_true", help="print one frame and exit, as without a terminal")
    arguments.add_argument(
        "--rows",
        type=int,
        default=0,
        metavar="N",
        help=f"ranks to show (0: what fits, or {SCREEN_ROWS} with --once); from {MANY_RANKS} ranks on: rows of each "
        f"table (0: {OUTLIERS}, or what fits)",
    )
    arguments.add_argument(
        "--groups",
        type=Path,
        metavar="FILE",
        help="lines of host,group, such as hosts on one switch (default: RUN/groups.csv)",
    )
    return arguments


def text_of(view: LiveView, wide: int, rows: int, colour: bool = False) -> str:
    """One frame."""
    return to_text(view.tables(rows), wide, colour)


def live(view: LiveView, interval: float) -> None:
    """Frames on the terminal until the job ends or somebody leaves."""
    console = Console()
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as screen:
        while not view.is_over:
            if keys.pressed(max(interval, view.reading_s / READING_SHARE), "qQ"):
                return
            view.look()
            screen.update(Text.from_ansi(frame(view, console)), refresh=True)
    deliver(text_of(view, width(None), SCREEN_ROWS, colour_wanted()), None)
    print(f"The job has ended; rankscope report {view.watched.folder} shows what was recorded.")


def frame(view: LiveView, console: Console) -> str:
    """As many rows as the screen has room for."""
    wide, high = console.size
    text = text_of(view, wide, high, colour_wanted())
    over = len(text.splitlines()) - high + AROUND_ROWS
    for rows in FEWER if view.many else (max(1, high - max(0, over)),):
        if over > 0 and not view.rows:
            text = text_of(view, wide, rows, colour_wanted())
            over = len(text.splitlines()) - high + 1
    return fitting(text.splitlines(), high)


def fitting(lines: Sequence[str], high: int) -> str:
    return "\n".join(lines[:high])
