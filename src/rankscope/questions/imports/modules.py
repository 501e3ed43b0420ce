"""What does each module cost by itself and with all that it imports?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.trees import CALL_COLUMNS, Node, has_calls, import_trees, merged, node_name
from rankscope.questions.selection import ALL, Selection, arranged

# ---------------------------------------------------------------------------------------------------------------------
# Which module imports which, and what does each branch cost?
IMPORT_TREE_COLUMNS = (
    Column("module", Unit.NAME, "Module", "its name; of a process its command"),
    Column("wall_ns", Unit.NS, "Wall", "from begin to end of the import; of a process: its elapsed time"),
    Column("self_wall_ns", Unit.NS, "Self", "`wall_ns` without the imports inside"),
    Column(
        "cpu_ns",
        Unit.NS,
        "CPU",
        "CPU time of the importing thread, and all of the processes that were started meanwhile",
    ),
    *CALL_COLUMNS,
    Column("read_bytes", Unit.BYTES, "Read", "bytes that the reads returned"),
    Column("shared_objects", Unit.COUNT, "Libs", "number of libraries and extension modules loaded meanwhile"),
    Column("depth", Unit.COUNT, "Depth", "how deep in the tree; 0: a process"),
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
    calls, shown = has_calls(tables), view or View()
    if shown.sort not in ("wall", "cpu") and not calls:
        shown = replace(shown, sort="wall")
    trees = merged(import_trees(tables, selection), node_name)
    table = Table(
        "import_tree", "Import tree: each line includes all that it imported and started", IMPORT_TREE_COLUMNS, []
    )
    if not calls:
        table.notes.append("Times only: record with --imports calls or paths to count system calls.")
    size = SORTS[shown.sort]
    least = shown.folded * sum(size(tree) for tree in trees)
    _add_branch(table, trees, 0, shown, least, calls)
    several = sum(tree.merged for tree in trees)
    if several > len(trees):
        table.notes.append(f"Sums over {several} processes; those of equal commands are one branch.")
    return table


def _add_branch(table: Table, nodes: list[Node], depth: int, view: View, least: float, calls: bool) -> None:
    size = SORTS[view.sort]
    ordered = sorted(nodes, key=lambda node: (-size(node), node.begin_ns))
    shown = [node for node in ordered if size(node) >= least] if depth else ordered
    for node in shown:
        table.rows.append(_branch_row(node, depth, view, calls))
        if view.depth is None or depth < view.depth:
            _add_branch(table, node.children, depth + 1, view, least, calls)
    folded = ordered[len(shown) :]
    if folded:
        table.rows.append(_branch_row(_together(folded), depth, view, calls))


def _together(nodes: list[Node]) -> Node:
    """One node for small ones; modules below them are in their sums."""
    folded = Node(f"… {len(nodes)} smaller", nodes[0].process, 1)
    for node in nodes:
        folded.whole.add(node.whole)
        for time in ("wall_ns", "self_wall_ns", "cpu_ns"):
            setattr(folded, time, getattr(folded, time) + getattr(node, time))
    return folded


def _branch_row(node: Node, depth: int, view: View, calls: bool) -> tuple[Cell, ...]:
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


# ---------------------------------------------------------------- the imports as nested boxes: for pages that draw them
FORMAT = 1


def import_icicle(tables: Tables, selection: Selection = ALL) -> dict[str, Any]:
    """One root over all processes; every box has its own and its inclusive time and calls."""
    calls = has_calls(tables)
    boxes = [_box(tree, calls) for tree in merged(import_trees(tables, selection), node_name)]
    names = ("wall_ns", "cpu_ns", "calls", "stats", "opens", "failed")
    totals = {name: None if boxes and boxes[0][name] is None else sum(box[name] for box in boxes) for name in names}
    self_times = {f"self_{name}": 0 if totals[name] is not None else None for name in names}
    return {"format": FORMAT, "name": "all processes", "kind": "run", **totals, **self_times, "children": boxes}


def _box(top: Node, calls: bool) -> dict[str, Any]:
    boxes: dict[int, dict[str, Any]] = {}
    for node in reversed(list(top.walk())):
        box = _numbers(node, calls)
        box["children"] = sorted((boxes.pop(id(child)) for child in node.children), key=lambda box: -box["wall_ns"])
        boxes[id(node)] = box
    return boxes[id(top)]


def _numbers(node: Node, calls: bool) -> dict[str, Any]:
    counts = {
        f"{prefix}{name}": getattr(side, name) if calls else None
        for prefix, side in (("", node.whole), ("self_", node.own))
        for name in ("calls", "stats", "opens", "failed")
    }
    times = {name: getattr(node, name) for name in ("wall_ns", "self_wall_ns", "cpu_ns", "self_cpu_ns")}
    return {"name": node.name, "kind": "process" if node.is_process else "module", **times, **counts}


# ---------------------------------------------------------------- modules
COUNTED = {  # the title of each, and what is counted
    "calls": ("calls", "system calls"),
    "opens": ("opens", "calls of open, openat, openat2, creat"),
    "stats": ("stats", "calls of stat, lstat, fstat, newfstatat, statx"),
    "reads": ("reads", "calls of read, pread64, readv, preadv, preadv2"),
    "mmaps": ("mmaps", "calls of mmap"),
    "failed": ("failed", "calls that returned an error"),
    "missing": ("missing", "calls that returned ENOENT"),
    "search_calls": ("search", "calls while Python looks for the module"),
    "code_calls": ("code", "calls that read bytecode or source"),
    "loader_calls": ("loader", "calls of the dynamic loader"),
    "module_calls": ("own code", "calls of the module's own code"),
}
MODULES_COLUMNS = (
    Column("module", Unit.NAME, "Module", "its name; of a process, outside its imports, its command"),
    Column("self_wall_ns", Unit.NS, "Self wall", "from begin to end of the import, without the imports inside"),
    Column("wall_ns", Unit.NS, "Wall", "from begin to end of the import, with the imports inside"),
    Column("self_cpu_ns", Unit.NS, "Self CPU", "CPU time of the importing thread, without the imports inside"),
    Column(
        "cpu_ns",
        Unit.NS,
        "CPU",
        "CPU time of the importing thread, with the imports inside and the processes that were started meanwhile",
    ),
    *(
        column
        for name, (title, counted) in COUNTED.items()
        for column in (
            Column(f"self_{name}", Unit.COUNT, f"Self {title}", f"{counted}: its own"),
            Column(name, Unit.COUNT, title.capitalize(), f"{counted}: its own and of all below it"),
        )
    ),
    Column("self_read_bytes", Unit.BYTES, "Self read", "bytes that its own reads returned"),
    Column("read_bytes", Unit.BYTES, "Read", "bytes that reads returned, with all below it"),
    Column("self_call_ns", Unit.NS, "Self in calls", "time inside its own calls that are more than waiting"),
    Column("call_ns", Unit.NS, "In calls", "time inside calls that are more than waiting, with all below it"),
    Column("self_shared_objects", Unit.COUNT, "Self libs", "number of shared objects that it loaded"),
    Column("shared_objects", Unit.COUNT, "Libs", "number of shared objects that were loaded, with all below it"),
    Column(
        "times",
        Unit.COUNT,
        "Imports",
        "number of imports this line stands for: equal ones of several processes are added up",
    ),
    Column("parent", Unit.NAME, "Imported by", "what imported it"),
    Column(
        "importtime_self_ns", Unit.NS, "importtime self", "its own time in a loaded output of `python -X importtime`"
    ),
    Column("importtime_ns", Unit.NS, "importtime", "its cumulative time in a loaded output of `python -X importtime`"),
)
IMPORTTIME_SQL = """
    WITH own AS (SELECT name, sum(total_ns) AS own_ns FROM tallies WHERE layer = 'import' GROUP BY name),
    whole AS (SELECT name, sum(total_ns) AS whole_ns FROM range_tallies WHERE layer = 'import' GROUP BY name)
    SELECT name, own_ns, whole_ns FROM own FULL JOIN whole USING (name)"""
Times = Mapping[str, tuple[float | None, float | None]]


def import_modules(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each module under what imported it first, beside that of a loaded `python -X importtime`."""
    calls = has_calls(tables)
    importtime = {name: (own_ns, total_ns) for name, own_ns, total_ns in tables.query(IMPORTTIME_SQL)}
    table = Table("import_modules", "Modules", MODULES_COLUMNS, [])
    for tree in merged(import_trees(tables, selection), node_name):
        _add(table, tree, importtime, calls)
    table.rows.sort(key=lambda row: -float(row[1] or 0))
    table.notes.append("Self columns add up to the whole run: the modules and the processes outside their imports.")
    return arranged(table, selection)


def _add(table: Table, top: Node, importtime: Times, calls: bool) -> None:
    waiting = [(top, "")]
    while waiting:
        node, above = waiting.pop()
        beside = importtime.get(node.name, (None, None))
        table.rows.append((*_row(node, calls), above, *beside))
        waiting += [(child, node.name) for child in node.children]


def _row(node: Node, calls: bool) -> tuple[Cell, ...]:
    pairs: list[Cell] = []
    for name in (*COUNTED, "read_bytes", "call_ns"):
        pairs += [getattr(node.own, name), getattr(node.whole, name)] if calls else [None, None]
    return (
        *(node.name, node.self_wall_ns, node.wall_ns, node.self_cpu_ns, node.cpu_ns),
        *pairs,
        *(node.own.shared_objects, node.whole.shared_objects, node.merged),
    )
