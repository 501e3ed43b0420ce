"""The bundle as it arrives on a node: chunk by chunk, each verified before anybody may use it."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from rankscope.stage.bundle import HEADER_BYTES, BadBundle, Header, Manifest
from rankscope.stage.unpack import opened, write_all_at

PART_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Source(Protocol):
    """Where chunks come from."""

    def chunk(self, number: int, at: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class Gone(Exception):
    """This source gives nothing more; another one may."""


class Intake:
    """The part of the bundle that is on this node and verified; threads wait for more of it."""

    def __init__(self, path: str, head: bytes, header: Header, region: bytes, manifest: Manifest) -> None:
        self.path = path
        self.head = head
        self.header = header
        self.region = region
        self.manifest = manifest
        self.file = os.open(path, PART_FLAGS, 0o600)
        self.starts = starts(manifest)
        self.verified = 0
        self.failure = ""
        self.bad = False  # the bundle itself is at fault: no other source would do better
        self.news = threading.Condition()
        self.changes: list[str] = []  # why a source was given up
        self.received_bytes: dict[str, int] = {}
        self.began_ns = time.monotonic_ns()
        self.transfer_ns = 0

    def take_all(self, source: Source, name: str, instead: tuple[str, "SourceMaker"] | None) -> None:
        """Every chunk that is still missing, from the source or, where that ends too early, from the other."""
        try:
            while self.verified < len(self.manifest.chunks):
                self.take(source, name)
            self.transfer_ns = time.monotonic_ns() - self.began_ns
        except Gone as reason:
            if not instead:
                self.fail(str(reason))
                raise
            self.changes.append(str(reason))
            self.go_on(*instead)
        except BaseException as error:
            self.fail(str(error) or type(error).__name__, isinstance(error, BadBundle))
            raise

    def go_on(self, name: str, make_source: "SourceMaker") -> None:
        """With another source, from the chunk that is missing."""
        try:
            source = make_source()
        except BaseException as error:
            self.fail(str(error) or type(error).__name__, isinstance(error, BadBundle))
            raise
        try:
            self.take_all(source, name, None)
        finally:
            source.close()

    def take(self, source: Source, name: str) -> None:
        number = self.verified
        size, digest = self.manifest.chunks[number]
        stored = source.chunk(number, self.starts[number], size)
        if len(stored) != size or hashlib.sha256(stored).hexdigest() != digest:
            if name != "shared":
                raise Gone(f"{name} sent a chunk that is not what was packed")
            raise BadBundle(f"its content was changed at byte {self.starts[number]}")
        write_all_at(self.file, memoryview(stored), self.starts[number])
        self.received_bytes[name] = self.received_bytes.get(name, 0) + size
        with self.news:
            self.verified += 1
            self.news.notify_all()

    def fail(self, reason: str, bad: bool = False) -> None:
        with self.news:
            self.bad = self.bad or bad
            self.failure = self.failure or reason
            self.news.notify_all()

    def wait_for(self, number: int) -> None:
        """Until this chunk is there."""
        with self.news:
            while self.verified <= number and not self.failure:
                self.news.wait()
            if self.verified <= number:
                raise BadBundle(self.failure) if self.bad else Gone(self.failure)

    def raw_chunks(self) -> Iterator[bytes]:
        """The payload as the unpacker reads it, waiting for what is not there yet."""
        for number, (size, _) in enumerate(self.manifest.chunks):
            self.wait_for(number)
            stored = os.pread(self.file, size, self.starts[number])
            yield opened(stored, self.manifest.compressed)

    def discard(self) -> None:
        """The part file goes; the copy that was made of it stays."""
        if self.file < 0:
            return
        os.close(self.file)
        self.file = -1
        try:
            os.unlink(self.path)
        except OSError:
            pass


class SourceMaker(Protocol):
    def __call__(self) -> Source: ...


def starts(manifest: Manifest) -> list[int]:
    """Where each chunk begins in the bundle."""
    found, at = [], HEADER_BYTES
    for size, _ in manifest.chunks:
        found.append(at)
        at += size
    return found
