"""Where do two series of the same quantity cross: up to which scale is one better, and from where on the other?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.questions.scaling.break_even import BYTES, BreakEven, break_even
from rankscope.questions.scaling.growth import Growth

MOST_SERIES = 6  # of one quantity that are all held against each other without being asked for
COLUMNS = (
    Column("what", Unit.NAME, "What"),
    Column("first", Unit.NAME, "First"),
    Column("second", Unit.NAME, "Second"),
    Column("smallest", Unit.NUMBER, "From", "smallest scale that both series have"),
    Column("largest", Unit.NUMBER, "To", "largest scale that both series have"),
    Column(
        "break_even",
        Unit.NUMBER,
        "Break-even",
        "the last scale at which the two series meet",
    ),
    Column("verdict", Unit.NAME, "Verdict"),
)
SCALES = ("smallest", "largest", "break_even", "scale")

Pair = tuple[Growth, Growth, BreakEven]


def crossover(first: Growth, second: Growth) -> BreakEven | None:
    """Between measured scales both are straight lines; None where they have no scale in common."""
    low, high = max(first.scales[0], second.scales[0]), min(first.scales[-1], second.scales[-1])
    scales = sorted({scale for scale in (*first.scales, *second.scales) if low <= scale <= high})
    if not scales:
        return None
    ours, theirs = (np.interp(scales, growth.scales, growth.medians).tolist() for growth in (first, second))
    return break_even(scales, ours, theirs)


def _verdict(first: Growth, second: Growth, crossing: BreakEven) -> str:
    one, other = first.series, second.series
    return crossing.verdict(one.name, other.name, one.axis, _word(one.unit), is_rate(one.unit))


def _never(first: Growth, second: Growth, crossing: BreakEven) -> str:
    """Where they do not meet: which is better than which."""
    if not crossing.never:
        return ""
    names = (first.series.name, second.series.name)
    leads = _leader(crossing.never, first.series.unit)
    return f"{names[leads]} is {_word(first.series.unit)} than {names[1 - leads]}"


def _word(unit: str) -> str:
    return "faster" if unit == "ns" or is_rate(unit) else "lower"


def _leader(sign: int, unit: str) -> int:
    """Of a positive sign the first is larger: worse for times, better for rates."""
    return int((sign > 0) != is_rate(unit))


def is_rate(unit: str) -> bool:
    return unit.endswith("/s")


def crossovers(grown: Sequence[Growth], against: Sequence[Growth] = (), most: int | None = None) -> Table:
    """All pairs of a quantity, or each series with those it is to be held against; of too many those that meet."""
    table = Table("scale_break_even", "Break-evens", COLUMNS, [])
    met_pairs = []
    for group in alike([*grown, *(growth for growth in against if growth not in grown)]):
        if not against and len(group) > MOST_SERIES:
            text = f"{group[0].series.what}: {len(group)} series are too many to hold all against all"
            table.notes.append(f"{text}: name those to compare with by `rankscope scale --against`")
            continue
        pairs = [
            (one, other) for one in group if one not in against for other in group if other in against
        ] or combinations([one for one in group if not against], 2)
        met_pairs += [(one, other, met) for one, other in pairs if (met := crossover(one, other))]
    if most is not None and len(met_pairs) > most:
        met_pairs = _fewer(met_pairs, most, table.notes)
    table.rows += [_row(*crossing) for crossing in met_pairs]
    table.columns = scaled(COLUMNS, grown)
    if table.rows:
        table.notes.append("Between two measured sizes by straight lines; of several meetings the last is shown.")
    if any(row[5] for row in table.rows) and not any(_is_repeated(growth) for growth in grown):
        table.notes.append("Every size was measured once: only repeats show whether two that are close really cross.")
    return table


def scaled(columns: Sequence[Column], grown: Sequence[Growth]) -> tuple[Column, ...]:
    """Scales that are sizes of messages are told in their unit."""
    if not grown or any(growth.series.axis != BYTES for growth in grown):
        return tuple(columns)
    return tuple(replace(column, unit=Unit.BYTES) if column.name in SCALES else column for column in columns)


def _is_repeated(growth: Growth) -> bool:
    return len(growth.series.points) > len(growth.scales)


def _fewer(pairs: list[Pair], most: int, notes: list[str]) -> list[Pair]:
    """Those that meet; of the others how many there are."""
    counts = Counter(text for pair in pairs if (text := _never(*pair)))
    notes += [
        f"Never in range: {text} at every size ({'1 quantity' if count == 1 else f'{count} quantities'})"
        for text, count in counts.items()
    ]
    meeting = [pair for pair in pairs if pair[2].meetings]
    if len(meeting) > most:
        notes.append(f"The first {most} of {len(meeting)} that meet; `rankscope scale` shows all.")
    return meeting[:most]


def alike(grown: Sequence[Growth]) -> list[list[Growth]]:
    """Those of one quantity, in one unit, over one axis."""
    by_quantity: dict[tuple[str, str, str], list[Growth]] = {}
    for growth in grown:
        if growth.scales:
            by_quantity.setdefault((growth.series.what, growth.series.unit, growth.series.axis), []).append(growth)
    return list(by_quantity.values())


def _row(growth: Growth, other: Growth, crossing: BreakEven) -> tuple[Cell, ...]:
    names = (growth.series.what, growth.series.name, other.series.name)
    return (*names, crossing.sizes[0], crossing.sizes[-1], crossing.at, _verdict(growth, other, crossing))
