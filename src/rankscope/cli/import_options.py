"""What `rankscope imports` was asked to do."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rankscope.analyse.import_tree import SORTS, TREE_DEPTH
from rankscope.api.forms import FORMS
from rankscope.api.import_questions import IMPORT_QUESTIONS
from rankscope.api.run import Wrong
from rankscope.cli.import_saving import CAUSES
from rankscope.cli.report import SCREEN_ROWS, ranks_of
from rankscope.questions.selection import Selection

MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
SORTED_BY = {"wall": "wall_ns", "cpu": "cpu_ns", "calls": "calls", "stat": "stats", "open": "opens", "failed": "failed"}
EXAMPLES = """\
  rankscope imports torch mpi4py.MPI          each in a fresh Python of its own, side by side
  rankscope imports -- python train.py        a whole program, its threads and children too
  rankscope imports rankscope-runs/latest     a run that was recorded with `rankscope run --imports paths`
  rankscope imports torch --without realpath  what is really saved if realpath is answered from memory
  rankscope imports replay --help             recorded path operations, done again by many clients
  rankscope imports project --help            what imports ask of a file server as a job grows

What the command prints goes to stderr; stdout holds the tables alone. Exit code: 0 all shown, 1 a command failed or a
file could not be read, 2 nothing could be shown.
"""


def parted(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the command after --."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "rankscope imports",
        usage="rankscope imports [options] MODULE… | RUN | -- COMMAND…",
        description="Meter what importing costs: time, system calls and paths of each module, why they are made, and "
        "what to do about it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help="modules (torch, or torch@PYTHON for another Python), or the folder of a run (default: the latest)",
    )
    made.add_argument("--python", metavar="FILE", help="imports the modules (default: python3 on PATH)")
    made.add_argument("--imports", choices=["time", "calls", "paths"], default="paths", help="detail (default: paths)")
    made.add_argument("--out", type=Path, metavar="DIR", help="keep the recording there (default: it is removed)")
    made.add_argument("--format", choices=["text", *FORMS, "icicle"], default="text", help="form (default: text)")
    made.add_argument("--table", action="append", choices=list(IMPORT_QUESTIONS), metavar="NAME", help=table_help())
    made.add_argument("--sort", choices=list(SORTS), help="order by this, largest first (default: wall)")
    made.add_argument("--depth", type=int, metavar="N", help=f"of the tree (default: {TREE_DEPTH}; 0: all, unfolded)")
    made.add_argument("--top", type=int, metavar="N", help=f"rows of a table (text: {SCREEN_ROWS}; 0: all)")
    made.add_argument("--rank", metavar="LIST", help="only these ranks of a run, as in 0,4-7")
    made.add_argument("--without", action="append", metavar="CAUSE", help=without_help())
    made.add_argument("--cost", action="store_true", help="run it bare and metered, and show what metering costs")
    made.add_argument("--repeats", type=int, default=5, metavar="N", help="turns of --without and --cost (default: 5)")
    return made


def table_help() -> str:
    return f"only this table, may be repeated: {', '.join(IMPORT_QUESTIONS)}"


def without_help() -> str:
    return f"run again without a cause and show the real saving, may be repeated: {', '.join(CAUSES)}"


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
