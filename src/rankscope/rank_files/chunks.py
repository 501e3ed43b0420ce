"""The parts of a rank file, checked: header, strings and tables, or a BadFile that says what is wrong where."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope import rank_file
from rankscope.model.records import BadFile
from rankscope.rank_file import CHUNK, HEADER, ChunkKind, Rows

# ---------------------------------------------------------------------------------------------------------------------
# Copies rows that another process may be writing, none of them half old and half new.
LIBRARY = Path(__file__).parent.parent / "native" / "librankscope_read.so"
ADDRESS, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
FUNCTIONS: dict[str, tuple[tuple[Any, ...], Any]] = {  # arguments, result
    "rankscope_read_rows": ((ADDRESS, ADDRESS, COUNT, NUMBER, NUMBER, ctypes.c_int, ADDRESS), COUNT),
    "rankscope_trace_times": ((ADDRESS, COUNT, ADDRESS, COUNT, *[ADDRESS] * 4), None),
}

Unsettled = npt.NDArray[np.bool_]


def copy_rows(rows: Rows, mark: str, zero_is_busy: bool = False) -> tuple[Rows, Unsettled]:
    """A consistent copy of the rows, and which of them did not come to rest (see native/read/reading.c)."""
    return copy_by(native_function("rankscope_read_rows"), rows, mark, zero_is_busy)


@cache
def native_function(name: str, path: Path = LIBRARY) -> Any:
    """A compiled function of the library that reads, or a BadFile where that was not built for this machine."""
    try:
        function = getattr(ctypes.CDLL(str(path)), name)
    except (OSError, AttributeError) as problem:
        raise BadFile(f"{problem}: build it with hatch_build.py, or install rankscope again") from None
    function.argtypes, function.restype = FUNCTIONS[name]
    return function


def copy_by(native: Any, rows: Rows, mark: str, zero_is_busy: bool) -> tuple[Rows, Unsettled]:
    """The copy made by the compiled function."""
    copied = np.empty(len(rows), rows.dtype)
    unsettled = np.zeros(len(rows), np.bool_)
    offset = _offset(rows, mark)
    addresses = (rows.ctypes.data, copied.ctypes.data)
    native(*addresses, len(rows), rows.dtype.itemsize, offset, int(zero_is_busy), unsettled.ctypes.data)
    return copied, unsettled


def _offset(rows: Rows, mark: str) -> int:
    members = rows.dtype.fields
    assert members is not None
    return int(members[mark][1])


# ---------------------------------------------------------------- chunks
MAX_FILE_BYTES = 1 << 31  # larger than any recorder makes: bounds what a hostile file can make us take
OTHER_ORDER = 0x04030201
READ_TRIES = 100
ROW_TYPES: dict[int, np.dtype[Any]] = {
    ChunkKind.TALLIES: rank_file.TALLY,
    ChunkKind.LOG: rank_file.COLLECTIVE,
    ChunkKind.GROUPS: rank_file.GROUP,
    ChunkKind.MESSAGES: rank_file.MESSAGE,
    ChunkKind.OVERWRITTEN: rank_file.OVERWRITTEN,
    ChunkKind.PEERS: rank_file.PEER,
    ChunkKind.THREADS: rank_file.THREAD,
    ChunkKind.CUDA: rank_file.CUDA,
    ChunkKind.RUNTIMES: rank_file.RUNTIME,
    ChunkKind.DEVICES: rank_file.DEVICE,
    ChunkKind.TRACE: rank_file.EVENT,
    ChunkKind.STEPS: rank_file.STEP,
    ChunkKind.STEP_BLOCKS: rank_file.STEP_BLOCK,
    ChunkKind.DEVICE_STEPS: rank_file.DEVICE_STEP,
    ChunkKind.WINDOWS: rank_file.WINDOW,
    ChunkKind.STEP_FLOPS: rank_file.STEP_FLOPS,
    ChunkKind.GPUS: rank_file.GPU,
    ChunkKind.POWER: rank_file.POWER,
    ChunkKind.ALLOCATOR: rank_file.ALLOCATOR,
    ChunkKind.MARKS: rank_file.MARK,
    ChunkKind.MODULES: rank_file.MODULE,
    ChunkKind.SYSTEM_CALLS: rank_file.SYSTEM_CALL,
    ChunkKind.UNWRAPPED: np.dtype([("name", "u4")]),
    ChunkKind.NOTES: rank_file.NOTE,
}
EARLIER_ROWS: dict[int, tuple[int, ...]] = {  # of earlier recorders of this version: fields were added at the end
    ChunkKind.CUDA: (144, 200, 216, 296),
    ChunkKind.DEVICES: (264, 352),
    ChunkKind.THREADS: (32,),
    ChunkKind.STEPS: (152,),
}


HEADER_MEMBERS: Any = HEADER.fields
FACTS_BYTES = slice(HEADER_MEMBERS["facts"][1], HEADER_MEMBERS["facts"][1] + HEADER_MEMBERS["facts"][0].itemsize)
COUNTER, SEQ = struct.Struct("=Q"), struct.Struct("=I")
HEAD = struct.Struct("=6I")  # of CHUNK: thousands of live files are asked again and again, and numpy would take longer


class FileHead(NamedTuple):
    """What a chunk says of itself."""

    kind: int
    thread: int
    chunk_bytes: int
    row_bytes: int
    rows: int
    first_id: int


@dataclass(slots=True)
class ChunkRows:
    """The published rows of one chunk, still in the file."""

    thread: int
    first_id: int
    rows: Rows


@dataclass(slots=True)
class ChunkPlaces:
    """Where the chunks of a file are, as far as it was walked: none ever moves, and new ones come behind."""

    places: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # of each kind: place and bytes
    end: int = 0


@dataclass(slots=True)
class RankFile:
    """A mapped rank file; each method looks at the file anew, because it may be growing.

    A live file publishes names before what uses them. Ask for rows first, then for groups, then for strings, and
    copy each before asking for the next: then no row can name what was not yet there.
    """

    path: Path
    data: Any
    header: Any  # one HEADER record, copied
    layout: ChunkPlaces = field(
        default_factory=ChunkPlaces
    )  # that of an earlier opening of the same file saves the walk

    def parts(self, kind: ChunkKind) -> list[ChunkRows]:
        """The chunks of one kind of table."""
        return [self._part(place, size, kind, self._head(place)) for place, size in self._places(kind)]

    def strings(self) -> list[str]:
        """All strings, by id."""
        texts = [""]
        for place, size in self._places(ChunkKind.STRINGS):
            self._take_strings(place, size, self._head(place), texts)
        return texts

    def string_bytes(self) -> bytes:
        """All that is published of the strings, as it stands in the file."""
        return b"".join(
            self._body(place, size)[: self._head(place).rows].tobytes()
            for place, size in self._places(ChunkKind.STRINGS)
        )

    def paths(self) -> tuple[Rows, list[str]]:
        """The records of paths, and the paths."""
        rows: list[Any] = [np.zeros(0, rank_file.PATH)]
        texts: list[str] = []
        for place, size in self._places(ChunkKind.PATHS):
            self._take_paths(place, size, self._head(place), rows, texts)
        return np.concatenate(rows), texts

    def _take_paths(self, place: int, size: int, chunk: FileHead, rows: list[Any], texts: list[str]) -> None:
        body, published = self._body(place, size), chunk.rows
        if published > len(body):
            raise BadFile(f"{self.path}: paths at byte {place}: {published} bytes do not fit in {len(body)}")
        raw, at, head = body[:published].tobytes(), 0, rank_file.PATH.itemsize
        while at + head <= published:
            row = np.frombuffer(raw, rank_file.PATH, 1, at)
            record_bytes, length = int(row["record_bytes"][0]), int(row["path_bytes"][0])
            if record_bytes % 8 or head + length >= record_bytes or at + record_bytes > published:
                where = place + CHUNK.itemsize + at
                raise BadFile(f"{self.path}: path at byte {where}: {length} bytes in a record of {record_bytes}")
            if row["times"][0]:
                rows.append(row)
                texts.append(raw[at + head : at + head + length].decode("utf-8", "backslashreplace"))
            at += record_bytes

    def unknown_kinds(self) -> set[int]:
        """Kinds of chunks that a newer recorder may have added."""
        return self._walked().keys() - set(ChunkKind)

    def now(self, name: str) -> int:
        """A counter of the header as it stands at this moment."""
        return COUNTER.unpack_from(self.data, HEADER_MEMBERS[name][1])[0]  # type: ignore[no-any-return]

    def _places(self, kind: int) -> list[tuple[int, int]]:
        """Place and size of each chunk of a kind."""
        return self._walked().get(kind, [])

    def _walked(self) -> dict[int, list[tuple[int, int]]]:
        """All chunks: those that are known, and what has come behind them."""
        known, used = self.layout, self.now("used_bytes")
        if used == known.end:
            return known.places
        used, page = min(used, len(self.data)), int(self.header["page_bytes"])
        place = known.end or rank_file.whole_pages(int(self.header["header_bytes"]), page)
        while place < used:
            if place + CHUNK.itemsize > used:
                raise BadFile(f"{self.path}: chunk at byte {place} does not fit in the {used} bytes used")
            chunk = self._head(place)
            size = chunk.chunk_bytes
            if size < page or size % page or place + size > used:
                raise BadFile(f"{self.path}: chunk at byte {place}: {size} bytes do not add up")
            known.places.setdefault(chunk.kind, []).append((place, size))
            place += size
            known.end = place
        return known.places

    def _head(self, place: int) -> FileHead:
        """What a chunk says of itself at this moment."""
        return FileHead(*HEAD.unpack_from(self.data, place))

    def _body(self, place: int, size: int) -> Any:
        return self.data[place + CHUNK.itemsize : place + size]

    def _part(self, place: int, size: int, kind: ChunkKind, chunk: FileHead) -> ChunkRows:
        body, row_type = self._body(place, size), ROW_TYPES[kind]
        rows, row_bytes = chunk.rows, chunk.row_bytes
        if row_bytes != row_type.itemsize and row_bytes not in EARLIER_ROWS.get(kind, ()):
            text = f"rows of {row_bytes} bytes, {row_type.itemsize} expected"
            raise BadFile(f"{self.path}: chunk at byte {place}: {text}")
        if rows * row_bytes > len(body):
            raise BadFile(f"{self.path}: chunk at byte {place}: {rows} rows do not fit in {len(body)} bytes")
        return ChunkRows(chunk.thread, chunk.first_id, _as_rows(body[: rows * row_bytes], row_bytes, row_type))

    def _take_strings(self, place: int, size: int, chunk: FileHead, texts: list[str]) -> None:
        body, published = self._body(place, size), chunk.rows
        if published > len(body):
            raise BadFile(f"{self.path}: strings at byte {place}: {published} bytes do not fit in {len(body)}")
        if published and chunk.first_id != len(texts):
            text = f"first id {chunk.first_id}, but {len(texts)} is next"
            raise BadFile(f"{self.path}: strings at byte {place}: {text}")
        raw, at = body[:published].tobytes(), 0
        while at + 4 <= published:
            length = int.from_bytes(raw[at : at + 4], sys.byteorder)
            if at + 4 + length >= published:
                where = place + CHUNK.itemsize + at
                raise BadFile(f"{self.path}: string at byte {where}: {length} bytes are too long")
            texts.append(raw[at + 4 : at + 4 + length].decode("utf-8", "backslashreplace"))
            at += rank_file.string_bytes(length)


def _as_rows(body: Any, row_bytes: int, row_type: Any) -> Rows:
    """The rows; fields that were added since the file was written are 0."""
    if row_bytes == row_type.itemsize:
        return np.frombuffer(body, row_type) if len(body) else np.zeros(0, row_type)
    padded = np.zeros((len(body) // row_bytes, row_type.itemsize), np.uint8)
    padded[:, :row_bytes] = body.reshape(-1, row_bytes)
    return padded.reshape(-1).view(row_type)


def open_rank_file(path: Path) -> RankFile:
    """Map a rank file and check its header."""
    data = _map(path)
    return RankFile(path, data, _header(path, data))


def _map(path: Path) -> Any:
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(opened).st_size
            if size < HEADER.itemsize:
                raise BadFile(f"{path}: {size} bytes are too few for a rank file (truncated?)")
            mapped = mmap.mmap(opened, min(size, MAX_FILE_BYTES), access=mmap.ACCESS_READ)
        finally:
            os.close(opened)
    except (OSError, ValueError) as problem:
        raise BadFile(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    return np.frombuffer(mapped, np.uint8)


def _header(path: Path, data: Any) -> Any:
    """The header as it stands, copied as bytes: field by field numpy would take ten times as long."""
    raw = bytearray(data[: HEADER.itemsize].tobytes())
    header = np.frombuffer(raw, HEADER)[0]
    _check_identity(path, header)
    raw[FACTS_BYTES] = _settled_facts(data)
    _check_sizes(path, header, len(data))
    return header


def _check_identity(path: Path, header: Any) -> None:
    if header["magic"] != rank_file.MAGIC:
        raise BadFile(f"{path}: not a rank file: no {rank_file.MAGIC.decode()} at byte 0")
    if header["byte_order"] == OTHER_ORDER:
        raise BadFile(f"{path}: written on a machine of the other byte order: read it on such a machine")
    if header["byte_order"] != rank_file.BYTE_ORDER:
        raise BadFile(f"{path}: damaged header: byte order mark {header['byte_order']:#x}")
    if header["version"] != rank_file.VERSION:
        text = f"format version {header['version']}, this rankscope reads version {rank_file.VERSION}"
        raise BadFile(f"{path}: {text}: use the rankscope that wrote it")


def _check_sizes(path: Path, header: Any, size: int) -> None:
    page, head, used = (int(header[name]) for name in ("page_bytes", "header_bytes", "used_bytes"))
    if page < rank_file.PAGE or page % rank_file.PAGE or page > 1 << 20:
        raise BadFile(f"{path}: damaged header: pages of {page} bytes")
    if not rank_file.FIRST_HEADER_BYTES <= head <= used:  # fields that were added since are 0 up to the first chunk
        raise BadFile(f"{path}: damaged header: {head} bytes of header in {used} bytes used")
    if used > MAX_FILE_BYTES:
        raise BadFile(f"{path}: {used} bytes in use, more than the {MAX_FILE_BYTES} a rank file may have")
    if used > size:
        raise BadFile(f"{path}: ends at byte {size}, but {used} bytes are in use (truncated?)")


def _settled_facts(data: Any) -> bytes:
    """The facts, whose seqlock their writer holds only for moments; after a kill in there: as they are."""
    facts = b""
    for _ in range(READ_TRIES):
        before = SEQ.unpack_from(data, FACTS_BYTES.start)[0]
        facts = data[FACTS_BYTES].tobytes()
        if before % 2 == 0 and SEQ.unpack_from(data, FACTS_BYTES.start)[0] == before:
            break
    return facts
