"""`rankscope history`: shows how the runs of a folder differ over time."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankscope.api.history import BY, SERIES_BY, NoRun, run_history
from rankscope.cli.printing import add_form_options, deliver_tables, progress, save_page
from rankscope.model.tables import Wrong
from rankscope.output.cells import printable

HELP = "show how runs differ over time: regressions, slow hosts"
ABOUT = """\
Show the runs of a folder over time: step time, exposed communication, start-up and goodput of each series of runs
(one project, command and number of ranks); from which run on a series is worse or better, by how much and how
certain that is; and hosts that are repeatedly slow. Each run is summarised once; the summaries are kept as Parquet in
.rankscope-history beside the runs, and stay when a run is deleted."""
EXIT_CODES = "exit code: 0 shown; 1 with --fail: there is an ongoing regression; 2 there is no run"
SHOWN, REGRESSION, NO_RUN = 0, 1, 2


def run(argv: list[str]) -> int:
    """0: shown; 1: a regression goes on and --fail was given; 2: there is no run."""
    options = parser().parse_args(argv)
    try:
        if options.html is not None and (options.out or options.format != "text" or options.by):
            raise Wrong("--html cannot be combined with --format, --by or --out")
        if options.last is not None and options.last < 1:
            raise Wrong("--last: give a number of runs, 1 or more")
        series = fields(options.series)
        history = run_history(
            options.source,
            only=options.only,
            series=series,
            last=options.last,
            again=options.again,
            report=progress("summarising runs", 2),
        )
        if options.html is not None:
            save_page(history.page_text(), options.html)
        else:
            is_screen = options.format == "text" and not options.all
            deliver_tables((history.screen if is_screen else history.tables)(options.by), options.format, options.out)
    except (NoRun, Wrong) as problem:
        print(f"rankscope: {printable(str(problem))}", file=sys.stderr)
        return NO_RUN
    return REGRESSION if options.fail and history.regressed else SHOWN


def fields(text: str) -> tuple[str, ...]:
    """What the runs of a series have in common."""
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [name for name in names if name not in BY]
    if unknown or not names:
        raise Wrong(f"--series {text}: choose some of {', '.join(BY)}, separated by commas")
    return names


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope history", description=ABOUT, epilog=EXIT_CODES)
    arguments.add_argument(
        "source", nargs="*", type=Path, metavar="FOLDER|RUN", help="folders of runs, or runs (default: rankscope-runs)"
    )
    arguments.add_argument(
        "--by",
        action="append",
        default=[],
        choices=BY,
        metavar="FIELD",
        help=f"also show the figures by this, may be repeated: {', '.join(BY)}",
    )
    arguments.add_argument(
        "--series",
        default=",".join(SERIES_BY),
        metavar="FIELDS",
        help=f"what the runs of a series have in common (default: {','.join(SERIES_BY)}); others: "
        f"{', '.join(name for name in BY if name not in SERIES_BY)}",
    )
    arguments.add_argument(
        "--only", default="", metavar="REGEX", help="only runs whose name, command, project or labels match"
    )
    arguments.add_argument("--last", type=int, metavar="N", help="only the newest N runs")
    arguments.add_argument(
        "--all", action="store_true", help="all rows and columns of each table, not only what matters most"
    )
    arguments.add_argument("--again", action="store_true", help="summarise every run again")
    arguments.add_argument("--fail", action="store_true", help="exit with 1 on an ongoing regression, for scripts")
    arguments.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page with charts")
    add_form_options(arguments)
    return arguments
