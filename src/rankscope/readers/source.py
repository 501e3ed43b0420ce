"""One input file as a reader sees it: decompressed on the way, bounded, with the place for every complaint."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import zstandard

from rankscope.model import BadFile

HEAD_BYTES = 64 << 10  # what a format is recognised by
LINE_BYTES = 1 << 20  # no format we read has longer lines
TEXT_BYTES = 256 << 20  # for readers that need the whole text at once
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BROKEN = (OSError, EOFError, zlib.error, zstandard.ZstdError)


@dataclass(slots=True)
class Hints:
    """What the user said about a file that it does not say itself."""

    rank: int | None = None
    mapping: Path | None = None  # for hand-made tables


@dataclass(slots=True)
class Source:
    """A file to read; give `text` instead of a path's content in tests and for parts of a document."""

    path: Path
    hints: Hints = field(default_factory=Hints)
    content: bytes | None = None

    def __str__(self) -> str:
        return str(self.path)

    def at(self, line: int) -> str:
        """A place in this file, for a note."""
        return f"{self.path}:{line}"

    def bad(self, why: str, line: int | None = None) -> BadFile:
        """The error to raise."""
        return BadFile(f"{self.path if line is None else self.at(line)}: {why}")

    def open(self) -> IO[bytes]:
        """The decompressed bytes as a stream."""
        try:
            raw: IO[bytes] = self.path.open("rb") if self.content is None else io.BytesIO(self.content)
            magic = raw.read(4)
            raw.seek(0)
        except OSError as problem:
            raise self.bad(f"cannot be opened: {problem.strerror}") from None
        if magic.startswith(GZIP):
            return io.BufferedReader(gzip.GzipFile(fileobj=raw))
        if magic.startswith(ZSTD):
            return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
        return raw

    def blocks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The bytes piece by piece; a stream that breaks off is a BadFile."""
        with self.open() as stream:
            while block := self._read(stream, size):
                yield block

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first bytes."""
        with self.open() as stream:
            return self._read(stream, size)

    def _read(self, stream: IO[bytes], size: int) -> bytes:
        try:
            return stream.read(size)
        except BROKEN as problem:
            raise self.bad(f"is damaged: {problem}") from None

    def lines(self) -> Iterator[tuple[int, str]]:
        """Line number and text without its end; what is not UTF-8 becomes a replacement character."""
        with self.open() as stream:
            number = 0
            while line := self._line(stream, number + 1):
                number += 1
                yield number, line.decode("utf-8", "replace").rstrip("\r\n")

    def _line(self, stream: IO[bytes], number: int) -> bytes:
        try:
            line = stream.readline(LINE_BYTES + 1)
        except BROKEN as problem:
            raise self.bad(f"is damaged: {problem}", number) from None
        if len(line) > LINE_BYTES:
            raise self.bad(
                f"line {number} is longer than {LINE_BYTES >> 20} MiB: not a text file of a known format", number
            )
        return line

    def text(self) -> str:
        """All of it as text, where a format has to be seen whole."""
        kept: list[bytes] = []
        total = 0
        for block in self.blocks():
            kept.append(block)
            total += len(block)
            if total > TEXT_BYTES:
                raise self.bad(f"is larger than {TEXT_BYTES >> 20} MiB of text")
        return b"".join(kept).decode("utf-8", "replace")
