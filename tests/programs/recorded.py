"""What the recorder wrote, in the form in which the test programs write what they did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.model.records import Group, Reading
from rankscope.model.tables import Words
from rankscope.rank_files.read import read_rank_file

KINDS = {"call": 0, "progress": 1}

Key = tuple[str, int, int]  # function, kind (0: calls, 1: completions), size class
Counts = tuple[int, int, int]  # calls, bytes, errors


@dataclass(frozen=True)
class Row:
    """One tally row as the file has it."""

    name: str
    kind: int
    size_class: int
    group: int
    phase: str
    thread: int
    calls: int
    bytes: int
    errors: int
    total_ns: float
    min_ns: float
    max_ns: float
    sum_squares_ns2: float

    @property
    def identity(self) -> tuple[Any, ...]:
        """What tells this row from the others of its file."""
        return self.name, self.kind, self.size_class, self.group, self.phase, self.thread


@dataclass(frozen=True)
class Collective:
    """One record of the collective log."""

    name: str
    group: int
    sequence: int
    bytes: int
    root: int
    ended: bool


def rank_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("ranks/*/*.rank"))


def file_of(folder: Path, pid: int) -> Path:
    """The rank file of one process."""
    (found,) = folder.glob(f"ranks/*/{pid}.rank")
    return found


def read(path: Path) -> Reading:
    return read_rank_file(path)


def rows_of(reading: Reading) -> Iterator[Row]:
    columns = reading.tally_columns
    for i in range(len(columns["calls"])):
        yield Row(
            name=word(columns["name"], i),
            kind=KINDS[word(columns["kind"], i)],
            size_class=int(columns["size_class"][i]),
            group=int(columns["group"].codes[i]),
            phase=word(columns["phase"], i),
            thread=int(columns["thread"][i]),
            **{name: int(columns[name][i]) for name in ("calls", "bytes", "errors")},
            **{name: float(columns[name][i]) for name in ("total_ns", "min_ns", "max_ns", "sum_squares_ns2")},
        )


def counts_of(reading: Reading) -> dict[Key, Counts]:
    """Calls, bytes and errors, summed over communicators, phases and threads."""
    sums: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows_of(reading):
        total = sums[row.name, row.kind, row.size_class]
        for i, value in enumerate((row.calls, row.bytes, row.errors)):
            total[i] += value
    return {key: (calls, size, errors) for key, (calls, size, errors) in sums.items()}


def calls_by_name(reading: Reading) -> dict[str, int]:
    """How often each function was called."""
    sums: dict[str, int] = defaultdict(int)
    for (name, kind, _), (calls, _, _) in counts_of(reading).items():
        if kind == 0:
            sums[name] += calls
    return dict(sums)


def bytes_by_name(reading: Reading) -> dict[str, int]:
    """How much each function moved."""
    sums: dict[str, int] = defaultdict(int)
    for (name, kind, _), (_, moved, _) in counts_of(reading).items():
        if kind == 0:
            sums[name] += moved
    return dict(sums)


def log_of(reading: Reading) -> list[Collective]:
    """The collective log, in the order in which the collectives were entered."""
    columns = reading.event_columns
    return [
        Collective(
            name=word(columns["name"], i),
            group=int(columns["group"].codes[i]),
            sequence=int(columns["sequence"][i]),
            bytes=int(columns["bytes"][i]),
            root=-1 if is_masked(columns["root"], i) else int(columns["root"][i]),
            ended=not is_masked(columns["end_ns"], i),
        )
        for i in range(len(columns["sequence"]))
    ]


def group_of(reading: Reading, number: int) -> Group:
    return reading.groups[number - 1]


def word(column: Words, row: int) -> str:
    return column.values[int(column.codes[row])]


def is_masked(column: Any, row: int) -> bool:
    mask = getattr(column, "mask", False)
    return bool(mask if isinstance(mask, bool) or mask.shape == () else mask[row])
