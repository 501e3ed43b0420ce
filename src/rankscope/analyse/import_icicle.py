"""The imports as nested boxes: for pages that draw them."""

from __future__ import annotations

from typing import Any

from rankscope.analyse.import_names import node_name
from rankscope.model import Tables
from rankscope.questions.imports.trees import Node, has_calls, import_trees, merged
from rankscope.questions.selection import ALL, Selection

FORMAT = 1


def import_icicle(tables: Tables, selection: Selection = ALL) -> dict[str, Any]:
    """One root over all processes; every box has its own and its inclusive time and calls."""
    calls = has_calls(tables)
    boxes = [_box(tree, calls) for tree in merged(import_trees(tables, selection), node_name)]
    names = ("wall_ns", "cpu_ns", "calls", "stats", "opens", "failed")
    whole = {name: None if boxes and boxes[0][name] is None else sum(box[name] for box in boxes) for name in names}
    own = {f"self_{name}": 0 if whole[name] is not None else None for name in names}
    return {"format": FORMAT, "name": "all processes", "kind": "run", **whole, **own, "children": boxes}


def _box(top: Node, calls: bool) -> dict[str, Any]:
    made: dict[int, dict[str, Any]] = {}
    for node in reversed(list(top.walk())):
        box = _numbers(node, calls)
        box["children"] = sorted((made.pop(id(child)) for child in node.children), key=lambda one: -one["wall_ns"])
        made[id(node)] = box
    return made[id(top)]


def _numbers(node: Node, calls: bool) -> dict[str, Any]:
    counts = {
        f"{prefix}{name}": getattr(side, name) if calls else None
        for prefix, side in (("", node.whole), ("self_", node.own))
        for name in ("calls", "stats", "opens", "failed")
    }
    times = {name: getattr(node, name) for name in ("wall_ns", "self_wall_ns", "cpu_ns", "self_cpu_ns")}
    return {"name": node.name, "kind": "process" if node.is_process else "module", **times, **counts}
