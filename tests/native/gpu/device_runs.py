"""What a rank file says of a program on devices of any vendor, to be held against what the program says it did."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from programs import recorded
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import RankFile, open_rank_file
from rankscope.rank_files.read import read_rank_file

Sums = tuple[int, int, int]  # count, bytes, ns


def told_call(given: str) -> tuple[str, tuple[int, int]]:
    """A line `call NAME CALLS ERRORS` of the program."""
    name, calls, errors = given.split()
    return name, (int(calls), int(errors))


class Recorded:
    """Calls of one layer and work of all devices of the only rank file in a folder."""

    def __init__(self, folder: Path, layer: str) -> None:
        (path,) = recorded.rank_files(folder)
        self.file: RankFile = open_rank_file(path)
        self.reading = read_rank_file(path)
        self.works_on: dict[tuple[int, str], Sums] = {}  # by device and name
        self.ranges: Counter[str] = Counter()
        self.threads: set[int] = set()
        self._calls: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        columns: Any = self.reading.tally_columns
        for i in range(len(columns["calls"])):
            self._add(columns, i, layer)
        self.calls = {name: (count, self._errors[name]) for name, count in self._calls.items()}

    def _add(self, columns: Any, i: int, wanted: str) -> None:
        layer, name = (recorded.word(columns[which], i) for which in ("layer", "name"))
        count = int(columns["calls"][i])
        if layer == wanted:
            self._calls[name] += count
            self._errors[name] += int(columns["errors"][i])
            self.threads.add(int(columns["thread"][i]))
        elif layer == "gpu":
            device = int(recorded.word(columns["group"], i).split()[1])
            before = self.works_on.get((device, name), (0, 0, 0))
            more = count, int(columns["bytes"][i]), round(columns["total_ns"][i])
            self.works_on[device, name] = (before[0] + more[0], before[1] + more[1], before[2] + more[2])
        elif layer == "nvtx":
            self.ranges[name] += count

    def works_by_name(self) -> dict[str, Sums]:
        """Over all devices."""
        found: dict[str, Sums] = {}
        for (_, name), sums in self.works_on.items():
            before = found.get(name, (0, 0, 0))
            found[name] = (before[0] + sums[0], before[1] + sums[1], before[2] + sums[2])
        return found

    def gpu_names(self) -> list[str]:
        words = self.file.strings()
        return [words[int(row["name"])] for part in self.file.parts(ChunkKind.GPUS) for row in part.rows]

    def runtime(self) -> Any:
        return self.file.parts(ChunkKind.RUNTIMES)[0].rows[0]

    def memory(self) -> dict[int, tuple[int, int]]:
        rows = [row for part in self.file.parts(ChunkKind.DEVICES) for row in part.rows]
        return {int(row["device"]): (int(row["current_bytes"]), int(row["peak_bytes"])) for row in rows}
