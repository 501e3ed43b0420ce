"""Which call launched a GPU activity: both carry the same number."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
NONE = -1


class Launches:
    """The calls of one process that have such a number."""

    def __init__(self) -> None:
        self._parts: list[tuple[Array, Array, Array]] = []
        self._sorted: tuple[Array, Array, Array] | None = None

    def add(self, correlation: Array, start_ns: Array, thread: Array) -> None:
        """Calls of a block; those without a number (negative) launch nothing."""
        known = correlation >= 0
        chosen = (
            (correlation, start_ns, thread) if known.all() else (correlation[known], start_ns[known], thread[known])
        )
        if len(chosen[0]):
            self._parts.append(chosen)
            self._sorted = None

    def __bool__(self) -> bool:
        return bool(self._parts)

    def calls(self) -> tuple[Array, Array, Array]:
        """Number, start and thread, by number; where calls share one (CUDA's two interfaces), the first of them."""
        if self._sorted is None:
            empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
            number, start_ns, thread = map(np.concatenate, zip(empty, *self._parts, strict=True))
            if not bool((number[1:] > number[:-1]).all()):
                order = np.lexsort((start_ns, number))
                number, start_ns, thread = number[order], start_ns[order], thread[order]
                first = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1]])[: len(number)])
                number, start_ns, thread = number[first], start_ns[first], thread[first]
            self._sorted = number, start_ns, thread
        return self._sorted

    def of(self, correlation: Array) -> tuple[Array, Array]:
        """The places in `calls` of these numbers, and which of them are there."""
        number = self.calls()[0]
        if not len(number):
            return np.zeros(len(correlation), np.int64), np.zeros(len(correlation), np.bool_)
        at = np.minimum(np.searchsorted(number, correlation), len(number) - 1)
        return at, number[at] == correlation

    def start_ns(self, correlation: Array) -> Array:
        """When the call of each began, negative where it is not known."""
        if not self._parts:
            return np.full(len(correlation), NONE, np.int64)
        at, known = self.of(correlation)
        return np.where(known, self.calls()[1][at], NONE)
