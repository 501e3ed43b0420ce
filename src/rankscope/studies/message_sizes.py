"""Sizes of messages as people write them: 4,1k,4M, or 4..256M for every fourth power in between."""

from __future__ import annotations

import re

from rankscope.studies.errors import BadStudy

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SIZE = re.compile(r"(\d+) *([kmg]?)(?:i?b)?", re.IGNORECASE)
FACTOR = 4


def sizes(text: str) -> list[int]:
    """In bytes, rising, each once."""
    found: set[int] = set()
    for word in text.split(","):
        begin, dots, end = word.partition("..")
        found |= set(between(size(begin), size(end))) if dots else {size(word)}
    return sorted(found)


def between(begin: int, end: int) -> list[int]:
    if begin > end:
        raise BadStudy(f"--sizes {begin}..{end}: the first is larger than the last")
    found = [begin]
    while found[-1] * FACTOR <= end:
        found.append(found[-1] * FACTOR)
    return found


def size(text: str) -> int:
    told = SIZE.fullmatch(text.strip())
    if not told or not int(told[1]):
        raise BadStudy(f"--sizes {text.strip() or '(nothing)'}: give sizes as 4,64k,4M, or a range as 4..256M")
    return int(told[1]) * UNITS[told[2].lower()]
