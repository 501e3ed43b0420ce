"""Reads where a shared object tells the dynamic loader to look for other libraries: its RPATH or RUNPATH."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LOAD, DYNAMIC = 1, 2  # kinds of segments
STRINGS, RPATH, RUNPATH = 5, 15, 29  # tags of the dynamic section
MOST_SEGMENTS, MOST_BYTES = 512, 1 << 20


@dataclass(frozen=True, slots=True)
class LibraryPath:
    """What one object says."""

    kind: str  # "RPATH" or "RUNPATH"
    directories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    file_bytes: int


def told_directories(objects: Iterable[str]) -> dict[str, str]:
    """Which object's path names a directory: "RUNPATH of libtorch.so", for those that are still there to be read."""
    directories: dict[str, str] = {}
    for name in objects:
        library = library_path(Path(name))
        for directory in library.directories if library else ():
            place = os.path.normpath(directory)
            directories.setdefault(place, f"{library.kind if library else ''} of {os.path.basename(name)}")
    return directories


def library_path(path: Path) -> LibraryPath | None:
    """RUNPATH, which makes RPATH void, or RPATH; None where there is neither or the file is no 64-bit ELF file."""
    try:
        with path.open("rb") as file:
            strings = _dynamic_strings(file)
    except (OSError, struct.error, ValueError):
        return None
    for kind in ("RUNPATH", "RPATH"):
        if strings.get(kind):
            origin = str(path.absolute().parent)
            words = strings[kind].replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            return LibraryPath(kind, tuple(word for word in words.split(":") if word))
    return None


def _dynamic_strings(file: BinaryIO) -> dict[str, str]:
    segments = _segments(file)
    dynamic = next((segment for segment in segments if segment.kind == DYNAMIC), None)
    if dynamic is None:
        return {}
    block = _at(file, dynamic.offset, min(dynamic.file_bytes, MOST_BYTES))
    tags: dict[int, int] = {}
    for tag, value in struct.iter_unpack("<qQ", block[: len(block) // 16 * 16]):
        if tag == 0:
            break
        tags[tag] = value
    strings = _offset(segments, tags[STRINGS]) if STRINGS in tags else None
    if strings is None:
        return {}
    wanted = {"RPATH": RPATH, "RUNPATH": RUNPATH}
    return {name: _text(file, strings + tags[tag]) for name, tag in wanted.items() if tag in tags}


def _segments(file: BinaryIO) -> list[_Segment]:
    head = _at(file, 0, 64)
    if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        raise ValueError
    table, size, number = *struct.unpack_from("<Q", head, 32), *struct.unpack_from("<HH", head, 54)
    if size < 56 or number > MOST_SEGMENTS:
        raise ValueError
    block = _at(file, table, size * number)
    segments = []
    for at in range(number):
        kind, _, offset, address, _, file_bytes = struct.unpack_from("<IIQQQQ", block, at * size)
        segments.append(_Segment(kind, offset, address, file_bytes))
    return segments


def _offset(segments: list[_Segment], address: int) -> int | None:
    """Where in the file an address of memory is."""
    for segment in segments:
        if segment.kind == LOAD and segment.address <= address < segment.address + segment.file_bytes:
            return segment.offset + address - segment.address
    return None


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _text(file: BinaryIO, offset: int) -> str:
    return _at(file, offset, 65536).partition(b"\0")[0].decode("utf-8", "backslashreplace")
