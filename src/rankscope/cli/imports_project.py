"""`rankscope imports project`: what imports ask of a file server as a job grows, and when staging pays."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rankscope.cli.imports_replay import Wrong, operations_of
from rankscope.cli.report import add_form_options
from rankscope.cli.report import deliver_tables as deliver
from rankscope.cli.slowness_options import told
from rankscope.model import BadFile, Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.break_even import NoSeries, ScaleFit, break_evens, fits, fitted, series_of
from rankscope.questions.imports.projection import (
    CACHES,
    ImportCounts,
    Server,
    counts_of,
    has_table,
    projected,
    projection,
    recorded_counts,
)
from rankscope.rank_files.read import read_rank_file
from rankscope.slowfs.mount import duration_ns
from rankscope.store.folder import NoRun
from rankscope.store.run import open_run

ABOUT = """\
Projects the imports of one rank to a job of many nodes: the operations its file server gets and the time they take, for
each kind of client cache; the same as fitted from measured times; and from how many nodes on staging is faster than
importing in place. Where the data do not allow an answer, that is the answer."""
EXAMPLES = """\
  rankscope imports project RUN --server-ops 600000 --ppn 12 --latency 200us
  rankscope imports project --calls 145367 --path-operations 72743 --server-ops 600000 --nodes 512 --ppn 12
  rankscope imports project --measured soft=1:23.8,8:9.8,64:79.4,128:153.8,256:576.4 --staging 260.9s --nodes 512,1024
  rankscope imports project DOCUMENT_RUN --measured soft-CCL --measured lus-CCL --staging 'Total TMP- CCL'

Exit code: 0 shown, 1 not possible, 2 wrong usage.
"""
DEFAULT_NODES = tuple(2**power for power in range(10))
COUNTS = {
    "calls": "system calls of one rank",
    "path_operations": "of them the ones that name a path (opens, stats, …)",
    "attributes": "of those the ones that went well and opened nothing",
    "opens": "of those the ones that opened a file, and three for each folder listed",
    "walked": "names asked for where nothing is remembered: each folder of each path",
    "missing": "of those the ones that found nothing",
    "existing_names": "different files and folders looked up that are there",
    "missing_names": "different ones that are not there",
}


def main(argv: list[str]) -> int:
    """Project, and show it."""
    options = parser().parse_args(argv)
    try:
        deliver(tables_of(options), options.format, options.out)
    except (Wrong, NoSeries, NoRun, BadFile, OSError) as problem:
        print(f"rankscope imports project: {problem}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    called = "rankscope imports project"
    made = argparse.ArgumentParser(called, description=ABOUT, epilog=EXAMPLES, formatter_class=form)
    made.add_argument("source", nargs="?", type=Path, metavar="RUN|FILE", help="a run recorded with --imports calls or "
                      "paths, a loaded document, operations as text, or a log of strace")  # fmt: skip
    made.add_argument("--folder", default="/", metavar="DIR", help="where the server's files are: paths elsewhere do "
                      "not count, as far as paths are known")  # fmt: skip
    counts = made.add_argument_group("instead of a run, or to correct it")
    for name, text in COUNTS.items():
        counts.add_argument(f"--{name.replace('_', '-')}", type=whole, metavar="N", help=text)
    job = made.add_argument_group("the job and its server")
    job.add_argument(
        "--nodes", type=sizes, default=DEFAULT_NODES, metavar="LIST", help="as in 1,8,64 (default: 1,2,…,512)"
    )
    job.add_argument("--ppn", type=whole, default=1, metavar="N", help="ranks on each node (default: 1)")
    job.add_argument("--server-ops", type=whole, metavar="N", help="operations the server does in a second")
    job.add_argument("--latency", type=told(duration_ns), default=0, metavar="TIME", help="of an operation: 200us")
    job.add_argument("--cache", action="append", choices=list(CACHES), help="may be repeated (default: all that can be "
                     "told)")  # fmt: skip
    seen = made.add_argument_group("what was measured")
    seen.add_argument("--measured", action="append", default=[], metavar="[PLACE=]TIMES", help="import times in place: "
                      "nodes:seconds,… or the name of a series of the run; may be repeated")  # fmt: skip
    seen.add_argument("--staging", action="append", default=[], metavar="[PLACE=]TIMES", help="times of staging "
                      "and importing from there: 260s, nodes:seconds,…, the name of a series, sums with +")  # fmt: skip
    add_form_options(made)
    return made


def whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise argparse.ArgumentTypeError(f"{text}: give a whole number")
    return int(text)


def sizes(text: str) -> tuple[int, ...]:
    numbers = [whole(part.strip()) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: give numbers of nodes from 1 on")
    return tuple(sorted(set(numbers)))


def tables_of(options: argparse.Namespace) -> list[Table]:
    tables = opened(options.source)
    counts = counts_asked(options, tables)
    made: list[Table] = []
    if any(value is not None for value in (counts.calls, counts.path_operations)):
        made.append(projection_asked(options, counts))
    places = {place: series_of(text, tables) for place, text in map(named, options.measured)}
    if places:
        found = {place: (len(points), fitted(points)) for place, points in places.items()}
        made += [fits(found, counts.path_operations, options.ppn), fitted_times(found, options.nodes)]
    if options.staging:
        made.append(break_evens(compared(places, options.staging, tables)))
    if not made:
        raise Wrong("nothing to project: give a run recorded with --imports calls, --calls, or --measured")
    return made


def projection_asked(options: argparse.Namespace, counts: ImportCounts) -> Table:
    if not options.server_ops:
        raise Wrong("give what the server does in a second with --server-ops, as in 600000")
    server = Server(options.server_ops, options.latency)
    known = [cache for cache in CACHES if projected(counts, cache, 1, options.ppn, server) is not None]
    return projection(counts, options.cache or known, options.nodes, options.ppn, server)


def opened(source: Path | None) -> Tables | None:
    return None if source is None or source.is_file() else open_run(source, read_rank_file, events=False)


def counts_asked(options: argparse.Namespace, tables: Tables | None) -> ImportCounts:
    """Those of the run or file, each replaced by what was given."""
    base = ImportCounts()
    if tables is not None and has_calls(tables):
        base = recorded_counts(tables, first_process(tables), options.folder)
    elif options.source is not None and options.source.is_file():
        base = counts_of(operations_of(options.source, None)[0], options.folder)
    values = {name: given if (given := getattr(options, name)) is not None else getattr(base, name) for name in COUNTS}
    return ImportCounts(**values)


def has_calls(tables: Tables) -> bool:
    return has_table(tables, "system_calls") and bool(tables.query("SELECT 1 FROM system_calls LIMIT 1"))


def first_process(tables: Tables) -> int:
    """The lowest rank that has counts, or else the first process that has."""
    rows = tables.query(
        "SELECT process FROM system_calls LEFT JOIN ranks USING (process) ORDER BY rank NULLS LAST, process LIMIT 1"
    )
    return int(rows[0][0])


def named(text: str) -> tuple[str, str]:
    """The place and its times: what stands before an equals sign names it, or else the text itself."""
    place, equals, times = text.partition("=")
    return (place, times) if equals else (text, text)


def compared(
    places: dict[str, dict[int, float]], staging: Sequence[str], tables: Tables | None
) -> dict[str, tuple[dict[int, float], dict[int, float]]]:
    """Each place with the staging that is meant for it, or else the one that is meant for all."""
    if not places:
        raise Wrong("--staging is compared with times in place: give them with --measured")
    split = [text.partition("=") for text in staging]
    staged = {place if equals else "": series_of(times if equals else place, tables) for place, equals, times in split}
    if unknown := set(staged) - {"", *places}:
        raise Wrong(f"--staging {sorted(unknown)[0]}: no such place among those of --measured")
    without = [place for place in places if place not in staged and "" not in staged]
    if without:
        raise Wrong(f"{without[0]}: has no staging to compare with: give --staging {without[0]}=… or one for all")
    return {place: (points, staged.get(place, staged.get("", {}))) for place, points in places.items()}


def fitted_times(found: dict[str, tuple[int, ScaleFit]], nodes: Sequence[int]) -> Table:
    """What the fits say of other sizes."""
    good = {place: fit for place, (_, fit) in found.items() if not fit.refusal}
    columns = [Column("nodes", Unit.COUNT, "nodes"), *(Column(f"{place}_ns", Unit.NS, place) for place in good)]
    rows: list[tuple[Cell, ...]] = []
    for count in nodes:
        times = [fit.at(count) for fit in good.values()]
        rows.append((count, *(None if value is None else value * 1e9 for value in times)))
    notes = ["empty: more than 4 times as many nodes as were measured"] if any(None in row for row in rows) else []
    return Table("import_fitted", "Import times in place as fitted", columns, rows if good else [], notes)
