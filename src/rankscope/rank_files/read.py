"""Reads a rank file, finished, cut short or still being written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.records import PHASES, BadFile, Group, Layer, Note, Peer, Reading, Severity
from rankscope.model.tables import Words
from rankscope.rank_file import WAITED_SHIFT, ChunkKind, CollectiveFlag, GroupFlag, GroupKind, LayerNumber, Rows
from rankscope.rank_files.chunks import RankFile, copy_rows, open_rank_file
from rankscope.rank_files.clock import Clock, CuptiClock, gpu_begins, gpu_clocks
from rankscope.rank_files.cuda import (
    add_devices,
    add_runtimes,
    cuda_notes,
    cuda_rows_of,
    ended_ranges,
    gpu_recordings,
    range_paths,
    range_threads,
)
from rankscope.rank_files.facts import Here, facts_of, notes_of
from rankscope.rank_files.imports import import_columns, import_notes, import_rows_of
from rankscope.rank_files.messages import message_columns, overwritten_messages
from rankscope.rank_files.steps import (
    device_step_columns,
    mark_rows_of,
    marks_of,
    step_block_columns,
    step_block_rows_of,
    step_columns,
    step_rows_of,
)
from rankscope.rank_files.trace import add_trace, add_untraced
from rankscope.rank_files.utilisation import utilisation_columns

GROUP_KINDS: dict[int, str] = {
    GroupKind.COMM: "communicator",
    GroupKind.WINDOW: "window",
    GroupKind.FILE: "file",
    GroupKind.NCCL: "nccl",
    GroupKind.STREAM: "stream",
    GroupKind.DOMAIN: "domain",
    GroupKind.RANGE: "range",
    GroupKind.PROCESS_GROUP: "process_group",
    GroupKind.ONECCL: "oneccl",
    GroupKind.HOROVOD: "process_set",
    GroupKind.WORKER: "worker",
    GroupKind.SERVED: "served",
}
LOGGED: dict[int, LayerNumber] = {
    GroupKind.NCCL: LayerNumber.NCCL,
    GroupKind.PROCESS_GROUP: LayerNumber.GLOO,
    GroupKind.ONECCL: LayerNumber.ONECCL,
    GroupKind.HOROVOD: LayerNumber.GLOO,  # on MPI the calls of MPI are in the log
}  # else MPI
OWN_NAMES = (GroupKind.STREAM, GroupKind.DOMAIN, GroupKind.WORKER, GroupKind.SERVED)  # one of each name in a process
PREDEFINED = ("MPI_COMM_WORLD", "MPI_COMM_SELF")  # one of each in a process: their names say all
IN_RANGES = {LayerNumber.IN_RANGE_GPU: "GPU", LayerNumber.IN_RANGE_API: "CUDA_API", LayerNumber.IN_RANGE_NVTX: "NVTX"}
NUMBERED = {int(number): Layer[IN_RANGES.get(number, number.name)].value for number in LayerNumber}
LAYERS = tuple(NUMBERED.get(number, "") for number in range(max(NUMBERED) + 1))  # by number
KINDS = ("call", "progress")
MOST_PIECES = 8


def read_rank_file(path: Path, events: bool = True, here: Here | None = None) -> Reading:
    """Everything in one rank file; raises BadFile with the file's name and the place where it is damaged."""
    file = open_rank_file(path)
    clock = Clock(file.header)
    tallies, threads, torn = _tally_rows(file)
    # without events the log matters only for the last sign of life of a process that left no end
    log = log_rows(file) if events or not file.header["ended_ticks"] else np.zeros(0, rank_file.COLLECTIVE)
    peers, torn_peers = _peer_rows(file)
    unwrapped = [int(number) for part in file.parts(ChunkKind.UNWRAPPED) for number in part.rows["name"]]
    cuda_rows, device_rows, torn_devices = cuda_rows_of(file)
    step_rows, overwritten_steps = step_rows_of(file)
    step_blocks = step_block_rows_of(file)  # then: they have at least what the ring no longer had
    mark_rows = mark_rows_of(file)
    import_rows = import_rows_of(file)
    group_rows = [row for part in file.parts(ChunkKind.GROUPS) for row in part.rows.copy()]
    strings = file.strings()
    groups = [group_of(row, strings, path) for row in group_rows]
    labels = ["", *(group.name for group in groups)]
    ended = ended_ranges(tallies)
    paths, domains = range_paths(group_rows, labels, lambda number: _word(strings, number, path), ended)
    tallies, threads = _placed(tallies, threads, paths)
    facts = facts_of(file, clock, last_ticks(file.header, log), here or Here())
    facts.torn_rows, facts.overwritten_events = torn + torn_peers + torn_devices, _overwritten(file)
    facts.overwritten_messages = overwritten_messages(file)
    facts.ended_steps = int(step_rows["number"].max()) if len(step_rows) else 0
    facts.worker = next((group.name for group in groups if group.kind == "served"), "")
    reading = Reading(facts, groups=groups, peers=peers)
    world_size = next((group.size for group in groups if group.name == PREDEFINED[0]), None)
    reading.notes = notes_of(file, clock, [_word(strings, number, path) for number in unwrapped], world_size)
    reading.notes += _notes(file, strings, path)
    reading.notes += cuda_notes(cuda_rows, device_rows, lambda number: _word(strings, number, path), str(path))
    add_runtimes(reading, file, lambda number: _word(strings, number, path))
    add_devices(reading, cuda_rows, device_rows)
    reading.gpu_recordings = gpu_recordings(file, cuda_rows, CuptiClock(clock, cuda_rows), facts.ended_ns)
    reading.gpu_clocks = gpu_clocks(clock, cuda_rows)
    add_trace(reading, file, clock, cuda_rows, LAYERS)
    reading.step_columns = step_columns(step_rows, clock) if len(step_rows) else {}
    reading.step_block_columns = step_block_columns(step_blocks, clock) if len(step_blocks) else {}
    reading.device_step_columns = device_step_columns(file, CuptiClock(clock, cuda_rows))
    reading.utilisation_columns = utilisation_columns(file, clock, strings)
    begins = gpu_begins(CuptiClock(clock, cuda_rows), cuda_rows, device_rows)
    reading.marks = marks_of(mark_rows, file, clock, strings, begins)
    reading.notes += import_notes(file, strings)
    reading.import_columns = import_columns(import_rows, file, clock, strings, last_ticks(file.header, log))
    if overwritten_steps:
        text = f"the oldest {overwritten_steps} steps were overwritten by newer ones (raise --size)"
        text += "; of them blocks of steps are kept" if len(step_blocks) else ""
        reading.notes.append(Note(text, Severity.NOTE, str(path)))
    in_ranges = np.isin(tallies["layer"], rank_file.IN_RANGES)
    reading.tally_columns = _tally_columns(tallies[~in_ranges], threads[~in_ranges], clock, strings, domains, path)
    add_untraced(reading, file, tallies)
    if in_ranges.any():
        ranged = tallies[in_ranges]
        columns = _tally_columns(ranged, threads[in_ranges], clock, strings, domains, path)
        reading.range_tally_columns = {**columns, "within": _words(ranged["group"], paths, path, "group")}
    reading.groups = [group for group in groups if group.kind != "range"] + range_threads(file, tallies, threads)
    if events:
        layers = np.array(
            [LayerNumber.MPI, *(LOGGED.get(int(row["kind"]), LayerNumber.MPI) for row in group_rows)], np.int32
        )
        reading.event_columns = _event_columns(log, clock, strings, labels, layers, path)
        reading.message_columns = message_columns(file, clock, strings, labels, LAYERS)
    return reading


def _tally_rows(file: RankFile) -> tuple[Rows, Any, int]:
    """The tally rows in use, the thread slot of each, and how many are torn."""
    rows, threads, torn = [np.zeros(0, rank_file.TALLY)], [np.zeros(0, np.int32)], 0
    for part in file.parts(ChunkKind.TALLIES):
        copied, unsettled = copy_rows(part.rows, "seq")
        torn += int(unsettled.sum())
        counted = copied[copied["calls"] > 0]
        rows.append(counted)
        threads.append(np.full(len(counted), part.thread % 2**31, np.int32))
    return np.concatenate(rows), np.concatenate(threads), torn


def log_rows(file: RankFile, newest: int | None = None) -> Rows:
    """The records that the ring holds (or only so many of the newest), oldest first."""
    parts = file.parts(ChunkKind.LOG)
    if not parts:
        return np.zeros(0, rank_file.COLLECTIVE)
    if newest is not None and len(parts) == 1 and newest < len(parts[0].rows):
        return _newest_rows(file, parts[0].rows, newest)
    copies = [copy_rows(part.rows, "number", zero_is_busy=True) for part in parts]
    ring = copies[0][0] if len(copies) == 1 else np.concatenate([rows for rows, _ in copies])
    settled = ~np.concatenate([unsettled for _, unsettled in copies])
    capacity = int(file.header["log_capacity"])
    if capacity > len(ring):
        raise BadFile(f"{file.path}: a log of {capacity} records in room for {len(ring)}")
    numbers = _claims(ring["number"], file.now("log_written"))
    slots = np.arange(len(ring))
    fits = np.flatnonzero(settled & (numbers > 0) & (slots < capacity) & ((numbers - 1) % max(1, capacity) == slots))
    return _taken(ring, fits[np.argsort(numbers[fits], kind="stable")])


def _taken(ring: Rows, order: Any) -> Rows:
    """The records in that order: as a ring has them they are one or two pieces, much quicker than one by one."""
    edges = [0, *(np.flatnonzero(np.diff(order) != 1) + 1).tolist(), len(order)]
    if len(edges) > MOST_PIECES or not len(order):
        return ring[order]  # type: ignore[no-any-return]
    pieces = [ring[order[first] : order[last - 1] + 1] for first, last in pairwise(edges)]
    taken: Rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return taken


def _newest_rows(file: RankFile, ring: Rows, newest: int) -> Rows:
    """The end of the ring only: a live view asks thousands of files, again and again."""
    capacity, written = min(int(file.header["log_capacity"]), len(ring)), file.now("log_written")
    first = max(0, written - min(newest, capacity))
    start, stop = first % max(1, capacity), written % max(1, capacity)
    wrapped = written > first and stop <= start
    pieces = [ring[start:capacity], ring[:stop]] if wrapped else [ring[start:stop]]
    copies = [copy_rows(piece, "number", zero_is_busy=True) for piece in pieces if len(piece)]
    if not copies:
        return np.zeros(0, rank_file.COLLECTIVE)
    rows, torn = copies[0] if len(copies) == 1 else (np.concatenate(parts) for parts in zip(*copies, strict=True))
    if not torn.any() and (rows["number"] == np.arange(first + 1, first + 1 + len(rows)).astype(np.uint32)).all():
        return rows  # as they nearly always are
    numbers = _claims(rows["number"], written)
    fits = np.flatnonzero(~torn & (numbers > first))
    return rows[fits[np.argsort(numbers[fits], kind="stable")]]


def _overwritten(file: RankFile) -> int:
    """Records that newer ones have taken the place of."""
    return max(0, file.now("log_written") - int(file.header["log_capacity"])) % 2**63


def _claims(low_bits: Any, written: int) -> Any:
    """The full claim numbers, of which a record keeps the low 32 bits; the newest is near what was written."""
    behind = (np.int64(written & 0xFFFFFFFF) - low_bits.astype(np.int64)) % 2**32
    ahead = np.where(behind >= 2**31, behind - 2**32, behind)  # claimed since the count was read
    return np.where(low_bits == 0, 0, np.int64(min(written, 2**62)) - ahead)


def _peer_rows(file: RankFile) -> tuple[list[Peer], int]:
    """Traffic per destination, summed over the threads, and the number of torn rows."""
    sums: dict[int, Peer] = {}
    torn = 0
    for part in file.parts(ChunkKind.PEERS):
        copied, unsettled = copy_rows(part.rows, "seq")
        torn += int(unsettled.sum())
        for rank, _, calls, size in copied[copied["calls"] > 0].tolist():
            peer = sums.setdefault(rank, Peer(rank, 0, 0))
            peer.calls += calls
            peer.bytes += size
    return [sums[rank] for rank in sorted(sums)], torn


def _word(strings: Sequence[str], number: int, path: Path) -> str:
    if number >= len(strings):
        raise BadFile(f"{path}: string id {number}, but there are only {len(strings)}")
    return strings[number]


def _notes(file: RankFile, strings: Sequence[str], path: Path) -> list[Note]:
    """What the recorder itself says of the process: who else observes it, and what is missing therefore."""
    return [
        Note(
            _word(strings, int(row["text"]), path), Severity.WARNING if row["is_warning"] else Severity.NOTE, str(path)
        )
        for part in file.parts(ChunkKind.NOTES)
        for row in part.rows
    ]


def _words(codes: Any, values: Sequence[str], path: Path, what: str) -> Words:
    if len(codes) and int(codes.max()) >= len(values):
        raise BadFile(f"{path}: {what} id {int(codes.max())}, but there are only {len(values)}")
    return Words(codes.astype(np.int32), values)


def group_of(row: Any, strings: Sequence[str], path: Path) -> Group:
    name, guessed = _word(strings, int(row["name"]), path), bool(row["flags"] & GroupFlag.GUESSED)
    kind = GROUP_KINDS.get(int(row["kind"]), "group")
    own_name = name in PREDEFINED or (bool(name) and int(row["kind"]) in OWN_NAMES)
    return Group(
        name=name if own_name else f"{name or kind} #{int(row['identity']) & 0xFFFFFFFF:08x}",
        identity=f"{int(row['identity']):016x}",
        kind=kind,
        size=int(row["size"]) or None,
        my_rank=int(row["my_rank"]),
        collectives=int(row["collectives"]) % 2**63,
        guessed=guessed,
        freed=bool(row["freed_ticks"]),
    )


def _tally_columns(rows: Rows, threads: Any, clock: Clock, strings: Any, labels: Any, path: Path) -> dict[str, Any]:
    rate = np.where(np.isin(rows["layer"], rank_file.IN_NS), 1.0, clock.ns_per_tick)
    return {
        "layer": _words(rows["layer"], LAYERS, path, "layer"),
        "name": _words(rows["name"], strings, path, "string"),
        "calls": _signed(rows["calls"]),
        "total_ns": rows["total_ticks"] * rate,
        "group": _words(rows["group"], labels, path, "group"),
        "size_class": rows["size_class"].astype(np.int16),
        "phase": _words(rows["phase"], PHASES, path, "phase"),
        "kind": _words(rows["kind"], KINDS, path, "kind"),
        "thread": threads,
        "min_ns": rows["min_ticks"] * rate,
        "max_ns": rows["max_ticks"] * rate,
        "sum_squares_ns2": rows["sum_squares_ticks2"] * rate * rate,
        "bytes": _signed(rows["bytes"]),
        "errors": _signed(rows["errors"]),
    }


def _placed(rows: Rows, threads: Any, paths: Sequence[str]) -> tuple[Rows, Any]:
    """Without what lies in ranges that are none: it is counted in its own layer."""
    nowhere = np.array([not path for path in paths])
    is_placed = ~(np.isin(rows["layer"], rank_file.IN_RANGES) & nowhere[np.minimum(rows["group"], len(paths) - 1)])
    return rows[is_placed], threads[is_placed]


def _event_columns(rows: Rows, clock: Clock, strings: Any, labels: Any, layers: Any, path: Path) -> dict[str, Any]:
    def flagged(flag: CollectiveFlag) -> Any:
        return (rows["flags"] & flag) != 0

    groups, names = _words(rows["group"], labels, path, "group"), _words(rows["name"], strings, path, "string")
    by_nccl = np.array([text.startswith("nccl:") for text in strings])  # issued by torch, where its plugin is not there
    layer = np.where(by_nccl[rows["name"]], np.int32(LayerNumber.NCCL), layers[rows["group"]])
    unended = (rows["end_ticks"] == 0) | flagged(CollectiveFlag.ENQUEUED)
    called = flagged(CollectiveFlag.NONBLOCKING) & ~flagged(CollectiveFlag.DEVICE)
    call_ticks = rows["call_ticks"].astype(np.int64) << np.where(flagged(CollectiveFlag.WAITED), WAITED_SHIFT, 0)
    return {
        "layer": Words(layer, LAYERS),
        "name": names,
        "start_ns": clock.unix_ns(rows["enter_ticks"]),
        "end_ns": np.ma.masked_array(clock.unix_ns(rows["end_ticks"]), unended),
        "group": groups,
        "sequence": rows["sequence"].astype(np.int64),
        "bytes": _signed(rows["bytes"]),
        "phase": _words(rows["phase"], PHASES, path, "phase"),
        "thread": rows["thread"].astype(np.int32),
        "root": np.ma.masked_array(rows["root"], rows["root"] < 0),
        "call_ns": np.ma.masked_array((call_ticks * clock.ns_per_tick).astype(np.int64), ~called),
        "kind": Words(flagged(CollectiveFlag.NONBLOCKING).astype(np.int32), KINDS),
        "failed": flagged(CollectiveFlag.FAILED),
    }


def _signed(values: Any) -> Any:
    """Counts as the tables hold them: 63 bits are enough for any true one."""
    return np.minimum(values.astype(np.uint64), np.uint64(2**63 - 1)).astype(np.int64)


def last_ticks(header: Any, log: Rows) -> int:
    """The latest moment of which the file speaks: a killed process writes no end."""
    known = [int(header["facts"]["anchor"]["ticks"]), int(header["loaded"]["ticks"])]
    known += [int(header[name]) for name in ("ended_ticks", "mpi_started_ticks", "mpi_finalized_ticks")]
    return max(known + [int(log[name].max()) for name in ("enter_ticks", "end_ticks") if len(log)])
