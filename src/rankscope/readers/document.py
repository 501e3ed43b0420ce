"""Splits a document into its parts: what is set as code, block by block, and the text around it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.formats.source import Source

DOCUMENT_BYTES = 16 << 20  # nobody writes longer ones by hand
MOST_BLOCKS = 1000
FENCE = re.compile(rb"^ {0,3}(`{3,}|~{3,})[^`\r\n]{0,200}\r?$")


def parts(source: Source, head: bytes) -> list[Source]:
    """The text (with its code blanked, so that lines keep their numbers) and every fenced block; none if not fenced."""
    if b"\0" in head or not (b"```" in head or b"~~~" in head):
        return []
    lines = _lines(source)
    blocks = list(_blocks(lines)) if lines is not None else []
    if lines is None or not 0 < len(blocks) <= MOST_BLOCKS:
        return []
    around = list(lines)
    for first, last in blocks:
        around[first - 1 : last + 1] = [b""] * (last - first + 2)
    inside = [source.part(b"\n".join(lines[first:last]), first + 1) for first, last in blocks]
    return [source.part(b"\n".join(around), 1), *inside]


def _lines(source: Source) -> list[bytes] | None:
    kept = bytearray()
    for block in source.blocks():
        kept += block
        if len(kept) > DOCUMENT_BYTES:
            return None
    return bytes(kept).split(b"\n")


def _blocks(lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """Places from the first line inside a block to its closing fence; a block that is not closed is text."""
    opened: tuple[int, bytes] | None = None
    for at, line in enumerate(lines):
        if not line.lstrip().startswith((b"```", b"~~~")) or not (fence := FENCE.match(line)):
            continue
        if opened is None:
            opened = at + 1, fence[1]
        elif fence[1].startswith(opened[1]) and not line.strip(b"`~ \r"):
            yield opened[0], at
            opened = None
