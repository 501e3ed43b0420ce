"""Tables to the screen or to a file, in the form that was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rankscope.api.forms import FORMS, to_text
from rankscope.cli.report import colour_wanted, width
from rankscope.cli.report import deliver as deliver_texts
from rankscope.model import Table


def add_form_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=["text", *FORMS], default="text", help="form of the tables (default: text)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the screen")


def deliver(tables: Sequence[Table], form: str, out: Path | None) -> None:
    """The tables in that form."""
    if form == "text":
        text = to_text(tables, width(out), colour=out is None and colour_wanted())
    else:
        text = FORMS[form](tables)
    deliver_texts([text], out)
