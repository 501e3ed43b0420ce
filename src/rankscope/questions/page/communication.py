"""What do the ranks say to each other, in which sizes, and what does it cost?"""

from __future__ import annotations

from rankscope.model.tables import Cell, Table, Tables, Unit
from rankscope.pictures import Chart, Section
from rankscope.questions.collectives.collectives import collectives, nccl
from rankscope.questions.collectives.wait_map import wait_map, waiting_parts
from rankscope.questions.collectives.waiting import AWAITED, INCONCLUSIVE, wait_matrix, waiting
from rankscope.questions.condense import condensed
from rankscope.questions.mpi.messages import matrix, sizes
from rankscope.questions.page.section import PageOptions, column, hosts_of, number
from rankscope.questions.page.tables import marked
from rankscope.questions.selection import Selection
from rankscope.questions.wording import percent, seconds, size


# ---------------------------------------------------------------- which rank waits in which step, and for whom?
def wait_map_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The map of waiting over ranks and steps."""
    table = wait_map(tables, wanted.selection)
    if not any(number(cell) for row in table.rows for cell in row[1:]):
        return None
    names = tuple(each.name for each in table.columns[1:])
    sliced = table.columns[1].unit is Unit.SHARE
    axis = "time since the first collective" if sliced else "step"
    title = _mean_share(table) if sliced else _longest(table)
    chart = Chart("heat", table.name, title, table.columns[0].name, names, axis, table.columns[0].name)
    question = "When does each rank wait?" if sliced else "In which steps does each rank wait?"
    parts = waiting_parts(tables, Selection(wanted.selection.ranks))
    parts.rows = [row for row in parts.rows if row[0] != "step"]
    return Section("wait_map", question, [table, parts], [chart])


def _mean_share(table: Table) -> str:
    cells = [number(cell) for row in table.rows for cell in row[1:] if cell is not None]
    return f"Ranks wait in collectives {percent(sum(cells) / len(cells))} of the time"


def _longest(table: Table) -> str:
    cells = [
        (number(cell), row[0], column.title)
        for row in table.rows
        for cell, column in zip(row[1:], table.columns[1:], strict=True)
        if cell is not None
    ]
    longest_ns, who, step = max(cells)
    mean_ns = sum(cell for cell, _, _ in cells) / len(cells)
    where = f"{table.columns[0].name} {who} in step {step}"
    return f"A rank waits {seconds(mean_ns)} per step on average, {seconds(longest_ns)} at most ({where})"


def waiting_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The matrix of who waits for whom, and the sums by rank."""
    table, matrix = waiting(tables, wanted.selection), wait_matrix(tables, wanted.selection)
    if not table.rows or not any(number(cell) for row in matrix.rows for cell in row[1:]):
        return None
    names = tuple(each.name for each in matrix.columns[1:])
    kind = matrix.columns[0].name
    chart = Chart("heat", matrix.name, _title(table), kind, names, f"waits for {kind}", kind)
    few = condensed(table, hosts_of(tables), "caused_ns", marked(tables, wanted))
    return Section("waiting", "Who waits for whom?", [*few.tables, matrix], [chart])


def _title(table: Table) -> str:
    caused = [number(cell) for cell in column(table, "caused_ns")]
    total, at = sum(caused), caused.index(max(caused))
    rank, verdict = column(table, "rank")[at], column(table, "verdict")[at]
    text = f"{seconds(caused[at])} summed over them, {percent(caused[at] / total) if total else 0} of all waiting"
    if verdict == AWAITED:
        return f"The others wait for rank {rank}: {text}"
    if verdict == INCONCLUSIVE:
        return f"The clocks are not exact enough to say whether rank {rank} is a straggler: {text}"
    return f"No rank stands out; most of the wait is for rank {rank}: {text}"


# ---------------------------------------------------------------- communication
MOST_PAIRS = 1000
STAY = ("wait_ns", "transfer_ns", "leaving_ns")


def communication_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """Operations by message size: how often, how long; of collectives how much of it waits."""
    messages, matched = sizes(tables, wanted.selection), collectives(tables, wanted.selection)
    charts = []
    if messages.rows:
        charts.append(
            _chart(
                messages,
                _communication_title(messages, ("total_ns",), "calls", "calls"),
                ("total_ns", "calls"),
                "calls",
            )
        )
    if matched.rows:
        counts = () if messages.rows else ("collectives",)
        title = _wait_title(matched) if messages.rows else _communication_title(matched, STAY, "collectives", "")
        charts.append(_chart(matched, title, (*STAY, *counts), "collectives"))
    pairs = matrix(tables, Selection(wanted.selection.ranks, MOST_PAIRS))
    shown = [messages, matched, nccl(tables, wanted.selection), pairs]
    if not charts and not any(table.rows for table in shown):
        return None
    question = "Which operations and message sizes take the time?"
    return Section("communication", question, [table for table in shown if table.rows], charts)


def _chart(table: Table, title: str, parts: tuple[str, ...], count: str) -> Chart:
    return Chart("sizes", table.name, title, "up_to_bytes", parts, "", "message up to", series="name", count=count)


def _communication_title(table: Table, times: tuple[str, ...], counts: str, noun: str) -> str:
    spent = [
        sum(number(cell) for cell in cells) for cells in zip(*(column(table, name) for name in times), strict=True)
    ]
    at, total = spent.index(max(spent)), sum(spent)
    share = f", {percent(spent[at] / total)} of all" if total else ""
    count: Cell = column(table, counts)[at]
    text = f"{column(table, 'name')[at]} of up to {size(number(column(table, 'up_to_bytes')[at]))}"
    much = f"{seconds(spent[at])}, summed over the ranks, in {number(count):,.0f} {noun or counts}"
    return f"{text} takes the most time: {much}{share}"


def _wait_title(table: Table) -> str:
    """Of blocking calls: how long nonblocking ones are in progress is no cost, and no part of the MPI time."""
    kinds = column(table, "kind")
    kind = "call" if "call" in kinds else "progress"
    chosen = [at for at, other in enumerate(kinds) if other == kind]
    wait, *after = (sum(number(column(table, name)[at]) for at in chosen) for name in STAY)
    stay = wait + sum(after)
    share = percent(wait / stay) if stay else "nothing"
    inside = "in matched collectives" if kind == "call" else "that matched collectives are in progress"
    return (
        f"{share} of the {seconds(stay)} {inside}, summed over the ranks, is spent waiting for the last rank to arrive"
    )
