"""Tables and texts to the screen or to a file, for every command."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rankscope.model.tables import Table, Wrong
from rankscope.output.forms import FORMS
from rankscope.output.text import to_text
from rankscope.whole_file import write_whole

SCREEN_ROWS = 24  # of one table, where nothing else was asked for
FILE_WIDTH = 120
PROGRESS_FROM = 256  # files
BUDGET_S = 3.0  # for runs of a list that were not read before
RUN_HELP = "folder, name or number (@1: the newest) of the run, as rankscope runs lists them (default: the latest)"

PARALLEL_HELP = (
    "groups of ranks in place of those that are inferred, as in 'pp=0-3;pp=4-7;dp=0,4' (dp, pp, tp, ep, cp: data, "
    "pipeline, tensor, expert, context; ranks in the order of their places)"
)


def progress(what: str = "reading rank files", least: int = PROGRESS_FROM) -> Callable[[int, int], None]:
    """A line that counts files on a terminal; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        if total >= least:
            print(f"\r{what}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show


def summing() -> Callable[[int, int], None]:
    """The same of files with traces, each of which may take seconds."""
    return progress("summing traces", 2)


def add_form_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=["text", *FORMS], default="text", help="format of the tables (default: text)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of the screen")


def deliver_tables(tables: Sequence[Table], form: str, out: Path | None) -> None:
    """The tables in that form."""
    if form == "text":
        text = to_text(tables, width(out), colour=out is None and colour_wanted())
    else:
        text = FORMS[form](tables)
    deliver([text], out)


def width(out: Path | None) -> int:
    if out is None and (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return max(40, shutil.get_terminal_size().columns)
    return FILE_WIDTH


def colour_wanted() -> bool:
    """On a terminal that shows it, and where nobody has asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# What is written where a terminal has ASCII alone, letter by letter, so that columns stay where they are.
ASCII = str.maketrans("█▒─…→×÷–—−µ·≤≥²√Σ±“”‘’", "#+-~>x/---u.<>2vS~\"\"''")


def is_ascii() -> bool:
    """Whether the terminal is said to have ASCII alone: Python itself would write UTF-8 in the locale C."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    encoding = (sys.stdout.encoding or "utf-8").lower().replace("-", "")
    return locale in ("C", "POSIX") or encoding in ("ascii", "usascii", "ansix3.41968")


def writable(text: str) -> str:
    """The text in the letters that this terminal has; names in a run may hold others, which become escapes."""
    if is_ascii():
        return text.translate(ASCII).encode("ascii", "backslashreplace").decode("ascii")
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def deliver(texts: Iterable[str], out: Path | None) -> None:
    """To the screen, through a pager where it would run off a terminal, or to the file that was named."""
    if out is None:
        if sys.stdout.isatty() and isinstance(texts, Sequence):  # else it may be longer than memory
            _page("".join(writable(text) for text in texts))
            return
        try:
            for text in texts:
                print(writable(text), end="", flush=True)
        except BrokenPipeError:  # as in `rankscope report | head`; the exit code is the command's all the same
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    try:
        save(texts, out)
    except OSError as problem:
        raise Wrong(f"{out}: cannot be written: {problem.strerror}") from None


def _page(text: str) -> None:
    """By $PAGER, else less; straight where all fits, or where the pager is not there."""
    pager = os.environ.get("PAGER", "less -FRX")
    if text.count("\n") < shutil.get_terminal_size().lines or pager.strip() in ("", "cat"):
        print(text, end="", flush=True)
        return
    sys.stdout.flush()
    environment = {"LESS": "FRX", **os.environ}
    with subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env=environment) as started:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
        try:
            started.communicate(text.encode(errors="replace"))
        finally:
            signal.signal(signal.SIGINT, before)
    if started.returncode in (126, 127):  # of the shell: there is no such pager
        print(text, end="", flush=True)


def save_page(text: str, path: Path) -> None:
    """One HTML file, and where it is."""
    try:
        save([text], path)
    except OSError as problem:
        raise Wrong(f"{path}: cannot be written: {problem.strerror}") from None
    print(f"rankscope: {path}: {len(text) / 1e6:.1f} MB, open it in a browser", file=sys.stderr)


def save(texts: Iterable[str], path: Path) -> None:
    """Beside it first, then in its place, so that nobody sees half of it; straight to a pipe and the like."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            file.writelines(texts)
        return
    write_whole(path, (text.encode() for text in texts))
