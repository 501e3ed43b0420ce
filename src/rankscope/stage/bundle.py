"""The bundle: one file with everything that is staged, in which no byte goes unchecked.

It is a tar file, so that people can look into it; we never read its tar headers. docs/commands/stage.md draws it.
"""

import hashlib
import json
import os
from typing import Any

from rankscope.stage.roots import StagedRoot

FORMAT = 1
BLOCK_BYTES = 512
HEADER_BYTES = 2 * BLOCK_BYTES  # the tar header of the first member, and its content
CHUNK_BYTES = 4 * 1024**2
FIRST_LINE = b"rankscope bundle 1\n"
SEAL = b"sha256 "
LARGEST_MANIFEST_BYTES = 1024**3
LINK_OUT, LINK_IN = "o", "i"  # to the original place; within the copy (or to a place that is no part of it)


class BadBundle(Exception):
    """The bundle is damaged, cut off, or not a bundle; the text says which."""


class Header:
    """The first 1,024 bytes: where the manifest is, how long everything is, and the bundle's identity."""

    def __init__(self, identity: str, manifest_bytes: int, json_bytes: int, manifest_sha256: str, length: int) -> None:
        self.identity = identity  # seals the header, which seals the manifest, which seals every chunk
        self.manifest_bytes = manifest_bytes  # with the tar header before it and the end of the archive after it
        self.json_bytes = json_bytes
        self.manifest_sha256 = manifest_sha256
        self.length = length

    @property
    def manifest_at(self) -> int:
        """The manifest is last: it seals the chunks, so it is known when they have been written."""
        return self.length - self.manifest_bytes

    @property
    def key(self) -> str:
        """The name of a copy of this bundle."""
        return self.identity[:16]


class File:
    """One file of the copy."""

    __slots__ = ("at", "mode", "mtime_ns", "path", "relocated", "sha256", "size")

    def __init__(self, path: str, size: int, mode: int, mtime_ns: int, at: int, sha256: str, relocated: bool) -> None:
        self.path = path
        self.size = size
        self.mode = mode
        self.mtime_ns = mtime_ns
        self.at = at  # in the payload before compression
        self.sha256 = sha256
        self.relocated = relocated  # its text names the original place and is to name the copy


class Manifest:
    """What the bundle holds."""

    def __init__(self, data: dict[str, Any], payload_bytes: int) -> None:
        self.data = data
        self.compressed = data["compression"] == "zlib"
        self.chunks: list[tuple[int, str]] = [(int(size), str(digest)) for size, digest in data["chunks"]]
        self.roots = [StagedRoot(row["name"], row["original"], row["real"], row["venv"]) for row in data["roots"]]
        self.folders: list[tuple[str, int]] = [(str(path), int(mode)) for path, mode in data["folders"]]
        self.files = [File(*row) for row in data["files"]]
        self.links: list[tuple[str, str, str]] = [(str(p), str(target), str(kind)) for p, target, kind in data["links"]]
        self.watched: list[tuple[str, int]] = [(str(path), int(time)) for path, time in data["watched"]]
        self.raw_bytes = int(data["raw_bytes"])
        check_chunks(self, payload_bytes)
        check_paths(self)

    @property
    def file_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def image(self) -> str:
        """The file of the copy that is to be mounted, or ""."""
        return str(self.data.get("image", ""))


def read_header(block: bytes) -> Header:
    """The header, if every byte of these is as it was written."""
    text = block[BLOCK_BYTES:HEADER_BYTES]
    seal_at = text.find(b"\n" + SEAL) + 1
    if len(block) < HEADER_BYTES or not text.startswith(FIRST_LINE) or not seal_at:
        raise BadBundle("not a bundle of rankscope stage, or cut off in its header")
    identity = hashlib.sha256(block[: BLOCK_BYTES + seal_at]).hexdigest()
    if text[seal_at:].rstrip(b"\0") != SEAL + identity.encode() + b"\n":
        raise BadBundle("its header was changed")
    words = text[:seal_at].decode().split()  # rankscope bundle 1 manifest BYTES JSON-BYTES SHA256 length BYTES
    return Header(identity, int(words[4]), int(words[5]), words[6], int(words[8]))


def written_header(tar_header: bytes, manifest_region: bytes, json_bytes: int, length: int) -> bytes:
    """The first 1,024 bytes of a bundle."""
    digest = hashlib.sha256(manifest_region).hexdigest()
    lines = f"manifest {len(manifest_region)} {json_bytes} {digest}\nlength {length}\n".encode()
    sealed = tar_header + FIRST_LINE + lines
    content = sealed + SEAL + hashlib.sha256(sealed).hexdigest().encode() + b"\n"
    return content.ljust(HEADER_BYTES, b"\0")


def read_manifest(header: Header, region: bytes) -> Manifest:
    """The manifest, if it is the one that the header seals."""
    if len(region) != header.manifest_bytes or hashlib.sha256(region).hexdigest() != header.manifest_sha256:
        raise BadBundle("its manifest was changed or cut off")
    try:
        data = json.loads(region[BLOCK_BYTES : BLOCK_BYTES + header.json_bytes])
        if data["format"] != FORMAT:
            raise BadBundle(f"it has format {data['format']}, this version reads {FORMAT}: pack it again")
        return Manifest(data, header.manifest_at - HEADER_BYTES)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadBundle(f"its manifest is malformed ({type(error).__name__}: {error})") from None


def check_chunks(manifest: Manifest, payload_bytes: int) -> None:
    """The chunks fill the payload, and the files lie in it one after another."""
    if any(size <= 0 for size, _ in manifest.chunks) or sum(size for size, _ in manifest.chunks) != payload_bytes:
        raise BadBundle("its chunks do not fill it")
    end = 0
    for file in manifest.files:
        if file.size < 0 or file.at < end:
            raise BadBundle(f"its files overlap at {file.path}")
        end = file.at + file.size
    if end > manifest.raw_bytes:
        raise BadBundle("its files are longer than it is")


def check_paths(manifest: Manifest) -> None:
    """Nothing leads out of the copy while it is written: no .., no name twice, and no way through a link."""
    folders = {path for path, _ in manifest.folders}
    names = [path for path, _ in manifest.folders] + [file.path for file in manifest.files]
    names += [path for path, _, _ in manifest.links]
    if len(set(names)) != len(names):
        raise BadBundle("it names a file twice")
    for path in names:
        parent = path.rpartition("/")[0]
        if (parent and parent not in folders) or not all(part not in ("", ".", "..") for part in path.split("/")):
            raise BadBundle(f"it holds a path that leads nowhere or out of it: {path!r}")


def open_bundle(path: str) -> tuple[int, Header]:
    """The open file and its header; a length that differs is found at once."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        header = read_header(os.pread(file, HEADER_BYTES, 0))
        length = os.fstat(file).st_size
        if length != header.length:
            raise BadBundle(f"it has {length} bytes of {header.length}: cut off or added to")
        check_lengths(header)
    except BaseException:
        os.close(file)
        raise
    return file, header


def check_lengths(header: Header) -> None:
    """Before anything of this length is asked for."""
    longest = min(header.length - HEADER_BYTES, LARGEST_MANIFEST_BYTES)
    if not BLOCK_BYTES + header.json_bytes <= header.manifest_bytes <= longest:
        raise BadBundle("its manifest is longer than it is")


def read_exactly(file: int, size: int, at: int) -> bytes:
    """So many bytes from there; fewer only at the end of the file."""
    blocks = []
    while size:
        block = os.pread(file, size, at)
        if not block:
            break
        blocks.append(block)
        size, at = size - len(block), at + len(block)
    return b"".join(blocks)
