"""How many calls, and how much time, is one cause of the imports' cost blamed for?"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analyse.call_kinds import OPENS, STATS, one_of
from rankscope.analyse.import_loader import loader_directories
from rankscope.analyse.import_offenders.bytecode import compiled
from rankscope.analyse.import_realpath import resolving
from rankscope.model import Tables
from rankscope.questions.imports.search import search_entries
from rankscope.questions.imports.trees import import_trees


@dataclass(frozen=True, slots=True)
class Blame:
    """What would go away at most."""

    calls: int = 0
    time_ns: float | None = None


def blame_realpath(tables: Tables) -> Blame:
    calls = sum(one.calls for one in resolving(tables))
    return Blame(calls, calls * _mean_ns(tables, "module", (*STATS, "readlink", "readlinkat")))


def blame_library_path(tables: Tables) -> Blame:
    """What LD_LIBRARY_PATH made the loader ask in vain."""
    calls = sum(one.missing for one in loader_directories(tables) if one.told_by == "LD_LIBRARY_PATH")
    return Blame(calls, calls * _mean_ns(tables, "loader", OPENS))


def blame_search(tables: Tables) -> Blame:
    calls = sum(entry.operations for entry in search_entries(tables) if entry.never_hit)
    return Blame(calls, calls * _mean_ns(tables, "search", STATS))


def blame_bytecode(tables: Tables) -> Blame:
    """The files around sources that are compiled; compiling itself is no system call."""
    calls = compiled(tables).calls
    return Blame(calls, calls * _mean_ns(tables, "code", OPENS))


def blame_module(tables: Tables, name: str) -> Blame:
    """A module with all below it, wherever it is imported first: calls, and wall time rather than time in calls."""
    calls, wall_ns = 0, 0
    for tree in import_trees(tables):
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            if node.name == name and not node.is_process:
                calls, wall_ns = calls + node.whole.calls, wall_ns + node.wall_ns
            else:
                waiting += node.children
    return Blame(calls, wall_ns)


def _mean_ns(tables: Tables, cause: str, calls: tuple[str, ...]) -> float:
    """How long one such call took here."""
    sql = f"SELECT sum(total_ns) / nullif(sum(calls), 0) FROM system_calls WHERE cause = ? AND {one_of(calls)}"
    return float(tables.query(sql, [cause])[0][0] or 0.0)
