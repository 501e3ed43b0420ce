"""Where do two series of the same quantity cross: up to which scale is one better, and from where on the other?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from rankscope.model import Cell, Column, Table, Unit
from rankscope.questions.scaling.growth import Growth

TIE = 0.02  # of the smaller: measured values differ by more than that from one run to the next
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


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the curves meet, in order; empty: nowhere in the range that both were measured in."""

    at: tuple[float, ...]
    smallest: float
    largest: float
    verdict: str
    never: str = ""  # where they do not meet: which is better than which


Pair = tuple[Growth, Growth, Crossover]


def crossover(first: Growth, second: Growth) -> Crossover | None:
    """Between measured scales both are straight lines; None where they have no scale in common."""
    low, high = max(first.scales[0], second.scales[0]), min(first.scales[-1], second.scales[-1])
    scales = sorted({scale for scale in (*first.scales, *second.scales) if low <= scale <= high})
    if not scales:
        return None
    ours, theirs = (np.interp(scales, one.scales, one.medians) for one in (first, second))
    ahead = [0 if abs(a - b) <= TIE * min(a, b) else 1 if a > b else -1 for a, b in zip(ours, theirs, strict=True)]
    at = _meetings(scales, ahead, [float(a - b) for a, b in zip(ours, theirs, strict=True)])
    return Crossover(at, low, high, _verdict(first, second, scales, ahead, at), _never(first, second, ahead, at))


def _meetings(scales: Sequence[float], ahead: Sequence[int], apart: Sequence[float]) -> tuple[float, ...]:
    """The crossing of the straight lines between two scales, or the measured one from which on they are level."""
    told = [at for at, sign in enumerate(ahead) if sign]
    if not told:
        return ()
    found = [scales[told[0] - 1]] if told[0] else []
    for at, after in pairwise(told):
        if ahead[at] != ahead[after]:
            level = after > at + 1
            share = apart[at] / (apart[at] - apart[after])
            found.append(scales[at + 1] if level else scales[at] + (scales[after] - scales[at]) * share)
    return tuple(found if told[-1] == len(ahead) - 1 else [*found, scales[told[-1] + 1]])


def _verdict(first: Growth, second: Growth, scales: Sequence[float], ahead: Sequence[int], at: Sequence[float]) -> str:
    names, unit = (first.series.name, second.series.name), first.series.unit
    word = _word(unit)
    told = [sign for sign in ahead if sign]
    axis = first.series.axis
    reach = f"{scales[0]:g} to {scales[-1]:g} {axis}"
    if not told:
        return f"the same within {TIE:.0%} at every size from {reach}"
    leads, ends = names[_leader(told[0], unit)], names[_leader(told[-1], unit)]
    if not at:
        return f"never in range: {leads} is {word} at every size from {reach}"
    where = ", ".join(f"{scale:.3g}" if scale < 1000 else f"{scale:,.0f}" for scale in at)
    if len(at) > 1:
        return f"they meet at {where} {axis}; after the last one {ends} is {word}"
    if leads == ends:
        alone = axis.removesuffix("s") if at[0] == 1 else axis
        return f"{leads} is {word}, but at {where} {alone} both are the same within {TIE:.0%}"
    return f"{leads} is {word} up to about {where} {axis}, {ends} from there on"


def _never(first: Growth, second: Growth, ahead: Sequence[int], at: Sequence[float]) -> str:
    told = [sign for sign in ahead if sign]
    if at or not told:
        return ""
    leads = _leader(told[0], first.series.unit)
    names = (first.series.name, second.series.name)
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
    found = []
    for group in alike([*grown, *(one for one in against if one not in grown)]):
        if not against and len(group) > MOST_SERIES:
            text = f"{group[0].series.what}: {len(group)} series are too many to hold all against all"
            table.notes.append(f"{text}: name those to compare with by `rankscope scale --against`")
            continue
        pairs = [
            (one, other) for one in group if one not in against for other in group if other in against
        ] or combinations([one for one in group if not against], 2)
        found += [(one, other, met) for one, other in pairs if (met := crossover(one, other))]
    if most is not None and len(found) > most:
        found = _fewer(found, most, table.notes)
    table.rows += [_row(*one) for one in found]
    if table.rows:
        table.notes.append("Between two measured sizes by straight lines; of several meetings the last is shown.")
    if any(row[5] for row in table.rows) and not any(_is_repeated(one) for one in grown):
        table.notes.append("Every size was measured once: only repeats tell whether two that are close really meet.")
    return table


def _is_repeated(one: Growth) -> bool:
    return len(one.series.points) > len(one.scales)


def _fewer(found: list[Pair], most: int, notes: list[str]) -> list[Pair]:
    """Those that meet; of the others how many there are."""
    told = Counter(met.never for _, _, met in found if met.never)
    notes += [f"Never in range, of {count} quantities: {text} at every size" for text, count in told.items()]
    meeting = [pair for pair in found if pair[2].at]
    if len(meeting) > most:
        notes.append(f"The first {most} of {len(meeting)} that meet; `rankscope scale` shows all.")
    return meeting[:most]


def alike(grown: Sequence[Growth]) -> list[list[Growth]]:
    """Those of one quantity, in one unit, over one axis."""
    found: dict[tuple[str, str, str], list[Growth]] = {}
    for one in grown:
        if one.scales:
            found.setdefault((one.series.what, one.series.unit, one.series.axis), []).append(one)
    return list(found.values())


def _row(one: Growth, other: Growth, found: Crossover) -> tuple[Cell, ...]:
    at = found.at[-1] if found.at else None
    names = (one.series.what, one.series.name, other.series.name)
    return (*names, found.smallest, found.largest, at, found.verdict)
