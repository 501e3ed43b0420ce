"""Many single occurrences become tallies while a file streams by."""

from __future__ import annotations

from dataclasses import dataclass, field

from rankscope.formats.source import Source
from rankscope.model import Tally

MAX_BYTES = 2**63 - 1
MAX_TALLIES = 200_000  # more different names than any true file has: bounds what a hostile one can make us keep

Key = tuple[str, str, str, int | None, int, str, str]


@dataclass(slots=True)
class Sums:
    """Tallies by layer, name, group, size class, thread, kind and what they are part of."""

    source: Source
    found: dict[Key, Tally] = field(default_factory=dict)

    def add(
        self,
        layer: str,
        name: str,
        ns: float | None,
        group: str = "",
        size_class: int | None = None,
        thread: int = 0,
        kind: str = "call",
        size_bytes: int | None = None,
        errors: int = 0,
        within: str = "",
    ) -> None:
        """Count one occurrence; None for a time that the file does not tell."""
        key = (layer, name, group, size_class, thread, kind, within)
        tally = self.found.get(key)
        if tally is None:
            if len(self.found) >= MAX_TALLIES:
                raise self.source.bad(f"more than {MAX_TALLIES} different names: not a file of this format")
            tally = self.found[key] = Tally(layer, name, 0, 0.0, group, size_class, "", kind, thread, within=within)
        tally.calls = (tally.calls or 0) + 1
        tally.errors += errors
        if size_bytes is not None:
            tally.bytes = min((tally.bytes or 0) + size_bytes, MAX_BYTES)
        if ns is not None:
            _add_time(tally, float(ns))

    def tallies(self) -> list[Tally]:
        """What was counted, in the order first met."""
        return list(self.found.values())


def _add_time(tally: Tally, ns: float) -> None:
    tally.total_ns = (tally.total_ns or 0.0) + ns
    tally.min_ns = ns if tally.min_ns is None else min(tally.min_ns, ns)
    tally.max_ns = ns if tally.max_ns is None else max(tally.max_ns, ns)
    tally.sum_squares_ns2 = (tally.sum_squares_ns2 or 0.0) + ns * ns
