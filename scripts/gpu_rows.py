"""Rank files for the scripts that check them: rows, summed as asked, and how the GPU was listened to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.cuda import cuda_rows_of
from rankscope.rank_files.read import read_rank_file

INSIDE = "\x1f"  # between a range and the one inside it


@dataclass(frozen=True)
class Row:
    layer: str
    name: str
    group: str
    within: str
    thread: int
    calls: int
    total_ns: float
    min_ns: float
    max_ns: float
    bytes: int
    errors: int
    kind: str

    @property
    def path(self) -> list[str]:
        """The ranges around it, outermost first, without their domains."""
        return [step.split("/", 1)[-1] for step in self.within.split(INSIDE)] if self.within else []


class Process:
    """One rank file."""

    def __init__(self, path: Path) -> None:
        reading = read_rank_file(path)
        self.path, self.facts, self.notes = path, reading.facts, [note.text for note in reading.notes]
        self.rows = [*_rows(reading.tally_columns), *_rows(reading.range_tally_columns)]
        self.how, self.devices, _ = cuda_rows_of(open_rank_file(path))
        self.steps, self.device_steps = reading.step_columns, reading.device_step_columns

    def counted(self, layer: str) -> list[Row]:
        """Rows of a layer, each thing once: without those of ranges."""
        return [row for row in self.rows if row.layer == layer and not row.within]

    def ranged(self, layer: str) -> list[Row]:
        return [row for row in self.rows if row.layer == layer and row.within]

    def device(self, field: str) -> int | None:
        """A sum over the devices, None where this recorder does not keep it."""
        return int(self.devices[field].sum()) if field in (self.devices.dtype.names or ()) else None

    def steps_behind_s(self) -> float | None:
        """From the end of the last step on the GPU to that of the last on the host; None where there are none."""
        if not self.steps or not self.device_steps:
            return None
        return float(self.steps["end_ns"].max() - self.device_steps["end_ns"].max()) / 1e9

    def state(self, field: str) -> int | None:
        return int(self.how[field].sum()) if field in (self.how.dtype.names or ()) else None


def _rows(columns: Any) -> Iterator[Row]:
    if not columns:
        return

    def words(name: str) -> list[str]:
        column = columns.get(name)
        return [column.values[code] for code in column.codes] if column is not None else [""] * len(columns["calls"])

    numbers = [
        columns[name].tolist() for name in ("thread", "calls", "total_ns", "min_ns", "max_ns", "bytes", "errors")
    ]
    named = map(words, ("layer", "name", "group", "within"))
    for row in zip(*named, *numbers, words("kind"), strict=True):
        yield Row(*row)


def summed(
    rows: list[Row], key: Callable[[Row], Any], value: Callable[[Row], Any] = lambda row: row.calls
) -> dict[Any, Any]:
    sums: dict[Any, Any] = {}
    for row in rows:
        sums[key(row)] = sums.get(key(row), 0) + value(row)
    return sums


def processes_of(run: Path) -> list[Process]:
    """Those that used CUDA, or all where none did."""
    found = [Process(path) for path in sorted(run.glob("ranks/*/*.rank"))]
    return [process for process in found if len(process.how)] or found


def process_of(run: Path, pid: int) -> Process:
    """The image of this process that did most, where it was replaced by exec."""
    paths = [*run.glob(f"ranks/*/{pid}.rank"), *run.glob(f"ranks/*/{pid}-*.rank")]
    return max(map(Process, paths), key=lambda process: len(process.rows))
