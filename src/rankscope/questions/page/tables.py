"""Which of many ranks, hosts and groups of hosts differ from the others?"""

from __future__ import annotations

from rankscope.model.tables import Cell, Table, Tables
from rankscope.pictures import Chart, Section
from rankscope.questions.condense import Condensed
from rankscope.questions.page.section import PageOptions, column, number, part_words
from rankscope.questions.ranks.behaviour import FAR, alike
from rankscope.questions.ranks.outliers import far_places, outliers, outlying_ranks, places
from rankscope.questions.selection import MANY_RANKS, Selection
from rankscope.questions.wording import counted, in_words, seconds, size


# ---------------------------------------------------------------------------------------------------------------------
# Bars by rank; where these are too many, by host, and the ranks that stand out.
def bars(few: Condensed, title: str, parts: tuple[str, ...], axis: str, *orders: str) -> list[Chart]:
    """One picture of all ranks or hosts, and one of the ranks that stand out where the first has not each of them."""
    charts = [Chart("bars", few.drawn.name, title, few.label, parts, axis, few.label, few.orders(*orders))]
    if few.outliers is not None:
        charts.append(Chart("bars", few.outliers.name, _stands_out(few), "rank", parts, axis, "rank"))
    return charts


def _stands_out(few: Condensed) -> str:
    """What the first of the ranks that differ in something has here."""
    assert few.outliers is not None
    described = next(each for each in few.outliers.columns if each.name == few.key)
    rank, value = column(few.outliers, "rank")[0], number(column(few.outliers, few.key)[0])
    what = part_words(few.outliers)[described.name]
    usual = in_words(few.median, described.unit)
    return f"Ranks that differ: rank {rank} has {in_words(value, described.unit)} {what}, the median is {usual}"


# ---------------------------------------------------------------- all other tables of the run
MOST_ROWS_OF_OTHERS = 500
NAME = "tables"


def more_section(tables: list[Table]) -> Section | None:
    """Those that belong to no question of the page, cut where they are long."""
    shown = [cut(table) for table in tables if table.rows or table.warnings]
    return Section(NAME, "All tables", shown) if shown else None


def cut(table: Table, most: int = MOST_ROWS_OF_OTHERS) -> Table:
    """The first rows, saying where the others are."""
    left = len(table.rows) - most
    if left > 0:
        text = f"{left} more rows: rankscope report --table {table.name} --format csv has all."
        table = Table(table.name, table.title, table.columns, table.rows[:most], [*table.notes, text], table.warnings)
    return table


# ---------------------------------------------------------------- tables
MOST_ROWS = 20
RANKS = "SELECT count(*) FROM ranks WHERE role = 'rank'"


def differing_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The tables with which the report of many ranks begins; of hosts and groups only those that differ."""
    if tables.query(RANKS)[0][0] < MANY_RANKS:
        return None
    chosen = Selection(wanted.selection.ranks)
    ranks, groups, places_far = outliers(tables, chosen), alike(tables, chosen), far_places(places(tables, chosen))
    candidates = [ranks, *([groups] if len(groups.rows) > 1 else []), places_far]
    lead = " ".join((_of_ranks(ranks), _of_groups(groups), _of_places(places_far)))
    shown = [cut(table, MOST_ROWS) for table in candidates if table.rows]
    return Section("differing", "Which ranks, hosts and groups of hosts differ?", shown, lead=lead)


def marked(tables: Tables, wanted: PageOptions) -> list[int]:
    """The ranks that pictures show besides, where there are many: those that the table `outliers` names."""
    return outlying_ranks(tables, wanted.selection) if tables.query(RANKS)[0][0] >= MANY_RANKS else []


def _of_ranks(table: Table) -> str:
    if not table.rows:
        return f"No rank is {FAR} spreads or more from the median in anything."
    rank, host, by, unit = (column(table, name)[0] for name in ("rank", "host", "by", "unit"))
    value, usual = (number(column(table, name)[0]) for name in ("value", "usual"))
    return f"Rank {rank} on {host} differs most: {by} {_amount(value, unit)}, median {_amount(usual, unit)}."


def _of_groups(table: Table) -> str:
    if len(table.rows) < 2:
        return "All behave alike." if table.rows else ""
    sizes = [int(number(cell)) for cell in column(table, "ranks")]
    others = sum(sizes[1:])
    return f"{counted(sizes[0], 'rank')} behave alike, {others} {'differs' if others == 1 else 'differ'}."


def _of_places(table: Table) -> str:
    if not table.rows:
        return "No host or group of hosts differs."
    by, place, measure = (column(table, name)[0] for name in ("by", "place", "measure"))
    return f"The {by} that differs most is {place}, in {str(measure).removeprefix('in ')}."


def _amount(value: float, unit: Cell) -> str:
    if unit == "ms":
        return seconds(value * 1e6)
    return size(value * 1024**2) if unit == "MiB" else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
