"""The rank file in Python: the twin of native/layout.h, and a writer of the same format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"RANKSCPE"
VERSION = 1
BYTE_ORDER = 0x01020304
PAGE = 4096

Rows = npt.NDArray[np.void]


class State(IntEnum):
    RUNNING = 1
    EXITED = 2
    REPLACED = 3
    SIGNALLED = 4


class Flag(IntFlag):
    MPI_STARTED = 1
    MPI_FINALIZED = 2
    MPI_ABORTED = 4
    FORKED = 8
    FAST_EXIT = 16
    PAUSED = 32
    SINGLETON = 64
    COMMAND_CUT = 128
    MATRIX = 256
    MPI_MULTIPLE = 512


class TickSource(IntEnum):
    TSC = 1
    CNTVCT = 2
    MONOTONIC = 3


class RankSource(IntEnum):
    NONE = 0
    OPENMPI = 1
    PMI = 2
    PMIX = 3
    PALS = 4
    SLURM = 5
    TORCHRUN = 6
    MPI = 7
    HOROVOD = 8
    FLUX = 9
    TORCH = 10


class Layer(IntEnum):
    MPI = 1
    CUDA_API = 2
    GPU = 3
    NVTX = 4
    NCCL = 5
    NCCL_ALGO = 6
    TORCH = 7
    GLOO = 8


IN_NS = (Layer.CUDA_API, Layer.GPU, Layer.NVTX)  # layers whose times are CUPTI's nanoseconds, not ticks


class Kind(IntEnum):
    CALL = 0
    PROGRESS = 1


class ChunkKind(IntEnum):
    STRINGS = 1
    TALLIES = 2
    LOG = 3
    GROUPS = 4
    PEERS = 5
    THREADS = 6
    UNWRAPPED = 7
    CUDA = 10
    DEVICES = 11
    STEPS = 13
    MARKS = 14


class CollectiveFlag(IntFlag):
    NONBLOCKING = 1
    FAILED = 2
    ENQUEUED = 4
    DEVICE = 8


class GroupKind(IntEnum):
    COMM = 1
    WINDOW = 2
    FILE = 3
    NCCL = 4
    STREAM = 5
    DOMAIN = 6
    PROCESS_GROUP = 8


class CudaState(IntEnum):
    RECORDING = 1
    NO_LIBRARY = 2
    TOO_OLD = 3
    REFUSED = 4
    ASIDE = 5


class CudaApi(IntEnum):
    NONE = 0
    SYNC = 1
    ALL = 2


class Part(IntEnum):
    DATA = 0
    ZERO_GRAD = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    COMMUNICATION = 5
    CHECKPOINT = 6
    OTHER = 7


class StepFlag(IntFlag):
    WARMUP = 1
    ACCUMULATED = 2
    SKIPPED = 4
    TOLD = 8


class MarkKind(IntEnum):
    INTERPRETER = 1
    IMPORT_BEGIN = 2
    IMPORT_END = 3
    INIT_BEGIN = 4
    INIT_END = 5
    FIRST_COLLECTIVE_BEGIN = 6
    FIRST_COLLECTIVE_END = 7
    FIRST_STEP_BEGIN = 8
    FIRST_STEP_END = 9
    FINALIZE = 10
    OBSERVER = 11


class GroupFlag(IntFlag):
    INTER = 1
    GUESSED = 2


def _structure(*fields: str) -> np.dtype[Any]:
    """A dtype with C's own alignment, from "type name name ..." lines (type as numpy writes it)."""
    members: list[tuple[str, Any]] = []
    for line in fields:
        code, *names = line.split()
        members += [(name, _NESTED.get(code, code)) for name in names]
    return np.dtype(members, align=True)


_NESTED: dict[str, Any] = {}
ANCHOR = _NESTED["anchor"] = _structure("u8 ticks monotonic_ns realtime_ns")
FACTS = _NESTED["facts"] = _structure(
    "u4 seq threads",
    "anchor anchor",
    "u8 user_ns system_ns max_rss_bytes",
    "u8 voluntary_switches involuntary_switches minor_faults major_faults",
)
HEADER = _structure(
    "S8 magic",
    "u4 version byte_order header_bytes page_bytes",
    "u8 bound_bytes used_bytes reserved_bytes",
    "u4 state flags",
    "i4 exit_code abort_code",
    "u4 end_signal phase",
    "i4 pid parent_pid rank local_rank world_size",
    "u4 rank_source launcher_world_size cpus_allowed",
    "u8 started_realtime_ns start_jiffies",
    "u4 tick_source mpi_threads_level",
    "anchor loaded",
    "facts facts",
    "u8 setup_ticks call_cost_milliticks collective_cost_milliticks",
    "u8 mpi_started_ticks mpi_finalized_ticks ended_ticks",
    "u8 lost_calls lost_ticks lost_strings folded_groups untracked_requests lost_peers",
    "u8 log_capacity log_written threads_seen forks_seen paused_calls",
    "S64 host",
    "S32 rankscope_version",
    "S256 executable mpi_library mpi_version",
    "V1024 command",
)
CHUNK = _structure("u4 kind thread chunk_bytes row_bytes rows first_id", "V40 reserved")
TALLY = _structure(
    "u2 name group",
    "u1 layer phase size_class kind",
    "u4 seq errors",
    "u8 calls bytes total_ticks min_ticks max_ticks",
    "f8 sum_squares_ticks2",
)
COLLECTIVE = _structure(
    "u8 enter_ticks end_ticks bytes",
    "u4 sequence number call_ticks",
    "i4 root",
    "u2 name group thread",
    "u1 phase flags",
)
GROUP = _structure(
    "u8 handle identity",
    "u4 size my_rank remote_size",
    "u2 parent name",
    "u4 kind flags",
    "u8 collectives created_ticks freed_ticks",
)
PEER = _structure("u4 world_rank seq", "u8 calls bytes")
THREAD = _structure("u4 slot tid", "u8 first_ticks", "S16 name")
CUDA = _structure(
    "u4 cupti_version state api",
    "u2 library note",
    "u8 records buffers dropped instants unfinished other_kinds",
    "u8 open_ranges lost_ranges folded_ranges folded_streams",
    "u8 started_ticks started_ns flushed_ticks flushed_ns pinned_bytes pinned_peak_bytes",
)
DEVICE = _structure(
    "u4 device seq",
    "u8 activities first_ns last_ns busy_ns compute_ns communication_ns copy_ns hidden_ns late late_ns",
    "u8 allocations releases allocated_bytes released_bytes current_bytes peak_bytes",
    "(8,)u8 gaps gap_ns",
)
STEP = _structure(
    "u4 number flags",
    "u8 begin_ticks end_ticks",
    "(8,)f4 part_ticks blocked_ticks",
    "f4 progress_ticks covered_ticks gc_ticks cpu_ns process_cpu_ns runnable_ns",
    "u8 collective_bytes",
    "u4 collectives gc_runs minor_faults major_faults voluntary_switches involuntary_switches",
    "u4 process_involuntary_switches",
    "u2 backwards optimizer_steps",
)
MARK = _structure("u8 ticks", "u2 kind name", "u4 reserved")

STRUCTURES: dict[str, np.dtype[Any]] = {
    "rs_anchor": ANCHOR,
    "rs_facts": FACTS,
    "rs_header": HEADER,
    "rs_chunk": CHUNK,
    "rs_tally": TALLY,
    "rs_collective": COLLECTIVE,
    "rs_group": GROUP,
    "rs_peer": PEER,
    "rs_thread_row": THREAD,
    "rs_cuda": CUDA,
    "rs_device": DEVICE,
    "rs_step": STEP,
    "rs_mark": MARK,
}


def whole_pages(size_bytes: int, page_bytes: int = PAGE) -> int:
    """The size rounded up to whole pages."""
    return -(-size_bytes // page_bytes) * page_bytes


def string_bytes(length: int) -> int:
    """What a string takes in its chunk: its length, its bytes, a \\0, padding to a multiple of 4."""
    return 4 + length // 4 * 4 + 4


def size_class(size_bytes: int) -> int:
    """The class of a message size: 0 for 0 bytes, 1 for 1, k >= 2 for (2^(k-2), 2^(k-1)]."""
    return size_bytes if size_bytes < 2 else (size_bytes - 1).bit_length() + 1


class RankFileWriter:
    """Builds one rank file in memory and writes it in one go: for tests and synthetic runs."""

    def __init__(self, **header: Any) -> None:
        self.header = np.zeros(1, HEADER)
        self.set(magic=MAGIC, version=VERSION, byte_order=BYTE_ORDER, page_bytes=PAGE)
        self.set(header_bytes=whole_pages(HEADER.itemsize), state=State.RUNNING)
        self.set(rank=-1, local_rank=-1, world_size=-1, tick_source=TickSource.MONOTONIC)
        self._strings: dict[str, int] = {"": 0}
        self._groups: list[tuple[Any, ...]] = []
        self._tallies: dict[int, list[Rows]] = {}
        self._peers: dict[int, list[Rows]] = {}
        self._log: Rows = np.zeros(0, COLLECTIVE)
        self._threads: list[tuple[Any, ...]] = []
        self._unwrapped: list[int] = []
        self._tables: list[tuple[ChunkKind, Rows]] = []
        self.set(**header)

    def set(self, **header: Any) -> None:
        """Set header fields by name; a dict sets the members of an anchor or of the facts."""
        for name, value in header.items():
            _assign(self.header, name, value)

    def string(self, text: str) -> int:
        """The id of a string, which is entered at its first use."""
        return self._strings.setdefault(text, len(self._strings))

    def group(self, name: str, **fields: Any) -> int:
        """Enter a communicator, window or file and give its id."""
        row = np.zeros(1, GROUP)
        for key, value in {"kind": GroupKind.COMM, **fields, "name": self.string(name)}.items():
            row[key] = value
        self._groups.append(row[0])
        return len(self._groups)

    def tally(self, name: str, calls: int, total_ticks: int, *, thread: int = 0, **fields: Any) -> None:
        """Enter one tally row; where min, max or the squares are not given, all calls took the same time."""
        each = total_ticks // calls if calls else 0
        defaults: dict[str, Any] = {"min_ticks": each, "max_ticks": each, "layer": Layer.MPI}
        defaults["sum_squares_ticks2"] = float(each) * each * calls
        row = np.zeros(1, TALLY)
        given = {"name": self.string(name), "calls": calls, "total_ticks": total_ticks}
        for key, value in {**defaults, **fields, **given}.items():
            row[key] = value
        self.tallies(row, thread)

    def tallies(self, rows: Rows, thread: int = 0) -> None:
        """Enter ready-made tally rows of one thread."""
        self._tallies.setdefault(thread, []).append(rows)

    def peers(self, rows: Iterable[tuple[int, int, int]], thread: int = 0) -> None:
        """Enter (world rank, calls, bytes) rows of one thread."""
        made = np.array([(rank, 0, calls, size) for rank, calls, size in rows], PEER)
        self._peers.setdefault(thread, []).append(made)

    def collectives(self, rows: Rows, capacity: int | None = None) -> None:
        """Fill the ring as if these records had been claimed in order, the oldest ones overwritten."""
        capacity = max(1, len(rows)) if capacity is None else capacity
        numbers = np.arange(1, len(rows) + 1, dtype=np.uint64)
        rows = rows.copy()
        rows["number"] = numbers.astype(np.uint32)
        self._log = np.zeros(capacity, COLLECTIVE)
        kept = slice(max(0, len(rows) - capacity), None)
        self._log[(numbers[kept] - np.uint64(1)) % np.uint64(capacity)] = rows[kept]
        self.set(log_capacity=capacity, log_written=len(rows))

    def steps(self, rows: Rows, capacity: int | None = None) -> None:
        """Fill the ring of steps in the order of their numbers, the oldest ones overwritten."""
        capacity = max(1, len(rows)) if capacity is None else capacity
        ring = np.zeros(capacity, STEP)
        for row in rows:
            ring[(int(row["number"]) - 1) % capacity] = row
        self._tables.append((ChunkKind.STEPS, ring))

    def marks(self, *marks: tuple[MarkKind, int, str]) -> None:
        """Enter moments: kind, ticks, name."""
        rows = np.array([(ticks, kind, self.string(name), 0) for kind, ticks, name in marks], MARK)
        self._tables.append((ChunkKind.MARKS, rows))

    def thread(self, slot: int, tid: int, name: str = "") -> None:
        """Enter a thread."""
        self._threads.append((slot, tid, 0, name.encode()))

    def unwrapped(self, *names: str) -> None:
        """Enter entry points of the MPI library that are not intercepted."""
        self._unwrapped += [self.string(name) for name in names]

    def to_bytes(self) -> bytes:
        """The finished file."""
        chunks = b"".join(self._chunks())
        used = int(self.header["header_bytes"][0]) + len(chunks)
        self.set(used_bytes=used, reserved_bytes=used, bound_bytes=max(used, int(self.header["bound_bytes"][0])))
        return self.header.tobytes().ljust(int(self.header["header_bytes"][0]), b"\0") + chunks

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, making its folder where there is none."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self.to_bytes())
        return target

    def _chunks(self) -> Iterable[bytes]:
        yield _chunk(ChunkKind.STRINGS, _string_bytes(list(self._strings)[1:]), row_bytes=0, first_id=1)
        if self._groups:
            yield _table_chunk(ChunkKind.GROUPS, np.array(self._groups, GROUP), first_id=1)
        for thread, parts in self._tallies.items():
            yield _table_chunk(ChunkKind.TALLIES, np.concatenate(parts), thread=thread)
        for thread, parts in self._peers.items():
            yield _table_chunk(ChunkKind.PEERS, np.concatenate(parts), thread=thread)
        if len(self._log):
            yield _table_chunk(ChunkKind.LOG, self._log)
        yield from (_table_chunk(kind, rows) for kind, rows in self._tables)
        if self._threads:
            yield _table_chunk(ChunkKind.THREADS, np.array(self._threads, THREAD))
        if self._unwrapped:
            yield _chunk(ChunkKind.UNWRAPPED, np.array(self._unwrapped, np.uint32).tobytes(), row_bytes=4)


def _assign(record: Any, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for member, inner in value.items():
            _assign(record[name], member, inner)
    else:
        record[name] = np.void(value.ljust(1024, b"\0")) if name == "command" else value


def _string_bytes(strings: Iterable[str]) -> bytes:
    return b"".join(_one_string(text.encode("utf-8", "surrogateescape")) for text in strings)


def _one_string(raw: bytes) -> bytes:
    return (np.uint32(len(raw)).tobytes() + raw).ljust(string_bytes(len(raw)), b"\0")


def _table_chunk(kind: ChunkKind, rows: Rows, thread: int = 0, first_id: int = 0) -> bytes:
    return _chunk(kind, rows.tobytes(), row_bytes=rows.dtype.itemsize, thread=thread, first_id=first_id)


def _chunk(kind: ChunkKind, body: bytes, row_bytes: int, thread: int = 0, first_id: int = 0) -> bytes:
    size = whole_pages(CHUNK.itemsize + len(body))
    rows = len(body) // (row_bytes or 1)
    head = np.array((kind, thread, size, row_bytes, rows, first_id, b""), CHUNK)
    return (head.tobytes() + body).ljust(size, b"\0")
