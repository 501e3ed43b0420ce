"""The path operations of one import done again: out of a run, a log of strace or operations as text."""

from __future__ import annotations

from pathlib import Path

from rankscope.api.run import NoRun, Run
from rankscope.formats import path_operations, strace_log
from rankscope.formats.path_operations import to_text as operations_text
from rankscope.formats.source import HEAD_BYTES, Source
from rankscope.model.imports import PathOperation
from rankscope.model.tables import Table, Tables, Wrong
from rankscope.questions.imports.projection import has_table
from rankscope.questions.imports.replay import replay_operations, replay_overview, replay_server
from rankscope.slowfs.mount import Unavailable
from rankscope.slowfs.replay import Replayed, ReplayPlan, mapped, replay

__all__ = [
    "NoRun",
    "ReplayPlan",
    "Unavailable",
    "mapped",
    "operations_of",
    "operations_text",
    "replay",
    "replay_tables",
]


def operations_of(place: Path, rank: int | None) -> tuple[list[PathOperation], list[str]]:
    """What was recorded there, and what should be known of it."""
    if not place.is_file():
        return recorded(Run(place).store(), rank), []
    source = Source(place)
    with source.open() as stream:
        head = stream.read(HEAD_BYTES)
    if path_operations.is_path_operations(head):
        return path_operations.read(source), []
    if not strace_log.sniff(head):
        raise Wrong(f"{place}: neither a run, nor a text file of operations, nor an strace log")
    operations, relative = path_operations.read_strace(source)
    note = f"{relative} operations on relative paths were left out: trace with strace -y to include them"
    return operations, [note] if relative else []


def recorded(tables: Tables, rank: int | None) -> list[PathOperation]:
    """The rows of the table `paths` of one process."""
    if not has_table(tables, "paths"):
        raise Wrong("this run has no paths: record it with rankscope run --imports paths")
    chosen = "SELECT min(process) FROM paths" if rank is None else f"SELECT process FROM ranks WHERE rank = {rank}"
    rows = tables.query(f"SELECT operation, path, result, times, bytes FROM paths WHERE process = ({chosen} LIMIT 1)")
    if not rows:
        whose = "no process has" if rank is None else f"rank {rank} has no"
        raise Wrong(f"{whose} paths: record the run with rankscope run --imports paths")
    return [PathOperation(*row) for row in rows]


def replay_tables(replayed: Replayed, plan: ReplayPlan) -> list[Table]:
    """How long the clients took, each operation, and what a slowed server was asked."""
    times = replayed.times
    tables = [
        replay_overview(replayed.clients, plan.nodes, len(replayed.operations)),
        replay_operations(replayed.operations, times["operation_ns"], times["read_ns"]),
    ]
    return [*tables, replay_server(replayed.counters)] if replayed.counters is not None else tables
