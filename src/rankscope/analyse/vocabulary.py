"""Words of many blocks, each block with numbers of its own, under one set of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope.model import Words

Array = Any


class Vocabulary:
    """Numbers words in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._of_block: tuple[Sequence[str], int, Array] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Any:
        return iter(self.numbers)

    def codes(self, words: Words) -> Array:
        """The numbers of a block's words."""
        return self._map(words.values, words.codes)[words.codes]

    def _map(self, values: Sequence[str], codes: Array) -> Array:
        """The number of each of the block's words that it uses; -1 for the others, which may be a whole file's."""
        if self._of_block is None or self._of_block[0] is not values or self._of_block[1] != len(values):
            self._of_block = (values, len(values), np.full(len(values), -1, np.int32))
        known = self._of_block[2]
        used = np.flatnonzero(np.bincount(codes, minlength=len(values))) if len(codes) else np.empty(0, np.int64)
        for code in used[known[used] < 0].tolist():
            known[code] = self.numbers.setdefault(values[code], len(self.numbers))
        return known
