"""What do the ranks say to each other, in which sizes, and what does it cost?"""

from __future__ import annotations

from rankscope.analyse.matrix import matrix
from rankscope.analyse.nccl import nccl
from rankscope.analyse.sections.sentences import column, number, percent, seconds, size
from rankscope.model import Cell, Table, Tables
from rankscope.pictures import Chart, Section
from rankscope.questions.collectives.collectives import collectives
from rankscope.questions.mpi.messages import sizes
from rankscope.questions.page.section import Wanted
from rankscope.questions.selection import Selection

MOST_PAIRS = 1000


def communication_section(tables: Tables, wanted: Wanted) -> Section | None:
    """Operations by message size: how often, how long; of collectives how much of it waits."""
    messages, matched = sizes(tables, wanted.selection), collectives(tables, wanted.selection)
    charts = []
    if messages.rows:
        charts.append(_chart(messages, _title(messages, ("total_ns",), "calls", "calls"), ("total_ns", "calls")))
    if matched.rows:
        counts = () if messages.rows else ("collectives",)
        title = (
            _wait_title(matched) if messages.rows else _title(matched, ("wait_ns", "transfer_ns"), "collectives", "")
        )
        charts.append(_chart(matched, title, ("wait_ns", "transfer_ns", *counts)))
    pairs = matrix(tables, Selection(wanted.selection.ranks, MOST_PAIRS))
    found = [messages, matched, nccl(tables, wanted.selection), pairs]
    if not charts and not any(table.rows for table in found):
        return None
    question = "Which operations and message sizes take the time?"
    return Section("communication", question, [table for table in found if table.rows], charts)


def _chart(table: Table, title: str, parts: tuple[str, ...]) -> Chart:
    return Chart("sizes", table.name, title, "up_to_bytes", parts, "", "message up to", series="name")


def _title(table: Table, times: tuple[str, ...], counts: str, noun: str) -> str:
    spent = [
        sum(number(cell) for cell in cells) for cells in zip(*(column(table, name) for name in times), strict=True)
    ]
    at, total = spent.index(max(spent)), sum(spent)
    share = f", {percent(spent[at] / total)} of all" if total else ""
    count: Cell = column(table, counts)[at]
    told = f"{column(table, 'name')[at]} of up to {size(number(column(table, 'up_to_bytes')[at]))}"
    return f"{told} takes the most time: {seconds(spent[at])} in {number(count):,.0f} {noun or counts}{share}"


def _wait_title(table: Table) -> str:
    wait, transfer = (sum(number(cell) for cell in column(table, name)) for name in ("wait_ns", "transfer_ns"))
    share = percent(wait / (wait + transfer)) if wait + transfer else "nothing"
    return f"{share} of the {seconds(wait + transfer)} in matched collectives is waiting for the last to come"
