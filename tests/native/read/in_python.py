"""What native/read does, in Python: the slow and plain way, against which the compiled functions are held."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.questions.events.sums import BACK_TO_BACK_NS, CAUSES, FIRST, LAST
from rankscope.rank_file import EVENT_PHASE, LAP, Rows
from rankscope.rank_files.chunks import Unsettled
from rankscope.rank_files.trace import FURTHEST, LAYERS, MOST, Seen, TraceClocks

TRIES = 100

Array = Any


# ---------------------------------------------------------------- reading.c
def copy_rows(rows: Rows, mark: str, zero_is_busy: bool) -> tuple[Rows, Unsettled]:
    """The copy made with numpy: good where stores become visible in order, as on x86."""
    made = rows.copy()
    unsettled = np.ones(len(rows), np.bool_)
    for _ in range(TRIES):
        left = np.flatnonzero(unsettled)
        before = rows[mark][left]
        made[left] = rows[left]
        same = rows[mark][left] == before
        at_rest = before != 0 if zero_is_busy else before % 2 == 0
        unsettled[left] = ~(same & at_rest)
        if not unsettled.any() or (zero_is_busy and not (before[~(same & at_rest)] != 0).any()):
            break
    return made, unsettled


# ---------------------------------------------------------------- trace_times.c
def times(clocks: TraceClocks, rows: Rows, seen: Seen | None = None) -> tuple[Any, Any]:
    durations = rows["duration_low"] + ((rows["mark"] & np.uint32(LAP - 1)).astype(np.uint64) << np.uint64(32))
    of_gpu = np.isin(rows["layer"], rank_file.IN_NS)
    start_ns = np.where(of_gpu, clocks.cupti.unix_ns(rows["start_ticks"]), clocks.ticks.unix_ns(rows["start_ticks"]))
    rate = np.where(of_gpu, clocks.cupti.rate, clocks.ticks.ns_per_tick)
    end_ns = start_ns + np.rint(np.minimum(durations * rate, FURTHEST)).astype(np.int64)
    see(seen or Seen(), rows, start_ns, end_ns)
    return start_ns, end_ns


def see(seen: Seen, rows: Rows, start_ns: Any, end_ns: Any) -> None:
    if not len(rows):
        return
    told = (rows["name"], rows["group"], rows["flags"] & EVENT_PHASE, rows["layer"])
    for name, values in zip(MOST.names or (), told, strict=True):
        seen.most[name] = max(int(seen.most[name][0]), int(values.max()))
    for layer in np.unique(rows["layer"][rows["layer"] < LAYERS]).tolist():
        of_layer, one = rows["layer"] == layer, seen.kept[layer : layer + 1]
        one["events"] += np.count_nonzero(of_layer)
        one["first_ns"] = min(int(one["first_ns"][0]), int(start_ns[of_layer].min()))
        one["last_ns"] = max(int(one["last_ns"][0]), int(end_ns[of_layer].max()))


# ---------------------------------------------------------------- trace_sums.c
def add_lengths(codes: Array, start_ns: Array, end_ns: Array, sums: Array) -> None:
    """Calls, sum, least, largest and sum of squares of the lengths under each code."""
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(sums)):
        raise ValueError("a number that stands for no name")
    lengths_ns = end_ns - start_ns
    for code in np.unique(codes).tolist():
        found = lengths_ns[codes == code].tolist()
        one = sums[code]
        squares = (int(one["high"]) << 64 | int(one["low"])) + sum(length * length for length in found)
        one["calls"] += len(found)
        one["total_ns"] += sum(found)
        one["min_ns"], one["max_ns"] = min(int(one["min_ns"]), *found), max(int(one["max_ns"]), *found)
        one["low"], one["high"] = squares & (2**64 - 1), squares >> 64


def walk_device(
    times: tuple[Array, Array], kind: Array, stream: Array, launch_ns: Array, covers: Array, done_ns: Array
) -> tuple[Array, Array]:
    """How much each cover grows, and the gaps with stream × 3 + cause."""
    if len(stream) and (int(stream.min()) < 0 or int(stream.max()) >= len(done_ns)):
        raise ValueError("a number that stands for no name")
    start_ns, end_ns = times
    compute, communication = kind == 0, kind == 1
    chosen = (slice(None), compute, communication, ~(compute | communication), compute | communication)
    for one, rows in zip(covers, chosen, strict=True):
        _cover(one, start_ns[rows], end_ns[rows])
    parts = [_gaps(start_ns, end_ns, launch_ns, stream == code, code, done_ns) for code in np.unique(stream).tolist()]
    found = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 2
    return found[0], found[1].astype(np.int32)


def _cover(one: Array, start_ns: Array, end_ns: Array) -> None:
    if not len(start_ns):
        return
    reached_ns = np.maximum.accumulate(np.concatenate([[int(one["covered_ns"])], end_ns]))
    fresh_ns = end_ns - np.maximum(start_ns, reached_ns[:-1])
    one["total_ns"] += int(fresh_ns[fresh_ns > 0].sum())
    one["covered_ns"] = int(reached_ns[-1])


def _gaps(
    start_ns: Array, end_ns: Array, launch_ns: Array, rows: Array, code: int, done_ns: Array
) -> tuple[Array, Array]:
    start_ns, end_ns, launch_ns = start_ns[rows], end_ns[rows], launch_ns[rows]
    begun = int(done_ns[code]) != FIRST
    reached_ns = np.maximum.accumulate(np.concatenate([[int(done_ns[code])], end_ns]))
    done_ns[code] = reached_ns[-1]
    before_ns = reached_ns[:-1]
    gap = start_ns > before_ns
    gap[0] &= begun
    length_ns = (start_ns - before_ns)[gap]
    cause = np.where(launch_ns[gap] > before_ns[gap], 0, np.where(length_ns < BACK_TO_BACK_NS, 1, 2))
    return length_ns, code * len(CAUSES) + cause


def sweep_ranges(times: tuple[Array, Array], codes: Array, calls: tuple[Array, Array, Array], sums: Array) -> None:
    """Each moment belongs to the range begun last of those that go on, each call to all that go on."""
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(sums)):
        raise ValueError("a number that stands for no name")
    sweep = _Sweep(sums)
    launches = list(zip(*(column.tolist() for column in calls), strict=True))[::-1]
    for start, end, code in zip(times[0].tolist(), times[1].tolist(), codes.tolist(), strict=True):
        while launches and launches[-1][0] < start:
            sweep.launch(*launches.pop())
        sweep.begin(start, end, code)
    while launches:
        sweep.launch(*launches.pop())
    sweep.advance(LAST)


class _Sweep:
    def __init__(self, sums: Array) -> None:
        self.sums = sums
        self.now = FIRST
        self.open: list[tuple[int, int]] = []

    def advance(self, until: int) -> None:
        while self.open:
            end, code = self.open[-1]
            reached = min(end, until)
            if reached > self.now:
                self.sums["own_ns"][code] += reached - self.now
                self.now = reached
            if end > until:
                break
            self.open.pop()
        self.now = until

    def begin(self, start: int, end: int, code: int) -> None:
        self.advance(start)
        one = self.sums[code]
        one["calls"] += 1
        one["total_ns"] += end - start
        one["min_ns"], one["max_ns"] = min(int(one["min_ns"]), end - start), max(int(one["max_ns"]), end - start)
        self.open.append((end, code))

    def launch(self, at: int, activities: int, gpu_ns: int) -> None:
        self.advance(at)
        for end, code in self.open:
            if end > at:
                self.sums["activities"][code] += activities
                self.sums["gpu_ns"][code] += gpu_ns
        if self.open:
            self.sums["own_activities"][self.open[-1][1]] += activities
            self.sums["own_gpu_ns"][self.open[-1][1]] += gpu_ns
