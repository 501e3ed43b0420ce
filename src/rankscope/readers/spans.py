"""What a printed number can have been before it was rounded, and whether several such numbers can all be true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor

from rankscope.formats.printed import exactly


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
