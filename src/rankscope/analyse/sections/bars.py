"""Bars by rank; where these are too many, by host, and the ranks that stand out."""

from __future__ import annotations

from rankscope.analyse.sections.sentences import column, in_words, number
from rankscope.pictures import Chart
from rankscope.questions.condense import Condensed


def bars(few: Condensed, title: str, parts: tuple[str, ...], axis: str, *orders: str) -> list[Chart]:
    """One picture of all ranks or hosts, and one of the ranks that stand out where the first has not each of them."""
    made = [Chart("bars", few.drawn.name, title, few.label, parts, axis, few.label, few.orders(*orders))]
    if few.outliers is not None:
        made.append(Chart("bars", few.outliers.name, _stands_out(few), "rank", parts, axis, "rank"))
    return made


def _stands_out(few: Condensed) -> str:
    """What the first of the ranks that differ in something has here."""
    assert few.outliers is not None
    described = next(one for one in few.outliers.columns if one.name == few.key)
    rank, value = column(few.outliers, "rank")[0], number(column(few.outliers, few.key)[0])
    what = (described.title or described.name).lower()
    usual = in_words(few.median, described.unit)
    return f"Ranks that differ: rank {rank} has {in_words(value, described.unit)} {what}, the median is {usual}"
