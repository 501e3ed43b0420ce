"""Writes a bundle: the same files give the same bytes."""

import hashlib
import json
import os
import stat
import tarfile
import tempfile
import zlib
from typing import Any, BinaryIO

from rankscope.stage.bundle import BLOCK_BYTES, CHUNK_BYTES, FORMAT, HEADER_BYTES, BadBundle, written_header
from rankscope.stage.contents import Choice
from rankscope.stage.image import IMAGE, into_image
from rankscope.stage.layout import Packed, Tree, lay_out

READ_BYTES = 1024**2
FASTEST = 1  # of zlib's levels: level 6 packs at a quarter of the speed and saves a tenth


class Payload:
    """The bytes of all files, cut into chunks that are sealed (and maybe compressed) one by one."""

    def __init__(self, file: BinaryIO, compressed: bool) -> None:
        self.file = file
        self.compressed = compressed
        self.chunks: list[list[int | str]] = []
        self.raw_bytes = 0
        self.waiting = bytearray()

    def write(self, block: bytes) -> None:
        self.raw_bytes += len(block)
        self.waiting += block
        while len(self.waiting) >= CHUNK_BYTES:
            self.seal(bytes(self.waiting[:CHUNK_BYTES]))
            del self.waiting[:CHUNK_BYTES]

    def seal(self, raw: bytes) -> None:
        stored = zlib.compress(raw, FASTEST) if self.compressed else raw
        self.chunks.append([len(stored), hashlib.sha256(stored).hexdigest()])
        self.file.write(stored)

    def finish(self) -> None:
        if self.waiting:
            self.seal(bytes(self.waiting))
            self.waiting.clear()


def pack(choice: Choice, path: str, compressed: bool, facts: dict[str, Any]) -> str:
    """Write the bundle, whole or not at all, and return its identity."""
    return pack_tree(choice, lay_out(choice), path, compressed, facts)


def pack_image(choice: Choice, path: str, facts: dict[str, Any]) -> str:
    """The same with everything in one image; it is compressed in itself."""
    with tempfile.TemporaryDirectory(prefix=".rankscope-image-", dir=os.path.dirname(os.path.abspath(path))) as folder:
        tree = into_image(lay_out(choice), folder)
        return pack_tree(choice, tree, path, False, {**facts, "image": IMAGE})


def pack_tree(choice: Choice, tree: Tree, path: str, compressed: bool, facts: dict[str, Any]) -> str:
    temporary = f"{path}.part-{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            identity = write_bundle(file, choice, tree, compressed, facts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return identity


def write_bundle(file: BinaryIO, choice: Choice, tree: Tree, compressed: bool, facts: dict[str, Any]) -> str:
    """Chunks first, then the manifest that seals them, then the header that seals the manifest."""
    file.write(bytes(HEADER_BYTES))
    payload = Payload(file, compressed)
    rows = [add_file(payload, packed) for packed in tree.files]
    payload.finish()
    content = json.dumps(manifest(choice, tree, payload, rows, facts), separators=(",", ":"), sort_keys=True).encode()
    region = tar_header("manifest.json", len(content)) + padded(content) + bytes(2 * BLOCK_BYTES)
    file.write(region)
    header = written_header(tar_header("rankscope-bundle", BLOCK_BYTES), region, len(content), file.tell())
    file.seek(0)
    file.write(header)
    return header.rstrip(b"\0").split()[-1].decode()


def manifest(
    choice: Choice, tree: Tree, payload: Payload, rows: list[list[Any]], facts: dict[str, Any]
) -> dict[str, Any]:
    """What the bundle says of itself; no date and no host, so that equal content has equal bytes."""
    return {
        **facts,
        "format": FORMAT,
        "compression": "zlib" if payload.compressed else "none",
        "chunk_bytes": CHUNK_BYTES,
        "raw_bytes": payload.raw_bytes,
        "chunks": payload.chunks,
        "roots": [{"name": r.name, "original": r.original, "real": r.real, "venv": r.is_venv} for r in choice.roots],
        "folders": tree.folders,
        "files": rows,
        "links": tree.links,
        "watched": tree.watched,
    }


def add_file(payload: Payload, packed: Packed) -> list[Any]:
    """The file's bytes into the payload, and its line of the manifest."""
    size = packed.status.st_size
    payload.write(tar_header(packed.path, size, packed.status))
    at, digest, left = payload.raw_bytes, hashlib.sha256(), size
    with open(packed.source, "rb", buffering=0) as source:
        while block := source.read(READ_BYTES):
            digest.update(block)
            payload.write(block)
            left -= len(block)
    if left:
        raise BadBundle(f"{packed.source} changed while it was packed: pack again")
    payload.write(bytes(-size % BLOCK_BYTES))
    mode = stat.S_IMODE(packed.status.st_mode)
    return [packed.path, size, mode, packed.status.st_mtime_ns, at, digest.hexdigest(), packed.relocated]


def tar_header(name: str, size: int, status: os.stat_result | None = None) -> bytes:
    """The header of a member, without owner, group and fractions of seconds."""
    member = tarfile.TarInfo(name)
    member.size = size
    if status:
        member.mode = stat.S_IMODE(status.st_mode)
        member.mtime = int(status.st_mtime)
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK_BYTES)
