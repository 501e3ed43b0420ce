"""One input file as a reader sees it: decompressed on the way, bounded, with the place for every complaint."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import zstandard

from rankscope.model.records import BadFile

# ---------------------------------------------------------------------------------------------------------------------
# Byte streams that count what passes, unpack within bounds, and fail with the byte where it happened.
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MARK = b"\xef\xbb\xbf"  # the byte-order mark that some editors put before UTF-8
BROKEN = (OSError, EOFError, zlib.error, zstandard.ZstdError)
MOST_UNPACKED = 300  # times the packed size: logs and traces reach 100, a bomb needs 1,000
UNPACKED_FREELY = 16 << 20  # below this size any ratio is harmless
ZSTD_PIECE = 2 << 10  # packed bytes taken at a time: at most 64 MiB come out of them

Fail = Callable[[str], Exception]
Watch = Callable[[int], None]


class CountedStream(io.RawIOBase):
    """A stream that counts its bytes and turns every failure into the reader's own error."""

    def __init__(self, inner: Any, fail: Fail, watch: Watch | None = None) -> None:
        self.inner, self.fail, self.watch = inner, fail, watch
        self.done_bytes = 0

    def readinto(self, buffer: Any) -> int:
        try:
            got: int = self.inner.readinto(buffer) or 0
        except BROKEN as problem:
            raise self.fail(f"is damaged at byte {self.done_bytes}: {problem}") from None
        self.done_bytes += got
        if self.watch is not None:
            self.watch(self.done_bytes)
        return got

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self.inner.seekable())

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self.inner.seek(place, whence))

    def tell(self) -> int:
        return int(self.inner.tell())

    def close(self) -> None:
        self.inner.close()
        super().close()


class Unpacked(CountedStream):
    """The unpacked bytes; a file that swells beyond belief is not read on."""

    def __init__(self, inner: Any, packed: CountedStream, fail: Fail) -> None:
        super().__init__(inner, fail)
        self.packed = packed

    def readinto(self, buffer: Any) -> int:
        got = super().readinto(buffer)
        if self.done_bytes > max(UNPACKED_FREELY, MOST_UNPACKED * self.packed.done_bytes):
            sentence = f"unpacks to more than {MOST_UNPACKED} times its size"
            raise self.fail(f"{sentence}: not read beyond byte {self.done_bytes}")
        return got

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        super().close()
        self.packed.close()


class ZstdFrames(io.RawIOBase):
    """The content of zstd frames; unlike the library's own stream it says when the last frame is cut short."""

    def __init__(self, packed: IO[bytes]) -> None:
        self.packed = packed
        self.frame = zstandard.ZstdDecompressor().decompressobj()
        self.begun = False
        self.ready = memoryview(b"")

    def readinto(self, buffer: Any) -> int:
        while not self.ready and (piece := self.packed.read(ZSTD_PIECE)):
            self.ready = memoryview(self._unpacked(piece))
        if not self.ready and self.begun:
            raise EOFError("the compressed data are truncated")
        got = min(len(buffer), len(self.ready))
        buffer[:got] = self.ready[:got]
        self.ready = self.ready[got:]
        return got

    def _unpacked(self, piece: bytes) -> bytes:
        pieces = []
        while piece:
            pieces.append(self.frame.decompress(piece))
            self.begun = not self.frame.eof
            piece = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame = zstandard.ZstdDecompressor().decompressobj()
        return b"".join(pieces)

    def readable(self) -> bool:
        return True


def unpacked(raw: IO[bytes], fail: Fail, watch: Watch | None) -> IO[bytes]:
    """The bytes of a file, unpacked if they are packed, without a byte-order mark."""
    counted = CountedStream(raw, fail, watch)
    stream: io.BufferedReader[Any] = io.BufferedReader(counted)
    start = stream.peek(4)[:4]
    if start.startswith(GZIP):
        stream = io.BufferedReader(Unpacked(gzip.GzipFile(fileobj=stream, mode="rb"), counted, fail))
    elif start.startswith(ZSTD):
        stream = io.BufferedReader(Unpacked(ZstdFrames(stream), counted, fail))
    if stream.peek(3).startswith(MARK):
        stream.read(3)
    return stream


# ---------------------------------------------------------------- source
HEAD_BYTES = 64 << 10  # what a format is recognised by
LINE_BYTES = 1 << 20  # no format we read has longer lines
TEXT_BYTES = 256 << 20  # for readers that need the whole text at once
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class Hints:
    """What the user said about a file that it does not say itself."""

    rank: int | None = None
    mapping: Path | None = None  # for hand-made tables


@dataclass(slots=True)
class Source:
    """A file to read; give `content` instead of a path's content in tests and for parts of a document."""

    path: Path
    hints: Hints = field(default_factory=Hints)
    content: bytes | None = None
    first_line: int = 1  # which line of the file the content begins with
    watch: Watch | None = None  # is told how many bytes of the file were taken
    odd_line: int | None = None  # the first line found to hold bytes that are not UTF-8
    alone: bool = True  # one reader reads it
    taken: frozenset[int] = frozenset()  # lines that another reader, which reads it as well, has in its tables

    def __str__(self) -> str:
        return str(self.path)

    def at(self, line: int) -> str:
        """A place in this file, for a note; lines are counted from 1 in what this source gives."""
        return f"{self.path}:{line + self.first_line - 1}"

    def bad(self, why: str, line: int | None = None) -> BadFile:
        """The error to raise."""
        whole_file = line is None and self.first_line == 1
        place = self.path if whole_file else self.at(line or 1)
        return BadFile(f"{place}: {' '.join(why.splitlines())}")  # a library's message may be several lines

    def part(self, content: bytes, first_line: int) -> Source:
        """A piece of this file as a source of its own."""
        return Source(self.path, self.hints, content, first_line + self.first_line - 1)

    def open(self) -> IO[bytes]:
        """The decompressed bytes as a stream."""
        try:
            raw: IO[bytes] = self.path.open("rb", buffering=0) if self.content is None else io.BytesIO(self.content)
        except OSError as problem:
            raise self.bad(f"cannot be opened: {problem.strerror}") from None
        return unpacked(raw, self.bad, self.watch)

    def blocks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The bytes piece by piece; a stream that breaks off is a BadFile."""
        with self.open() as stream:
            while block := stream.read(size):
                yield block

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first bytes; text in two-byte letters is refused here, before a reader sees it."""
        with self.open() as stream:
            start = stream.read(size)
        if start.startswith(UTF16):
            raise self.bad("is UTF-16 text (its mark is at byte 0): convert it with iconv -f UTF-16 -t UTF-8")
        return start

    def lines(self) -> Iterator[tuple[int, str]]:
        """Line number and text without its end; what is not UTF-8 becomes a replacement character."""
        with self.open() as stream:
            number = 0
            while line := stream.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES:
                    line_number = number + self.first_line - 1
                    why = f"line {line_number} is longer than {LINE_BYTES >> 20} MiB: not text of a known format"
                    raise self.bad(why, number)
                yield number, self._decoded(line, number).rstrip("\r\n")

    def _decoded(self, raw: bytes | bytearray, number: int) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            if self.odd_line is None:
                self.odd_line = number + raw.count(b"\n", 0, problem.start)
            return raw.decode("utf-8", "replace")

    def text(self) -> str:
        """All of it as text, where a format has to be seen whole."""
        content = bytearray()
        for block in self.blocks():
            content += block
            if len(content) > TEXT_BYTES:
                raise self.bad(f"is larger than {TEXT_BYTES >> 20} MiB of text")
        return self._decoded(content, 1)
