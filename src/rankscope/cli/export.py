"""`rankscope export`: writes a run for other tools."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rankscope.api.export import FOLDERS, FORMS, export
from rankscope.api.run import NoRun, Run, Selection
from rankscope.cli.printing import RUN_HELP, progress, summing
from rankscope.cli.report import report_bad_files
from rankscope.model.tables import Wrong
from rankscope.output.cells import printable

HELP = "export a run to other tools: timeline, tables, metrics"
ABOUT = """\
Write a run for other tools. The timeline has a track for every host, rank, thread, stream and communicator, all ranks
on one corrected clock, and arrows between the ranks of each collective."""
EPILOG = """\
exit code: 0 written, 1 written without files that could not be read, 2 nothing written"""
FORM_HELP = {
    "perfetto": "timeline in Perfetto's format, for ui.perfetto.dev (default)",
    "chrome": "timeline as JSON, for Perfetto and Chrome's tracing pages",
    "parquet": "all tables as Parquet, in a folder",
    "csv": "all tables as CSV, in a folder",
    "json": "all tables as JSON, in a folder",
    "prometheus": "metrics in Prometheus' text format",
}
ENDINGS = {"perfetto": ".perfetto-trace", "chrome": ".json", "prometheus": ".prom"}


def run(argv: list[str]) -> int:
    """0: written; 1: written, but some files could not be read; 2: nothing written."""
    options = parser().parse_args(argv)
    form = options.form or "perfetto"
    try:
        opened = Run(options.run, progress=progress(), summing=summing())
        out = options.out or Path(opened.folder.resolve().name + ENDINGS.get(form, f"-{form}"))
        opened.ranks_shown(Selection())
        said = export(opened, form, out, counter())
    except (NoRun, Wrong) as problem:
        print(f"rankscope: {printable(str(problem))}", file=sys.stderr)
        return 2
    print(f"{said} in {printable(str(out))}{'/' if form in FOLDERS else ''}")
    return report_bad_files(opened)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope export", description=ABOUT, epilog=EPILOG)
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    forms = arguments.add_mutually_exclusive_group()
    for form in FORMS:
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=FORM_HELP[form])
    arguments.add_argument(
        "--out", type=Path, metavar="FILE", help="file or folder to write (default: named after the run, here)"
    )
    return arguments


def counter() -> Callable[[int], None]:
    """A line that counts events on a terminal."""
    if not sys.stderr.isatty():
        return lambda events: None
    return lambda events: print(f"\r{events:,} slices", end="", file=sys.stderr, flush=True)
