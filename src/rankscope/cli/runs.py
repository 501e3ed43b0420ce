"""`rankscope runs`: lists the runs that there are."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from rankscope.api.runs import run_table
from rankscope.cli.printing import BUDGET_S, add_form_options, deliver_tables
from rankscope.model.tables import Wrong

HELP = "list the runs: when, what, ranks, step time, first finding"
ABOUT = """\
List the runs of a folder, newest first. Every command that takes a run takes its number (@1 is the newest), its name
(with or without the date), its folder, or `latest`."""
RUNS = Path("rankscope-runs")
MOST = 20


def run(argv: list[str]) -> int:
    """0: listed; 2: there is no such folder."""
    options = parser().parse_args(argv)
    if not options.folder.is_dir():
        print(
            f"rankscope: {options.folder}: no such folder: record a run with `rankscope run COMMAND`", file=sys.stderr
        )
        return 2
    try:
        table = run_table(options.folder, None if options.all else MOST, math.inf if options.read else BUDGET_S)
        deliver_tables([table], options.format, options.out)
    except Wrong as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope runs", description=ABOUT)
    arguments.add_argument("folder", nargs="?", type=Path, default=RUNS, help=f"holds the runs (default: {RUNS})")
    arguments.add_argument("--all", action="store_true", help=f"list all of them, not only the newest {MOST}")
    arguments.add_argument(
        "--read", action="store_true", help="also read runs that were not read before, however long it takes"
    )
    add_form_options(arguments)
    return arguments
