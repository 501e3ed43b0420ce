"""`rankscope study`: runs a matrix of jobs, survives what goes wrong, and writes the document."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.cli.printing import colour_wanted, deliver, width
from rankscope.cli.study_options import add_launch_options, count, numbers, parsed, study_request, values
from rankscope.output.cells import printable
from rankscope.output.text import to_text
from rankscope.studies.builtin import STUDIES
from rankscope.studies.document import document, growing, write
from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json, write_text
from rankscope.studies.launchers import JobStart, launched
from rankscope.studies.ledger import STUDY, Ledger
from rankscope.studies.plan import Cell, Missing, Outcome
from rankscope.studies.request import StudyRequest
from rankscope.studies.run_study import Teller, all_done, collect_study, rankscope, recorded, run_study
from rankscope.studies.script import script_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# ---------------------------------------------------------------------------------------------------------------------
# How a study goes on: a line for each cell that has ended, and on a terminal a bar with the time left below.
REFRESH_PER_S = 2  # drawing must not take the time of what is measured


class ProgressLines:
    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None: ...

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None:
        left = f" [about {duration(left_s)} left]" if left_s is not None and place < count else ""
        print(f"{line_of(outcome, place, count)}{left}", file=sys.stderr, flush=True)


class Bar:
    """Lines pass by above it."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None:
        until = time.monotonic() + left_s if left_s is not None else None
        self.progress.update(self.task, total=count, completed=place - 1, cell=printable(cell.label), until=until)

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None:
        self.progress.console.print(line_of(outcome, place, count), markup=False, highlight=False)
        self.progress.update(self.task, completed=place)


@contextmanager
def teller() -> Iterator[Teller]:
    """The bar where somebody looks, else lines only."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield ProgressLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Left(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            until = task.fields.get("until")
            return Text("" if until is None else f"about {duration(max(0.0, until - time.monotonic()))} left")

    cell = TextColumn("{task.fields[cell]}", markup=False)
    shown = Progress(
        *(BarColumn(), MofNCompleteColumn(), Left(), cell),
        console=Console(file=sys.stderr),
        transient=True,
        refresh_per_second=REFRESH_PER_S,
    )
    with shown:
        yield Bar(shown, shown.add_task("", total=1, cell="", until=None))


def line_of(outcome: Outcome, place: int, count: int) -> str:
    took = f" in {outcome.seconds:.1f} s" if outcome.seconds is not None else ""
    because = f": {outcome.reason}" if outcome.reason else ""
    return f"[{place}/{count}] {printable(f'{outcome.cell.label}: {outcome.state}{took}{because}')}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# ---------------------------------------------------------------- study
HELP = "run a matrix of jobs and write up the results"
ABOUT = """\
Run a study: one recorded job for each cell of a matrix (what is compared × number of ranks × repeats). Each cell is
saved as soon as it ends; one that fails, hangs or is incomplete is reported with its reason and does not stop the
others. --resume continues a stopped study. The result is a document in Markdown and HTML in the study's folder."""
BUILT_IN = "built-in studies (rankscope study NAME --help shows their options):\n"
EXIT_CODES = "exit code: 0 all cells are done; 1 some are not; 2 the study cannot be run as requested; 130 stopped"
DONE, SOME_MISSING, BAD_INPUT, STOPPED = 0, 1, 2, 130
PARENT = "rankscope-studies"


def run(argv: list[str]) -> int:
    if "--list" in argv:
        print("\n".join(f"{name:10} {study.title}" for name, study in STUDIES.items()))
        return DONE
    try:
        return follow(argv)
    except BadStudy as problem:
        print(f"rankscope study: {printable(str(problem))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("\nrankscope study: stopped; continue with --resume", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as problem:  # as where the disk is full: what has ended is kept
        where = printable(str(problem.filename or "the study's folder"))
        print(f"rankscope study: {where}: {problem.strerror}; fix it and continue with --resume", file=sys.stderr)
        return BAD_INPUT


def follow(argv: list[str]) -> int:
    options, study, launch = parsed(argv, parser())
    goes_on = options.resume or options.retry or options.collect
    folder = options.out or (latest(study.name) if goes_on else fresh(study.name))
    ledger = Ledger(folder)
    before = ledger.description() if goes_on else {}
    if options.collect and not before:
        raise BadStudy(f"{folder}: there is no study to collect: name the folder that its script has left with --out")
    if options.script and not options.out:
        raise BadStudy("--script needs --out DIR: the folder of the study on the machine where the script is run")
    scales = options.scale or before.get("scales") or study.scales
    wanted = study_request(
        study, launch, options, scales, options.repeat or before.get("repeats") or study.repeats, before
    )
    wanted.retry = options.retry
    if options.dry_run:
        return show_plan(wanted)
    if options.script:
        return write_script(wanted, options)
    if (folder / STUDY).exists() and not goes_on:
        raise BadStudy(f"{folder} already holds a study: continue it with --resume, or give another --out")
    if options.collect:
        return show(wanted, ledger, folder, collect_study(wanted, ledger), options.to)
    with teller() as report:
        outcomes = run_study(wanted, ledger, report)
    return show(wanted, ledger, folder, outcomes, options.to)


def write_script(wanted: StudyRequest, options: argparse.Namespace) -> int:
    """The cells as a script; nothing is run."""
    write_text(options.script, script_of(wanted, str(options.out), str(options.script)))
    again = shlex.join(["rankscope", "study", options.study, "--out", str(options.out), "--collect"])
    print(f"{options.script}: run it with sh where the cells are to run, then here: {again}", file=sys.stderr)
    return DONE


def show(wanted: StudyRequest, ledger: Ledger, folder: Path, outcomes: list[Outcome], to: list[int]) -> int:
    """The document, and where it is."""
    environment = ledger.description().get("environment", {})
    grown = growing(wanted.study, outcomes, wanted.settings)
    tables = document(wanted.study, outcomes, wanted.settings, environment, grown, to)
    paths = write(folder, wanted.study, outcomes, tables, grown, to)
    deliver([to_text(tables, width(None), colour_wanted())], None)
    print(f"The study is in {folder}; its document: {', '.join(map(str, paths))}", file=sys.stderr)
    return DONE if all_done(outcomes) else SOME_MISSING


def show_plan(wanted: StudyRequest) -> int:
    """What would be run, and what cannot be run here."""
    for cell in wanted.cells():
        job = wanted.study.job(cell, wanted.settings, wanted.pythons, "CELL")
        if isinstance(job, Missing):
            print(printable(f"{cell.label}: not here: {job.reason}"))
            continue
        rank = recorded(rankscope(), job, "CELL")
        command, variables = launched(JobStart(rank, cell.ranks, wanted.wanted, job, "CELL", wanted.timeout_s))
        set_to = [f"{name}={shlex.quote(value)}" for name, value in {**job.environment, **variables}.items()]
        print(printable(f"{cell.label}: {' '.join([*set_to, shlex.join(command)])}"))
    return DONE


def fresh(name: str) -> Path:
    return Path(PARENT) / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def latest(name: str) -> Path:
    written = sorted(Path(PARENT).glob(f"{name}-*/{STUDY}"), key=lambda path: path.stat().st_mtime)
    paths = [path for path in written if (read_json(path) or {}).get("identity", {}).get("study") == name]
    if not paths:
        raise BadStudy(
            f"there is no study {name} in {PARENT} to continue: start one without --resume, or name it with --out"
        )
    return paths[-1].parent


def parser() -> argparse.ArgumentParser:
    columns = shutil.get_terminal_size().columns - 2
    hanging = textwrap.TextWrapper(columns, subsequent_indent=" " * 13, break_on_hyphens=False)
    listed = "\n".join(hanging.fill(f"  {name:10} {study.title}") for name, study in STUDIES.items())
    arguments = argparse.ArgumentParser(
        "rankscope study",
        description=textwrap.fill(ABOUT, columns),
        epilog=f"{BUILT_IN}{listed}\n\n{textwrap.fill(EXIT_CODES, columns)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument(
        "study", metavar="NAME|FILE.toml", help="a built-in study (--list shows them) or a file of your own"
    )
    arguments.add_argument("--list", action="store_true", help="list the built-in studies, and exit")
    arguments.add_argument("--scale", type=numbers, metavar="N,…", help="numbers of ranks (default: the study's own)")
    arguments.add_argument(
        "--repeat",
        type=count,
        metavar="N",
        help="repeats of each cell, interleaved so that noise hits all cells alike (default: the study's own)",
    )
    arguments.add_argument(
        "--only", type=values, action="append", default=[], metavar="AXIS=X,…", help="run only these values of an axis"
    )
    arguments.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder of the study (default: a dated one in {PARENT}/)"
    )
    arguments.add_argument(
        "--resume", action="store_true", help="continue the study in --out, or the latest of that name"
    )
    arguments.add_argument("--retry", action="store_true", help="like --resume, and rerun the cells that failed")
    arguments.add_argument(
        "--to", type=numbers, default=[], metavar="N,…", help="rank counts to extrapolate to, where the data support it"
    )
    arguments.add_argument("--dry-run", action="store_true", help="show what would run, and run nothing")
    add_launch_options(arguments)
    group = arguments.add_argument_group("when the cells run on another machine")
    group.add_argument("--script", type=Path, metavar="FILE", help="write the cells as a shell script, and run nothing")
    group.add_argument(
        "--assume",
        type=lambda text: text.split(","),
        default=[],
        metavar="MODULE,…",
        help="assume that the Pythons there (--python; default: python3) have these modules",
    )
    group.add_argument(
        "--collect", action="store_true", help="check what the script left in --out and write the document"
    )
    return arguments
