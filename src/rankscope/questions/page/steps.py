"""Where does a step go, on each rank?"""

from __future__ import annotations

from rankscope.analyse.sections.bars import bars
from rankscope.analyse.sections.sentences import column, hosts_of, largest_parts, mean, number, seconds
from rankscope.analyse.step_parts import OWN, step_parts
from rankscope.model import Column, Table, Tables, Unit
from rankscope.pictures import Section
from rankscope.questions.condense import condensed
from rankscope.questions.page.section import Wanted
from rankscope.questions.page.tables import marked
from rankscope.questions.steps.steps import steps

WAITING, MOVING = "exposed_wait_ns", "exposed_transfer_ns"
BLOCKED = (Column(WAITING, Unit.NS, "Blocked waiting"), Column(MOVING, Unit.NS, "Blocked moving data"))


def step_parts_section(tables: Tables, wanted: Wanted) -> Section | None:
    """The mean step of each rank as one stacked bar."""
    table = _with_blocked(step_parts(tables, wanted.selection))
    if not table.rows:
        return None
    split = any(cell is not None for cell in column(table, WAITING))
    drawn = [f"{part}_ns" for part in OWN] + ([WAITING, MOVING] if split else ["exposed_ns"])
    parts = tuple(name for name in drawn if any(number(cell) for cell in column(table, name)))
    few = condensed(table, hosts_of(tables), "exposed_ns", marked(tables, wanted))
    blocked = WAITING if split else "exposed_ns"
    charts = bars(few, _title(table, parts), parts, "mean step", "host", blocked, "step_ns")
    spread = steps(tables, wanted.selection, by_rank=False)
    return Section("steps", "Where does a step go?", [*few.tables, spread], charts)


def _title(table: Table, parts: tuple[str, ...]) -> str:
    step = mean(table, "step_ns")
    titles = {one.name: (one.title or one.name).lower() for one in table.columns}
    told = largest_parts({titles[name]: mean(table, name) for name in parts}, step)
    return f"A step takes {seconds(step)}: {told}" if told else f"A step takes {seconds(step)}"


def _with_blocked(table: Table) -> Table:
    """What blocks is first waiting and then moving data, so that it is moving data as far as that goes."""
    names = [one.name for one in table.columns]
    exposed, transfer = names.index("exposed_ns"), names.index("transfer_ns")
    for at, row in enumerate(table.rows):
        moving = min(number(row[exposed]), number(row[transfer])) if row[transfer] is not None else None
        waiting = number(row[exposed]) - moving if moving is not None else None
        table.rows[at] = (*row, waiting, moving)
    table.columns = (*table.columns, *BLOCKED)
    return table
