"""`rankscope compare`: compares runs: what changed, and how certain that is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rankscope.api.compare import BadLimit, Compared, CompareOptions, compared
from rankscope.api.run import NoRun, Selection
from rankscope.cli.printing import colour_wanted, deliver, save_page, width
from rankscope.model.tables import Wrong
from rankscope.output.cells import printable
from rankscope.output.forms import FORMS
from rankscope.output.text import to_text

HELP = "compare runs: what changed, and how certain that is"
ABOUT = """\
Show what changed from the first side to each of the others: by step and its parts, phase, layer, operation, kernel and
range; with medians, 95 % intervals and a verdict: faster, slower, equal or cannot tell."""
SIDE = """\
a run's folder; a folder of runs; a pattern in quotes, such as 'runs/new-*'; or several separated by commas. A side
holds repeats of the same job, at least 4 to be certain. NAME= in front names the side"""
EXIT_CODES = """\
exit code: 0 compared, and no --fail-if limit is exceeded; 1 one is; 2 one is undecided, or nothing could be
compared"""
ROWS = 24
COMPARED, REGRESSION, CANNOT_TELL = 0, 1, 2


def run(argv: list[str]) -> int:
    """0: within the limits; 1: a regression; 2: cannot be told."""
    options = parser().parse_args(argv)
    try:
        if options.html is not None and (options.out or options.format != "text" or options.top is not None):
            raise Wrong("--html cannot be combined with --format, --top or --out")
        chosen = CompareOptions(share("--equal", options.equal), share("--run-to-run", options.run_to_run))
        comparison = compared(options.sides, chosen, options.fail_if, progress())
        if options.list_metrics:
            deliver((f"{printable(name)}\n" for name in comparison.metrics), options.out)
            return COMPARED
        if options.html is None:
            deliver([rendered(comparison, options)], options.out)
        else:
            save_page(comparison.page_text(), options.html)
    except (NoRun, Wrong, BadLimit) as problem:
        print(f"rankscope: {printable(str(problem))}", file=sys.stderr)
        return CANNOT_TELL
    return comparison.exit_code


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope compare", description=ABOUT, epilog=EXIT_CODES)
    arguments.add_argument("sides", nargs="+", metavar="SIDE", help=SIDE)
    arguments.add_argument(
        "--equal", default="2%", metavar="SHARE", help="changes up to this count as equal (default: 2%%)"
    )
    arguments.add_argument(
        "--run-to-run",
        default="5%",
        metavar="SHARE",
        help="with too few repeats: assumed run-to-run noise (default: 5%%)",
    )
    arguments.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="LIMIT",
        help="exit with 1 if this is certain, as in 'step_p50 > +5%%'; may be repeated",
    )
    arguments.add_argument("--list-metrics", action="store_true", help="list the metrics of these runs, and exit")
    arguments.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page with charts")
    arguments.add_argument(
        "--format", choices=["text", *FORMS], default="text", help="format of the tables (default: text)"
    )
    arguments.add_argument("--top", type=int, metavar="N", help=f"rows of a table (text and markdown: {ROWS}; 0: all)")
    arguments.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of the screen")
    return arguments


def share(option: str, text: str) -> float:
    """2% or 0.02."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise Wrong(f"{option} {text}: give a share such as 2%")
    return value


def rendered(comparison: Compared, options: argparse.Namespace) -> str:
    """The tables in the wanted form."""
    few = options.format in ("text", "markdown")
    top = options.top if options.top is not None else ROWS if few else 0
    tables = comparison.tables(Selection(top=top or None))
    if options.format != "text":
        return FORMS[options.format](tables)
    shown = [table for table in tables if table.rows or table.warnings or table.name == "changes"]
    return to_text(shown, width(options.out), colour=options.out is None and colour_wanted())


def progress() -> Callable[[int, int], None]:
    """A line that counts runs on a terminal."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        print(f"\rreading runs: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show
