"""Which of many ranks, hosts and groups of hosts differ from the others?"""

from __future__ import annotations

from rankscope.analyse.alike import alike
from rankscope.analyse.places import far_places, places
from rankscope.analyse.sections.more import cut
from rankscope.analyse.sections.sentences import column, number
from rankscope.model import Table, Tables
from rankscope.pictures import Section
from rankscope.questions.page.section import Wanted
from rankscope.questions.ranks.behaviour import FAR, MANY_RANKS
from rankscope.questions.ranks.outliers import outliers, outlying_ranks
from rankscope.questions.selection import Selection
from rankscope.questions.wording import counted

MOST_ROWS = 20
RANKS = "SELECT count(*) FROM ranks WHERE role = 'rank'"


def differing_section(tables: Tables, wanted: Wanted) -> Section | None:
    """The tables with which the report of many ranks begins; of hosts and groups only those that differ."""
    if tables.query(RANKS)[0][0] < MANY_RANKS:
        return None
    chosen = Selection(wanted.selection.ranks)
    ranks, groups, places_far = outliers(tables, chosen), alike(tables, chosen), far_places(places(tables, chosen))
    found = [ranks, *([groups] if len(groups.rows) > 1 else []), places_far]
    lead = " ".join((_of_ranks(ranks), _of_groups(groups), _of_places(places_far)))
    shown = [cut(table, MOST_ROWS) for table in found if table.rows]
    return Section("differing", "Which ranks, hosts and groups of hosts differ?", shown, lead=lead)


def marked(tables: Tables, wanted: Wanted) -> list[int]:
    """The ranks that pictures show besides, where there are many: those that the table `outliers` names."""
    return outlying_ranks(tables, wanted.selection) if tables.query(RANKS)[0][0] >= MANY_RANKS else []


def _of_ranks(table: Table) -> str:
    if not table.rows:
        return f"No rank is {FAR} spreads or more from the median in anything."
    rank, host, by, unit = (column(table, name)[0] for name in ("rank", "host", "by", "unit"))
    value, usual = (number(column(table, name)[0]) for name in ("value", "usual"))
    amount = "" if unit == "count" else f" {unit}"
    return f"Rank {rank} on {host} differs most: {by} {_short(value)}{amount}, the median is {_short(usual)}{amount}."


def _of_groups(table: Table) -> str:
    if len(table.rows) < 2:
        return "All behave alike." if table.rows else ""
    sizes = [int(number(cell)) for cell in column(table, "ranks")]
    return f"{counted(sizes[0], 'rank')} behave alike, {sum(sizes[1:])} otherwise."


def _of_places(table: Table) -> str:
    if not table.rows:
        return "No host or group of hosts differs."
    by, place, measure = (column(table, name)[0] for name in ("by", "place", "measure"))
    return f"The {by} that differs most is {place}, in {str(measure).removeprefix('in ')}."


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
