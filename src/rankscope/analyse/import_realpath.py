"""How many stats resolve paths link by link, as os.path.realpath does?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope.model import Tables
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection

SQL = """
    SELECT coalesce(modules.name, '(interpreter)'), path,
        coalesce(sum(CASE WHEN operation = 'stat' THEN times END), 0)::BIGINT,
        coalesce(sum(CASE WHEN operation = 'readlink' THEN times END), 0)::BIGINT
    FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module)
    WHERE {condition} AND cause IN ('module', 'interpreter') AND operation IN ('stat', 'readlink') AND path LIKE '/%'
    GROUP BY 1, 2 ORDER BY 1, 2"""


@dataclass(slots=True)
class Resolving:
    """What one module resolved."""

    module: str
    calls: int = 0
    distinct: set[str] = field(default_factory=set)


def resolving(tables: Tables, selection: Selection = ALL) -> list[Resolving]:
    """By module, the most calls first."""
    by_module: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for module, path, stats, readlinks in tables.query(SQL.format(condition=chosen(selection))):
        by_module[module][path] = stats, readlinks
    found = [_resolved(module, asked) for module, asked in by_module.items()]
    return sorted((one for one in found if one.calls), key=lambda one: -one.calls)


def _resolved(module: str, asked: Mapping[str, tuple[int, int]]) -> Resolving:
    made = Resolving(module)
    # Python asks for the status of each link of the chain and reads those that are links; libc reads them at once
    for path, times in passes({path: max(both) for path, both in asked.items()}).items():
        if times:
            made.calls += times + min(times, *asked[path])
            made.distinct.add(path)
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
