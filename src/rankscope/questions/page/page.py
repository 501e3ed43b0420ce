"""All that the page about a run shows."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.analyse.findings import findings
from rankscope.analyse.sections.memory import memory_section
from rankscope.analyse.sections.more import more_section
from rankscope.analyse.sections.overhead import overhead_section
from rankscope.analyse.sections.start import start_section
from rankscope.analyse.sections.waiting import wait_map_section, waiting_section
from rankscope.model import Tables
from rankscope.pictures import Page, Section
from rankscope.questions.page.communication import communication_section
from rankscope.questions.page.gpu import gpu_section, gpu_time_section
from rankscope.questions.page.imports import imports_section
from rankscope.questions.page.ranks import balance_section
from rankscope.questions.page.section import Wanted
from rankscope.questions.page.steps import step_parts_section
from rankscope.questions.page.tables import differing_section
from rankscope.questions.run.coverage import coverage
from rankscope.questions.run.overview import overview

SECTIONS: tuple[Callable[[Tables, Wanted], Section | None], ...] = (
    differing_section,
    start_section,
    imports_section,
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


def page_of(tables: Tables, title: str, wanted: Wanted | None = None) -> Page:
    """The top, each section that has anything to show, and the tables that belong to none."""
    wanted = wanted or Wanted()
    sections = [section for make in SECTIONS if (section := make(tables, wanted)) is not None]
    top = overview(tables, wanted.selection), coverage(tables), findings(tables)
    placed = {table.name for section in sections for table in section.tables} | {table.name for table in top}
    if any(section.lead for section in sections):
        placed |= {"outliers", "alike", "places"}  # without rows they have their sentence
    others = more_section([make() for name, make in wanted.more.items() if name not in placed])
    return Page(title, *top, [*sections, *([others] if others else [])], list(wanted.notes))
