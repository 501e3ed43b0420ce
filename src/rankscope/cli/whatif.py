"""`rankscope whatif`: predicts the step time without one of the job's problems."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rankscope.api.run import NoRun
from rankscope.api.whatif import BALANCES, Asked, ask_whatif
from rankscope.cli.printing import PARALLEL_HELP, RUN_HELP, add_form_options, deliver_tables
from rankscope.model.tables import Wrong
from rankscope.output.cells import printable

HELP = "predict the step time without one of the job's problems"
ABOUT = """\
Replay the steps of a run from its record (each rank's time between communications, and who waits for whom) with
something changed, and predict the step time and the saving, with intervals. The replay's error on the recorded
steps is printed first; above 3 % nothing is predicted. Without options, the obvious changes are tried and ranked.
Several options are tried one by one, then together. Last comes the critical path: which rank and part limits a step."""
EXIT_CODES = "exit code: 0 answered; 1 the replay does not match the recorded steps; 2 no run, or nothing to replay"
ANSWERED, REFUSED, BAD_INPUT = 0, 1, 2


def run(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    request = Asked(options.without, options.balance, options.bandwidth, options.overlap_all, options.ideal)
    try:
        answer = ask_whatif(options.run, request, options.groups)
        deliver_tables(answer.tables, options.format, options.out)
    except (NoRun, Wrong) as problem:
        return fail(str(problem), BAD_INPUT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ANSWERED
    return fail(answer.refusal, REFUSED) if answer.refusal else ANSWERED


def fail(text: str, code: int) -> int:
    print(f"rankscope: {printable(text)}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope whatif", description=ABOUT, epilog=EXIT_CODES)
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    arguments.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="WHAT",
        help="rank=7 (also rank=3,5): as fast as its peers, operation by operation; stage=2: with no "
        "more work than the median stage; cause=data, gc, checkpoint, … or preemption: none of it on any rank",
    )
    arguments.add_argument(
        "--balance",
        action="append",
        choices=list(BALANCES),
        default=[],
        help="stage: share the work evenly between pipeline stages; micro-batches: all of a step take equally long "
        "(tables of operations)",
    )
    arguments.add_argument("--bandwidth", default="", metavar="xN", help="transfers N times as fast, as in x2")
    arguments.add_argument(
        "--overlap-all", action="store_true", help="hide transfers behind compute, as far as there is enough of it"
    )
    arguments.add_argument(
        "--ideal",
        action="store_true",
        help="no rank is ever late: all are as fast as the median rank (of their stage), and stages share the same "
        "work evenly",
    )
    arguments.add_argument("--groups", metavar="KIND=RANKS;…", help=PARALLEL_HELP)
    add_form_options(arguments)
    return arguments
