"""`rankscope report`: shows what was recorded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from rankscope.api.run import (
    ALIASES,
    KERNEL_NAMES,
    LOGS_UNASKED,
    LOGS_UNASKED_BYTES,
    QUESTIONS,
    Layout,
    NoRun,
    Run,
    Screen,
    Selection,
)
from rankscope.api.runs import study_screen
from rankscope.cli.printing import (
    BUDGET_S,
    PARALLEL_HELP,
    RUN_HELP,
    SCREEN_ROWS,
    colour_wanted,
    deliver,
    progress,
    save_page,
    summing,
    width,
)
from rankscope.model.tables import Table, Wrong
from rankscope.output.forms import FORMS
from rankscope.output.screen import to_screen
from rankscope.output.text import to_text

# ---------------------------------------------------------------- report
HELP = "show what was recorded"


def run(argv: list[str]) -> int:
    """0: all shown; 1: some files could not be read; 2: nothing could be shown."""
    options = parser().parse_args(argv)
    try:
        options.table = table_names(options.table or ())
        selection = selection_of(options)
        if (
            is_screen(options)
            and options.run is not None
            and (study := study_screen(options.run, BUDGET_S)) is not None
        ):
            deliver([screen_text(study, options)], options.out)
            return 0
        shown = {"progress": progress(), "summing": summing()}
        opened = Run(options.run, dask=options.dask, keep=not options.fresh, groups=options.groups, **shown)
        opened.prepare(events=wants_events(opened, options))
        if is_screen(options):
            deliver([first_screen(opened, selection, options)], options.out)
        elif options.html is not None:
            write_page(opened, selection, options)
        else:
            deliver(pieces(opened, selection, options), options.out)
    except (NoRun, Wrong) as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    return report_bad_files(opened)


def is_screen(options: argparse.Namespace) -> bool:
    """Whether nothing else was asked for than to see what matters."""
    has_choice = options.full or options.table or options.html is not None
    return not has_choice and options.format == "text" and options.layout == "native"


def first_screen(opened: Run, selection: Selection, options: argparse.Namespace) -> str:
    """At most 40 lines; `--full` has the tables."""
    if options.sort is not None or options.top is not None:
        raise Wrong("--sort and --top order and cut tables: add --table NAME or --full")
    return screen_text(opened.screen(selection, options.logs or opened.reads_logs), options)


def screen_text(screen: Screen, options: argparse.Namespace) -> str:
    return to_screen(screen, width(options.out), colour=options.out is None and colour_wanted())


def wants_events(opened: Run, options: argparse.Namespace) -> bool:
    """Whether a table that needs single events is asked for, or none by name and the logs are not too large."""
    if options.logs:
        return True
    if options.table or options.layout != "native":
        return any(QUESTIONS[name].reads_more_than_sums for name in options.table or ())
    return opened.is_small if options.html is not None else opened.reads_logs


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        "rankscope report",
        description="Show a run, finished or still running: one screen with what matters, or its tables.",
    )
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    arguments.add_argument(
        "--format", choices=["text", *FORMS], default="text", help="format of the tables (default: text)"
    )
    arguments.add_argument(
        "--layout",
        choices=["native", "mpitrace", "mpitrace-new", "nvprof", "iprof"],
        default="native",
        help="print as libmpitrace (its newer layout if that was loaded, or with mpitrace-new), nvprof (also with "
        "--format csv) or iprof does",
    )
    arguments.add_argument("--merged", action="store_true", help="--layout nvprof: one profile summed over the ranks")
    arguments.add_argument(
        "--names",
        choices=KERNEL_NAMES,
        default="short",
        help="kernel names: shortened but distinct (default), in full, or mangled as recorded",
    )
    arguments.add_argument("--rank", metavar="LIST", help="only these ranks, as in 0,4-7")
    arguments.add_argument("--top", type=int, metavar="N", help=f"rows of a table (text: {SCREEN_ROWS}; 0: all)")
    arguments.add_argument("--sort", metavar="COLUMN", help="sort by this column, descending (names as in CSV)")
    arguments.add_argument(
        "--table", action="append", metavar="NAME[,NAME]", help="only these tables: rankscope tables lists them"
    )
    arguments.add_argument("--full", action="store_true", help="all tables of the run that have data")
    arguments.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page with charts")
    arguments.add_argument(
        "--logs",
        action="store_true",
        help=f"read the logs of collectives even if the rank files exceed {LOGS_UNASKED_BYTES >> 30} GiB "
        f"(--html: or belong to more than {LOGS_UNASKED} processes)",
    )
    arguments.add_argument(
        "--groups",
        metavar="FILE|KIND=RANKS;…",
        help="table places: a file of hosts that belong together, one 'host,group' per line (default: the run's "
        f"groups.csv); or {PARALLEL_HELP}",
    )
    arguments.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read the rank files of large runs, and those that `run --local` left on its nodes, and sum traces, "
        "on the Dask cluster of this scheduler, or 'local' (docs/howto/many-ranks.md)",
    )
    arguments.add_argument("--fresh", action="store_true", help="large runs: do not cache tables in the run's folder")
    arguments.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of the screen")
    return arguments


def table_names(texts: Sequence[str]) -> list[str]:
    """Names of tables with commas between them; of one that there is not, the nearest."""
    names = [ALIASES.get(name, name) for text in texts for name in text.split(",") if name]
    for name in names:
        if name not in QUESTIONS:
            like = get_close_matches(name, (*QUESTIONS, *ALIASES), 3, 0.0)
            raise Wrong(f"--table {name}: no such table; nearest: {', '.join(like)} (rankscope tables lists all)")
    return names


def selection_of(options: argparse.Namespace) -> Selection:
    """The typed form of --rank, --top and --sort."""
    top = options.top if options.top is not None else SCREEN_ROWS if options.format == "text" else 0
    if top < 0:
        raise Wrong(f"--top {top}: give a number of rows, or 0 for all")
    return Selection(ranks_of(options.rank) if options.rank is not None else None, top or None, options.sort)


def ranks_of(text: str) -> frozenset[int]:
    """The ranks of a list such as 0,4-7."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
            raise Wrong(f"--rank {text}: give ranks as in 0,4-7")
        ranks.update(range(int(first), int(last or first) + 1))
    return frozenset(ranks)


def pieces(opened: Run, selection: Selection, options: argparse.Namespace) -> Iterable[str]:
    """The report in one piece, or in many where it may be longer than memory."""
    if options.table == ["events"] and options.format == "csv" and options.layout == "native":
        from rankscope.api.export import EVENTS_COLUMNS, events_csv

        check_sort([Table("events", "", EVENTS_COLUMNS, [])], selection)
        return events_csv(opened, selection)
    return [rendered(opened, selection, options)]


def rendered(opened: Run, selection: Selection, options: argparse.Namespace) -> str:
    """The report in the wanted form."""
    if options.layout != "native":
        layout = Layout(options.layout, options.names, options.merged, options.format == "csv")
        return opened.layout(layout, selection)
    opened.ranks_shown(selection)
    tables = opened.answers(options.table or opened.default_tables(), selection, options.names)
    check_sort(tables, selection)
    if options.format != "text":
        return FORMS[options.format](tables)
    wanted = [table for table in tables if table.rows or table.warnings or options.table]
    return to_text(wanted, width(options.out), colour=options.out is None and colour_wanted())


def write_page(opened: Run, selection: Selection, options: argparse.Namespace) -> None:
    """One HTML file that shows the run: all its ranks, or those of --rank."""
    if options.full or options.table or options.out or options.format != "text" or options.layout != "native":
        raise Wrong("--html cannot be combined with --full, --table, --format, --layout or --out")
    from rankscope.api.pages import page_text

    save_page(page_text(opened, selection, options.names, options.logs), options.html)


def check_sort(tables: Sequence[Table], selection: Selection) -> None:
    known = {column.name for table in tables for column in table.columns}
    if selection.sort is not None and selection.sort not in known:
        raise Wrong(f"--sort {selection.sort}: no such column; choose one of {', '.join(sorted(known))}")


def report_bad_files(opened: Run) -> int:
    for text in opened.bad_files:
        print(f"rankscope: left out: {text}", file=sys.stderr)
    return 1 if opened.bad_files else 0
