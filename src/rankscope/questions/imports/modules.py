"""What does each module cost by itself and with all that it imports?"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.analyse.import_names import node_name
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.trees import Node, has_calls, import_trees, merged
from rankscope.questions.selection import ALL, Selection, arranged

COUNTED = {
    "calls": "calls",
    "opens": "opens",
    "stats": "stats",
    "reads": "reads",
    "mmaps": "mmaps",
    "failed": "failed",
    "missing": "missing",
    "search_calls": "search",
    "code_calls": "code",
    "loader_calls": "loader",
    "module_calls": "own code",
}
COLUMNS = (
    Column("module", Unit.NAME, "Module"),
    Column("self_wall_ns", Unit.NS, "Self wall"),
    Column("wall_ns", Unit.NS, "Wall"),
    Column("self_cpu_ns", Unit.NS, "Self CPU"),
    Column("cpu_ns", Unit.NS, "CPU"),
    *(
        column
        for name, title in COUNTED.items()
        for column in (
            Column(f"self_{name}", Unit.COUNT, f"Self {title}"),
            Column(name, Unit.COUNT, title.capitalize()),
        )
    ),
    Column("self_read_bytes", Unit.BYTES, "Self read"),
    Column("read_bytes", Unit.BYTES, "Read"),
    Column("self_call_ns", Unit.NS, "Self in calls"),
    Column("call_ns", Unit.NS, "In calls"),
    Column("self_shared_objects", Unit.COUNT, "Self libs"),
    Column("shared_objects", Unit.COUNT, "Libs"),
    Column("times", Unit.COUNT, "Imports"),
    Column("parent", Unit.NAME, "Imported by"),
    Column("importtime_self_ns", Unit.NS, "importtime self"),
    Column("importtime_ns", Unit.NS, "importtime"),
)
IMPORTTIME_SQL = """
    SELECT name, sum(CASE WHEN kind <> 'whole' THEN total_ns END), sum(CASE WHEN kind = 'whole' THEN total_ns END)
    FROM tallies WHERE layer = 'import' GROUP BY name"""
Times = Mapping[str, tuple[float | None, float | None]]


def import_modules(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each module under what imported it first, beside that of a loaded `python -X importtime`."""
    calls = has_calls(tables)
    importtime = {name: (own, whole) for name, own, whole in tables.query(IMPORTTIME_SQL)}
    table = Table("import_modules", "Modules", COLUMNS, [])
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
