"""What does each rank go through before its first step?"""

from __future__ import annotations

from rankscope.analyse.phase_ranks import phase_ranks
from rankscope.analyse.sections.bars import bars
from rankscope.analyse.sections.sentences import column, hosts_of, mean, number, seconds
from rankscope.analyse.waterfall import SEGMENTS
from rankscope.model import Column, Table, Tables, Unit
from rankscope.pictures import Section
from rankscope.questions.condense import condensed
from rankscope.questions.page.section import Wanted
from rankscope.questions.page.tables import marked
from rankscope.questions.selection import Selection
from rankscope.questions.steps.phases import phases

UP_TO_STEP = SEGMENTS[: SEGMENTS.index("steps")]
UP_TO_COLLECTIVE = SEGMENTS[: SEGMENTS.index("before steps")]
START = Column("startup_ns", Unit.NS, "Start-up")
HOST = Column("host", Unit.NAME, "Host")


def start_section(tables: Tables, wanted: Wanted) -> Section | None:
    """The waterfall up to the end of the first step, or of the first collective where there are no steps."""
    table = phase_ranks(tables, wanted.selection)
    if not table.rows:
        return None
    stepped = any(number(cell) for cell in column(table, "first_step_ns"))
    names = [f"{name.replace(' ', '_')}_ns" for name in (UP_TO_STEP if stepped else UP_TO_COLLECTIVE)]
    parts = tuple(name for name in names if any(number(cell) for cell in column(table, name)))
    hosts = hosts_of(tables)
    _add(table, parts, hosts)
    few = condensed(table, hosts, START.name, marked(tables, wanted))
    until = "first step" if stepped else "first collective"
    axis = "time since the process started"
    charts = bars(few, _title(table, parts, until), parts, axis, "host", START.name)
    question = "What does each rank go through before its first step?"
    return Section("start", question, [*few.tables, phases(tables, Selection(wanted.selection.ranks))], charts)


def _add(table: Table, parts: tuple[str, ...], hosts: dict[int, str]) -> None:
    places = [at for at, one in enumerate(table.columns) if one.name in parts]
    table.columns = (table.columns[0], HOST, START, *table.columns[1:])
    for at, row in enumerate(table.rows):
        host = hosts.get(row[0], "") if isinstance(row[0], int) else ""
        table.rows[at] = (row[0], host, sum(number(row[place]) for place in places), *row[1:])


def _title(table: Table, parts: tuple[str, ...], until: str) -> str:
    titles = {one.name: (one.title or one.name).lower() for one in table.columns}
    told = f"It takes {seconds(mean(table, START.name))} until the end of the {until}"
    if len(parts) < 2:
        return told
    longest = max(parts, key=lambda name: mean(table, name))
    return f"{told}, {seconds(mean(table, longest))} of it {titles[longest]}"
