"""`rankscope scale`: says how costs grow with the size of the job, and what they will be at another size."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from rankscope.api.run import NoRun
from rankscope.api.scale import AXES, Scaled, chosen, published, series_of, with_sums
from rankscope.cli.printing import colour_wanted, deliver, save_page, width
from rankscope.model.tables import Table, Wrong
from rankscope.output.cells import printable
from rankscope.output.forms import FORMS
from rankscope.output.text import to_text
from rankscope.studies.document import is_study, series_in
from rankscope.studies.errors import BadStudy

HELP = "show how costs grow with the size of the job, and project them"
ABOUT = """\
Show how each cost grows with size, over runs, the cells of a study, or the tables of a loaded document: the model
with the lowest leave-one-out error, the exponent at the end, speed-up and efficiency, and where one series
overtakes another. --to projects to other sizes, with an interval, or says why the data do not support it. --html draws
it on logarithmic axes."""
EXIT_CODES = "exit code: 0 shown; 1 some series could not be projected to --to; 2 nothing could be read"
SHOWN, REFUSED, BAD_INPUT = 0, 1, 2


def run(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    try:
        if options.html is not None and (options.out or options.format != "text"):
            raise Wrong("--html cannot be combined with --format or --out")
        for pattern in (options.series, options.against, options.overlay_series):
            re.compile(pattern)
        scaling = requested_series(options)
        if options.html is not None:
            save_page(
                scaling.page_text(", ".join(Path(source).name for source in options.sources), options.to), options.html
            )
        else:
            deliver([rendered(scaling.tables(options.to), options)], options.out)
    except re.error as problem:
        return fail(f"--series, --against or --overlay-series: {problem}")
    except (NoRun, Wrong, BadStudy) as problem:
        return fail(str(problem))
    refused = any(isinstance(growth.at(scale), str) for growth in scaling.grown for scale in options.to)
    return REFUSED if refused else SHOWN


def requested_series(options: argparse.Namespace) -> Scaled:
    """The series that were asked for, and those laid over them."""
    studies = [source for source in options.sources if is_study(Path(source))]
    runs = [source for source in options.sources if source not in studies]
    series_list, warnings = series_of(runs, options.by) if runs else ([], [])
    series_list += [series for source in studies for series in series_in(Path(source))]
    series_list = chosen(with_sums(series_list, options.sum), options.series)
    for number, path in enumerate(options.overlay, 1):
        tag = "published" if len(options.overlay) == 1 else f"published {number}"
        more, doubts = published(path, options.map, options.ppn, options.overlay_series, tag)
        series_list += more
        warnings += doubts
        if not {(series.unit, series.axis) for series in more} & {
            (series.unit, series.axis) for series in series_list if not series.published
        }:
            axes = ", ".join(sorted({f"{series.axis} in {series.unit}" for series in more})) or "no scale"
            warnings.append(f"{path.name} is by {axes}, what was measured is not: --ppn converts nodes to ranks")
    return Scaled(series_list, options.against, warnings)


def rendered(tables: list[Table], options: argparse.Namespace) -> str:
    if options.format == "text":
        return to_text(tables, width(options.out), colour_wanted() and not options.out)
    return FORMS[options.format](tables)


def fail(text: str) -> int:
    print(f"rankscope: {printable(text)}", file=sys.stderr)
    return BAD_INPUT


def scales(text: str) -> list[float]:
    values = [float(word) for word in text.split(",") if word]
    if not values or min(values) <= 0:
        raise argparse.ArgumentTypeError(f"{text}: give sizes above 0, separated by commas")
    return values


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope scale", description=ABOUT, epilog=EXIT_CODES)
    arguments.add_argument(
        "sources",
        nargs="+",
        metavar="RUN|STUDY",
        help="a run, a folder of runs, a pattern in quotes, a loaded document, or the folder of a study",
    )
    arguments.add_argument(
        "--by", choices=AXES, default="ranks", help="what counts as the size of a recorded run (default: ranks)"
    )
    arguments.add_argument(
        "--series", default="", metavar="PATTERN", help="only series whose name matches this regular expression"
    )
    arguments.add_argument("--to", type=scales, default=[], metavar="N,…", help="sizes to project to")
    arguments.add_argument(
        "--against",
        default="",
        metavar="PATTERN",
        help="break-evens of all others with these series (default: of all pairs)",
    )
    arguments.add_argument(
        "--sum", action="append", default=[], metavar="NAME=A+B", help="add a series: the sum of others, by name"
    )
    arguments.add_argument(
        "--overlay", type=Path, action="append", default=[], metavar="FILE", help="hand-made tables to overlay"
    )
    arguments.add_argument("--overlay-series", default="", metavar="PATTERN", help="only these of --overlay")
    arguments.add_argument(
        "--map", type=Path, metavar="FILE.toml", help="what the columns of --overlay are (docs/commands/load.md)"
    )
    arguments.add_argument(
        "--ppn", type=int, metavar="N", help="ranks on each node of --overlay, to convert its nodes to ranks"
    )
    arguments.add_argument("--html", type=Path, metavar="FILE", help="write one HTML page with graphs")
    arguments.add_argument(
        "--format", choices=["text", *FORMS], default="text", help="format of the tables (default: text)"
    )
    arguments.add_argument("--out", type=Path, metavar="FILE", help="write to this file instead of the screen")
    return arguments
