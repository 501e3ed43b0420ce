"""Tables to the screen or to a file, in the form that was asked for."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.model import Table
from rankscope.report.csv import to_csv
from rankscope.report.json import to_json
from rankscope.report.markdown import to_markdown
from rankscope.report.text import to_text

FORMS: dict[str, Callable[[Sequence[Table]], str]] = {"csv": to_csv, "json": to_json, "markdown": to_markdown}
FILE_WIDTH = 120


def add_form_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=["text", *FORMS], default="text", help="form of the tables (default: text)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the screen")


def deliver(tables: Sequence[Table], form: str, out: Path | None) -> None:
    """Writes beside and renames, so that a file is whole or the old one."""
    text = (
        FORMS[form](tables) if form != "text" else to_text(tables, width(out), colour=out is None and colour_wanted())
    )
    if out is None:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)
        return
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(out)


def width(out: Path | None) -> int:
    if out is None and (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return max(40, shutil.get_terminal_size().columns)
    return FILE_WIDTH


def colour_wanted() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
