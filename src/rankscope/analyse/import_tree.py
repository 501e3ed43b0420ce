"""Which module imports which, and what does each branch cost?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rankscope.analyse.call_kinds import CALL_COLUMNS
from rankscope.analyse.import_names import node_name
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.trees import Node, has_calls, import_trees, merged
from rankscope.questions.selection import ALL, Selection

COLUMNS = (
    Column("module", Unit.NAME, "Module"),
    Column("wall_ns", Unit.NS, "Wall"),
    Column("self_wall_ns", Unit.NS, "Self"),
    Column("cpu_ns", Unit.NS, "CPU"),
    *CALL_COLUMNS,
    Column("read_bytes", Unit.BYTES, "Read"),
    Column("shared_objects", Unit.COUNT, "Libs"),
    Column("depth", Unit.COUNT, "Depth"),
)
SORTS: dict[str, Callable[[Node], int]] = {
    "wall": lambda node: node.wall_ns,
    "cpu": lambda node: node.cpu_ns,
    "calls": lambda node: node.whole.calls,
    "stat": lambda node: node.whole.stats,
    "open": lambda node: node.whole.opens,
    "failed": lambda node: node.whole.failed,
}
FOLDED = 0.01  # of the whole: smaller branches share one line
TREE_DEPTH = 4


@dataclass(frozen=True, slots=True)
class View:
    """How much of a tree to show: down to which depth (None: all), ordered by what, branches from which share on, names
    in how many letters (None: all of them)."""

    depth: int | None = TREE_DEPTH
    sort: str = "wall"
    folded: float = FOLDED
    letters: int | None = None


def import_tree(tables: Tables, selection: Selection = ALL, view: View | None = None) -> Table:
    """Inclusive numbers of each branch, the largest first; small branches are folded into one line."""
    calls, told = has_calls(tables), view or View()
    if told.sort not in ("wall", "cpu") and not calls:
        told = replace(told, sort="wall")
    trees = merged(import_trees(tables, selection), node_name)
    table = Table("import_tree", "Imports as a tree: each line with all that it imported and started", COLUMNS, [])
    if not calls:
        table.notes.append("Times only: record with --imports calls or paths to count system calls.")
    size = SORTS[told.sort]
    least = told.folded * sum(size(tree) for tree in trees)
    _add(table, trees, 0, told, least, calls)
    several = sum(tree.merged for tree in trees)
    if several > len(trees):
        table.notes.append(f"Sums over {several} processes; those of equal commands are one branch.")
    return table


def _add(table: Table, nodes: list[Node], depth: int, view: View, least: float, calls: bool) -> None:
    size = SORTS[view.sort]
    ordered = sorted(nodes, key=lambda node: (-size(node), node.begin_ns))
    shown = [node for node in ordered if size(node) >= least] if depth else ordered
    for node in shown:
        table.rows.append(_row(node, depth, view, calls))
        if view.depth is None or depth < view.depth:
            _add(table, node.children, depth + 1, view, least, calls)
    folded = ordered[len(shown) :]
    if folded:
        table.rows.append(_row(_together(folded), depth, view, calls))


def _together(nodes: list[Node]) -> Node:
    """One node for small ones; modules below them are in their sums."""
    made = Node(f"… {len(nodes)} smaller", nodes[0].process, 1)
    for node in nodes:
        made.whole.add(node.whole)
        for time in ("wall_ns", "self_wall_ns", "cpu_ns"):
            setattr(made, time, getattr(made, time) + getattr(node, time))
    return made


def _row(node: Node, depth: int, view: View, calls: bool) -> tuple[Cell, ...]:
    name = "  " * depth + node.name + (" (failed)" if node.failed else "")
    if view.letters is not None and len(name) > view.letters:
        name = name[: view.letters - 1] + "…"
    counts = node.whole
    counted = (counts.calls, counts.opens, counts.stats, counts.reads, counts.mmaps, counts.failed, counts.read_bytes)
    return (
        *(name, node.wall_ns, node.self_wall_ns, node.cpu_ns),
        *(counted if calls else (None,) * len(counted)),
        *(counts.shared_objects, depth if view.letters is None else None),
    )
