"""A number as somebody printed it: its exact value, and how far rounding may have moved it."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
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
    found = exactly(text) if NUMBER.fullmatch(text) else None
    return found if found is not None and abs(found.value) <= LARGEST else None


def count(text: str) -> int | None:
    """The count in a text, or None."""
    text = text.strip()
    return int(text) if COUNT.fullmatch(text) else None


def whole(value: Decimal) -> int:
    """The nearest whole number."""
    return int(value.to_integral_value())


def ratio(first: Printed, second: Printed) -> Ends:
    """Between what the ratio of two true numbers lies; for numbers that are not negative."""
    least = max(ZERO, first.low) / second.high if second.high > 0 else ZERO
    return least, (first.high / second.low if second.low > 0 else INFINITE)
