"""All that the page about a run shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.model import Table, Tables
from rankscope.pictures import Chart, Page, Section
from rankscope.questions.findings import findings
from rankscope.questions.page.communication import communication_section, wait_map_section, waiting_section
from rankscope.questions.page.gpu import gpu_section, gpu_steps_section, gpu_time_section
from rankscope.questions.page.imports import imports_section
from rankscope.questions.page.ranks import balance_section, memory_section
from rankscope.questions.page.section import PageOptions, column, number, percent, seconds
from rankscope.questions.page.steps import start_section, step_parts_section
from rankscope.questions.page.tables import differing_section, more_section
from rankscope.questions.run.coverage import LOSSES, coverage, overhead
from rankscope.questions.run.overview import overview


# ---------------------------------------------------------------- what did the recording cost, and what was lost?
def overhead_section(tables: Tables, wanted: PageOptions) -> Section | None:
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
    told = (
        f"Recording cost at least {seconds(number(cost) + number(setup))} on rank {rank}, which has the largest share"
    )
    told += f" ({percent(number(share))})" if share is not None else ""
    kinds = len(lost)
    return f"{told}; nothing was lost" if not kinds else f"{told}; {kinds} kind{'s' * (kinds > 1)} of things were lost"


# ---------------------------------------------------------------- page
SECTIONS: tuple[Callable[[Tables, PageOptions], Section | None], ...] = (
    differing_section,
    start_section,
    imports_section,
    gpu_steps_section,
    step_parts_section,
    wait_map_section,
    waiting_section,
    communication_section,
    gpu_section,
    gpu_time_section,
    memory_section,
    balance_section,
    overhead_section,
)


def page_of(tables: Tables, title: str, wanted: PageOptions | None = None) -> Page:
    """The top, each section that has anything to show, and the tables that belong to none."""
    wanted = wanted or PageOptions()
    sections = [section for make in SECTIONS if (section := make(tables, wanted)) is not None]
    top = overview(tables, wanted.selection), coverage(tables), findings(tables)
    placed = {table.name for section in sections for table in section.tables} | {table.name for table in top}
    if any(section.lead for section in sections):
        placed |= {"outliers", "alike", "places"}  # without rows they have their sentence
    others = more_section([make() for name, make in wanted.more.items() if name not in placed])
    return Page(title, *top, [*sections, *([others] if others else [])], list(wanted.notes))
