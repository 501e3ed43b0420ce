"""What the GPUs of one process did, block by block: lengths by name, and when each device was at work.

Of an activity some fifteen bytes are kept. Blocks may come in any order, and activities in any order within them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.model.tables import Column, Table, Tables, Unit, Words
from rankscope.questions.events.sums import LENGTH_SUM, add_lengths, empty_sums
from rankscope.questions.gpu.communication_kernels import communicates
from rankscope.questions.selection import Selection
from rankscope.questions.wording import ranges

# one row where any source knows of work on a GPU
ANY_WORK = """SELECT 1 FROM tallies WHERE layer = 'gpu' UNION ALL SELECT 1 FROM untraced_events WHERE layer = 'gpu'
    UNION ALL SELECT 1 FROM devices LIMIT 1"""

# ---------------------------------------------------------------------------------------------------------------------
# How long things take, added up so that blocks, ranks and kinds can be joined.
STATISTICS = (
    Column("calls", Unit.COUNT, "Calls", "number of activities"),
    Column(
        "total_ns", Unit.NS, "Time", "sum of their lengths over the selected ranks; what runs side by side counts twice"
    ),
    Column("share", Unit.SHARE, "Share", "`total_ns` ÷ `total_ns` of all rows"),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column("min_ns", Unit.NS, "Min", "shortest of them"),
    Column("max_ns", Unit.NS, "Max", "longest of them"),
    Column("stdev_ns", Unit.NS, "Std dev", "√(Σ(length − mean)² ÷ `calls`), over the activities of all selected ranks"),
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """What is kept of many lengths so that it can be joined with others."""

    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    deviations_ns2: float  # sum of squared differences from the mean

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls

    @property
    def stdev_ns(self) -> float:
        return math.sqrt(self.deviations_ns2 / self.calls)

    def joined(self, other: Lengths) -> Lengths:
        """Both together; squared deviations add up, and so does what the means differ by."""
        calls = self.calls + other.calls
        apart = (self.mean_ns - other.mean_ns) ** 2 * self.calls * other.calls / calls
        return Lengths(
            calls,
            self.total_ns + other.total_ns,
            min(self.min_ns, other.min_ns),
            max(self.max_ns, other.max_ns),
            self.deviations_ns2 + other.deviations_ns2 + apart,
        )


def join(into: dict[str, Lengths], more: Iterable[tuple[str, Lengths]]) -> dict[str, Lengths]:
    """Add lengths under their keys."""
    for key, lengths in more:
        into[key] = into[key].joined(lengths) if key in into else lengths
    return into


def statistics(lengths_of: Mapping[str, Lengths]) -> list[tuple[str, tuple[int | float, ...]]]:
    """The cells of the columns STATISTICS, the most time first."""
    total_ns = sum(name_lengths.total_ns for name_lengths in lengths_of.values())
    ordered = sorted(lengths_of.items(), key=lambda pair: (-pair[1].total_ns, pair[0]))
    return [(key, _cells(lengths, total_ns)) for key, lengths in ordered]


def _cells(lengths: Lengths, all_ns: int) -> tuple[int | float, ...]:
    share = lengths.total_ns / all_ns if all_ns else 0.0
    return lengths.calls, lengths.total_ns, share, lengths.mean_ns, lengths.min_ns, lengths.max_ns, lengths.stdev_ns


# ---------------------------------------------------------------------------------------------------------------------
# Words of many blocks, each block with numbers of its own, under one set of numbers.
Array = Any


class Vocabulary:
    """Numbers words in the order in which they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._of_block: tuple[Sequence[str], int, Array] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Any:
        return iter(self.numbers)

    def codes(self, words: Words) -> Array:
        """The numbers of a block's words."""
        return self._map(words.values, words.codes)[words.codes]

    def _map(self, values: Sequence[str], codes: Array) -> Array:
        """The number of each of the block's words that it uses; -1 for the others, which may be a whole file's."""
        if self._of_block is None or self._of_block[0] is not values or self._of_block[1] != len(values):
            self._of_block = (values, len(values), np.full(len(values), -1, np.int32))
        known = self._of_block[2]
        used = np.flatnonzero(np.bincount(codes, minlength=len(values))) if len(codes) else np.empty(0, np.int64)
        for code in used[known[used] < 0].tolist():
            known[code] = self.numbers.setdefault(values[code], len(self.numbers))
        return known


# ---------------------------------------------------------------- activities
Ints = NDArray[np.int64]


COMPUTE, COMMUNICATION, COPY, SET = KINDS = ("compute", "communication", "copy", "set")
# How names of copies and memsets begin: CUPTI's and rocprof's, and the functions that iprof names them after.
COPY_NAMES = (
    r"\[?(?:CUDA |HIP |OpenCL )?[mM]emcpy|\[(?:CUDA |HIP |OpenCL )?[mM]emory|Copy(?:Host|Device)To|dma"
    r"|(?:cu|cuda|hip)Memcpy|__amd_rocclr_copy|zeCommandListAppend(?:Memory|Image)Copy|clEnqueue(?:Read|Write|Copy|Migrate|SVMMemcpy|MemcpyINTEL)"
)
SET_NAMES = (
    r"\[?(?:CUDA |HIP |OpenCL )?[mM]emset|FillBuffer|(?:cu|cuda|hip)Memset|__amd_rocclr_fill"
    r"|zeCommandListAppendMemoryFill"
    r"|clEnqueue(?:Fill|SVMMemFill|MemFillINTEL)"
)
COPIES_SQL = f"regexp_matches(name, '^(?:{COPY_NAMES}|{SET_NAMES})')"  # both, of a column `name`
COPIES, SETS = re.compile(COPY_NAMES), re.compile(SET_NAMES)
NONE = -1  # of a correlation


def kind_of(name: str) -> str:
    """What an activity does, by its name: copies and memsets have one, NCCL and its kin theirs, all else computes."""
    if COPIES.match(name):
        return COPY
    if SETS.match(name):
        return SET
    return COMMUNICATION if communicates(name) else COMPUTE


@dataclass(frozen=True, slots=True)
class ActivityBlock:
    """Activities of one device in one block: times from the first start on, in as few bytes as they fit in."""

    first_ns: int
    start: NDArray[Any]
    length: NDArray[Any]
    kind: NDArray[np.uint8]
    stream: Array
    name: Array  # places in GpuWork.names
    correlation: Array | None

    def rows(self) -> tuple[Array, ...]:
        start_ns = self.start.astype(np.int64) + self.first_ns
        calls = np.full(len(self.start), NONE, np.int64) if self.correlation is None else self.correlation
        return start_ns, start_ns + self.length.astype(np.int64), self.kind, self.stream, calls


@dataclass(slots=True)
class Device:
    """When one device did what."""

    runs: list[ActivityBlock] = field(default_factory=list)

    def add(
        self,
        start_ns: Ints,
        end_ns: Ints,
        kind: Array,
        stream: Array | None = None,
        name: Array | None = None,
        correlation: Array | None = None,
    ) -> None:
        first_ns = int(start_ns.min())
        nothing = np.zeros(len(kind), np.uint16)
        streams, names = (nothing if column is None else _small(column, np.uint16) for column in (stream, name))
        times = _small(start_ns - first_ns), _small(end_ns - start_ns)
        self.runs.append(ActivityBlock(first_ns, *times, kind.astype(np.uint8), streams, names, correlation))

    def in_order(self) -> Iterator[tuple[Array, ...]]:
        """Start, end, kind, stream and correlation of all activities by their start, some at a time."""
        waiting: list[tuple[Array, ...]] = []
        ordered = sorted(self.runs, key=lambda run: run.first_ns)
        for at, run in enumerate(ordered):
            waiting.append(run.rows())
            columns = waiting[0] if len(waiting) == 1 else tuple(map(np.concatenate, zip(*waiting, strict=True)))
            rows = _by_start(columns)
            last = at + 1 == len(ordered)  # nothing that comes later starts before the next run does
            ready = len(rows[0]) if last else int(np.searchsorted(rows[0], ordered[at + 1].first_ns))
            yield tuple(column[:ready] for column in rows)
            waiting = [tuple(column[ready:] for column in rows)] if ready < len(rows[0]) else []


def _by_start(columns: tuple[Array, ...]) -> tuple[Array, ...]:
    start_ns = columns[0]
    if bool((start_ns[1:] >= start_ns[:-1]).all()):
        return columns
    order = np.argsort(start_ns, kind="stable")
    return tuple(column[order] for column in columns)


def _small(numbers: Array, kind: Any = np.uint32) -> NDArray[Any]:
    fits = not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) <= np.iinfo(kind).max)
    return np.asarray(numbers.astype(kind) if fits else numbers)


class GpuWork:
    """The GPU activities of one process."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        self.streams = Vocabulary()
        self._names = Vocabulary()
        self._sums = empty_sums(LENGTH_SUM, 0)
        self._kinds = np.zeros(0, np.uint8)

    @property
    def names(self) -> dict[str, Lengths]:
        """The lengths of the activities of each name."""
        return {name: _lengths(row) for name, row in zip(self._names, self._sums.tolist(), strict=True)}

    def add(self, columns: Mapping[str, Any], rows: Array) -> None:
        """Those rows of a block, which are GPU activities."""
        start_ns, end_ns = _taken(columns["start_ns"], rows), _taken(columns["end_ns"], rows)
        name, stream = (_words(columns[key], rows) for key in ("name", "group"))
        codes, streams = self._names.codes(name), self.streams.codes(stream)
        self._make_room()
        add_lengths(codes, start_ns, end_ns, self._sums)
        kind, correlation = self._kinds[codes], _correlation(columns, rows)
        for device, members in _devices(stream):
            arrays = start_ns, end_ns, kind, streams, codes, correlation
            chosen = arrays if members is None else (column if column is None else column[members] for column in arrays)
            self.devices.setdefault(device, Device()).add(*chosen)

    def _make_room(self) -> None:
        more = list(self._names)[len(self._sums) :]
        if more:
            self._sums = np.concatenate([self._sums, empty_sums(LENGTH_SUM, len(more))])
            fresh = np.array([KINDS.index(kind_of(name)) for name in more], np.uint8)
            self._kinds = np.concatenate([self._kinds, fresh])


def _lengths(row: tuple[int, ...]) -> Lengths:
    calls, total_ns, min_ns, max_ns, low, high = row
    return Lengths(calls, total_ns, min_ns, max_ns, ((high << 64 | low) * calls - total_ns * total_ns) / calls)


def _taken(column: Array, rows: Array) -> Array:
    return np.asarray(column[rows], np.int64)


def _words(words: Words, rows: Array) -> Words:
    return Words(words.codes[rows], words.values)


def _correlation(columns: Mapping[str, Any], rows: Array) -> Array | None:
    """The number by which a call and what it launched name each other; None where no row has one."""
    if columns.get("correlation") is None:
        return None
    numbers = np.ma.filled(columns["correlation"][rows], NONE).astype(np.int64)
    return numbers if len(numbers) and int(numbers.max()) >= 0 else None


def gpu_work(blocks: Iterable[Mapping[str, Any]]) -> GpuWork:
    """The GPU activities among the event columns of one process."""
    work = GpuWork()
    for columns in blocks:
        rows = rows_of_layers(columns, ("gpu",))
        if len(rows):
            work.add(columns, rows)
    return work


def rows_of_layers(columns: Mapping[str, Any], layers: Iterable[str]) -> Array:
    """Which rows of a block belong to these layers."""
    layer = columns.get("layer")
    if layer is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.array([value in layers for value in layer.values], np.bool_)[layer.codes])


def _devices(group: Words) -> Iterator[tuple[str, NDArray[np.bool_] | None]]:
    """Each device, from device/stream, and which rows are its own (None: all)."""
    present = np.flatnonzero(np.bincount(group.codes, minlength=len(group.values))).tolist()
    devices = {code: group.values[code].partition("/")[0] for code in present}
    different = sorted(set(devices.values()), key=lambda name: (len(name), name))
    for device in different:
        on_device = np.array([devices.get(code) == device for code in range(len(group.values))], np.bool_)
        yield device, on_device[group.codes] if len(different) > 1 else None


def say_what_is_lost(tables: Tables, selection: Selection, table: Table) -> None:
    """Warn where a trace has only some of the events, so that a table of them is not taken for the whole."""
    sql = f"SELECT rank FROM ranks WHERE {selection.condition} AND lost_trace_events > 0 ORDER BY rank"
    ranks = [row[0] for row in tables.query(sql)]
    if ranks and table.rows:
        text = f"the trace of rank {ranges(ranks)} did not keep every event"
        table.warnings.append(f"{text}: this covers those it has; the table gpu has all")
