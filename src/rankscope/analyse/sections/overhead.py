"""What did the recording cost, and what was lost?"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analyse.overhead import overhead
from rankscope.analyse.sections.sentences import column, number, percent, seconds
from rankscope.model import Table, Tables
from rankscope.pictures import Chart, Section
from rankscope.questions.page.section import Wanted
from rankscope.questions.run.coverage import LOSSES, coverage


def overhead_section(tables: Tables, wanted: Wanted) -> Section | None:
    """The cost of the least, median and most burdened rank, and every kind of loss."""
    table = overhead(tables, wanted.selection)
    if not table.rows:
        return None
    seen = coverage(tables)
    lost = [row for row in seen.rows if row[0] in LOSSES.values()]
    tables_shown = [table, *([Table("losses", "Losses", seen.columns, lost)] if lost else [])]
    chart = Chart("bars", table.name, _title(table, lost), "which", ("cost_ns", "setup_ns"), "cost", "rank with the")
    return Section("overhead", "What did the recording cost, and what was lost?", tables_shown, [chart])


def _title(table: Table, lost: Sequence[object]) -> str:
    rank, cost, setup, share = (column(table, name)[-1] for name in ("rank", "cost_ns", "setup_ns", "share"))
    told = f"Recording cost at most {seconds(number(cost) + number(setup))} (rank {rank})"
    told += f", {percent(number(share))} of its time" if share is not None else ""
    kinds = len(lost)
    return f"{told}; nothing was lost" if not kinds else f"{told}; {kinds} kind{'s' * (kinds > 1)} of things were lost"
