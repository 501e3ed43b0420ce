"""Which imports take the time, and which the file calls?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.pictures import Chart, Section
from rankscope.questions.page.section import PageOptions, column, number
from rankscope.questions.wording import counted, seconds

COLUMNS = (
    Column("name", Unit.NAME, "Module"),
    Column(
        "wall_ns",
        Unit.NS,
        "Time",
        "from begin to end of the import, with the imports inside; of a process, its whole life; summed over the "
        "processes of one command",
    ),
    Column("self_wall_ns", Unit.NS, "Self time", "from begin to end of the import, without the imports inside"),
    Column("calls", Unit.COUNT, "System calls", "system calls: its own and of all below it"),
    Column("self_calls", Unit.COUNT, "Self system calls", "system calls: its own"),
    Column("id", Unit.NAME, "Number"),
    Column("parent", Unit.NAME, "Imported by number"),
)
SMALLEST = 2e-4  # of all: what is less is in the boxes around it
MOST = 3000


def imports_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """Modules as boxes in those that imported them."""
    if not wanted.imports or not wanted.imports.get("children"):
        return None
    table = import_boxes(wanted.imports)
    calls_known = any(number(cell) for cell in column(table, "calls"))
    parts = ("wall_ns", "self_wall_ns", *(("calls", "self_calls") if calls_known else ()))
    chart = Chart("icicle", table.name, _title(table, calls_known), "name", parts, "time, summed over processes")
    return Section("imports", "Which imports take the time?", [table], [chart])


def import_boxes(root: Mapping[str, Any]) -> Table:
    """The nested boxes as rows, each with the number of the one around it; the root is none of them."""
    table = Table("import_boxes", "Imports", COLUMNS, [])
    root = _side_by_side(root)
    total_ns = number(root.get("wall_ns")) or sum(number(box.get("wall_ns")) for box in root["children"])
    left_out = 0
    for at, parent, box in _boxes(root):
        if number(box.get("wall_ns")) < SMALLEST * total_ns or len(table.rows) >= MOST:
            left_out += 1
        else:
            numbers: list[Cell] = [box.get(name) for name in ("wall_ns", "self_wall_ns", "calls", "self_calls")]
            table.rows.append((str(box["name"]), *numbers, at, parent))
    if left_out:
        table.notes.append(f"Left out: {counted(left_out, 'module')} of less than {100 * SMALLEST:g} % of the time.")
    return table


def _boxes(root: Mapping[str, Any]) -> Iterator[tuple[int, int | None, Mapping[str, Any]]]:
    """Every box after the one around it, the larger ones first."""
    order = count()
    waiting: list[tuple[float, int, int | None, Mapping[str, Any]]] = []

    def add(parent: int | None, boxes: Iterable[Mapping[str, Any]]) -> None:
        for box in boxes:
            heappush(waiting, (-number(box.get("wall_ns")), next(order), parent, box))

    add(None, root["children"])
    at = 0
    while waiting:
        _, _, parent, box = heappop(waiting)
        at += 1
        yield at, parent, box
        add(at, box.get("children", ()))


def _side_by_side(root: Mapping[str, Any]) -> dict[str, Any]:
    """No process inside another: those that one starts run side by side, longer in sum than the one around them."""
    tops: list[dict[str, Any]] = []

    def alone(box: Mapping[str, Any]) -> dict[str, Any]:
        before = len(tops)
        children = [(child.get("kind"), alone(child)) for child in box.get("children", ())]
        tops.extend(child for kind, child in children if kind == "process")
        reduced = {**box, "children": [child for kind, child in children if kind != "process"]}
        if reduced.get("calls") is not None:
            reduced["calls"] -= sum(child["calls"] for child in tops[before:])
        return reduced

    tops += [alone(child) for child in root["children"]]
    return {**root, "wall_ns": None, "children": tops}


def _title(table: Table, calls_known: bool) -> str:
    tops = [row for row in table.rows if row[-1] is None]
    processes = {row[-2] for row in tops}
    total_ns = sum(number(row[1]) for row in table.rows if row[-1] in processes)
    calls = sum(number(row[3]) for row in tops)
    modules = [row for row in table.rows if row[-1] is not None]
    if not modules:
        return "No import takes long"
    longest = max(modules, key=lambda row: number(row[1]))
    text = f"{longest[0]} takes {seconds(number(longest[1]))} of the {seconds(total_ns)} of all imports"
    return f"{text}; all processes make {calls:,.0f} system calls" if calls_known else text
