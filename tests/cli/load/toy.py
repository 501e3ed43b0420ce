"""A format small enough to know every number of: only the tests register it.

toy profile
process rank=0 host=a pid=7
tally gpu gemm 3 600        layer, name, calls, total_ns
inside app/step gpu gemm 3 600   the same within a range
event gpu copy 100 250      layer, name, start_ns, end_ns
figure ring time 8 1500     series, name, scale in ranks, value in ns
note something looks odd
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from rankscope.formats import registry
from rankscope.formats.source import Source
from rankscope.model.records import Event, Figure, Note, RangeTally, RankFacts, Reading, Severity, Tally


def sniff(head: bytes) -> bool:
    return head.startswith(b"toy profile\n")


def read(source: Source) -> Iterator[Reading]:
    reading: Reading | None = None
    for number, line in source.lines():
        kind, _, rest = line.partition(" ")
        if kind == "process" or (reading is None and kind != "toy"):
            if reading is not None:
                yield reading
            reading = Reading(_facts(rest if kind == "process" else ""))
        if reading is not None:
            _add(reading, kind, rest, number, source)
    if reading is not None:
        yield reading


def _facts(text: str) -> RankFacts:
    facts = RankFacts()
    for word in text.split():
        name, _, value = word.partition("=")
        kind = {"host": str, "job": str, "second_hand": bool}.get(name, int)
        setattr(facts, name, kind(value))
    return facts


def _add(reading: Reading, kind: str, rest: str, number: int, source: Source) -> None:
    words = rest.split()
    try:
        if kind == "tally":
            reading.tallies.append(Tally(words[0], words[1], int(words[2]), float(words[3])))
        elif kind == "inside":
            reading.range_tallies.append(
                RangeTally(words[1], words[2], int(words[3]), float(words[4]), within=words[0])
            )
        elif kind == "event":
            reading.events.append(Event(words[0], words[1], int(words[2]), int(words[3])))
        elif kind == "figure":
            reading.figures.append(Figure(words[0], words[1], float(words[3]), "ns", float(words[2]), "ranks"))
        elif kind == "note":
            reading.notes.append(Note(rest, Severity.WARNING, source.at(number)))
        elif kind == "crash":
            raise ZeroDivisionError("a mistake of the reader")
    except (ValueError, IndexError):
        raise source.bad(f"not a {kind}: {rest!r}", number) from None


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the format, after all others."""
    module: Any = ModuleType("rankscope.formats.toy")
    module.sniff, module.read = sniff, read
    monkeypatch.setitem(sys.modules, "rankscope.formats.toy", module)
    monkeypatch.setitem(registry.FORMATS, "toy", "a format of the tests")
