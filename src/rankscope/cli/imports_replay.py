"""`rankscope imports replay`: the path operations of one import done again by N clients, to measure a file server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankscope.api.import_replay import (
    NoRun,
    ReplayPlan,
    Unavailable,
    mapped,
    operations_of,
    operations_text,
    replay,
    replay_tables,
)
from rankscope.cli.printing import add_form_options, deliver_tables
from rankscope.cli.slowness_options import add_slowness_options, slowness_of
from rankscope.model.records import BadFile
from rankscope.model.tables import Wrong

ABOUT = """\
Replays the recorded path operations of one import, natively, from many clients
at once, on a folder as it is or slowed down: what a job's imports do to a file
server, without the job."""
EXAMPLES = """\
  rankscope imports replay RUN --folder /opt/env --clients 12
                        on the folder as it is
  rankscope imports replay strace.log --folder /mnt/copy --from /opt/env
                        a log of strace, on a copy of the folder
  rankscope imports replay ops.txt --folder /opt/env --nodes 4 --clients 12 \\
      --slow --latency 1ms --ops-per-second 20000
                        on a file system made slow

Exit code: 0 replayed, 1 not possible, 2 wrong usage.
"""


def main(argv: list[str]) -> int:
    """Replay, and show how it went."""
    options = parser().parse_args(argv)
    try:
        return replay_as_asked(options)
    except (Wrong, Unavailable, BadFile, NoRun, OSError) as problem:
        print(f"rankscope imports replay: {problem}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    args = argparse.ArgumentParser("rankscope imports replay", description=ABOUT, epilog=EXAMPLES, formatter_class=form)
    args.add_argument("source", type=Path, metavar="RUN|FILE", help="a run recorded with --imports paths, a file of "
                      "operations, or a log of strace")  # fmt: skip
    args.add_argument("--folder", type=Path, metavar="DIR", help="where to replay: operations elsewhere are left out")
    args.add_argument("--from", dest="recorded", metavar="DIR", help="what the folder was called when recorded")
    args.add_argument("--rank", type=int, metavar="N", help="whose operations (default: the first that has any)")
    args.add_argument("--clients", type=positive, default=1, metavar="N", help="processes on each node (default: 1)")
    args.add_argument(
        "--nodes",
        type=positive,
        default=1,
        metavar="N",
        help="with --slow: mounts on one server, each with its own cache (default: 1)",
    )
    args.add_argument("--no-reads", action="store_true", help="open files without reading them")
    args.add_argument("--slow", action="store_true", help="slow the folder down, as the options below say")
    args.add_argument("--export", type=Path, metavar="FILE", help="write the operations as text, and stop")
    add_form_options(args)
    add_slowness_options(args)
    return args


def positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{text}: give a number from 1 to 4096")
    return int(text)


def replay_as_asked(options: argparse.Namespace) -> int:
    operations, notes = operations_of(options.source, options.rank)
    if options.export is not None:
        options.export.write_text(operations_text(operations), encoding="utf-8", errors="surrogateescape")
        return 0
    plan = plan_of(options)
    wanted = mapped(operations, options.recorded or str(plan.folder), str(plan.folder))
    if not wanted:
        raise Wrong(f"none of the {len(operations)} operations is below {options.recorded or plan.folder}: "
                    "name the folder they were recorded in with --from")  # fmt: skip
    tables = replay_tables(replay(wanted, plan), plan)
    left_out = sum(operation.times for operation in operations) - sum(operation.times for operation in wanted)
    tables[0].notes += [f"{left_out} operations outside the folder are left out", *notes]
    deliver_tables(tables, options.format, options.out)
    return 0


def plan_of(options: argparse.Namespace) -> ReplayPlan:
    if options.folder is None:
        raise Wrong("name the folder to replay in with --folder")
    if not options.folder.is_dir():
        raise Wrong(f"{options.folder}: is not a folder")
    slowness = slowness_of(options) if options.slow else None
    if slowness is None and (options.nodes > 1 or options.latency or options.ops_per_second or options.bandwidth):
        raise Wrong("--nodes and the options of slowness need --slow")
    return ReplayPlan(options.folder.resolve(), options.clients, options.nodes, not options.no_reads, slowness)
