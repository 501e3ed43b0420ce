"""One module that something else imports makes most of the cost."""

from __future__ import annotations

from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender
from rankscope.questions.imports.trees import Node, has_calls, import_trees

SHARE = 0.3  # of the whole process
LEAST_CALLS, LEAST_NS = 500, 200_000_000


def dominant_module(tables: Tables) -> list[Offender]:
    """The deepest module whose branch is still a large part, where it is not what the program itself imports."""
    calls = has_calls(tables)
    found: dict[str, Offender] = {}
    for tree in import_trees(tables):
        node, depth = _deepest(tree, calls)
        if depth < 2:
            continue
        of_calls = node.whole.calls / max(1, tree.whole.calls)
        of_time = node.wall_ns / max(1, tree.wall_ns)
        told = f"{of_time:.0%} of the time" + (f" and {of_calls:.0%} of the system calls" if calls else "")
        found[node.name] = Offender(
            "dominant_module",
            f"{node.name} makes {told}",
            f"import {node.name.partition('.')[0]} only where it is needed, or let what imports it do without",
            node.whole.calls,
            [f"import_tree: {node.name}: {node.wall_ns / 1e9:.2f} s, {node.whole.calls} calls with all below it"],
            f"module={node.name}",
        )
    return list(found.values())


def _deepest(tree: Node, calls: bool) -> tuple[Node, int]:
    """Down the largest branch as long as it is large and belongs to another package than what imports it."""
    best, depth, node, at = tree, 0, tree, 0
    while True:
        large = [child for child in node.children if not child.is_process and _is_large(child, tree, calls)]
        if not large:
            return best, depth
        node, at = max(large, key=lambda child: child.wall_ns), at + 1
        if at >= 2 and node.name.partition(".")[0] != _package(best, tree):
            best, depth = node, at
        elif at == 1:
            best, depth = node, at


def _package(node: Node, tree: Node) -> str:
    return "" if node is tree else node.name.partition(".")[0]


def _is_large(node: Node, tree: Node, calls: bool) -> bool:
    slow = node.wall_ns >= max(LEAST_NS, SHARE * tree.wall_ns)
    return slow or (calls and node.whole.calls >= max(LEAST_CALLS, SHARE * tree.whole.calls))
