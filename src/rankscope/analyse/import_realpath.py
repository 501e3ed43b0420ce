"""How many stats resolve paths link by link, as os.path.realpath does?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope.analyse.import_data import chosen
from rankscope.analyse.selection import ALL, Selection
from rankscope.model import Tables

SQL = """
    SELECT coalesce(modules.name, '(interpreter)'), path, sum(times)::BIGINT
    FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module)
    WHERE {condition} AND cause IN ('module', 'interpreter') AND operation IN ('stat', 'readlink') AND path LIKE '/%'
    GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class Resolving:
    """What one module resolved."""

    module: str
    paths: int = 0  # how many were resolved
    calls: int = 0  # that took
    distinct: set[str] = field(default_factory=set)


def resolving(tables: Tables, selection: Selection = ALL) -> list[Resolving]:
    """By module, the most calls first."""
    by_module: dict[str, dict[str, int]] = defaultdict(dict)
    for module, path, times in tables.query(SQL.format(condition=chosen(selection))):
        by_module[module][path] = times
    found = [_resolved(module, counts) for module, counts in by_module.items()]
    return sorted((one for one in found if one.calls), key=lambda one: -one.calls)


def _resolved(module: str, counts: Mapping[str, int]) -> Resolving:
    made = Resolving(module)
    for path, times in passes(counts).items():
        if times:
            made.calls += times
            made.distinct.add(path)
            made.paths += times if path.count("/") == 1 else 0
    return made


def passes(counts: Mapping[str, int]) -> dict[str, int]:
    """How often each path was asked as a link of a chain from the root: asking /a, /a/b and /a/b/c is one chain.

    No more than its parent was: what is asked more often was also asked by itself.
    """
    below: dict[str, list[str]] = defaultdict(list)
    for path in counts:
        if path != "/":
            below[path.rpartition("/")[0]].append(path)
    found: dict[str, int] = {}
    for path in sorted(below[""]):
        found[path] = min(counts[path], sum(counts[child] for child in below.get(path, ())))
    waiting = list(found)
    while waiting:
        parent = waiting.pop()
        children = below.get(parent, ())
        asked = sum(counts[child] for child in children)
        for child in children:
            found[child] = counts[child] * min(asked, found[parent]) // asked if asked else 0
        waiting += children
    return found
