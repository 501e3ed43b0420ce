"""`rankscope goodput`: how much of a job's wall time, over all its restarts, went into steps that count."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankscope.api.lineage import NoRun, lineage_goodput
from rankscope.cli.printing import RUN_HELP, add_form_options, deliver_tables
from rankscope.model.tables import Wrong

HELP = "account for the wall time of a job over all its restarts"
ABOUT = """\
Account for the wall time of a job from its first start to its last end: useful steps, steps lost since the last
checkpoint, checkpoints, start-up, compilation, hangs, restarts. Runs with the same --lineage, the same batch job, or
the same --out and command are one job."""


def run(argv: list[str]) -> int:
    """0: shown; 2: there is no such run."""
    options = parser().parse_args(argv)
    try:
        deliver_tables([lineage_goodput(options.run, options.alone)], options.format, options.out)
    except (NoRun, Wrong) as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    return 0


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope goodput", description=ABOUT)
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    arguments.add_argument("--alone", action="store_true", help="only this run, not the others of its lineage")
    add_form_options(arguments)
    return arguments
