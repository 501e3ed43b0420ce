"""Reads tables of operations: a row for each piece of work of a rank in a training step, as Parquet or CSV."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from rankscope.formats.operation_groups import (
    COLLECTIVE,
    COMPUTE,
    OPERATION,
    RECEIVE,
    SEND,
    STEP_PARTS,
    UNKNOWN,
    Operations,
    Pipeline,
    connect,
    nth_of,
    pipelines_of,
    role_of,
)
from rankscope.formats.operation_waits import infer
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Figure, Group, Layer, Note, RankFacts, Reading, Role, Severity
from rankscope.model.records import Step as StepRecord
from rankscope.model.tables import Words, names_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Array = Any  # of numpy
PARQUET = b"PAR1"
MOST_ROWS = 50_000_000
MOST_RANKS = 1 << 17
# ---------------------------------------------------------------------------------------------------------------------
# Which column is what: by these names, or by the table [operations] of a mapping.
NAMES: dict[str, tuple[str, ...]] = {
    "step": ("step", "iteration", "iter", "step_id"),
    "rank": ("rank", "global_rank", "world_rank"),
    "kind": ("optype", "op_type", "operation", "kind", "op"),
    "start": ("start_ts", "start", "begin", "start_time", "begin_ts", "ts"),
    "duration": ("duration", "dur", "elapsed"),
    "end": ("end_ts", "end", "end_time"),
    "micro_batch": ("mb_id", "micro_batch", "microbatch", "microbatch_id", "mb"),
    "stage": ("stage", "pp_rank", "pipeline_rank", "pp_stage"),
    "data_rank": ("dp_rank", "data_rank", "data_parallel_rank"),
    "tensor_rank": ("tp_rank", "tensor_rank", "tensor_parallel_rank"),
    "chunk": ("mc", "chunk", "model_chunk", "vpp_rank"),
    "sequence": ("seq_id", "sequence", "seq"),
}
TIMES = ("start", "duration", "end")
NEEDED = ("step", "kind", "start")
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
SUFFIX = re.compile(r"_(ns|us|ms|s)$")
SIZES = re.compile(rb"(?m)^(?:pp_size|dp_size|world_size|tp_size) *: *\d+")
LATEST_NS = float(1 << 61)


@dataclass(slots=True)
class ColumnNames:
    """Column by role, and the unit of times whose name has none."""

    columns: dict[str, str] = field(default_factory=dict)
    unit: str = ""
    kinds: dict[str, str] = field(default_factory=dict)  # a kind of the table: the name that we know it by


def sniff(head: bytes) -> bool:
    """Parquet, a comma-separated header with the columns above, or the sizes of the job that lie beside a table."""
    if head.startswith(PARQUET):
        return True
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    if "," in first and _roles([word.strip('" ') for word in first.split(",")], {}) is not None:
        return True
    return len(SIZES.findall(head)) >= 3


def read(source: Source) -> Iterator[Reading]:
    """A reading for each rank, with its operations, its steps, its communication as events, and sums of all."""
    head = source.head(64)
    if not head.startswith(PARQUET) and len(SIZES.findall(source.head())) >= 3:
        yield _sizes(source)
        return
    mapping = _mapping(source.hints.mapping)
    try:
        table = _table(source, head)
        operations = _operations(source, table, mapping)
    except BadFile:
        raise
    except (pa.ArrowException, ValueError, OverflowError, TypeError, OSError) as problem:
        raise source.bad(f"cannot be read as a table of operations: {str(problem)[:200]}") from None
    yield from _readings(source, operations)


def _sizes(source: Source) -> Reading:
    """The sizes of the job, which a table of operations has beside it."""
    reading = Reading(RankFacts(role=Role.DOCUMENT, source=str(source)))
    for line in source.text().splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().endswith("_size") and re.fullmatch(r"\d{1,12}", value.strip()):
            reading.figures.append(Figure("job", name.strip(), float(value), "count"))
    return reading


def _mapping(path: Path | None) -> ColumnNames:
    if path is None:
        return ColumnNames()
    try:
        names = tomllib.loads(path.read_text(encoding="utf-8")).get("operations", {})
    except (OSError, ValueError, RecursionError) as problem:
        raise BadFile(f"{path}: cannot be used as a mapping: {problem}") from None
    if not isinstance(names, dict):
        raise BadFile(f"{path}: write the columns of a table of operations under [operations]")
    column_names = ColumnNames(
        unit=str(names.pop("unit", "")), kinds={str(a): str(b) for a, b in names.pop("kinds", {}).items()}
    )
    if column_names.unit and column_names.unit not in UNITS:
        raise BadFile(f"{path}: unit = {column_names.unit!r} is not understood; choose one of {', '.join(UNITS)}")
    for role, column in names.items():
        if role not in NAMES or not isinstance(column, str):
            raise BadFile(f"{path}: {role} = {column!r} is not understood; known are {', '.join(NAMES)}")
        column_names.columns[role] = column
    return column_names


def _table(source: Source, head: bytes) -> pa.Table:
    if head.startswith(PARQUET):
        on_disk = source.content is None and not _is_packed(source)
        file = pa.parquet.ParquetFile(source.path if on_disk else io.BytesIO(b"".join(source.blocks())))
        if file.metadata.num_rows > MOST_ROWS:
            raise source.bad(f"more than {MOST_ROWS} rows")
        return file.read()
    return pa.csv.read_csv(io.BytesIO(source.text().encode()))


def _is_packed(source: Source) -> bool:
    with source.path.open("rb") as file:
        return file.read(len(PARQUET)) != PARQUET


def _roles(names: Sequence[str], given: Mapping[str, str]) -> dict[str, str] | None:
    """Which column has each role; None where it is no such table."""
    plain = {SUFFIX.sub("", name.lower()): name for name in reversed(names)} | {name.lower(): name for name in names}
    roles = {role: plain[known] for role, known_as in NAMES.items() for known in reversed(known_as) if known in plain}
    roles |= {role: column for role, column in given.items() if column in names}
    has_needed = all(role in roles for role in NEEDED) and ("duration" in roles or "end" in roles)
    return roles if has_needed and ("rank" in roles or {"stage", "data_rank"} <= set(roles)) else None


def _operations(source: Source, table: pa.Table, mapping: ColumnNames) -> Operations:
    roles = _roles(table.column_names, mapping.columns)
    if roles is None:
        missing = "step, rank, kind of operation, start and duration (or end)"
        raise source.bad(f"has no columns of {missing}; name them in a mapping: docs/formats/operations.md")
    if not table.num_rows:
        raise source.bad("contains no operations")
    columns = {
        role: _whole(source, table, roles[role]) if role in roles else np.full(table.num_rows, -1)
        for role in NAMES
        if role not in (*TIMES, "kind")
    }
    kind = pa.compute.dictionary_encode(table[roles["kind"]].cast(pa.string()).combine_chunks())
    kind = kind.combine_chunks() if isinstance(kind, pa.ChunkedArray) else kind
    if kind.null_count:
        raise source.bad("an operation without its kind")
    values = [mapping.kinds.get(word, word) for word in kind.dictionary.to_pylist()]
    codes = kind.indices.to_numpy(zero_copy_only=False)
    times, notes = _times(source, table, roles, mapping.unit)
    if "rank" not in roles:
        size = int(columns["data_rank"].max()) + 1
        columns["rank"] = columns["stage"] * size + columns["data_rank"]
        notes.append("the table has no rank: ranks are numbered by stage, then by data-parallel rank")
    if columns["rank"].min() < 0 or len(np.unique(columns["rank"])) > MOST_RANKS:
        raise source.bad("a rank below 0, or too many ranks")
    # a batch of sends and receives begins at one time: the order of sequence numbers is the same on all ranks
    order = np.lexsort((codes, columns["sequence"], times[0], columns["step"], columns["rank"]))
    picked: dict[str, Any] = {role: column[order] for role, column in columns.items()}
    operations = Operations(
        kind=Words(codes[order].astype(np.int32), values), start_ns=times[0][order], end_ns=times[1][order], **picked
    )
    operations.notes = notes
    _place_steps(operations)
    connect(operations)
    infer(operations)
    return operations


def _whole(source: Source, table: pa.Table, name: str) -> Array:
    column = pa.compute.fill_null(table[name].cast(pa.float64()), -1.0).to_numpy()
    if not np.isfinite(column).all() or np.abs(column).max() > 2**53 or (column != np.floor(column)).any():
        raise source.bad(f"column {name}: not whole numbers")
    return column.astype(np.int64)


def _times(
    source: Source, table: pa.Table, roles: Mapping[str, str], unit: str
) -> tuple[tuple[Array, Array], list[str]]:
    notes: list[str] = []
    ns: dict[str, Array] = {}
    for role in TIMES:
        if role not in roles:
            continue
        name = roles[role]
        suffix = SUFFIX.search(name.lower())
        unit_of = unit or (suffix[1] if suffix else "")
        if not unit_of:
            unit_of = "s" if pa.types.is_floating(table.schema.field(name).type) else "ns"
            notes.append(f"column {name} names no unit: read as {'seconds' if unit_of == 's' else 'nanoseconds'}")
        ns[role] = pa.compute.fill_null(table[name].cast(pa.float64()), float("nan")).to_numpy() * UNITS[unit_of]
    end = ns["end"] if "end" in ns else ns["start"] + ns["duration"]
    bad = ~(np.isfinite(ns["start"]) & np.isfinite(end)) | (np.abs(ns["start"]) > LATEST_NS) | (end > LATEST_NS)
    if bad.any():
        raise source.bad(f"operation {int(np.flatnonzero(bad)[0])} of the table has no time, or an impossible one")
    if (end < ns["start"]).any():
        raise source.bad(f"operation {int(np.flatnonzero(end < ns['start'])[0])} of the table ends before it starts")
    start = np.round(ns["start"]).astype(np.int64)
    return (start, np.maximum(np.round(end).astype(np.int64), start)), notes


NEAR = 0.02  # of a step


def _place_steps(operations: Operations) -> None:
    """When each step began and ended; steps that all begin at one time are put one after the other."""
    numbers, at = np.unique(operations.step, return_inverse=True)
    begin = np.full(len(numbers), np.iinfo(np.int64).max)
    end = np.full(len(numbers), np.iinfo(np.int64).min)
    np.minimum.at(begin, at, operations.start_ns)
    np.maximum.at(end, at, operations.end_ns)
    if len(numbers) > 1 and np.ptp(begin) <= NEAR * np.median(end - begin):
        shift = np.concatenate([[0], np.cumsum((end - begin)[:-1])]) - begin
        operations.start_ns, operations.end_ns = operations.start_ns + shift[at], operations.end_ns + shift[at]
        begin, end = begin + shift, end + shift
        operations.notes.append(
            "times restart in each step: steps are placed back to back, and the time between them is unknown"
        )
    operations.step_begin_ns = dict(zip(numbers.tolist(), begin.tolist(), strict=True))
    operations.step_end_ns = dict(zip(numbers.tolist(), end.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Readings
FIELDS = ("step", "stage", "data_rank", "tensor_rank", "chunk", "micro_batch", "sequence")
PLACES = ("stage", "data_rank", "tensor_rank")
WORDS_OF_PLACES = dict(zip(PLACES, ("pipeline stage", "data-parallel rank", "tensor-parallel rank"), strict=True))
PARTS = ("data", "forward", "backward", "optimizer", "checkpoint")


def _readings(source: Source, operations: Operations) -> Iterator[Reading]:
    edges = np.concatenate([[0], np.flatnonzero(np.diff(operations.rank)) + 1, [len(operations.rank)]]).tolist()
    world, shares = _world(operations, operations.rank[edges[:-1]], np.array(edges[:-1]))
    sizes: dict[str, dict[int, None]] = {}
    for name, rank in zip(operations.group, operations.rank.tolist(), strict=True):
        if name:
            sizes.setdefault(name, {})[rank] = None
    pipelines = pipelines_of(operations)
    for place, (first, last) in enumerate(pairwise(edges)):
        rows = np.arange(first, last)
        rank = int(operations.rank[first])
        facts = RankFacts(rank=rank, world_size=world, rank_source="column of ranks", source=str(source))
        facts.steps_from = "operations"
        reading = Reading(facts)
        reading.operation_columns = _columns(operations, rows)
        reading.step_columns = _steps(operations, rows)
        reading.event_columns, reading.groups = _events(operations, rows, rank, sizes)
        if (pipeline := pipelines.get(rank)) is not None:
            reading.message_columns = _messages(operations, rows, pipeline)
            if pipeline.name not in sizes:
                place_in_it = pipeline.ranks.index(rank)
                reading.groups.append(
                    Group(pipeline.name, pipeline.name, size=len(pipeline.ranks), my_rank=place_in_it)
                )
        if place == 0:
            reading.notes = [Note(text, where=str(source)) for text in operations.notes]
            reading.notes += [Note(note.text, note.severity, str(source)) for note in shares]
            if (operations.stage < 0).all():
                text = "no column gives the pipeline stage: sends and receives are not matched"
                reading.notes.append(Note(text, Severity.WARNING, str(source)))
        yield reading


def _world(operations: Operations, ranks: Array, first: Array) -> tuple[int | None, list[Note]]:
    """How many ranks the job has, and what is said where the table has only some: often those of one tensor rank."""
    highest = int(ranks[-1]) + 1
    if highest == len(ranks):
        return highest, []
    names = [name for name in PLACES if (getattr(operations, name)[first] >= 0).all()]
    if not names:
        return highest, []
    here = set(zip(*(getattr(operations, name)[first].tolist() for name in names), strict=True))
    missing = set(product(*(sorted({place[at] for place in here}) for at in range(len(names))))) - here
    what = " and ".join(WORDS_OF_PLACES[name] for name in names)
    if not missing:
        text = f"{len(ranks)} ranks, numbered {ranks[0]} to {highest - 1}: one for each {what}"
        return None, [Note(f"{text}; the others are not in the table")]
    places = "; ".join(str(place) for place in sorted(missing)[:3])
    text = f"no rank for {len(missing)} of {len(here) + len(missing)} combinations of {what}: {places}"
    return None, [Note(text, Severity.WARNING)]


def _columns(operations: Operations, rows: Array) -> dict[str, Any]:
    columns: dict[str, Any] = {name: getattr(operations, name)[rows] for name in FIELDS}
    groups = sorted({operations.group[row] for row in rows.tolist()})
    codes = {name: at for at, name in enumerate(groups)}
    columns |= {"start_ns": operations.start_ns[rows], "end_ns": operations.end_ns[rows], "peer": operations.peer[rows]}
    columns["kind"] = Words(operations.kind.codes[rows], operations.kind.values)
    columns["role"] = Words(
        operations.kind.codes[rows], [role_of(kind).replace(UNKNOWN, COMPUTE) for kind in operations.kind.values]
    )
    columns["group"] = Words(np.array([codes[operations.group[row]] for row in rows.tolist()], np.int32), groups)
    return columns


def _events(
    operations: Operations, rows: Array, rank: int, members: Mapping[str, Mapping[int, None]]
) -> tuple[dict[str, Any], list[Group]]:
    """Every operation; collectives are numbered in the order of their group, which is the same on all members."""
    group = [operations.group[row] for row in rows.tolist()]
    kinds = operations.kind.values
    counts: dict[str, int] = {}
    sequence = np.zeros(len(rows), np.int64)
    for at, name in enumerate(group):
        if name:
            counts[name] = counts.get(name, 0) + 1
            sequence[at] = counts[name]
    labels = sorted({*group, ""})
    plain = [OPERATION.search(kind.lower()) for kind in kinds]
    names = [names[0].replace("-", "_") if names else kind for names, kind in zip(plain, kinds, strict=True)]
    codes = operations.kind.codes[rows]
    is_message = np.array([role_of(kind) in (SEND, RECEIVE) for kind in kinds])  # a collective of one rank is none
    in_group = np.array([bool(name) for name in group])
    columns = {
        "layer": Words(np.where(in_group | is_message[codes], 1, 0).astype(np.int32), [Layer.HOST, Layer.NCCL]),
        "name": Words(
            codes, [name if in_name else kind for name, in_name, kind in zip(names, plain, kinds, strict=True)]
        ),
        "start_ns": operations.start_ns[rows],
        "end_ns": operations.end_ns[rows],
        "group": Words(np.array([labels.index(name) for name in group], np.int32), labels),
        "sequence": np.ma.masked_array(sequence, mask=~in_group),
    }
    groups = [
        Group(name, name, size=len(members[name]), my_rank=list(members[name]).index(rank), collectives=count)
        for name, count in counts.items()
    ]
    return columns, groups


def _messages(operations: Operations, rows: Array, pipeline: Pipeline) -> dict[str, Any]:
    """Sends and receives; the n-th of a kind to a stage, by sequence number, is the n-th from here over there."""
    kinds = operations.kind.values
    roles = np.array([(SEND, RECEIVE).index(role) if role in (SEND, RECEIVE) else -1 for role in map(role_of, kinds)])
    ends = rows[(roles[operations.kind.codes[rows]] >= 0) & np.isin(operations.peer[rows], pipeline.ranks)]
    codes = operations.kind.codes[ends]
    order = np.lexsort((operations.start_ns[ends], operations.sequence[ends], operations.step[ends]))
    number = np.zeros(len(ends), np.int64)
    envelopes = np.stack([codes[order].astype(np.int64), operations.peer[ends][order]])
    number[order] = nth_of(np.unique(envelopes, axis=1, return_inverse=True)[1].reshape(-1))
    is_backward = np.array(["backward" in kind.lower() or kind.lower().startswith("bwd") for kind in kinds])
    place = np.searchsorted(pipeline.ranks, operations.peer[ends])
    nothing = np.zeros(len(ends), np.int64)
    return {
        "layer": Words(nothing.astype(np.int32), [Layer.NCCL]),
        "name": Words(codes, kinds),
        "kind": Words(roles[codes].astype(np.int32), [SEND, RECEIVE]),
        "group": Words(nothing.astype(np.int32), [pipeline.name]),
        "peer": place,
        "tag": is_backward[codes].astype(np.int64),
        "number": number,
        "doubt": Words(nothing.astype(np.int32), [""]),
        "begin_ns": operations.start_ns[ends],
        "end_ns": operations.end_ns[ends],
        "bytes": nothing,
        "thread": codes,  # a kind has times of its own: they are no kernels of NCCL that do several at once
        "posted": np.arange(1, len(ends) + 1),
    }


def _steps(operations: Operations, rows: Array) -> dict[str, Any]:
    """The steps of one rank: compute by its kind, communication that no compute covers, and the rest."""
    numbers = np.unique(operations.step[rows])
    begin = np.array([operations.step_begin_ns[number] for number in numbers.tolist()])
    end = np.array([operations.step_end_ns[number] for number in numbers.tolist()])
    kinds = [_part(kind) for kind in operations.kind.values]
    part = np.array([(*PARTS, "communication", "gc", "other").index(kind) for kind in kinds])[
        operations.kind.codes[rows]
    ]
    part = np.where([bool(operations.group[row]) for row in rows.tolist()], len(PARTS), part)
    start_ns, end_ns = operations.start_ns[rows], operations.end_ns[rows]
    bounds = np.unique(np.concatenate([start_ns, end_ns, begin, end]))
    lengths = np.diff(bounds)
    step = np.clip(np.searchsorted(begin, bounds[:-1], "right") - 1, 0, None)
    inside = (bounds[:-1] >= begin[step]) & (bounds[:-1] < end[step])
    free = inside.copy()
    columns: dict[str, Any] = {name: np.zeros(len(numbers), np.int64) for name in names_of(StepRecord)}
    columns |= {name: np.zeros(len(numbers), bool) for name in ("warmup", "accumulated", "skipped", "told")}
    columns |= {"number": numbers, "begin_ns": begin, "end_ns": end}

    def sums(mask: Array) -> Array:
        return np.bincount(step[mask], lengths[mask], minlength=len(numbers)).astype(np.int64)

    for at, name in enumerate((*PARTS, "communication")):
        under_way = _under_way(bounds, start_ns[part == at], end_ns[part == at])
        columns[f"{name}_ns"] = sums(under_way & free)
        if name == "communication":
            columns["covered_ns"], columns["hidden_ns"] = sums(under_way & inside), sums(under_way & inside & ~free)
        free &= ~under_way
    columns["other_ns"] = sums(free)
    columns["blocked_communication_ns"] = columns["exposed_ns"] = columns["communication_ns"]
    columns["gc_ns"] = sums(_under_way(bounds, start_ns[part == 6], end_ns[part == 6]) & inside)
    of_step = np.searchsorted(numbers, operations.step[rows])
    is_communication = part == len(PARTS)
    columns["progress_ns"] = np.bincount(
        of_step[is_communication], (end_ns - start_ns)[is_communication], minlength=len(numbers)
    ).astype(np.int64)
    columns["collectives"] = np.bincount(of_step[is_communication], minlength=len(numbers))
    return columns


def _part(kind: str) -> str:
    if role_of(kind) in (SEND, RECEIVE, COLLECTIVE):
        return "communication"
    if kind.lower() == "gc":
        return "gc"
    return next((part for pattern, part in STEP_PARTS if pattern.search(kind.lower())), "other")


def _under_way(bounds: Array, start: Array, end: Array) -> Array:
    """Between which bounds at least one of these goes on."""
    change = np.zeros(len(bounds), np.int64)
    np.add.at(change, np.searchsorted(bounds, start), 1)
    np.add.at(change, np.searchsorted(bounds, end), -1)
    return np.cumsum(change)[:-1] > 0
