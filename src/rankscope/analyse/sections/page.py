"""All that the page about a run shows."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.analyse.coverage import coverage
from rankscope.analyse.findings import findings
from rankscope.analyse.overview import overview
from rankscope.analyse.sections.start import start_section
from rankscope.analyse.sections.step_parts import step_parts_section
from rankscope.analyse.selection import ALL, Selection
from rankscope.model import Page, Section, Tables

SECTIONS: tuple[Callable[[Tables, Selection], Section | None], ...] = (
    start_section,
    step_parts_section,
)


def page_of(tables: Tables, title: str, selection: Selection = ALL) -> Page:
    """The top, and each section that has anything to show."""
    found = (make(tables, selection) for make in SECTIONS)
    sections = [section for section in found if section is not None]
    return Page(title, overview(tables, selection), coverage(tables), findings(tables), sections)
