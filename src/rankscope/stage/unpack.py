"""Writes the tree of a copy from verified chunks, file by file, each checked against its own checksum."""

import hashlib
import os
import re
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Protocol

from rankscope.stage.bundle import CHUNK_BYTES, HEADER_BYTES, LINK_OUT, BadBundle, File, Header, Manifest
from rankscope.stage.roots import StagedRoot

# ---------------------------------------------------------------------------------------------------------------------
# Texts that say where the environment is (pyvenv.cfg, scripts' first lines, .pth files) are made to name the copy.
LONGEST_FIRST_LINE = 127  # what older kernels read of a #! line


def relocated(content: bytes, roots: list[StagedRoot], copy: str) -> bytes:
    """The text with every path in a root leading into the copy."""
    names = {os.fsencode(prefix): root.name for root in roots for prefix in (root.real, root.original)}
    longest_first = sorted(names, key=len, reverse=True)
    pattern = rb"(?<![\w./-])(" + b"|".join(re.escape(prefix) for prefix in longest_first) + rb")(?=[/\s\"':]|$)"
    content = re.sub(pattern, lambda match: os.fsencode(f"{copy}/{names[match.group(1)]}"), content)
    first, newline, rest = content.partition(b"\n")
    if first.startswith(b"#!") and len(first) > LONGEST_FIRST_LINE:
        return through_shell(first, newline + rest)
    return content


def through_shell(first: bytes, rest: bytes) -> bytes:
    """A line that is too long for the kernel, written so that sh runs it and Python takes it for a string."""
    return b"#!/bin/sh\n'''exec' " + first[2:].strip() + b" \"$0\" \"$@\"\n' '''" + rest


# ---------------------------------------------------------------- unpack
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEVER_NS = 0  # a link's time of access until it is followed: see misses.py
MADE_NS = 10**9


def unpack(manifest: Manifest, chunks: Iterator[bytes], folder: str, copy: str) -> None:
    """The whole tree in `folder`, which will be renamed to `copy`."""
    for path, mode in manifest.folders:
        os.mkdir(f"{folder}/{path}", mode)
    stream = Stream(chunks)
    for file in manifest.files:
        write_file(manifest, file, stream, f"{folder}/{file.path}", copy)
    for path, target, kind in manifest.links:
        os.symlink(target, f"{folder}/{path}")
        if kind == LINK_OUT:
            os.utime(f"{folder}/{path}", ns=(NEVER_NS, MADE_NS), follow_symlinks=False)


class Stream:
    """The payload as it comes, read from front to back."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks = chunks
        self.block = memoryview(b"")
        self.begin = 0  # of the block, in the payload

    def read(self, at: int, size: int) -> Iterator[memoryview]:
        """The bytes from there; what lies before is left out."""
        while size:
            while at >= self.begin + len(self.block):
                self.begin += len(self.block)
                self.block = memoryview(next(self.chunks))
            part = self.block[at - self.begin :][:size]
            yield part
            at, size = at + len(part), size - len(part)


def write_file(manifest: Manifest, file: File, stream: Stream, path: str, copy: str) -> None:
    """One file, with the mode and the time that Python compares its bytecode with."""
    digest = hashlib.sha256()
    handle = os.open(path, NEW_FILE, file.mode & 0o7777 | 0o200)
    try:
        if file.relocated:
            content = b"".join(stream.read(file.at, file.size))
            digest.update(content)
            write_all(handle, memoryview(relocated(content, manifest.roots, copy)))
        else:
            for part in stream.read(file.at, file.size):
                digest.update(part)
                write_all(handle, part)
        if digest.hexdigest() != file.sha256:
            raise BadBundle(f"{file.path} is not what was packed")
        os.utime(handle, ns=(file.mtime_ns, file.mtime_ns))
    finally:
        os.close(handle)


def write_all(handle: int, block: memoryview) -> None:
    while block:
        block = block[os.write(handle, block) :]


def write_all_at(handle: int, block: memoryview, at: int) -> None:
    """Without the position of the file, which threads that read from it share."""
    while block:
        written = os.pwrite(handle, block, at)
        block, at = block[written:], at + written


def opened(stored: bytes, compressed: bool) -> bytes:
    """A chunk as it was before it was compressed; never longer than a chunk may be."""
    if not compressed:
        return stored
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(stored, CHUNK_BYTES)
    except zlib.error as error:
        raise BadBundle(f"a chunk cannot be unpacked ({error})") from None
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise BadBundle("a chunk is longer than a chunk may be")
    return raw


# ---------------------------------------------------------------------------------------------------------------------
# The bundle as it arrives on a node: chunk by chunk, each verified before anybody may use it.
PART_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ChunkSource(Protocol):
    """Where chunks come from."""

    def chunk(self, number: int, at: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class ChunksGone(Exception):
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

    def take_all(self, source: ChunkSource, name: str, instead: tuple[str, "SourceMaker"] | None) -> None:
        """Every chunk that is still missing, from the source or, where that ends too early, from the other."""
        try:
            while self.verified < len(self.manifest.chunks):
                self.take(source, name)
            self.transfer_ns = time.monotonic_ns() - self.began_ns
        except ChunksGone as reason:
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

    def take(self, source: ChunkSource, name: str) -> None:
        number = self.verified
        size, digest = self.manifest.chunks[number]
        stored = source.chunk(number, self.starts[number], size)
        if len(stored) != size or hashlib.sha256(stored).hexdigest() != digest:
            if name != "shared":
                raise ChunksGone(f"{name} sent a chunk that is not what was packed")
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
                raise BadBundle(self.failure) if self.bad else ChunksGone(self.failure)

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
    def __call__(self) -> ChunkSource: ...


def starts(manifest: Manifest) -> list[int]:
    """Where each chunk begins in the bundle."""
    offsets, at = [], HEADER_BYTES
    for size, _ in manifest.chunks:
        offsets.append(at)
        at += size
    return offsets
