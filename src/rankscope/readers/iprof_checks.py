"""Do the columns of an iprof table agree: total = calls × average, shares, bounds, and the last line with the sums?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from rankscope.readers.iprof_text import Row, Section, quantity
from rankscope.readers.spans import NOTHING, Span, added, settled

PERCENT = re.compile(r"(\d{1,3}\.\d\d)%$")
HALF_PERCENT = Fraction(1, 20_000)  # half of the last digit of a share
Problem = tuple[int, str]


def share_of(row: Row) -> Fraction | None:
    """The printed share, 0 to 1; None where nothing was there to share."""
    found = PERCENT.match(row.share)
    return Fraction(found[1]) / 100 if found else None


def settled_totals(section: Section) -> list[int]:
    """A total for each row that agrees with everything printed of it, as far as all of that can be true at once."""
    spans = [_by_average(row, section) or _total(row, section) for row in section.rows]
    whole = _whole(section, spans)
    if whole is None:
        return [span.at for span in spans]
    shared = [_by_share(row, span, whole.at) for row, span in zip(section.rows, spans, strict=True)]
    return settled(shared, Span(whole.at, whole.at, whole.at)) or [span.at for span in spans]


def _total(row: Row, section: Section) -> Span:
    return quantity(row.total, section.units) or NOTHING


def _by_average(row: Row, section: Section) -> Span | None:
    good = row.calls - row.errors
    product = quantity(row.average, section.units, good) if good > 0 else None
    return _total(row, section).narrowed(product)


def _whole(section: Section, spans: list[Span]) -> Span | None:
    """What the sum of all rows can be, by the last line, by the rows, and by each row's share."""
    whole: Span | None = added(spans)
    if section.total is not None and whole is not None:
        whole = whole.narrowed(quantity(section.total.total, section.units))
    for row, span in zip(section.rows, spans, strict=True):
        share = share_of(row)
        if whole is None or share is None or share <= HALF_PERCENT:
            continue
        low, high = span.low / (share + HALF_PERCENT), span.high / (share - HALF_PERCENT)
        whole = whole.narrowed(Span(int(low) + 1, whole.at, max(int(low) + 1, int(high))))
    return whole


def _by_share(row: Row, span: Span, whole: int) -> Span:
    share = share_of(row)
    if share is None:
        return span
    low, high = int(whole * (share - HALF_PERCENT)) + 1, int(whole * (share + HALF_PERCENT))
    return span.narrowed(Span(max(0, low), span.at, max(0, low, high))) or span


def problems(section: Section) -> Iterator[Problem]:
    """Line and text of what does not agree."""
    for row in section.rows:
        yield from _row_problems(row, section)
    yield from _share_problems(section)
    yield from _sum_problems(section)


def _row_problems(row: Row, section: Section) -> Iterator[Problem]:
    average, least, most = (quantity(text, section.units) for text in (row.average, row.least, row.most))
    if average is None or least is None or most is None:
        return
    if row.calls > row.errors and _by_average(row, section) is None:
        yield row.line, f"{row.name}: {row.calls} calls of {row.average} do not make {row.total}"
    if least.low > average.high or average.low > most.high:
        yield row.line, f"{row.name}: the average {row.average} is not between {row.least} and {row.most}"


def _share_problems(section: Section) -> Iterator[Problem]:
    shares = [share for row in section.rows if (share := share_of(row)) is not None]
    summed = sum(shares, Fraction(0))
    if shares and abs(summed - 1) > HALF_PERCENT * (len(shares) + 1):
        yield section.line, f"the shares add up to {float(100 * summed):.2f} %, not to 100 %"


def _sum_problems(section: Section) -> Iterator[Problem]:
    total = section.total
    if total is None:
        yield section.line, "the table breaks off: it has no line of totals"
        return
    calls = sum(row.calls for row in section.rows)
    if calls != total.calls and not section.damaged:
        yield total.line, f"the calls add up to {calls}, the total says {total.calls}"
    printed_total = quantity(total.total, section.units)
    summed = added(_total(row, section) for row in section.rows)
    if printed_total and not section.damaged and not summed.meets(printed_total):
        unit = "bytes" if section.is_bytes else "ns"
        yield total.line, f"the rows add up to {summed.at} {unit}, the total says {total.total}"
