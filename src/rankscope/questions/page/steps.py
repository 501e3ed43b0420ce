"""Where does a step go, on each rank?"""

from __future__ import annotations

from dataclasses import replace

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.pictures import Section
from rankscope.questions.condense import condensed
from rankscope.questions.page.section import (
    PageOptions,
    column,
    hosts_of,
    largest_parts,
    mean,
    number,
    part_words,
    visible_parts,
)
from rankscope.questions.page.step_times import host_groups
from rankscope.questions.page.tables import bars, marked
from rankscope.questions.selection import Selection
from rankscope.questions.steps.phases import SEGMENTS, phase_ranks, phases
from rankscope.questions.steps.startup import startup
from rankscope.questions.steps.steps import OWN, step_parts, steps
from rankscope.questions.wording import seconds

# ---------------------------------------------------------------- what does each rank go through before its first step?
UP_TO_STEP = SEGMENTS[: SEGMENTS.index("steps")]
UP_TO_COLLECTIVE = SEGMENTS[: SEGMENTS.index("before steps")]
START = Column(
    "startup_ns",
    Unit.NS,
    "Start-up",
    "sum of the phases up to the end of the first step; without steps, of the first collective",
)
HOST = Column("host", Unit.NAME, "Host")


def start_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The waterfall up to the end of the first step, or of the first collective where there are no steps."""
    table = phase_ranks(tables, wanted.selection)
    if not table.rows:
        return None
    parts, until = _startup_parts(table)
    hosts = hosts_of(tables)
    _add(table, parts, hosts)
    few = condensed(table, hosts, START.name, marked(tables, wanted))
    axis = "time since the process started"
    charts = bars(few, _title(table, parts, until), parts, axis, "host", START.name)
    question = "What does each rank go through before its first step?"
    chosen = Selection(wanted.selection.ranks)
    return Section("start", question, [*few.tables, phases(tables, chosen), startup(tables, chosen)], charts)


def startup_ns(tables: Tables, selection: Selection) -> float:
    """Mean over the ranks of the time up to the end of the first step."""
    table = phase_ranks(tables, selection)
    return sum(mean(table, name) for name in _startup_parts(table)[0]) if table.rows else 0.0


def _startup_parts(table: Table) -> tuple[tuple[str, ...], str]:
    """The phases that take any time, and what they lead up to."""
    stepped = any(number(cell) for cell in column(table, "first_step_ns"))
    names = [f"{name.replace(' ', '_')}_ns" for name in (UP_TO_STEP if stepped else UP_TO_COLLECTIVE)]
    parts = tuple(name for name in names if any(number(cell) for cell in column(table, name)))
    return parts, "first step" if stepped else "first collective"


def _add(table: Table, parts: tuple[str, ...], hosts: dict[int, str]) -> None:
    places = [at for at, each in enumerate(table.columns) if each.name in parts]
    table.columns = (table.columns[0], HOST, START, *table.columns[1:])
    for at, row in enumerate(table.rows):
        host = hosts.get(row[0], "") if isinstance(row[0], int) else ""
        table.rows[at] = (row[0], host, sum(number(row[place]) for place in places), *row[1:])


def _title(table: Table, parts: tuple[str, ...], until: str) -> str:
    titles = {each.name: (each.title or each.name).lower() for each in table.columns}
    text = f"It takes {seconds(mean(table, START.name))} until the end of the {until}"
    if len(parts) < 2:
        return text
    of_each = {name: sum(number(cell) for cell in column(table, name)) / len(table.rows) for name in parts}
    longest = max(parts, key=lambda name: of_each[name])
    return f"{text}, {seconds(of_each[longest])} of it {titles[longest]}"


# ---------------------------------------------------------------- steps
WAITING, MOVING, UNMATCHED = "exposed_wait_ns", "exposed_transfer_ns", "exposed_unmatched_ns"


def step_parts_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The mean step of each rank as one stacked bar."""
    table = step_parts(tables, wanted.selection)
    if not table.rows:
        return None
    split = any(cell is not None for cell in column(table, WAITING))
    drawn = [f"{part}_ns" for part in OWN] + ([WAITING, MOVING, UNMATCHED] if split else ["exposed_ns"])
    parts = visible_parts(table, drawn, "step_ns")
    few = condensed(table, hosts_of(tables), "exposed_ns", marked(tables, wanted))
    blocked = WAITING if split else "exposed_ns"
    charts = bars(few, _steps_title(table, parts), parts, "mean step", "host", blocked, "step_ns")
    spread = steps(tables, wanted.selection, by_rank=False)
    groups = host_groups(tables, table) if few.drawn is table else None
    charts[:1] = [replace(charts[0], groups=groups.name)] if groups else charts[:1]
    step_groups = [groups] if groups else []
    return Section("steps", "Where does a step go?", [*few.tables, spread], charts, groups=step_groups)


def _steps_title(table: Table, parts: tuple[str, ...]) -> str:
    step, titles = mean(table, "step_ns"), part_words(table)
    parts_text = largest_parts({titles[name]: mean(table, name) for name in parts}, step)
    return f"A step takes {seconds(step)}: {parts_text}" if parts_text else f"A step takes {seconds(step)}"
