"""Byte streams that count what passes, unpack within bounds, and fail with the byte where it happened."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from typing import IO, Any

import zstandard

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MARK = b"\xef\xbb\xbf"  # the byte-order mark that some editors put before UTF-8
BROKEN = (OSError, EOFError, zlib.error, zstandard.ZstdError)
MOST_UNPACKED = 300  # times the packed size: logs and traces reach 100, a bomb needs 1,000
UNPACKED_FREELY = 16 << 20  # below this size any ratio is harmless
ZSTD_PIECE = 2 << 10  # packed bytes taken at a time: at most 64 MiB come out of them

Fail = Callable[[str], Exception]
Watch = Callable[[int], None]


class Counted(io.RawIOBase):
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


class Unpacked(Counted):
    """The unpacked bytes; a file that swells beyond belief is not read on."""

    def __init__(self, inner: Any, packed: Counted, fail: Fail) -> None:
        super().__init__(inner, fail)
        self.packed = packed

    def readinto(self, buffer: Any) -> int:
        got = super().readinto(buffer)
        if self.done_bytes > max(UNPACKED_FREELY, MOST_UNPACKED * self.packed.done_bytes):
            told = f"unpacks to more than {MOST_UNPACKED} times its size"
            raise self.fail(f"{told}: not read beyond byte {self.done_bytes}")
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
            raise EOFError("the compressed data end in the middle")
        got = min(len(buffer), len(self.ready))
        buffer[:got] = self.ready[:got]
        self.ready = self.ready[got:]
        return got

    def _unpacked(self, piece: bytes) -> bytes:
        made = []
        while piece:
            made.append(self.frame.decompress(piece))
            self.begun = not self.frame.eof
            piece = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame = zstandard.ZstdDecompressor().decompressobj()
        return b"".join(made)

    def readable(self) -> bool:
        return True


def unpacked(raw: IO[bytes], fail: Fail, watch: Watch | None) -> IO[bytes]:
    """The bytes of a file, unpacked if they are packed, without a byte-order mark."""
    counted = Counted(raw, fail, watch)
    stream: io.BufferedReader[Any] = io.BufferedReader(counted)
    start = stream.peek(4)[:4]
    if start.startswith(GZIP):
        stream = io.BufferedReader(Unpacked(gzip.GzipFile(fileobj=stream, mode="rb"), counted, fail))
    elif start.startswith(ZSTD):
        stream = io.BufferedReader(Unpacked(ZstdFrames(stream), counted, fail))
    if stream.peek(3).startswith(MARK):
        stream.read(3)
    return stream
