"""`rankscope report`: shows what was recorded."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rankscope.analyse.balance import balance
from rankscope.analyse.causes import causes
from rankscope.analyse.checks import checks
from rankscope.analyse.clocks import clocks
from rankscope.analyse.collectives import collectives
from rankscope.analyse.communication import communication
from rankscope.analyse.communicators import communicators
from rankscope.analyse.coverage import coverage
from rankscope.analyse.cuda_api import cuda_api
from rankscope.analyse.events import COLUMNS as EVENT_COLUMNS
from rankscope.analyse.events import events, events_sql
from rankscope.analyse.figures import figures
from rankscope.analyse.findings import findings
from rankscope.analyse.gpu import gpu
from rankscope.analyse.gpu_checks import gpu_checks
from rankscope.analyse.gpu_copies import gpu_copies
from rankscope.analyse.gpu_gaps import gpu_gaps
from rankscope.analyse.gpu_idle import gpu_idle
from rankscope.analyse.gpu_kinds import gpu_kinds
from rankscope.analyse.gpu_memory import gpu_memory
from rankscope.analyse.gpu_ranks import gpu_ranks
from rankscope.analyse.gpu_spread import gpu_spread
from rankscope.analyse.gpu_time import gpu_time
from rankscope.analyse.hosts import hosts
from rankscope.analyse.iprof import iprof_parts
from rankscope.analyse.kernels import kernels
from rankscope.analyse.matrix import matrix
from rankscope.analyse.mpitrace import (
    is_new_layout,
    other_jobs,
    summary_tasks,
    task_routines,
    task_sizes,
    tasks,
    told_extremes,
)
from rankscope.analyse.names import FORMS as NAME_FORMS
from rankscope.analyse.names import kernel_names, renamed
from rankscope.analyse.nccl import nccl
from rankscope.analyse.nvprof import nvprof_processes, nvprof_rows, nvprof_warnings
from rankscope.analyse.nvtx_ranges import nvtx_ranges
from rankscope.analyse.overhead import overhead
from rankscope.analyse.overview import overview
from rankscope.analyse.phase_calls import phase_calls
from rankscope.analyse.phase_ranks import phase_ranks
from rankscope.analyse.phases import phases
from rankscope.analyse.ranks import ranks
from rankscope.analyse.routines import routines
from rankscope.analyse.second_hand import second_hand
from rankscope.analyse.sections import Wanted, page_of
from rankscope.analyse.selection import Selection
from rankscope.analyse.sizes import sizes
from rankscope.analyse.step_parts import step_parts
from rankscope.analyse.steps import steps
from rankscope.analyse.tallies import tallies
from rankscope.analyse.trace import trace
from rankscope.analyse.wait_map import wait_map
from rankscope.analyse.wait_matrix import wait_matrix
from rankscope.analyse.waiting import waiting
from rankscope.analyse.waiting_parts import waiting_parts
from rankscope.analyse.words import ranges
from rankscope.cli.whole_file import save
from rankscope.model import Table, Tables
from rankscope.readers.rankfile import read_rank_file
from rankscope.readers.trace_events import trace_events
from rankscope.report.csv import csv_pieces, to_csv
from rankscope.report.html import to_html
from rankscope.report.iprof import to_iprof
from rankscope.report.json import to_json
from rankscope.report.markdown import to_markdown
from rankscope.report.mpitrace import to_mpitrace
from rankscope.report.nvprof import to_nvprof, to_nvprof_csv
from rankscope.report.text import to_text
from rankscope.store.folder import NoRun, find_run
from rankscope.store.run import Run, open_run

HELP = "show what was recorded"

# They need the single events, which are read only where one of these is asked for.
EVENT_QUESTIONS: dict[str, Callable[[Tables, Selection], Table]] = {
    "gpu_time": gpu_time,
    "gpu_spread": gpu_spread,
    "gpu_kinds": gpu_kinds,
    "kernels": kernels,
    "gpu_idle": gpu_idle,
    "events": events,
}
# They need the log of collectives: read where one of these is asked for, and unasked in runs of a few ranks.
LOG_QUESTIONS: dict[str, Callable[[Tables, Selection], Table]] = {
    "findings": findings,
    "causes": causes,
    "steps": steps,
    "step_parts": step_parts,
    "phases": phases,
    "phase_ranks": phase_ranks,
    "collectives": collectives,
    "waiting": waiting,
    "waiting_parts": waiting_parts,
    "clocks": clocks,
    "wait_map": wait_map,
    "wait_matrix": wait_matrix,
}
QUESTIONS: dict[str, Callable[[Tables, Selection], Table]] = {
    "findings": findings,
    "overview": overview,
    "coverage": coverage,
    "checks": checks,
    "routines": routines,
    "sizes": sizes,
    "communicators": communicators,
    "communication": communication,
    "balance": balance,
    **LOG_QUESTIONS,
    "phase_calls": phase_calls,
    "hosts": hosts,
    "ranks": ranks,
    "second_hand": second_hand,
    "matrix": matrix,
    "nccl": nccl,
    "gpu": gpu,
    "gpu_ranks": gpu_ranks,
    "gpu_gaps": gpu_gaps,
    "gpu_copies": gpu_copies,
    "gpu_memory": gpu_memory,
    "cuda_api": cuda_api,
    "gpu_checks": gpu_checks,
    "nvtx_ranges": nvtx_ranges,
    "tallies": tallies,
    "figures": figures,
    "trace": trace,
    "overhead": overhead,
    **EVENT_QUESTIONS,
}
# So wide, so long or so seldom of interest that they are shown only where they are asked for.
ASKED_FOR = ("events", "hosts", "wait_map", "wait_matrix")
# Of these a recorder keeps the sums, so that they need no events.
SUMMED = ("gpu_time", "gpu_spread")
FORMS: dict[str, Callable[[Sequence[Table]], str]] = {"csv": to_csv, "json": to_json, "markdown": to_markdown}
SCREEN_ROWS = 24  # of one table, where nothing else was asked for
FILE_WIDTH = 120
PROGRESS_FROM = 256  # files
LOGS_UNASKED = 128  # rank files whose logs are read without being asked for: some 16,000 collectives each


class Wrong(Exception):
    """What was asked for cannot be done, in one line."""


def run(argv: list[str]) -> int:
    """0: all shown; 1: some files could not be read; 2: nothing could be shown."""
    options = parser().parse_args(argv)
    try:
        selection = selection_of(options)
        wanted = wants_events(options)
        read = partial(read_rank_file, events=wanted)
        opened = open_run(options.run, read, events=wanted, progress=progress(), read_trace=trace_events)
        if options.html is not None:
            write_page(opened, selection, options, wanted)
        else:
            deliver(pieces(opened, selection, options), options.out)
    except (NoRun, Wrong) as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # as in `rankscope report | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return told(opened)


def wants_events(options: argparse.Namespace) -> bool:
    """Whether a table that needs single events is asked for, or none by name and the run is small."""
    if options.logs:
        return True
    if options.table or options.layout != "native":
        return not (EVENT_QUESTIONS | LOG_QUESTIONS).keys().isdisjoint(options.table or ())
    return len(list(find_run(options.run).glob("ranks/*/*.rank"))) <= LOGS_UNASKED


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "rankscope report", description="Show what was recorded of a run, also while it runs."
    )
    made.add_argument("run", nargs="?", type=Path, metavar="RUN", help="folder of the run (default: the latest)")
    made.add_argument("--format", choices=["text", *FORMS], default="text", help="form of the tables (default: text)")
    made.add_argument(
        "--layout",
        choices=["native", "mpitrace", "mpitrace-new", "nvprof", "iprof"],
        default="native",
        help="as libmpitrace (its newer layout where that was loaded, or with mpitrace-new), nvprof (also with "
        "--format csv) or iprof prints",
    )
    made.add_argument("--merged", action="store_true", help="--layout nvprof: one profile that adds up the ranks")
    made.add_argument(
        "--names",
        choices=NAME_FORMS,
        default="short",
        help="kernels: as short as they stay distinct (default), in full, or mangled as recorded",
    )
    made.add_argument("--rank", metavar="LIST", help="only these ranks, as in 0,4-7")
    made.add_argument("--top", type=int, metavar="N", help=f"rows of a table (text: {SCREEN_ROWS}; 0: all)")
    made.add_argument("--sort", metavar="COLUMN", help="order by this column, largest first (names as in CSV)")
    made.add_argument("--table", action="append", choices=list(QUESTIONS), metavar="NAME", help=table_help())
    made.add_argument("--html", type=Path, metavar="FILE", help="write one page with pictures, to open in a browser")
    made.add_argument(
        "--logs", action="store_true", help=f"read the logs of collectives also of more than {LOGS_UNASKED} processes"
    )
    made.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the screen")
    return made


def table_help() -> str:
    return f"only this table, may be repeated: {', '.join(QUESTIONS)}"


def selection_of(options: argparse.Namespace) -> Selection:
    """The typed form of --rank, --top and --sort."""
    top = options.top if options.top is not None else SCREEN_ROWS if options.format == "text" else 0
    if top < 0:
        raise Wrong(f"--top {top}: give a number of rows, or 0 for all")
    return Selection(ranks_of(options.rank) if options.rank is not None else None, top or None, options.sort)


def ranks_of(text: str) -> frozenset[int]:
    """The ranks of a list such as 0,4-7."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 9 or len(last) > 9:
            raise Wrong(f"--rank {text}: give ranks as in 0,4-7")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def pieces(opened: Run, selection: Selection, options: argparse.Namespace) -> Iterable[str]:
    """The report in one piece, or in many where it may be longer than memory."""
    if options.table == ["events"] and options.format == "csv" and options.layout == "native":
        ranks_shown(opened, selection)
        check_sort([Table("events", "", EVENT_COLUMNS, [])], selection)
        return csv_pieces(EVENT_COLUMNS, opened.batches(events_sql(selection)))
    return [rendered(opened, selection, options)]


def rendered(opened: Run, selection: Selection, options: argparse.Namespace) -> str:
    """The report in the wanted form."""
    shown = ranks_shown(opened, selection)
    if options.layout.startswith("mpitrace"):
        return as_mpitrace(opened, selection, shown, new=options.layout == "mpitrace-new")
    # in another tool's layout its own files come out as they went in
    called = kernel_names(opened, options.names, loaded=options.layout == "native")
    if options.layout == "iprof":
        return to_iprof([renamed(part, called) for part in iprof_parts(opened, selection)])
    if options.layout == "nvprof":
        form = to_nvprof_csv if options.format == "csv" else to_nvprof
        of_whom = (opened, selection, options.merged)
        rows = renamed(nvprof_rows(*of_whom), called)
        return form(nvprof_processes(*of_whom), rows, nvprof_warnings(*of_whom))
    names = options.table or default_tables(opened)
    tables = [renamed(QUESTIONS[name](opened, selection), called) for name in names]
    check_sort(tables, selection)
    if options.format != "text":
        return FORMS[options.format](tables)
    wanted = [table for table in tables if table.rows or table.warnings or options.table]
    return to_text(wanted, width(options.out), colour=options.out is None and colour_wanted())


def write_page(opened: Run, selection: Selection, options: argparse.Namespace, events: bool) -> None:
    """One HTML file that shows the run: all its ranks, or those of --rank."""
    if options.table or options.out or options.format != "text" or options.layout != "native":
        raise Wrong("--html: goes without --table, --format, --layout and --out")
    ranks_shown(opened, selection)
    called, chosen = kernel_names(opened, options.names), Selection(selection.ranks)
    more = {name: partial(asked, opened, name, chosen, called) for name in default_tables(opened)}
    notes = (
        [] if events else [f"More than {LOGS_UNASKED} processes: without the logs of collectives. --logs reads them."]
    )
    text = to_html(page_of(opened, opened.folder.resolve().name, Wanted(chosen, called, more, notes)))
    try:
        save(text, options.html)
    except OSError as problem:
        raise Wrong(f"{options.html}: cannot be written: {problem.strerror}") from None
    print(f"rankscope: {options.html}: {len(text) / 1e6:.1f} MB, open it in a browser", file=sys.stderr)


def asked(opened: Run, name: str, selection: Selection, called: Mapping[str, str]) -> Table:
    return renamed(QUESTIONS[name](opened, selection), called)


def default_tables(opened: Run) -> list[str]:
    """All but those that need events or sums of GPUs where there are none."""
    shown = (set(QUESTIONS) if has_activities(opened) else set(QUESTIONS) - set(EVENT_QUESTIONS)) - set(ASKED_FOR)
    if opened.query("SELECT 1 FROM figures WHERE series LIKE 'GPU %' AND name = 'first to last' LIMIT 1"):
        shown.update(SUMMED)
    return [name for name in QUESTIONS if name in shown]


def has_activities(opened: Run) -> bool:
    """Whether there are single events other than the log of collectives."""
    return bool(opened.query("SELECT 1 FROM events WHERE layer NOT IN ('mpi', 'nccl', 'gloo') LIMIT 1"))


def as_mpitrace(opened: Tables, selection: Selection, shown: Sequence[int], new: bool) -> str:
    """The profiles of the ranks that have one, of every job that was loaded."""
    parts = [mpitrace_job(opened, selection, shown, new, "")]
    for job in other_jobs(opened):
        present = [int(str(row[0])) for row in tasks(opened, job).rows]
        wanted = [rank for rank in present if selection.ranks is None or rank in selection.ranks]
        parts.append(mpitrace_job(opened, selection, wanted, new, job))
    return "".join(parts)


def mpitrace_job(opened: Tables, selection: Selection, shown: Sequence[int], new: bool, job: str) -> str:
    routines, sizes = task_routines(opened, selection, job), task_sizes(opened, selection, job)
    summary, told = summary_tasks(opened, job), told_extremes(opened, job)
    return to_mpitrace(tasks(opened, job), routines, sizes, shown, summary, told, new or is_new_layout(opened, job))


def ranks_shown(opened: Run, selection: Selection) -> list[int]:
    present = [row[0] for row in opened.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank")]
    if not present and not opened.query("SELECT 1 FROM ranks LIMIT 1"):
        raise Wrong(f"{opened.folder}: none of its files could be read: {opened.bad_files[0]}")
    absent = (selection.ranks or frozenset()) - set(present)
    if absent:
        raise Wrong(f"--rank: no rank {ranges(absent)} in this run, which has {ranges(present)}")
    return [rank for rank in present if selection.ranks is None or rank in selection.ranks]


def check_sort(tables: Sequence[Table], selection: Selection) -> None:
    known = {column.name for table in tables for column in table.columns}
    if selection.sort is not None and selection.sort not in known:
        raise Wrong(f"--sort {selection.sort}: no such column; choose one of {', '.join(sorted(known))}")


def width(out: Path | None) -> int:
    if out is None and (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return max(40, shutil.get_terminal_size().columns)
    return FILE_WIDTH


def colour_wanted() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def deliver(texts: Iterable[str], out: Path | None) -> None:
    """To the screen, or to the file that was named."""
    if out is None:
        # names in a run may hold letters that this terminal's encoding has not
        encoding = sys.stdout.encoding or "utf-8"
        for text in texts:
            print(text.encode(encoding, "backslashreplace").decode(encoding), end="", flush=True)
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            file.writelines(texts)
    except OSError as problem:
        raise Wrong(f"{out}: cannot be written: {problem.strerror}") from None


def told(opened: Run) -> int:
    for text in opened.bad_files:
        print(f"rankscope: left out: {text}", file=sys.stderr)
    return 1 if opened.bad_files else 0


def progress() -> Callable[[int, int], None]:
    """A line that counts files on a terminal; nothing where nobody looks."""
    if not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        if total >= PROGRESS_FROM:
            end = "\n" if done == total else ""
            print(f"\rreading rank files: {done} of {total}", end=end, file=sys.stderr, flush=True)

    return show
