"""Writes the tree of a copy from verified chunks, file by file, each checked against its own checksum."""

import hashlib
import os
import zlib
from collections.abc import Iterator

from rankscope.stage.bundle import CHUNK_BYTES, LINK_OUT, BadBundle, File, Manifest
from rankscope.stage.relocating import relocated

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
