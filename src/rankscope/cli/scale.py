"""`rankscope scale`: says how costs grow with the size of the job, and what they will be at another size."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from rankscope.api.forms import FORMS, printable, to_text
from rankscope.api.run import NoRun, Wrong
from rankscope.api.scale import AXES, scaled
from rankscope.cli.report import colour_wanted, deliver, width

HELP = "say how costs grow with the size of the job, and project them"
ABOUT = """\
Say how each cost grows over runs of several sizes, or over a loaded document that tabulates it: the law that foretells
best a size left out, the exponent at the end, speed-up and efficiency; with --to what it will be at another size, with
its interval, or why the data do not support a word about it."""
EXIT_CODES = "exit code: 0 shown; 1 some series could not be projected to --to; 2 nothing could be read"
SHOWN, REFUSED, BAD_INPUT = 0, 1, 2


def run(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    try:
        re.compile(options.series)
        found = scaled(options.sources, options.by, options.series)
        tables = found.tables(options.to)
        form = FORMS.get(options.format)
        text = form(tables) if form else to_text(tables, width(options.out), colour_wanted() and not options.out)
        deliver([text], options.out)
    except re.error as problem:
        return told(f"--series {options.series}: {problem}")
    except (NoRun, Wrong) as problem:
        return told(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    refused = any(isinstance(one.at(scale), str) for one in found.grown for scale in options.to)
    return REFUSED if refused else SHOWN


def told(text: str) -> int:
    print(f"rankscope: {printable(text)}", file=sys.stderr)
    return BAD_INPUT


def scales(text: str) -> list[float]:
    found = [float(word) for word in text.split(",") if word]
    if not found or min(found) <= 0:
        raise argparse.ArgumentTypeError(f"{text}: give sizes above 0, parted by commas")
    return found


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("rankscope scale", description=ABOUT, epilog=EXIT_CODES)
    made.add_argument(
        "sources", nargs="+", metavar="RUN", help="a run, a folder of runs, a pattern in quotes, or a loaded document"
    )
    made.add_argument("--by", choices=AXES, default="ranks", help="what the size of recorded runs is (default: ranks)")
    made.add_argument(
        "--series", default="", metavar="PATTERN", help="only those whose name matches, as re.search does"
    )
    made.add_argument("--to", type=scales, default=[], metavar="N,…", help="sizes for which to foretell")
    made.add_argument("--format", choices=["text", *FORMS], default="text", help="form of the tables (default: text)")
    made.add_argument("--out", type=Path, metavar="FILE", help="write there instead of to the screen")
    return made
