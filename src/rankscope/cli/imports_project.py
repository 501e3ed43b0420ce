"""`rankscope imports project`: what imports ask of a file server as a job grows, and when staging pays."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankscope.api.import_projection import (
    CACHES,
    ImportCounts,
    NoRun,
    NoSeries,
    ProjectionAsked,
    project_imports,
)
from rankscope.cli.printing import add_form_options, deliver_tables
from rankscope.cli.slowness_options import with_message
from rankscope.model.records import BadFile
from rankscope.model.tables import Wrong
from rankscope.slowfs.mount import duration_ns

ABOUT = """\
Projects the imports of one rank to a job of many nodes: the operations its file
server gets and the time they take, for each kind of client cache; the same as
fitted from measured times; and from how many nodes on staging is faster than
importing in place. Where the data do not support an answer, it says so."""
EXAMPLES = """\
  rankscope imports project RUN --server-ops 600000 --ppn 12 --latency 200us
  rankscope imports project --calls 145367 --path-operations 72743 \\
      --server-ops 600000 --nodes 512 --ppn 12
  rankscope imports project --staging 260.9s --nodes 512,1024 \\
      --measured soft=1:23.8,8:9.8,64:79.4,128:153.8,256:576.4
  rankscope imports project DOCUMENT_RUN --measured soft-CCL \\
      --measured lus-CCL --staging 'Total TMP- CCL'

Exit code: 0 shown, 1 not possible, 2 wrong usage.
"""
DEFAULT_NODES = tuple(2**power for power in range(10))
COUNTS = {
    "calls": "system calls of one rank",
    "path_operations": "of those, the ones that name a path (opens, stats, …)",
    "attributes": "of those, the ones that succeeded and opened nothing",
    "opens": "of those, the ones that opened a file, and three for each folder listed",
    "walked": "names looked up without any cache: each folder of each path",
    "missing": "of those, the ones that found nothing",
    "existing_names": "distinct existing files and folders looked up",
    "missing_names": "distinct missing ones",
}


def main(argv: list[str]) -> int:
    """Project, and show it."""
    options = parser().parse_args(argv)
    try:
        deliver_tables(project_imports(projection_request(options)), options.format, options.out)
    except (Wrong, NoSeries, NoRun, BadFile, OSError) as problem:
        print(f"rankscope imports project: {problem}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    called = "rankscope imports project"
    args = argparse.ArgumentParser(called, description=ABOUT, epilog=EXAMPLES, formatter_class=form)
    args.add_argument("source", nargs="?", type=Path, metavar="RUN|FILE", help="a run recorded with --imports calls or "
                      "paths, a loaded document, operations as text, or a log of strace")  # fmt: skip
    args.add_argument(
        "--folder",
        default="/",
        metavar="DIR",
        help="folder on the server: paths elsewhere do not count, where paths are known",
    )
    counts = args.add_argument_group("instead of a run, or to correct it")
    for name, text in COUNTS.items():
        counts.add_argument(f"--{name.replace('_', '-')}", type=whole_number, metavar="N", help=text)
    job = args.add_argument_group("the job and its server")
    job.add_argument(
        "--nodes", type=sizes, default=DEFAULT_NODES, metavar="LIST", help="as in 1,8,64 (default: 1,2,…,512)"
    )
    job.add_argument("--ppn", type=whole_number, default=1, metavar="N", help="ranks on each node (default: 1)")
    job.add_argument("--server-ops", type=whole_number, metavar="N", help="operations per second of the server")
    job.add_argument(
        "--latency", type=with_message(duration_ns), default=0, metavar="TIME", help="of an operation: 200us"
    )
    job.add_argument(
        "--cache",
        action="append",
        choices=list(CACHES),
        metavar="CACHE",
        help=f"{', '.join(CACHES)}; may be repeated (default: all that can be computed)",
    )
    seen = args.add_argument_group("what was measured")
    seen.add_argument("--measured", action="append", default=[], metavar="[PLACE=]TIMES", help="import times in place: "
                      "nodes:seconds,… or the name of a series of the run; may be repeated")  # fmt: skip
    seen.add_argument("--staging", action="append", default=[], metavar="[PLACE=]TIMES", help="times of staging "
                      "and importing from there: 260s, nodes:seconds,…, the name of a series, sums with +")  # fmt: skip
    add_form_options(args)
    return args


def whole_number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number")
    return int(text)


def sizes(text: str) -> tuple[int, ...]:
    numbers = [whole_number(part.strip()) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give numbers of nodes from 1 on")
    return tuple(sorted(set(numbers)))


def projection_request(options: argparse.Namespace) -> ProjectionAsked:
    return ProjectionAsked(
        source=options.source,
        folder=options.folder,
        counts=ImportCounts(**{name: getattr(options, name) for name in COUNTS}),
        nodes=options.nodes,
        ppn=options.ppn,
        server_operations=options.server_ops,
        latency_ns=options.latency,
        caches=options.cache or (),
        measured=options.measured,
        staging=options.staging,
    )
