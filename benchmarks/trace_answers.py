"""What the tables of a trace made by trace_law.py must say: sums of what the law drew, never of the records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from trace_law import (
    COMMUNICATION,
    COPY,
    LAYER,
    LAYER_NS,
    NAMES,
    STEP,
    STEP_CELLS,
    STEP_RANGE_NS,
    STREAMS,
    Cells,
    Law,
)

Array = Any


@dataclass(slots=True)
class Sum:
    """Calls, sum, least, largest and sum of squares."""

    calls: int = 0
    total_ns: int = 0
    min_ns: int = 2**63
    max_ns: int = 0
    squares: int = 0

    def add(self, lengths_ns: Array) -> None:
        if len(lengths_ns):
            self.calls += len(lengths_ns)
            self.total_ns += int(lengths_ns.sum())
            self.min_ns = min(self.min_ns, int(lengths_ns.min()))
            self.max_ns = max(self.max_ns, int(lengths_ns.max()))
            self.squares += int((lengths_ns * lengths_ns).sum())


@dataclass(slots=True)
class Answers:
    """Of some ranks together; devices and gaps of each."""

    names: dict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))
    devices: dict[int, tuple[int, ...]] = field(default_factory=dict)  # span, busy, compute, comm, copy, hidden
    gaps: dict[tuple[int, str, bool], Array] = field(default_factory=dict)  # rank, stream, whether within a cell
    ranges: dict[str, Sum] = field(default_factory=lambda: defaultdict(Sum))
    own_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gpu_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    own_gpu_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    activities: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def answers(found: list[Law]) -> Answers:
    """Of all these ranks."""
    made = Answers()
    for law in found:
        _add(made, law)
    return made


def _add(made: Answers, law: Law) -> None:
    parts = [cells for _, cells in law.blocks()]
    whole = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("at_ns", "comm_ns", "hidden_ns", "wait_ns", "copy_ns")
    }
    kernels = [np.concatenate([part.kernel_ns[j] for part in parts]) for j in range(4)]
    gaps = [np.concatenate([part.gap_ns[j] for part in parts]) for j in range(3)]
    compute = int(sum(one.sum() for one in kernels))
    comm, hidden, copy = (int(whole[name].sum()) for name in ("comm_ns", "hidden_ns", "copy_ns"))
    last_kernel = whole["at_ns"] + 50_000 + sum(kernels) + sum(gaps)
    comm_start = last_kernel - whole["hidden_ns"]
    copy_start = comm_start + whole["comm_ns"] + whole["wait_ns"]
    span = int(copy_start[-1] + whole["copy_ns"][-1] - whole["at_ns"][0] - 50_000)
    made.devices[law.rank] = span, compute + comm - hidden + copy, compute, comm, copy, hidden
    made.gaps[law.rank, STREAMS[0], True] = np.concatenate(gaps)
    made.gaps[law.rank, STREAMS[0], False] = (whole["at_ns"] + 50_000)[1:] - last_kernel[:-1]
    made.gaps[law.rank, STREAMS[1], False] = comm_start[1:] - (comm_start + whole["comm_ns"])[:-1]
    made.gaps[law.rank, STREAMS[2], False] = copy_start[1:] - (copy_start + whole["copy_ns"])[:-1]
    for part in parts:
        _add_names(made, part)
    _add_ranges(made, law, parts, compute + comm + copy)


def _add_names(made: Answers, part: Cells) -> None:
    for j in range(4):
        for code in np.unique(part.kernel_name[j]).tolist():
            made.names[NAMES[code]].add(part.kernel_ns[j][part.kernel_name[j] == code])
        for code in np.unique(part.operator_name[j]).tolist():
            chosen, name = part.operator_name[j] == code, NAMES[code]
            made.ranges[name].add(part.operator_ns[j][chosen])
            made.own_ns[name] += int(part.operator_ns[j][chosen].sum())
            made.gpu_ns[name] += int(part.kernel_ns[j][chosen].sum())
            made.own_gpu_ns[name] += int(part.kernel_ns[j][chosen].sum())
            made.activities[name] += int(chosen.sum())
    made.names[COMMUNICATION].add(part.comm_ns)
    made.names[COPY].add(part.copy_ns)


def _add_ranges(made: Answers, law: Law, parts: list[Cells], gpu_ns: int) -> None:
    cells = law.steps * STEP_CELLS
    operators = sum(int(one.sum()) for part in parts for one in part.operator_ns)
    for name, count, length in ((LAYER, cells, LAYER_NS), (STEP, law.steps, STEP_RANGE_NS)):
        made.ranges[name].add(np.full(count, length))
        made.gpu_ns[name] += gpu_ns
        made.activities[name] += cells * 6
    made.own_ns[LAYER] += cells * LAYER_NS - operators
    made.own_ns[STEP] += law.steps * STEP_RANGE_NS - cells * LAYER_NS
    made.own_gpu_ns[LAYER] += sum(int(part.comm_ns.sum() + part.copy_ns.sum()) for part in parts)
    made.own_gpu_ns[STEP] += 0
