"""What a recorder would have counted, of the single events of a process: read once, as they come in blocks.

A loaded trace so fills the tables that a recorded run has: tallies, devices, gaps, steps on the host and on the
devices. Of an activity or a call that launches one some twenty bytes are kept until the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from rankscope.model.gpu import DeviceTotals
from rankscope.model.records import API_LAYERS, Layer, Note, RankFacts, Reading, Tally
from rankscope.model.tables import Words
from rankscope.questions.events.sums import LENGTH_SUM, add_lengths, empty_sums
from rankscope.questions.events.tables import threads_of
from rankscope.questions.gpu import step_split
from rankscope.questions.gpu.activities import COPY, SET, GpuWork, Vocabulary, kind_of, rows_of_layers
from rankscope.questions.gpu.step_split import Copies, StepWindows, SyncCalls, host_states, split_steps
from rankscope.questions.gpu.walk import NONE, Launches, walked
from rankscope.questions.steps import traced
from rankscope.questions.steps.traced import Range, TracedSteps

Array = Any  # of numpy
Columns = Mapping[str, Any]
COUNTED = (Layer.GPU, *API_LAYERS, Layer.NCCL, Layer.GLOO, Layer.MPI, Layer.OS, Layer.OMP, Layer.CXI)
RANGES = (Layer.NVTX, Layer.TORCH, Layer.JAX)  # of these only ranges of the program: operators lie in each other
KINDS = ("call", "progress")
SIZE_CLASSES = 64
MOST_CELLS = 1 << 62
MOST_BYTES = 2.0**62


# ---------------------------------------------------------------- tallies
Key = tuple[str, str, str, str, int | None, int]  # layer, group, name, kind, size class, thread


class EventTallies:
    """Calls, times and bytes of everything that is counted, by layer, group, name, size and, of ranges, thread."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._sums = empty_sums(LENGTH_SUM, 0)
        self._bytes = np.zeros(0, np.int64)

    def add(self, columns: Columns, rows: Array) -> None:
        """Those rows of a block."""
        layer = columns["layer"]
        kind = columns.get("kind") or Words(np.zeros(len(layer.codes), np.int32), [KINDS[0]])
        words = [Words(words.codes[rows], words.values) for words in (layer, columns["group"], columns["name"], kind)]
        size = _sizes(columns, rows)
        is_range = np.array([name in RANGES for name in layer.values], bool)[words[0].codes]
        threads, thread = np.unique(np.where(is_range, threads_of(columns, rows), 0), return_inverse=True)
        shape = (*(len(word.values) for word in words), SIZE_CLASSES + 1, len(threads))
        if prod(shape) >= MOST_CELLS:  # of a file that nobody's job wrote
            for some in np.array_split(rows, 2):
                self.add(_with_used_words(columns, some), np.arange(len(some)))
            return
        places = (*(word.codes for word in words), _size_classes(size), thread)
        cells, codes = np.unique(np.ravel_multi_index(places, shape), return_inverse=True)
        numbers = self._numbered(zip(*np.unravel_index(cells, shape), strict=True), words, threads)
        start_ns, end_ns = (np.asarray(columns[key], np.int64)[rows] for key in ("start_ns", "end_ns"))
        add_lengths(numbers[codes], start_ns, end_ns, self._sums)
        added = np.bincount(numbers[codes], np.maximum(size, 0), len(self._bytes))
        self._bytes = np.minimum(self._bytes + added, MOST_BYTES).astype(np.int64)

    def _numbered(self, cells: Any, words: Sequence[Words], threads: Array) -> Array:
        numbers = []
        for *codes, size, thread in cells:
            layer, group, name, kind = (word.values[code] for word, code in zip(words, codes, strict=True))
            key = layer, group, name, kind, int(size) - 1 if size else None, int(threads[thread])
            numbers.append(self._numbers.setdefault(key, len(self._numbers)))
        more = len(self._numbers) - len(self._sums)
        self._sums = np.concatenate([self._sums, empty_sums(LENGTH_SUM, more)])
        self._bytes = np.concatenate([self._bytes, np.zeros(more, np.int64)])
        return np.array(numbers, np.int32)

    def tallies(self, layers: frozenset[str]) -> Iterator[Tally]:
        """All but those of layers that the source has summed up itself."""
        for key, row, size in zip(self._numbers, self._sums.tolist(), self._bytes.tolist(), strict=True):
            layer, group, name, kind, size_class, thread = key
            if layer in layers:
                continue
            calls, total_ns, min_ns, max_ns, low, high = row
            yield Tally(
                *(layer, name, calls, float(total_ns), _stream(group) if layer == Layer.GPU else group, size_class),
                kind=kind,
                thread=thread,
                min_ns=float(min_ns),
                max_ns=float(max_ns),
                sum_squares_ns2=float(high << 64 | low),
                bytes=size if size_class is not None else None,
            )


def _with_used_words(columns: Columns, rows: Array) -> Columns:
    """These rows alone, with those of their words that they use."""
    chosen: dict[str, Any] = {}
    for key in ("layer", "group", "name", "kind", "start_ns", "end_ns", "bytes", "thread"):
        column = columns.get(key)
        if isinstance(column, Words):
            used, codes = np.unique(column.codes[rows], return_inverse=True)
            chosen[key] = Words(codes, [column.values[code] for code in used.tolist()])
        elif column is not None:
            chosen[key] = column[rows]
    return chosen


def _sizes(columns: Columns, rows: Array) -> Array:
    """Bytes, negative where they are not told."""
    sizes = columns.get("bytes")
    return np.full(len(rows), -1) if sizes is None else np.ma.filled(sizes[rows], -1).astype(np.int64)


def _size_classes(size: Array) -> Array:
    """rank_file.size_class + 1, and 0 for sizes that are not told."""
    small = np.where(size < 2, size, 2)
    large = np.ceil(np.log2(np.maximum(size, 2))).astype(np.int64) + 1
    return np.where(size < 0, 0, np.where(size < 2, small, large) + 1).clip(0, SIZE_CLASSES)


def _stream(group: str) -> str:
    """As the recorder calls it."""
    device, _, stream = group.partition("/")
    return f"GPU {device} stream {stream}" if stream else group


# ---------------------------------------------------------------- what is kept of single events for the steps
ENGINE = "autograd::engine::evaluate_function"
BETWEEN_OPERATORS_NS, ENGINE_PAUSE_NS = 10_000, 1_000_000  # of the engine, in one backward run
PAUSE_NS = 1_000_000  # of launching: a longer one is something else
MOST_RANGES = 200_000  # of any name: of more only those that may be parts or steps


NOTHING = np.zeros(0, np.int64)


@dataclass(slots=True)
class _Spans:
    """Start, end, thread and name of events, block by block."""

    names: Vocabulary = field(default_factory=Vocabulary)
    parts: list[tuple[Array, ...]] = field(default_factory=list)

    def add(self, columns: Columns, rows: Array) -> None:
        if len(rows):
            times = (np.asarray(columns[key], np.int64)[rows] for key in ("start_ns", "end_ns"))
            name = self.names.codes(Words(columns["name"].codes[rows], columns["name"].values))
            self.parts.append((*times, threads_of(columns, rows), name, _sequences(columns, rows)))

    def columns(self) -> list[Array]:
        empty = (np.empty(0, np.int64),) * 5
        return [np.concatenate(columns_part) for columns_part in zip(empty, *self.parts, strict=True)]

    def ranges(self) -> list[Range]:
        start_ns, end_ns, thread, name, sequence = self.columns()
        words = list(self.names)
        if len(name) > MOST_RANGES:
            wanted = [bool(traced.part_of(word) or traced.STEP_NAME.search(word)) for word in words]
            rows = np.flatnonzero(np.array(wanted)[name.astype(np.int64)])
        else:
            rows = np.arange(len(name))
        columns = (column[rows].tolist() for column in (start_ns, end_ns, name, thread, sequence))
        return [
            Range(a, b, words[code], of, None if at < 0 else at) for a, b, code, of, at in zip(*columns, strict=True)
        ]


def _sequences(columns: Columns, rows: Array) -> Array:
    sequences = columns.get("sequence")
    return np.full(len(rows), NONE) if sequences is None else np.ma.filled(sequences[rows], NONE).astype(np.int64)


def _merged(start_ns: Array, end_ns: Array, pause_ns: int, apart_ns: Array = NOTHING) -> tuple[Array, Array]:
    """Intervals in the order of their starts, with those joined that are not farther apart, nor by such a moment."""
    if not len(start_ns):
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    start_ns, done_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    between = np.searchsorted(apart_ns, start_ns[1:], "right") > np.searchsorted(apart_ns, done_ns[:-1], "left")
    first = np.concatenate([[True], (start_ns[1:] > done_ns[:-1] + pause_ns) | between])
    last = np.concatenate([np.flatnonzero(first)[1:] - 1, [len(first) - 1]])
    return start_ns[first], done_ns[last]


def waits(name: str) -> bool:
    """Whether a call of this name waits for the device: as native/gpu/device_steps.c has it."""
    return "Synchronize" in name or ("Memcpy" in name and "Async" not in name)


CAUSES = {
    traced.DATA: step_split.DATA,
    **dict.fromkeys((traced.ZERO_GRAD, traced.FORWARD, traced.BACKWARD, traced.OPTIMIZING), step_split.LAUNCH),
    traced.COMMUNICATION: step_split.BLOCKED,
    traced.SAVING: step_split.CHECKPOINT,
    traced.COMPILING: step_split.COMPILE,
    traced.OTHER: step_split.PYTHON,
    "": step_split.PYTHON,
}


# ---------------------------------------------------------------- totals
class TraceTotals:
    """The events of one process, summed up."""

    def __init__(self) -> None:
        self._tallies, self._gpu, self._launches = EventTallies(), GpuWork(), Launches()
        self._ranges, self._profiler, self._calls, self._syncs = _Spans(), _Spans(), _Spans(), _Spans()
        self._engine: list[tuple[Array, Array]] = []
        self._copies: dict[str, list[tuple[Array, ...]]] = {}
        self._kinds: dict[str, bool] = {}  # by name: whether it copies or sets
        self._memory: dict[int, DeviceTotals] = {}

    def add(self, columns: Columns) -> None:
        """One block of events, those that have ended."""
        rows = rows_of_layers(columns, COUNTED)
        of_program = _rows_where(columns, rows_of_layers(columns, RANGES), "user_range")
        counted = np.concatenate([rows, of_program])
        if len(counted):
            self._tallies.add(columns, counted)
        self._add_nccl(columns)
        self._ranges.add(columns, of_program)
        self._profiler.add(columns, rows_of_layers(columns, (Layer.STEP,)))
        self._calls.add(columns, rows_of_layers(columns, (Layer.MPI,)))
        self._add_engine(columns)
        self._add_gpu(columns)

    def _add_nccl(self, columns: Columns) -> None:
        """Kernels of NCCL once more, by algorithm and protocol, as NCCL's plugin tells them."""
        algorithm = columns.get("algorithm")
        if algorithm is None:
            return
        rows = np.flatnonzero(np.array([bool(word) for word in algorithm.values], bool)[algorithm.codes])
        if not len(rows):
            return
        same = np.zeros(len(rows), np.int32)
        group, layer = columns["group"], columns["layer"]
        on_stream = np.array([name == Layer.GPU for name in layer.values], bool)[layer.codes[rows]]
        collectives: dict[str, Any] = {
            key: columns[key][rows] for key in ("start_ns", "end_ns", "bytes") if key in columns
        }
        collectives |= {
            "layer": Words(same, [Layer.NCCL_ALGO]),
            "kind": Words(same, ["progress"]),
            "name": Words(algorithm.codes[rows], algorithm.values),
            "group": Words(np.where(on_stream, len(group.values), group.codes[rows]), [*group.values, ""]),
        }
        self._tallies.add(collectives, np.arange(len(rows)))

    def take_memory(self, reading: Reading) -> None:
        """What the source itself tells of devices, which is their memory, out of its reading into the sums."""
        self._memory |= {device.device: device for device in reading.devices}
        reading.devices = []

    def _add_engine(self, columns: Columns) -> None:
        rows = _rows_named(columns, rows_of_layers(columns, RANGES), lambda name: name.startswith(ENGINE))
        if len(rows):
            start_ns, end_ns = (np.asarray(columns[key], np.int64)[rows] for key in ("start_ns", "end_ns"))
            self._engine.append(_merged(start_ns, end_ns, BETWEEN_OPERATORS_NS))

    def _add_gpu(self, columns: Columns) -> None:
        rows = rows_of_layers(columns, (Layer.GPU,))
        if len(rows):
            self._gpu.add(columns, rows)
            self._add_copies(columns, _rows_named(columns, rows, self._copies_or_sets))
        rows = rows_of_layers(columns, API_LAYERS)
        if columns.get("correlation") is not None:
            number = np.ma.filled(columns["correlation"][rows], NONE).astype(np.int64)
            self._launches.add(number, np.asarray(columns["start_ns"], np.int64)[rows], threads_of(columns, rows))
        self._syncs.add(columns, _rows_named(columns, rows, waits))

    def _copies_or_sets(self, name: str) -> bool:
        if name not in self._kinds:
            self._kinds[name] = kind_of(name) in (COPY, SET)
        return self._kinds[name]

    def _add_copies(self, columns: Columns, rows: Array) -> None:
        if not len(rows):
            return
        start_ns = np.asarray(columns["start_ns"], np.int64)[rows]
        correlations = columns.get("correlation")
        number = (
            np.full(len(rows), NONE)
            if correlations is None
            else np.ma.filled(correlations[rows], NONE).astype(np.int64)
        )
        size, group = np.maximum(_sizes(columns, rows), 0), columns["group"]
        hint = columns.get("pageable")
        is_pageable = np.zeros(len(rows), bool) if hint is None else np.asarray(hint, bool)[rows]
        devices = [value.partition("/")[0] for value in group.values]
        of_row = group.codes[rows]
        for device in {devices[code] for code in np.unique(of_row).tolist()}:
            on_device = np.array([name == device for name in devices], bool)[of_row]
            self._copies.setdefault(device, []).append(
                tuple(column[on_device] for column in (start_ns, number, size, is_pageable))
            )

    def reading(self, facts: RankFacts, layers: frozenset[str]) -> Reading:
        """All of it; `told`: layers of which the source has tallies of its own."""
        reading = Reading(facts, continues=True, tallies=list(self._tallies.tallies(layers)))
        for place, (name, device) in enumerate(self._gpu.devices.items()):
            number = int(name) if name.isdecimal() and len(name) < 10 else place
            reading.devices.append(self._device(number, name))
            reading.device_gaps += step_split.device_gaps(device, number)
        working = len(reading.devices)
        reading.devices += self._memory.values()
        steps = self._steps()
        if steps is not None:
            facts.steps_from = steps.source
            reading.notes.append(Note(steps.note, where=facts.source))
            self._add_steps(reading, steps, reading.devices[:working])
        return reading

    def _device(self, number: int, name: str) -> DeviceTotals:
        time, _ = walked(self._gpu.devices[name], len(self._gpu.streams), Launches())
        activities = sum(len(run.kind) for run in self._gpu.devices[name].runs)
        return replace(
            self._memory.pop(number, DeviceTotals(number)),
            activities=activities,
            span_ns=time.span_ns,
            busy_ns=time.busy_ns,
            compute_ns=time.compute_ns,
            communication_ns=time.comm_ns,
            copy_ns=time.copy_ns,
            hidden_ns=time.hidden_ns,
        )

    # ------------------------------------------------------------ steps
    def _steps(self) -> TracedSteps | None:
        ranges = self._ranges.ranges()
        traced_steps = traced.steps_of_ranges(ranges, self._profiler.ranges()) or self._steps_of_kernels()
        return traced_steps or traced.repeated_ranges(ranges, traced.ANY_NAME, traced.MOST_COVER)

    def _steps_of_kernels(self) -> TracedSteps | None:
        if not self._gpu.devices:
            return None
        device = max(self._gpu.devices.values(), key=lambda device: sum(len(run.kind) for run in device.runs))
        parts = [self._kernels(run) for run in device.runs]
        names, launched_ns, threads = (np.concatenate(column) for column in zip(*parts, strict=True))
        return traced.steps_of_kernels(names, launched_ns, threads)

    def _kernels(self, run: Any) -> tuple[Array, Array, Array]:
        """Name, launch and launching thread of the kernels of a block."""
        start_ns, _, kind, _, correlation = run.rows()
        rows = np.flatnonzero(np.isin(kind, step_split.KERNELS))
        at, known = self._launches.of(correlation[rows])
        launched_ns, threads = start_ns[rows], np.zeros(len(rows), np.int64)
        if self._launches:
            _, called_ns, thread = self._launches.calls()
            launched_ns = np.where(known, called_ns[at], launched_ns)
            threads = np.where(known, thread[at], threads)
        return run.name[rows].astype(np.int64), launched_ns, threads

    def _add_steps(self, reading: Reading, steps: TracedSteps, working: Sequence[DeviceTotals]) -> None:
        mine = [range_ for range_ in (*self._ranges.ranges(), *self._calls.ranges()) if range_.thread == steps.thread]
        if not any(traced.part_of(range_.name) == traced.BACKWARD for range_ in mine):
            mine += self._backward(steps)
        named = [range_ for range_ in mine if traced.part_of(range_.name)]
        moments = traced.parts_of_thread(named, steps)
        reading.step_columns = traced.step_columns(steps, moments, {})
        syncs = self._sync_calls(steps)
        if named:
            host = host_states([(at_ns, CAUSES[part]) for at_ns, part in moments], syncs)
        else:
            host = host_states(self._launching(), syncs)
        windows = StepWindows(steps.number, steps.begin_ns, steps.end_ns, steps.joined)
        device_steps = [
            split_steps(device_totals.device, device, self._copies_of(name), windows, host, syncs, self._launches)
            for device_totals, (name, device) in zip(working, self._gpu.devices.items(), strict=True)
        ]
        if device_steps:
            reading.device_step_columns = {
                key: np.concatenate([columns_of[key] for columns_of in device_steps]) for key in device_steps[0]
            }

    def _backward(self, steps: TracedSteps) -> list[Range]:
        """Runs of the autograd engine, on whatever thread: the loop's thread waits for them."""
        if not self._engine:
            return []
        start_ns, end_ns = (np.concatenate(column) for column in zip(*self._engine, strict=True))
        start_ns, end_ns = _merged(start_ns, end_ns, ENGINE_PAUSE_NS, steps.end_ns)
        spans = zip(start_ns.tolist(), end_ns.tolist(), strict=True)
        return [Range(begin, end, traced.BACKWARD, steps.thread or 0) for begin, end in spans]

    def _sync_calls(self, steps: TracedSteps) -> SyncCalls:
        start_ns, end_ns, thread, *_ = self._syncs.columns()
        mine = np.flatnonzero(thread == (steps.thread or 0))
        mine = mine[np.lexsort((-end_ns[mine], start_ns[mine]))]
        start_ns, end_ns = start_ns[mine], end_ns[mine]
        done_ns = np.maximum.accumulate(np.concatenate([[-(2**63)], end_ns]))[:-1]
        outermost = end_ns > done_ns  # a call of the driver inside one of the runtime is the same wait
        return SyncCalls(np.maximum(start_ns, done_ns)[outermost], end_ns[outermost])

    def _launching(self) -> list[tuple[int, int]]:
        """Where no range tells what the host did: it launches while calls follow each other, else nobody knows."""
        if not self._launches:
            return []
        called_ns = np.sort(self._launches.calls()[1])
        begin_ns, end_ns = _merged(called_ns, called_ns, PAUSE_NS)
        moments = []
        for begin, end in zip(begin_ns.tolist(), end_ns.tolist(), strict=True):
            moments += [(begin, step_split.LAUNCH), (end, step_split.UNKNOWN)]
        return moments

    def _copies_of(self, device: str) -> Copies:
        empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))
        return Copies(*(np.concatenate(column) for column in zip(empty, *self._copies.get(device, []), strict=True)))


def _rows_where(columns: Columns, rows: Array, hint: str) -> Array:
    hints = columns.get(hint)
    return rows if hints is None else rows[np.asarray(hints, bool)[rows]]


def _rows_named(columns: Columns, rows: Array, wanted: Any) -> Array:
    """Those of these rows whose name is wanted, asked once for each name that comes."""
    if not len(rows):
        return rows
    name = columns["name"]
    codes = name.codes[rows]
    used = np.flatnonzero(np.bincount(codes, minlength=len(name.values)))
    chosen = np.zeros(len(name.values), bool)
    chosen[[code for code in used.tolist() if wanted(name.values[code])]] = True
    return rows[chosen[codes]]
