"""Reads tables of operations: a row for each piece of work of a rank in a training step, as Parquet or CSV."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

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


# ---------------------------------------------------------------------------------------------------------------------
# The operations as arrays, in the order of rank, step and start.
@dataclass(slots=True)
class Operations:
    """All operations of a table, those of a rank together, by step and start."""

    rank: Array
    step: Array  # its number in the table
    kind: Words
    start_ns: Array
    end_ns: Array
    stage: Array  # -1 where the table has none, as of the next ones
    data_rank: Array
    tensor_rank: Array
    chunk: Array
    micro_batch: Array
    sequence: Array
    group: list[str] = field(default_factory=list)  # of each row: of a collective
    peer: Array = None  # of each row: of a message; -1: none
    step_begin_ns: dict[int, int] = field(default_factory=dict)
    step_end_ns: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _operations(source: Source, table: pa.Table, mapping: ColumnNames) -> Operations:
    roles = _roles(table.column_names, mapping.columns)
    if roles is None:
        missing = "step, rank, kind of operation, start and duration (or end)"
        raise source.bad(f"has no columns of {missing}; name them in a mapping: docs/formats/operations.md")
    if not table.num_rows:
        raise source.bad("holds no operation")
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
        raise source.bad("a rank below 0, or too many of them")
    # a batch of sends and receives begins at one time: the order of sequence numbers is the same on all ranks
    order = np.lexsort((codes, columns["sequence"], times[0], columns["step"], columns["rank"]))
    picked: dict[str, Any] = {role: column[order] for role, column in columns.items()}
    operations = Operations(
        kind=Words(codes[order].astype(np.int32), values), start_ns=times[0][order], end_ns=times[1][order], **picked
    )
    operations.notes = notes
    _place_steps(operations)
    _connect(operations)
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
        raise source.bad(f"operation {int(np.flatnonzero(bad)[0])} of the table has no time, or one that cannot be")
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
            "times restart in each step: steps are put one after the other, and the gaps between them are not known"
        )
    operations.step_begin_ns = dict(zip(numbers.tolist(), begin.tolist(), strict=True))
    operations.step_end_ns = dict(zip(numbers.tolist(), end.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# What a kind of operation is, by its name; and who takes part in it.
SEND, RECEIVE, COLLECTIVE, COMPUTE, UNKNOWN = "send", "receive", "collective", "compute", "unknown"
OF_NAMES = (  # the first that is in the name decides
    (re.compile(r"recv|receive"), RECEIVE),
    (re.compile(r"send"), SEND),
    (re.compile(r"all.?gather|reduce.?scatter|all.?reduce|broadcast|all.?to.?all|barrier"), COLLECTIVE),
    (re.compile(r"compute|forward|backward|^gc$|data|checkpoint"), COMPUTE),
)
OPERATION = re.compile(r"all.?gather|reduce.?scatter|all.?reduce|broadcast|all.?to.?all|barrier")
STEP_PARTS = (  # of compute
    (re.compile(r"data|load"), "data"),
    (re.compile(r"forward|^fwd"), "forward"),
    (re.compile(r"backward|^bwd|^grad"), "backward"),
    (re.compile(r"optim|^step$"), "optimizer"),
    (re.compile(r"checkpoint|save"), "checkpoint"),
)


def role_of(kind: str) -> str:
    """Whether such an operation computes, sends, receives or is a collective; "unknown": its times must tell."""
    return next((role for pattern, role in OF_NAMES if pattern.search(kind.lower())), UNKNOWN)


def _connect(operations: Operations) -> None:
    """Give collectives their groups and messages their peers."""
    operations.group, operations.peer = [""] * len(operations.rank), np.full(len(operations.rank), -1)
    for code, kind in enumerate(operations.kind.values):
        rows = np.flatnonzero(operations.kind.codes == code)
        role = role_of(kind)
        if role in (SEND, RECEIVE):
            _set_peers(operations, rows, kind, role)
        elif role in (COLLECTIVE, UNKNOWN) and len(rows):
            _set_groups(operations, rows, kind, role)


def _set_peers(operations: Operations, rows: Array, kind: str, role: str) -> None:
    """Forward goes to the next stage and backward to the one before; the last stage sends on to the first."""
    stages = int(operations.stage.max()) + 1
    if stages < 2:
        return
    up = "backward" not in kind.lower() and not kind.lower().startswith("bwd")
    there = (operations.stage[rows] + (1 if up == (role == SEND) else -1)) % stages
    _, first = np.unique(operations.rank, return_index=True)
    coordinates = np.stack(
        [operations.data_rank[first], operations.tensor_rank[first], operations.stage[first]], axis=1
    )
    places = {tuple(key): rank for key, rank in zip(coordinates.tolist(), operations.rank[first].tolist(), strict=True)}
    coordinates_there = zip(
        operations.data_rank[rows].tolist(), operations.tensor_rank[rows].tolist(), there.tolist(), strict=True
    )
    operations.peer[rows] = [places.get(key, -1) for key in coordinates_there]


@dataclass(frozen=True, slots=True)
class _Partition:
    """One way to share out the ranks: those alike in these coordinates are one group."""

    name: str
    alike: tuple[str, ...]


ALONE = _Partition("", ("rank",))
TENSOR = _Partition("tensor-parallel", ("stage", "data_rank"))
DATA = _Partition("data-parallel", ("stage", "tensor_rank"))
PIPELINE = _Partition("pipeline", ("data_rank", "tensor_rank"))
WORLD = _Partition("world", ())
CANDIDATES = (ALONE, TENSOR, DATA, PIPELINE, WORLD)
EXPECTED = (  # by the name of the kind: what Megatron's are
    (re.compile(r"embedding"), _Partition("embedding", ("data_rank", "tensor_rank"))),
    (re.compile(r"layernorm|sequence"), TENSOR),
    (re.compile(r"param|grad"), DATA),
)
POSSIBLE = 0.95  # of the collectives: nobody may end before the last has begun
EXPLAINED = 0.7  # of the time in it: more than this must be left for it to be the rank's own
FINER = 1.1
TOLERANCE = 1e-3  # of a step


def _set_groups(operations: Operations, rows: Array, kind: str, role: str) -> None:
    """The ranks that such an operation connects: those of its name, where times allow it; else as times tell."""
    ranks, column = np.unique(operations.rank[rows], return_inverse=True)
    occurrence = _occurrence(operations, rows)
    keys, line = np.unique(operations.step[rows] * (1 << 20) + occurrence, return_inverse=True)
    if len(ranks) * len(keys) != len(rows):  # not once on every rank
        return
    start, end = np.empty((len(keys), len(ranks))), np.empty((len(keys), len(ranks)))
    begin = np.array([operations.step_begin_ns[int(key >> 20)] for key in keys.tolist()])
    start[line, column], end[line, column] = operations.start_ns[rows], operations.end_ns[rows]
    start, end = start - begin[:, None], end - begin[:, None]
    first = rows[np.unique(column, return_index=True)[1]]
    slack = TOLERANCE * float(np.median([operations.step_end_ns[s] - b for s, b in operations.step_begin_ns.items()]))
    expected = [partition for pattern, partition in EXPECTED if role == COLLECTIVE and pattern.search(kind.lower())][:1]
    chosen, left = ALONE, np.inf
    for partition in expected or CANDIDATES:
        member = _members(operations, first, partition)
        last = np.stack([start[:, member == at].max(axis=1) for at in range(member.max() + 1)], axis=1)[:, member]
        possible = float((end >= last - slack).all(axis=1).mean())
        unexplained_ns = float(np.maximum(end - last, 0).sum())
        if partition is ALONE:
            left = unexplained_ns * EXPLAINED if role == UNKNOWN else unexplained_ns
        elif expected or (possible >= POSSIBLE and unexplained_ns * FINER < left):
            chosen, left = partition, unexplained_ns
    if chosen is ALONE:
        return
    names = _group_names(operations, first, chosen)
    for row, at in zip(rows.tolist(), column.tolist(), strict=True):
        operations.group[row] = names[at]


def _occurrence(operations: Operations, rows: Array) -> Array:
    """Which one of its kind it is in its step, on its rank."""
    new = np.concatenate([[True], (np.diff(operations.rank[rows]) != 0) | (np.diff(operations.step[rows]) != 0)])
    begins = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    return np.arange(len(rows)) - begins


def _members(operations: Operations, first: Array, partition: _Partition) -> Array:
    if not partition.alike:
        return np.zeros(len(first), np.int64)
    keys = np.stack([getattr(operations, name)[first] for name in partition.alike], axis=1)
    return np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)


def _group_names(operations: Operations, first: Array, partition: _Partition) -> list[str]:
    """Equal on all members; "" where a rank is alone."""
    member = _members(operations, first, partition)
    sizes = np.bincount(member)
    names = []
    for row, at in zip(first.tolist(), member.tolist(), strict=True):
        known = [name for name in partition.alike if getattr(operations, name)[row] >= 0]
        place = ", ".join(f"{name.partition('_')[0]} {getattr(operations, name)[row]}" for name in known)
        names.append("" if sizes[at] < 2 else f"{partition.name} ({place})" if place else WORLD.name)
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Readings
FIELDS = ("step", "stage", "data_rank", "tensor_rank", "chunk", "micro_batch", "sequence")
PARTS = ("data", "forward", "backward", "optimizer", "checkpoint")


def _readings(source: Source, operations: Operations) -> Iterator[Reading]:
    edges = np.concatenate([[0], np.flatnonzero(np.diff(operations.rank)) + 1, [len(operations.rank)]]).tolist()
    world = len(edges) - 1
    sizes: dict[str, dict[int, None]] = {}
    for name, rank in zip(operations.group, operations.rank.tolist(), strict=True):
        if name:
            sizes.setdefault(name, {})[rank] = None
    for place, (first, last) in enumerate(pairwise(edges)):
        rows = np.arange(first, last)
        rank = int(operations.rank[first])
        facts = RankFacts(rank=rank, world_size=world, rank_source="column of ranks", source=str(source))
        facts.steps_from = "operations"
        reading = Reading(facts)
        reading.operation_columns = _columns(operations, rows)
        reading.step_columns = _steps(operations, rows)
        reading.event_columns, reading.groups = _events(operations, rows, rank, sizes)
        if place == 0:
            reading.notes = [Note(text, where=str(source)) for text in operations.notes]
            if (operations.stage < 0).all():
                text = "no column has the stage of a pipeline: sends and receives are not matched"
                reading.notes.append(Note(text, Severity.WARNING, str(source)))
        yield reading


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
