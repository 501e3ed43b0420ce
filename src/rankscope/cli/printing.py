"""Tables and texts to the screen or to a file, for every command."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rankscope.model import Table, Wrong
from rankscope.output.forms import FORMS
from rankscope.output.text import to_text
from rankscope.whole_file import write_whole

SCREEN_ROWS = 24  # of one table, where nothing else was asked for
FILE_WIDTH = 120
PROGRESS_FROM = 256  # files


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
    parser.add_argument("--format", choices=["text", *FORMS], default="text", help="form of the tables (default: text)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the screen")


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
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def deliver(texts: Iterable[str], out: Path | None) -> None:
    """To the screen, or to the file that was named."""
    if out is None:
        # names in a run may hold letters that this terminal's encoding has not
        encoding = sys.stdout.encoding or "utf-8"
        for text in texts:
            print(text.encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)
        return
    try:
        save(texts, out)
    except OSError as problem:
        raise Wrong(f"{out}: cannot be written: {problem.strerror}") from None


def save(texts: Iterable[str], path: Path) -> None:
    """Beside it first, then in its place, so that nobody sees half of it; straight to a pipe and the like."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            file.writelines(texts)
        return
    write_whole(path, (text.encode() for text in texts))
