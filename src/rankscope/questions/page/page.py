"""All that the page about a run shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from rankscope.model.tables import Table, Tables
from rankscope.pictures import Chart, Figure, Page, Screen, Section
from rankscope.questions.page.communication import communication_section, wait_map_section, waiting_section
from rankscope.questions.page.gpu import gpu_section, gpu_steps_section, gpu_time_section
from rankscope.questions.page.imports import imports_section
from rankscope.questions.page.ranks import balance_section, memory_section
from rankscope.questions.page.section import PageOptions, column, number
from rankscope.questions.page.step_times import step_times_section
from rankscope.questions.page.steps import START, start_section, startup_ns, step_parts_section
from rankscope.questions.page.tables import differing_section, more_section
from rankscope.questions.page.timeline import timeline_section
from rankscope.questions.registry import QUESTIONS
from rankscope.questions.run.coverage import LOSSES, coverage, overhead
from rankscope.questions.run.overview import overview
from rankscope.questions.run.screen import LABELS, NOTICEABLE, screen
from rankscope.questions.selection import Selection
from rankscope.questions.wording import percent, seconds

DETAILS = "Details"


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
    sentence = (
        f"Recording cost at least {seconds(number(cost) + number(setup))} on rank {rank}, which has the largest share"
    )
    sentence += f" ({percent(number(share))})" if share is not None else ""
    kinds = len(lost)
    return (
        f"{sentence}; nothing was lost"
        if not kinds
        else f"{sentence}; {kinds} kind{'s' * (kinds > 1)} of data were lost"
    )


# ---------------------------------------------------------------- page
Make = Callable[[Tables, PageOptions], Section | None]
# as the navigation calls them, in its order; what many ranks differ in comes before all else
GROUPS: tuple[tuple[str, tuple[Make, ...]], ...] = (
    ("Ranks", (differing_section,)),
    ("Steps", (gpu_steps_section, step_times_section, timeline_section, step_parts_section)),
    ("Communication", (wait_map_section, waiting_section, communication_section)),
    ("Ranks", (balance_section,)),
    ("GPU", (gpu_time_section, gpu_section)),
    ("Memory", (memory_section,)),
    ("Start-up", (start_section,)),
    ("Imports", (imports_section,)),
    (DETAILS, (overhead_section,)),
)
# whose picture says most about where the time goes
FIRST = ("gpu_steps", "steps", "gpu_time", "balance", "start", "gpu", "communication", "imports")


def page_of(tables: Tables, title: str, wanted: PageOptions | None = None) -> Page:
    """The first screen, each section that has anything to show, and the tables that belong to none."""
    wanted = wanted or PageOptions()
    sections = list[Section]()
    for group, makers in GROUPS:
        grouped = [section for make in makers if (section := make(tables, wanted)) is not None]
        sections += [replace(section, group=group) for section in grouped]
    top = overview(tables, wanted.selection), coverage(tables)
    placed = {table.name for section in sections for table in section.tables}
    placed |= {"findings", *(table.name for table in top)}
    if any(section.lead for section in sections):
        placed |= {"outliers", "alike", "places"}  # without rows they have their sentence
    others = more_section([make() for name, make in wanted.more.items() if name not in placed])
    sections += [replace(others, group=DETAILS)] if others else []
    seen = wanted.screen or screen(partial(_answer, tables, wanted.selection), title, "")
    names = {section.name for section in sections}
    if not names & set(FIRST) and seen.ranks is not None and seen.ranks.rows:
        table = replace(seen.ranks, name=f"first_{seen.ranks.name}")
        sections.insert(0, Section("shown", seen.ranks.title, [table], unfolded=True, group=seen.ranks.title))
        names.add("shown")
    first = next((name for name in (*FIRST, "shown") if name in names), "")
    return Page(title, seen, _figures(tables, wanted, seen), *top, sections, list(wanted.notes), first)


def _answer(tables: Tables, selection: Selection, name: str) -> Table:
    return QUESTIONS[name].answer(tables, selection)


# ---------------------------------------------------------------- key figures
MOST_BARS = 3
UNSEEN = "–"  # not recorded, or there is none


def _figures(tables: Tables, wanted: PageOptions, seen: Screen) -> list[Figure]:
    """Step, exposed communication, GPU busy, MFU where known, imbalance and start-up: as the terminal has them."""
    shares = {bar.label: bar.share for bar in seen.bars.bars if bar.depth == 0} if seen.bars else {}
    spread = {label: number(value) for label, value, _ in seen.bars.figures} if seen.bars else {}
    on_gpus = seen.bars is not None and seen.bars.table in ("gpu_steps", "gpu_time")
    step = seconds(seen.step_ns) if seen.step_ns else UNSEEN
    p99 = f"p99 {seconds(spread['p99'])}" if "p99" in spread else ""
    exposed = _share(shares.get("exposed communication", 0.0)) if seen.step_ns or on_gpus else UNSEEN
    if seen.rank_count == 1 and "exposed communication" not in shares:
        exposed = UNSEEN
    busy = _share(1 - shares.get("idle", 0.0)) if on_gpus else UNSEEN
    start = startup_ns(tables, wanted.selection)
    mfu = [Figure(label, _share(spread[label]), LABELS[label]) for label in ("MFU", "MFU at least") if label in spread]
    name = "pipeline bubble"
    bubble = [Figure(name.capitalize(), _share(shares[name]), LABELS[name])] if name in shares else []
    figures = [
        Figure("Step", step, "mean length of the steady steps, and their 99th percentile", p99),
        Figure("Exposed communication", exposed, LABELS["exposed communication"]),
        *bubble,
        Figure("GPU busy", busy, "share of the step in which at least one kernel, copy or memset is running"),
        *mfu,
        Figure("Imbalance", f"{seen.imbalance:.2f}" if seen.imbalance else UNSEEN, LABELS["imbalance"]),
        Figure("Start-up", seconds(start) if start else UNSEEN, str(START.formula)),
    ]
    if seen.step_ns or on_gpus:
        return figures
    return [*(figure for figure in figures if figure.value != UNSEEN), *_largest(seen)]


def _largest(seen: Screen) -> list[Figure]:
    """Where there is no step: what takes most of the time that is known."""
    if seen.bars is None:
        return []
    total = seen.bars.title.removeprefix("Where ").removesuffix(" goes")
    about = f"{total}, {seen.bars.note}" if seen.bars.note else total
    return [
        Figure(bar.label, seconds(bar.ns), about, f"{_share(bar.share)} of {total}")
        for bar in [bar for bar in seen.bars.bars if bar.depth == 0][:MOST_BARS]
    ]


def _share(share: float) -> str:
    return "below 1 %" if share < NOTICEABLE else "above 99 %" if share > 1 - NOTICEABLE else f"{100 * share:.0f} %"
