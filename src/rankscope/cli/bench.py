"""`rankscope bench`: one cell of a study, now, on this machine."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rankscope.cli.printing import add_form_options, deliver_tables
from rankscope.cli.study_options import add_launch_options, count, parsed, study_request, values
from rankscope.model.tables import Table
from rankscope.output.cells import printable
from rankscope.studies.builtin import STUDIES
from rankscope.studies.errors import BadStudy
from rankscope.studies.ledger import Ledger
from rankscope.studies.plan import Outcome
from rankscope.studies.run_study import Silent, run_study

HELP = "run one cell of a study now"
ABOUT = """\
Run one cell of a study now and show its tables: the first value of each axis, or the one that --only names. Nothing is
kept, unless --keep names a folder."""
EXIT_CODES = "exit code: 0 done; 1 the cell failed; 2 it cannot be run as requested; 130 stopped"
DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 130


def run(argv: list[str]) -> int:
    try:
        return follow(argv)
    except BadStudy as problem:
        print(f"rankscope bench: {printable(str(problem))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def follow(argv: list[str]) -> int:
    options, study, launch = parsed(argv, parser())
    wanted = study_request(study, launch, options, [options.ranks], 1)
    axes = study.axes(wanted.settings)
    wanted.only = {axis: dict(options.only).get(axis, list(choices)[:1])[:1] for axis, choices in axes.items()}
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        outcomes = run_study(wanted, Ledger(options.keep or Path(folder)), Silent())
        return shown(outcomes[0], study.tables(outcomes, wanted.settings) if outcomes[0].done else [], options)


def shown(outcome: Outcome, tables: list[Table], options: argparse.Namespace) -> int:
    if not outcome.done:
        print(
            f"rankscope bench: {printable(f'{outcome.cell.label}: {outcome.state}: {outcome.reason}')}", file=sys.stderr
        )
        return FAILED
    deliver_tables(tables, options.format, options.out)
    return DONE


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope bench", description=ABOUT, epilog=EXIT_CODES)
    arguments.add_argument(
        "study", metavar="NAME|FILE.toml", help=f"one of {', '.join(STUDIES)}, or a file of your own"
    )
    arguments.add_argument("--ranks", type=count, default=2, metavar="N", help="how many (default: 2)")
    arguments.add_argument(
        "--only", type=values, action="append", default=[], metavar="AXIS=X", help="which value of an axis"
    )
    arguments.add_argument("--keep", type=Path, metavar="DIR", help="keep the cell there")
    add_form_options(arguments)
    add_launch_options(arguments)
    return arguments
