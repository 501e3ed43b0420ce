"""A number as somebody printed it: its exact value, and how far rounding may have moved it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import ceil, floor
from typing import NamedTuple

NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?")
COUNT = re.compile(r"\d{1,18}", re.ASCII)  # always fits in 64 bits
LARGEST = Decimal(10**24)
ZERO, INFINITE = Decimal(0), Decimal("Infinity")
FLOATING = Decimal("1e-9")  # relative: tools compute in floating point before they print

Ends = tuple[Decimal, Decimal]


class Printed(NamedTuple):
    """A printed number and how much one of its last digit is: the true number lies within half of that."""

    value: Decimal
    step: Decimal

    @property
    def low(self) -> Decimal:
        return self.value - self.step / 2

    @property
    def high(self) -> Decimal:
        return self.value + self.step / 2

    @property
    def ends(self) -> Ends:
        return self.low, self.high

    def times(self, factor: int | Decimal) -> Printed:
        """The same number in another unit."""
        return Printed(self.value * factor, self.step * factor)

    def meets(self, low: Decimal, high: Decimal) -> bool:
        """Whether the true number can lie between the two."""
        slack = FLOATING * max(abs(low), abs(high))
        return self.low <= high + slack and low <= self.high + slack

    def agrees(self, low: Decimal, high: Decimal) -> bool:
        """The same where a whole step is granted, since some tools cut, some round."""
        return self.value - self.step <= high and self.value + self.step >= low


def exactly(text: str) -> Printed:
    """The number in a text that is known to hold one."""
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "neither infinite nor no number"
    return Printed(value, _one_at(exponent))


@cache
def _one_at(exponent: int) -> Decimal:
    return Decimal(1).scaleb(exponent)


def number(text: str) -> Printed | None:
    """The number in a text, or None."""
    value = exactly(text) if NUMBER.fullmatch(text) else None
    return value if value is not None and abs(value.value) <= LARGEST else None


def count(text: str) -> int | None:
    """The count in a text, or None."""
    text = text.strip()
    return int(text) if COUNT.fullmatch(text) else None


def rounded(value: Decimal) -> int:
    """The nearest whole number."""
    return int(value.to_integral_value())


def ratio(first: Printed, second: Printed) -> Ends:
    """Between what the ratio of two true numbers lies; for numbers that are not negative."""
    least = max(ZERO, first.low) / second.high if second.high > 0 else ZERO
    return least, (first.high / second.low if second.low > 0 else INFINITE)


# ---------------------------------------------------------------------------------------------------------------------
# What a printed number can have been before it was rounded, and whether several such numbers can all be true.
@dataclass(frozen=True, slots=True)
class Span:
    """A whole number that is known to lie between two bounds, and our choice of it."""

    low: int
    at: int
    high: int

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.at + other.at, self.high + other.high)

    def times(self, factor: int) -> Span:
        return Span(self.low * factor, self.at * factor, self.high * factor)

    def meets(self, other: Span) -> bool:
        return self.low <= other.high + 1 and other.low <= self.high + 1  # a half may have been rounded either way

    def narrowed(self, other: Span | None) -> Span | None:
        """Both at once: our choice moves as little as it must; None where they contradict each other."""
        if other is None:
            return self
        low, high = max(self.low, other.low), min(self.high, other.high)
        if low == high + 1:  # a half, which may have been rounded either way
            low = high = next((span.at for span in (self, other) if span.low == span.high), low)
        return Span(low, min(max(self.at, low), high), high) if low <= high else None


NOTHING = Span(0, 0, 0)


def printed(text: str, unit: int, times: int = 1) -> Span:
    """A number printed with so many decimals, in a unit of so many of ours, perhaps a mean to be multiplied.

    The bounds stay inside the half of the last digit, so that the choice is printed as the same digits again.
    """
    number = exactly(text).times(unit * times)
    low, at, high = floor(number.low) + 1, round(number.value), ceil(number.high) - 1
    return Span(max(0, min(low, at)), at, max(high, at))


def added(spans: Iterable[Span]) -> Span:
    return sum(spans, NOTHING)


def settled(parts: Sequence[Span], total: Span) -> list[int] | None:
    """A choice for every part so that they add up to the total, moved as little as can be; None if there is none."""
    chosen = [part.at for part in parts]
    missing = min(max(sum(chosen), total.low), total.high) - sum(chosen)
    for at in sorted(range(len(parts)), key=lambda at: -parts[at].at):
        room = (parts[at].high if missing > 0 else parts[at].low) - chosen[at]
        move = min(missing, room) if missing > 0 else max(missing, room)
        chosen[at] += move
        missing -= move
    return chosen if missing == 0 else None


# ---------------------------------------------------------------------------------------------------------------------
# Figures with a unit as profilers print them, in ns or bytes.
TIME_NS = {"ns": 10**0, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
SIZE_STEPS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
FIGURE = re.compile(r"(\d{1,18}(?:\.\d{1,12})?)([a-zA-Zµμ%/]{0,6})", re.ASCII)
LARGEST_FIGURE = Decimal(2**62)


def figure_and_unit(text: str) -> tuple[Printed, str] | None:
    """A number and its unit, or None where the text is no such thing."""
    match = FIGURE.fullmatch(text.strip())
    if match is None:
        return None
    digits, unit = match.groups()
    return exactly(digits), unit


def scaled(text: str, unit: str, units: dict[str, int]) -> Printed | None:
    """A figure in one of these units; `unit` is the one that stands elsewhere, as in a csv file's second line."""
    figure_unit = figure_and_unit(text)
    if figure_unit is None:
        return None
    figure, own_unit = figure_unit
    factor = units.get(own_unit or unit)
    if factor is None or (own_unit and unit) or figure.value * factor > LARGEST_FIGURE:
        return None
    return figure.times(factor)


def time_ns(text: str, unit: str = "") -> Printed | None:
    """A time: 294.35ms, 992ns, 5.13219s."""
    return scaled(text, unit, TIME_NS)


def size_bytes(text: str, unit: str = "", base: int = 1024) -> Printed | None:
    """A size: 256.00KB, 0B."""
    return scaled(text, unit, {name: base**power for name, power in SIZE_STEPS.items()})


def rate_bytes(text: str, unit: str = "", base: int = 1024) -> Printed | None:
    """A throughput in bytes a second: 10.552GB/s."""
    return scaled(text, unit, {f"{name}/s": base**power for name, power in SIZE_STEPS.items()})


def percent(text: str, unit: str = "") -> Printed | None:
    """A share as printed, 76.61%, in hundredths of the whole."""
    return scaled(text, unit, {"%": 1})
