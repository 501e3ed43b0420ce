"""Steps on the devices' clock, of the single events of a trace: native/gpu/device_steps.c does it for recorded jobs.

A kernel belongs to the step whose host launched it. A step lasts on a device from the end of the last kernel of the
step before to the end of its own; each moment is compute, exposed communication, copies alone, or idle, and an idle one
is what the loop's thread did then. All of it is lengths of unions of intervals up to a moment, so that one pass along a
device's activities, in blocks, is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rankscope.model.gpu import DeviceGaps
from rankscope.questions.gpu.activities import COMMUNICATION, COMPUTE, KINDS, Device
from rankscope.questions.gpu.steps import CAUSES
from rankscope.questions.gpu.walk import NONE, Launches

Array = Any  # of numpy
MOST_NS = 2.0**62  # of a sum: a damaged trace may have any lengths
STARTING_NS = 3000  # a shorter gap is none that the host could have filled
GAP_CLASSES, SHORTEST_GAP_NS = 8, 1000  # as the recorder has them: each bound is ten times that before
KERNELS = [KINDS.index(COMPUTE), KINDS.index(COMMUNICATION)]
LAUNCH, DATA, SYNC, GC, COMPILE, BLOCKED, CHECKPOINT, PYTHON, UNKNOWN, DEVICE = range(len(CAUSES))


@dataclass(frozen=True, slots=True)
class StepWindows:
    """The steps of the host, by their time; `joined`: a step begins where the one before ended."""

    number: Array
    begin_ns: Array
    end_ns: Array
    joined: Array

    def of_launch(self, at_ns: Array) -> Array:
        """The step in which something was launched, -1 where in none: the first that ended after that moment."""
        step = np.searchsorted(self.end_ns, at_ns, "right")
        known = np.minimum(step, len(self.end_ns) - 1)
        inside = (step < len(self.end_ns)) & ((at_ns >= self.begin_ns[known]) | self.joined[known])
        return np.where(inside, known, NONE)


@dataclass(frozen=True, slots=True)
class HostStates:
    """What the loop's thread did, from each moment on to the next, as a place in CAUSES; before the first: unknown."""

    at_ns: Array
    cause: Array


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies and memsets of a device."""

    start_ns: Array
    correlation: Array
    bytes: Array
    is_pageable: Array


@dataclass(frozen=True, slots=True)
class SyncCalls:
    """Calls of the loop's thread that wait for a device, the outermost of those that lie in each other."""

    start_ns: Array
    end_ns: Array


# ---------------------------------------------------------------- unions of intervals, block by block
class Union:
    """How much of the time before each of some moments is covered by intervals that come by their start."""

    def __init__(self, moments: Array) -> None:
        self.moments = moments
        self.covered_ns = np.zeros(len(moments), np.int64)
        self._done_ns = -(2**63)

    def add(self, start_ns: Array, end_ns: Array) -> None:
        if not len(start_ns):
            return
        done_ns = np.maximum.accumulate(np.concatenate([[self._done_ns], end_ns]))
        self._done_ns = int(done_ns[-1])
        begin_ns = np.maximum(start_ns, done_ns[:-1])
        new = end_ns > begin_ns
        self.add_apart(begin_ns[new], end_ns[new])

    def add_apart(self, start_ns: Array, end_ns: Array) -> None:
        """Intervals that do not overlap with each other nor with any before."""
        if not len(start_ns):
            return
        until_ns = np.concatenate([[0], np.cumsum(end_ns - start_ns)])
        begun = np.searchsorted(start_ns, self.moments, "left")
        rest_ns = np.maximum(end_ns[begun - 1] - self.moments, 0)
        self.covered_ns += np.where(begun > 0, until_ns[begun] - rest_ns, 0)


class Gaps:
    """The pauses of a device between its activities, which come by their start."""

    def __init__(self, from_ns: int | None = None) -> None:
        self._from_ns = from_ns
        self._done_ns: int | None = None
        self.counts, self.idle_ns = np.zeros(GAP_CLASSES, np.int64), np.zeros(GAP_CLASSES, np.int64)

    def add(self, start_ns: Array, end_ns: Array) -> tuple[Array, Array]:
        """Beginnings and ends of the pauses before these activities, that before the first of all included."""
        first_ns = int(start_ns[0])
        led_ns = first_ns if self._from_ns is None else min(self._from_ns, first_ns)
        done_ns = np.maximum.accumulate(np.concatenate([[led_ns if self._done_ns is None else self._done_ns], end_ns]))
        is_first, self._done_ns = self._done_ns is None, int(done_ns[-1])
        gaps = np.flatnonzero(start_ns > done_ns[:-1])
        begin_ns, until_ns = done_ns[gaps], start_ns[gaps]
        between = slice(1 if is_first and len(gaps) and gaps[0] == 0 else 0, None)
        self._count((until_ns - begin_ns)[between])
        return begin_ns, until_ns

    def rest(self, until_ns: int) -> tuple[Array, Array]:
        """That after the last activity."""
        done_ns = self._from_ns if self._done_ns is None else self._done_ns
        gaps = [] if done_ns is None or until_ns <= done_ns else [(done_ns, until_ns)]
        begin_ns, end_ns = zip(*gaps, strict=True) if gaps else ((), ())
        return np.array(begin_ns, np.int64), np.array(end_ns, np.int64)

    def _count(self, lengths_ns: Array) -> None:
        bounds = SHORTEST_GAP_NS * 10 ** np.arange(GAP_CLASSES - 1)
        place = np.searchsorted(bounds, lengths_ns, "right")
        self.counts += np.bincount(place, minlength=GAP_CLASSES)
        self.idle_ns += _summed(place, lengths_ns, GAP_CLASSES)

    def rows(self, device: int) -> Iterator[DeviceGaps]:
        for place in np.flatnonzero(self.counts).tolist():
            least_ns = SHORTEST_GAP_NS * 10 ** (place - 1) if place else 0
            below_ns = SHORTEST_GAP_NS * 10**place if place < GAP_CLASSES - 1 else None
            yield DeviceGaps(device, least_ns, below_ns, int(self.counts[place]), int(self.idle_ns[place]))


def _summed(places: Array, lengths_ns: Array, count: int) -> Array:
    """The lengths at each place: whole numbers, exact below 2^53."""
    return np.minimum(np.bincount(places, lengths_ns, count), MOST_NS).astype(np.int64)


def device_gaps(device: Device, number: int) -> list[DeviceGaps]:
    """The pauses of a device by their length."""
    gaps = Gaps()
    for start_ns, end_ns, *_ in device.in_order():
        if len(start_ns):
            gaps.add(start_ns, end_ns)
    return list(gaps.rows(number))


# ---------------------------------------------------------------- which work belongs to which step
@dataclass(slots=True)
class _Work:
    """What the steps launched on one device."""

    kernels: Array
    kernel_ns: Array
    copies: Array
    copy_bytes: Array
    pageable_bytes: Array
    last_kernel_ns: Array  # its end; 0 where there is none
    last_ns: Array
    before_ns: Array  # end of the last kernel launched before the step and in none


def _work_of(device: Device, copies: Copies, steps: StepWindows, launches: Launches) -> _Work:
    count = len(steps.number)
    work = _Work(**{field.name: np.zeros(count, np.int64) for field in fields(_Work)})
    for run in device.runs:
        start_ns, end_ns, kind, _, correlation = run.rows()
        launched_ns = _launched(launches, correlation, start_ns)
        step = steps.of_launch(launched_ns)
        kernel = np.isin(kind, KERNELS)
        inside = step >= 0
        mine = kernel & inside
        work.kernels += np.bincount(step[mine], minlength=count)
        work.kernel_ns += _summed(step[mine], (end_ns - start_ns)[mine], count)
        np.maximum.at(work.last_kernel_ns, step[mine], end_ns[mine])
        np.maximum.at(work.last_ns, step[inside], end_ns[inside])
        outside = np.flatnonzero(kernel & ~inside)
        after = np.searchsorted(steps.begin_ns, launched_ns[outside], "right")
        follows = after < count
        np.maximum.at(work.before_ns, after[follows], end_ns[outside[follows]])
    step = steps.of_launch(_launched(launches, copies.correlation, copies.start_ns))
    inside = step >= 0
    work.copies += np.bincount(step[inside], minlength=count)
    np.add.at(work.copy_bytes, step[inside], copies.bytes[inside])
    np.add.at(work.pageable_bytes, step[inside], np.where(copies.is_pageable, copies.bytes, 0)[inside])
    return work


def _launched(launches: Launches, correlation: Array, start_ns: Array) -> Array:
    """When each was launched; where that is not known, when it began."""
    if not launches:
        return start_ns
    called_ns = launches.start_ns(correlation)
    return np.where(called_ns == NONE, start_ns, called_ns)


def _windows(steps: StepWindows, work: _Work) -> tuple[Array, Array]:
    """When each step begins and ends on the device: never before the one before has ended."""
    begin_ns, end_ns = np.empty(len(steps.number), np.int64), np.empty(len(steps.number), np.int64)
    done_ns = -(2**63)
    for at, (host_begin_ns, host_end_ns, joined) in enumerate(
        zip(steps.begin_ns.tolist(), steps.end_ns.tolist(), steps.joined.tolist(), strict=True)
    ):
        begin = max(done_ns, int(work.before_ns[at]), done_ns if joined else host_begin_ns)
        last = int(work.last_kernel_ns[at]) or int(work.last_ns[at]) or host_end_ns
        done_ns = max(begin, last)
        begin_ns[at], end_ns[at] = begin, done_ns
    return begin_ns, end_ns


# ---------------------------------------------------------------- the parts of each step
def split_steps(
    number: int,
    device: Device,
    copies: Copies,
    steps: StepWindows,
    host: HostStates,
    syncs: SyncCalls,
    launches: Launches,
) -> dict[str, Array]:
    """The columns of model.DeviceStep for one device."""
    work = _work_of(device, copies, steps, launches)
    begin_ns, end_ns = _windows(steps, work)
    bounds = np.stack([begin_ns, end_ns], axis=1).reshape(-1)
    compute, communication, kernels, busy = (Union(bounds) for _ in range(4))
    idle = _IdleCauses(bounds, host)
    gaps = Gaps(int(bounds[0]))
    for start, end, kind, _, _ in device.in_order():
        if not len(start):
            continue
        computes, communicates = kind == KERNELS[0], kind == KERNELS[1]
        compute.add(start[computes], end[computes])
        communication.add(start[communicates], end[communicates])
        either = computes | communicates
        kernels.add(start[either], end[either])
        busy.add(start, end)
        idle.add(*gaps.add(start, end))
    idle.add(*gaps.rest(int(bounds[-1])))
    computed, communicated, either_ns, any_ns = (
        _inside(intervals) for intervals in (compute, communication, kernels, busy)
    )
    columns = {
        "number": steps.number,
        "device": np.full(len(begin_ns), number, np.int64),
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "compute_ns": computed,
        "overlapped_ns": computed + communicated - either_ns,
        "exposed_ns": either_ns - computed,
        "copy_ns": any_ns - either_ns,
        **{f"idle_{cause}_ns": idle.sums[:, place] for place, cause in enumerate(CAUSES)},
        "cut": np.zeros(len(begin_ns), bool),
        "by_time": np.full(len(begin_ns), not launches),
    }
    columns |= {
        name: getattr(work, name) for name in ("kernels", "kernel_ns", "copies", "copy_bytes", "pageable_bytes")
    }
    waited_in = steps.of_launch(syncs.start_ns)
    inside = waited_in >= 0
    columns["sync_calls"] = np.bincount(waited_in[inside], minlength=len(begin_ns))
    lengths_ns = (syncs.end_ns - syncs.start_ns)[inside]
    columns["sync_ns"] = _summed(waited_in[inside], lengths_ns, len(begin_ns))
    return columns


def _inside(union: Union) -> Array:
    return union.covered_ns[1::2] - union.covered_ns[::2]


class _IdleCauses:
    """Shares out the pauses of a device among what the host did: steps × CAUSES."""

    def __init__(self, bounds: Array, host: HostStates) -> None:
        self._bounds = bounds
        steps = len(bounds) // 2
        self.sums = np.zeros((steps, len(CAUSES)), np.int64)
        wanted = (host.at_ns > bounds[0]) & (host.at_ns < bounds[-1])
        self._moments = np.unique(np.concatenate([bounds, host.at_ns[wanted]]))
        middle = self._moments[:-1]
        state = np.searchsorted(host.at_ns, middle, "right") - 1
        cause = np.where(state >= 0, host.cause[np.maximum(state, 0)] if len(host.cause) else UNKNOWN, UNKNOWN)
        # the last step that begins at or before this piece, if the piece lies in it
        step = np.searchsorted(bounds[::2], middle, "right") - 1
        self._inside = (step >= 0) & (middle < bounds[1::2][np.maximum(step, 0)])
        self._step, self._cause = np.maximum(step, 0), cause

    def add(self, begin_ns: Array, end_ns: Array) -> None:
        begin_ns, end_ns = _cut_at(begin_ns, end_ns, self._bounds)
        short = end_ns - begin_ns < STARTING_NS
        for chosen, cause in ((short, np.full(len(self._cause), DEVICE)), (~short, self._cause)):
            union = Union(self._moments)
            union.add_apart(begin_ns[chosen], end_ns[chosen])
            pieces_ns = np.diff(union.covered_ns)
            used = np.flatnonzero(self._inside & (pieces_ns > 0))
            np.add.at(self.sums, (self._step[used], cause[used]), pieces_ns[used])


def _cut_at(begin_ns: Array, end_ns: Array, bounds: Array) -> tuple[Array, Array]:
    """Pauses in which a step ends are two."""
    first: Array = np.searchsorted(bounds, begin_ns, "right")
    behind: Array = np.searchsorted(bounds, end_ns, "left")
    crossed = np.flatnonzero(behind > first)
    if not len(crossed):
        return begin_ns, end_ns
    inside = [bounds[from_bound:to_bound] for from_bound, to_bound in zip(first[crossed], behind[crossed], strict=True)]
    cuts = np.unique(np.concatenate(inside))
    begins = np.sort(np.concatenate([begin_ns, cuts]))
    return begins, np.sort(np.concatenate([end_ns, cuts]))


def host_states(parts: Sequence[tuple[int, int]], syncs: SyncCalls) -> HostStates:
    """The states of a thread, from (moment, cause) in their order: launching or Python inside a call that waits is
    waiting."""
    at_ns = np.array([moment for moment, _ in parts], np.int64)
    cause = np.array([interval for _, interval in parts], np.int64)
    moments = np.unique(np.concatenate([at_ns, syncs.start_ns, syncs.end_ns]))
    state = np.searchsorted(at_ns, moments, "right") - 1
    given = np.where(state >= 0, cause[np.maximum(state, 0)] if len(cause) else UNKNOWN, UNKNOWN)
    call = np.searchsorted(syncs.start_ns, moments, "right") - 1
    waits = (
        (call >= 0) & (moments < syncs.end_ns[np.maximum(call, 0)])
        if len(syncs.end_ns)
        else np.zeros(len(moments), bool)
    )
    may_wait = np.isin(given, (LAUNCH, PYTHON, UNKNOWN))
    return HostStates(moments, np.where(waits & may_wait, SYNC, given))
