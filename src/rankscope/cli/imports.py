"""`rankscope imports`: what importing costs, module by module, and why."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rankscope.api.imports import (
    CAUSES,
    IMPORT_QUESTIONS,
    SORTS,
    TREE_DEPTH,
    NoRun,
    Recording,
    Selection,
    View,
    icicle,
    import_command,
    import_tables,
    meter,
    metering_cost,
    open_recording,
    saving,
)
from rankscope.cli.printing import SCREEN_ROWS, colour_wanted, deliver, width
from rankscope.cli.report import ranks_of, report_bad_files
from rankscope.model.tables import Wrong
from rankscope.output.forms import FORMS
from rankscope.output.text import to_text

# ---------------------------------------------------------------- what `rankscope imports` was asked to do
MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
SORTED_BY = {"wall": "wall_ns", "cpu": "cpu_ns", "calls": "calls", "stat": "stats", "open": "opens", "failed": "failed"}
EXAMPLES = """\
  rankscope imports torch mpi4py.MPI
                        each in its own fresh Python, side by side
  rankscope imports -- python train.py
                        a whole program, its threads and children too
  rankscope imports rankscope-runs/latest
                        a run recorded with `rankscope run --imports paths`
  rankscope imports torch --without realpath
                        what it really saves if realpath answers from memory
  rankscope imports replay --help
                        recorded path operations, replayed by many clients
  rankscope imports project --help
                        load on a file server as a job grows

The command's own output goes to stderr, the tables to stdout. Exit code: 0 all
shown, 1 a command failed or a file could not be read, 2 nothing could be shown.
"""


def parted(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the command after --."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        "rankscope imports",
        usage="rankscope imports [options] MODULE… | RUN | -- COMMAND…",
        description="Measure what imports cost: time, system calls and paths of each module, why\n"
        "the calls are made, and what to do about it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help="modules (torch, or torch@PYTHON for another Python), or the folder of a run (default: the latest)",
    )
    arguments.add_argument("--python", metavar="FILE", help="imports the modules (default: python3 on PATH)")
    arguments.add_argument(
        "--imports", choices=["time", "calls", "paths"], default="paths", help="detail (default: paths)"
    )
    arguments.add_argument("--out", type=Path, metavar="DIR", help="keep the recording there (default: it is removed)")
    arguments.add_argument(
        "--format", choices=["text", *FORMS, "icicle"], default="text", help="format (default: text)"
    )
    arguments.add_argument("--table", action="append", choices=IMPORT_QUESTIONS, metavar="NAME", help=table_help())
    arguments.add_argument("--sort", choices=list(SORTS), help="sort by this, descending (default: wall)")
    arguments.add_argument(
        "--depth", type=int, metavar="N", help=f"of the tree (default: {TREE_DEPTH}; 0: all, unfolded)"
    )
    arguments.add_argument("--top", type=int, metavar="N", help=f"rows of a table (text: {SCREEN_ROWS}; 0: all)")
    arguments.add_argument("--rank", metavar="LIST", help="only these ranks of a run, as in 0,4-7")
    arguments.add_argument("--without", action="append", metavar="CAUSE", help=without_help())
    arguments.add_argument(
        "--cost", action="store_true", help="run it bare and recorded, and show what recording costs"
    )
    arguments.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="rounds of --without and --cost (default: 5)"
    )
    return arguments


def table_help() -> str:
    return f"only this table, may be repeated: {', '.join(IMPORT_QUESTIONS)}"


def without_help() -> str:
    return f"run again with a cause removed and show what that saves, may be repeated: {', '.join(CAUSES)}"


def check(options: argparse.Namespace) -> None:
    """What cannot be done is said before anything is started."""
    if options.command and options.what:
        raise Wrong("give modules or a run, or a command after --, not both")
    for cause in options.without or ():
        name, equals, module = cause.partition("=")
        if cause not in CAUSES[:-1] and not (name == "module" and equals and MODULE.fullmatch(module)):
            raise Wrong(f"--without {cause}: choose one of {', '.join(CAUSES)}")
    if (options.without or options.cost) and (is_run(options) or len(options.what) > 1):
        raise Wrong("--without and --cost need one command or one module to run again")
    if options.repeats < 1:
        raise Wrong(f"--repeats {options.repeats}: give 1 or more")
    if (options.top or 0) < 0 or (options.depth or 0) < 0:
        raise Wrong("--top and --depth: give a number, or 0 for all")
    if not options.command and not is_run(options):
        for name in options.what:
            if not MODULE.fullmatch(name.partition("@")[0]):
                raise Wrong(f"{name}: neither a run's folder nor the name of a module; a command goes after --")


def is_run(options: argparse.Namespace) -> bool:
    """Whether a recorded run is asked for: none at all, or the one folder that is one."""
    if options.command or len(options.what) != 1:
        return not options.command and not options.what
    folder = Path(options.what[0])
    return "/" in options.what[0].partition("@")[0] or (folder / "run.json").exists() or (folder / "ranks").is_dir()


def selection_of(options: argparse.Namespace) -> Selection:
    top = options.top if options.top is not None else SCREEN_ROWS if options.format == "text" else 0
    ranks = ranks_of(options.rank) if options.rank is not None else None
    return Selection(ranks, top or None, SORTED_BY[options.sort] if options.sort else None)


# ---------------------------------------------------------------- imports
NUMBERS_WIDTH = 90  # of the tree
HELP = "measure what imports cost"
PARTS = ("replay", "project")  # commands of their own


def run(argv: list[str]) -> int:
    """Record where a command or modules are given, then show."""
    if argv and argv[0] in PARTS:
        return int(import_module(f"rankscope.cli.imports_{argv[0]}").main(argv[1:]))
    ours, command = parted(argv)
    options = parser().parse_args(ours)
    options.command = command
    keeper = tempfile.TemporaryDirectory(prefix="rankscope-imports-")
    try:
        check(options)
        recordings = recorded(options, Path(keeper.name))
        deliver([rendered(recordings, options, Path(keeper.name))], None)
    except (NoRun, Wrong) as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        keeper.cleanup()
    return max([0, *(report_bad_files(recording.run) or int(recording.exit_code != 0) for recording in recordings)])


def recorded(options: argparse.Namespace, keeper: Path) -> list[Recording]:
    """The runs to show."""
    if is_run(options):
        folder = Path(options.what[0]) if options.what else None
        return [open_recording(folder)]
    place = options.out.absolute() if options.out else keeper
    if options.command:
        folder = place if options.out else keeper / "run"
        return [metered(shlex.join(options.command), options.command, folder, options)]
    wanted = [module_and_python(word, options.python or "python3") for word in options.what]
    pythons = {python: real_python(python) for _, python in wanted}
    recordings = []
    for at, (name, python) in enumerate(wanted, 1):
        folder = place / f"{at}-{name}" if len(wanted) > 1 or not options.out else place
        recordings.append(metered(name, import_command(pythons[python], name), folder, options))
    return recordings


def module_and_python(word: str, python: str) -> tuple[str, str]:
    """`torch`, or `torch@/env/bin/python` for a module of another environment."""
    name, _, other = word.partition("@")
    return name, other or python


def real_python(name: str) -> str:
    """The interpreter itself: what is found on PATH may be a script that looks for one."""
    try:
        question = [name, "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(question, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip() or name
    except (OSError, subprocess.SubprocessError):
        raise Wrong(f"--python {name}: does not start; give another Python") from None


def metered(name: str, command: list[str], folder: Path, options: argparse.Namespace) -> Recording:
    """Record one command; a failing one is told, and shown as far as it came."""
    say(f"recording {name}")
    recording = meter(name, command, folder, options.imports)
    if recording.exit_code:
        print(f"rankscope: {recording.ending}", file=sys.stderr)
    return recording


def say(text: str) -> None:
    """Progress, where somebody looks."""
    if sys.stderr.isatty():
        print(f"rankscope: {text}", file=sys.stderr)


def rendered(recordings: Sequence[Recording], options: argparse.Namespace, keeper: Path) -> str:
    """All tables in the wanted form."""
    selection = selection_of(options)
    if selection.ranks is not None:
        recordings[0].run.ranks_shown(selection)  # says which there are if one is not
    if options.format == "icicle":
        return icicle(recordings, selection)
    tables = import_tables(recordings, options.table or (), selection, view_of(options))
    if options.without:
        recording = recordings[0]
        tables.insert(
            0, saving(recording.command, list(options.without), options.repeats, recording.run.folder, keeper, say)
        )
    if options.cost:
        recording = recordings[0]
        tables.append(metering_cost(recording.command, options.repeats, keeper, say))
    if options.format != "text":
        return FORMS[options.format](tables)
    wanted = [table for table in tables if table.rows or table.warnings or options.table]
    if not wanted:
        raise Wrong("no imports were recorded in this run: record it with `rankscope run --imports paths`")
    return to_text(wanted, width(None), colour=colour_wanted())


def view_of(options: argparse.Namespace) -> View:
    """How much of the tree is shown: on a screen what fits."""
    sort = options.sort or "wall"
    if options.format != "text":
        return View(options.depth, sort) if options.depth else View(None, sort, 0.0)
    letters = max(24, width(None) - NUMBERS_WIDTH)
    depth = TREE_DEPTH if options.depth is None else options.depth or None
    return View(depth, sort, 0.0 if options.depth == 0 else View().folded, letters)
