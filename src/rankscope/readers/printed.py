"""A number as somebody printed it: its exact value, and how far rounding may have moved it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?")
COUNT = re.compile(r"\d{1,18}")  # always fits in 64 bits
LARGEST = 1e24


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed number; the true one lies between low and high."""

    value: Decimal
    low: float
    high: float

    def times(self, factor: float) -> Printed:
        """The same number in another unit."""
        ends = sorted((self.low * factor, self.high * factor))
        return Printed(self.value * Decimal(repr(factor)), *ends)

    def meets(self, low: float, high: float) -> bool:
        """Whether the true number can lie between the two."""
        slack = 1e-9 * max(abs(low), abs(high))  # our own arithmetic is in floating point
        return self.low <= high + slack and low <= self.high + slack


def number(text: str, steps: float = 0.5) -> Printed | None:
    """The number in a text, or None; steps is how many units of its last digit it may be off."""
    if not NUMBER.fullmatch(text):
        return None
    value = Decimal(text)
    if abs(value) > LARGEST:
        return None
    exponent = value.as_tuple().exponent
    step = 10.0**exponent if isinstance(exponent, int) else 0.0
    return Printed(value, float(value) - steps * step, float(value) + steps * step)


def count(text: str) -> int | None:
    """The count in a text, or None."""
    return int(text) if COUNT.fullmatch(text) else None


def whole(value: Decimal) -> int:
    """The nearest whole number."""
    return int(value.to_integral_value())


def product(first: Printed, second: Printed) -> tuple[float, float]:
    """Between what the product of two true numbers lies; for numbers that are not negative."""
    return max(0.0, first.low) * max(0.0, second.low), first.high * second.high


def ratio(first: Printed, second: Printed) -> tuple[float, float]:
    """Between what the ratio of two true numbers lies; for numbers that are not negative."""
    largest = first.high / second.low if second.low > 0 else float("inf")
    return (max(0.0, first.low) / second.high if second.high > 0 else 0.0), largest
