"""Where do two curves meet: up to which size is one better, and from where on the other?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BYTES = "bytes"  # the axis of series over sizes of messages
BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
TIE = 0.02  # of the smaller: measured values differ by more than that from one run to the next


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Two curves at the same sizes, and where they meet: the only rule for it, docs/reference/metrics.md#break-even."""

    sizes: tuple[float, ...]
    signs: tuple[int, ...]  # at each size 1 where the first is larger, -1 where the second is, 0 where they are level
    meetings: tuple[float, ...]  # in order; none: they do not meet in the range that was measured

    @property
    def at(self) -> float | None:
        """The last meeting: from there on it stays as it is."""
        return self.meetings[-1] if self.meetings else None

    @property
    def never(self) -> int:
        """The sign that all sizes have where they do not meet, else 0."""
        return 0 if self.meetings else next((sign for sign in self.signs if sign), 0)

    def verdict(self, first: str, second: str, axis: str, word: str = "faster", larger_is_better: bool = False) -> str:
        """One sentence that names the better one of every range."""
        names = (second, first) if larger_is_better else (first, second)
        signs = [sign for sign in self.signs if sign]
        every = f"at every size from {_range(self.sizes[0], self.sizes[-1], axis)}"
        if len(self.sizes) == 1:
            every = f"at {_count(self.sizes[0], axis)}, the only size measured"
        if not signs:
            return f"the same within {100 * TIE:.0f} % {every}"
        leads, ends = (names[int(sign > 0)] for sign in (signs[0], signs[-1]))
        if not self.meetings:
            return f"never in range: {leads} is {word} {every}"
        if len(self.meetings) > 1:
            where = ", ".join(_number(size, axis) for size in self.meetings) + ("" if axis == BYTES else f" {axis}")
            return f"they meet at {where}; after the last one {ends} is {word}"
        if leads == ends:
            at = _count(self.meetings[0], axis)
            return f"{leads} is {word}, but at {at} both are the same within {100 * TIE:.0f} %"
        return f"{leads} is {word} up to about {_number(self.meetings[0], axis, axis)}, {ends} from there on"


def _count(size: float, axis: str) -> str:
    return _number(size, axis, axis.removesuffix("s") if size == 1 else axis)


def _range(smallest: float, largest: float, axis: str) -> str:
    if axis == BYTES:
        return f"{_number(smallest, axis)} to {_number(largest, axis)}"
    return f"{smallest:g} to {largest:g} {axis}"


def _number(size: float, axis: str, after: str = "") -> str:
    """Sizes of messages in binary units, which stand in place of the axis's name."""
    if axis == BYTES:
        factor, unit = next((step for step in BINARY if size >= step[0]), (1, "B"))
        return f"{size / factor:.3g} {unit}"
    number = f"{size:.3g}" if size < 1000 else f"{size:,.0f}"
    return f"{number} {after}".strip()


def break_even(sizes: Sequence[float], first: Sequence[float], second: Sequence[float]) -> BreakEven:
    """Between two sizes both are straight lines; at a size where they differ by less than TIE they are level."""
    apart = [one - other for one, other in zip(first, second, strict=True)]
    signs = [
        0 if abs(apart[at]) <= TIE * min(first[at], second[at]) else 1 if apart[at] > 0 else -1
        for at in range(len(sizes))
    ]
    return BreakEven(tuple(sizes), tuple(signs), _meetings(sizes, signs, apart))


def _meetings(sizes: Sequence[float], signs: Sequence[int], apart: Sequence[float]) -> tuple[float, ...]:
    """The crossing of the straight lines between two sizes, or the measured one from which on they are level."""
    signed = [at for at, sign in enumerate(signs) if sign]
    if not signed:
        return ()
    meetings = [sizes[signed[0] - 1]] if signed[0] else []
    for at, after in pairwise(signed):
        if signs[at] != signs[after]:
            level = after > at + 1
            share = apart[at] / (apart[at] - apart[after])
            meetings.append(sizes[at + 1] if level else sizes[at] + (sizes[after] - sizes[at]) * share)
    return tuple(meetings if signed[-1] == len(signs) - 1 else [*meetings, sizes[signed[-1] + 1]])
