"""Do ranks and hosts share the work evenly?"""

from __future__ import annotations

from rankscope.analyse.balance import balance
from rankscope.analyse.hosts import hosts
from rankscope.analyse.sections.bars import bars
from rankscope.analyse.sections.more import cut
from rankscope.analyse.sections.sentences import column, hosts_of, mean, number, seconds
from rankscope.model import Table, Tables
from rankscope.pictures import Section
from rankscope.questions.condense import condensed
from rankscope.questions.page.section import Wanted
from rankscope.questions.page.tables import marked
from rankscope.questions.ranks.ranks import ranks

MPI_PARTS, CPU_PARTS = ("outside_ns", "comm_ns"), ("user_ns", "system_ns")


def balance_section(tables: Tables, wanted: Wanted) -> Section | None:
    """Time outside and inside MPI by rank; CPU time where there is no MPI."""
    shared, everyone = balance(tables, wanted.selection), ranks(tables, wanted.selection)
    table, parts = (shared, MPI_PARTS) if shared.rows else (everyone, CPU_PARTS)
    if not any(number(cell) for name in parts for cell in column(table, name)):
        return None
    table.rows.sort(key=lambda row: number(row[0]))
    title = _title(table, parts)
    axis = "from MPI_Init to MPI_Finalize" if shared.rows else "CPU time"
    few = condensed(table, hosts_of(tables), parts[0], marked(tables, wanted))
    charts = bars(few, title, parts, axis, "host", *parts)
    found = few.tables
    by_host = hosts(tables, wanted.selection)
    if len(by_host.rows) > 1:
        found = [*found, cut(by_host)]
    return Section("balance", "Do ranks and hosts share the work evenly?", found, charts)


def _title(table: Table, parts: tuple[str, ...]) -> str:
    values = [number(cell) for cell in column(table, parts[0])]
    average, most = mean(table, parts[0]), max(values)
    who = column(table, "rank")[values.index(most)]
    what = "outside MPI" if parts is MPI_PARTS else "of CPU time in user mode"
    if not average:
        return f"No rank spends time {what}"
    return f"Rank {who} spends the most time {what}: {seconds(most)}, {most / average:.2f} times the mean"
