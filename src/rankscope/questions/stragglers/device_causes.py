"""Why is the rank late that the others wait for in collectives on the device?

There the host does not wait where the collectives run: it waits, if at all, in a CUDA call later in the step, and its
parts do not tell. But its sums do: what a step takes without the CUDA calls is the host's own time, and what the
device computes is known. The collectives name the rank; only what explains most of the wait for it is called a cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rankscope.model.records import INSIDE
from rankscope.model.tables import Tables
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.collectives.waiting import AWAITED, straggler, sums
from rankscope.questions.gpu.communication_kernels import communicates
from rankscope.questions.gpu.kernel_names import kernel_names
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import TITLES, steps_of

FEWEST_STEPS = 12
MOST = 0.5  # of what is to be explained
TOO_MUCH = 2.0  # what is so many times the wait is something else
NOTICEABLE = 0.04  # of the step
ALIKE = 0.5  # of the slow-down of the slowest kernel: so much more time of all others is the device's
SAME_WORK = 0.05  # by which the number of the device's activities may differ
WITHIN = {"gc": "garbage collection", "runnable": "preemption"}
ON_DEVICE = "SELECT 1 FROM untraced_events WHERE layer = 'nccl' LIMIT 1"
CALLS = """
    SELECT rank, sum(total_ns)::DOUBLE FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'cuda_api' AND kind = 'call'
        AND (name LIKE '%Synchronize%' OR name LIKE '%Memcpy%' OR name LIKE '%Launch%')
    GROUP BY rank"""
DEVICES = """
    SELECT rank, sum(compute_ns)::DOUBLE, sum(activities)::DOUBLE FROM devices JOIN ranks USING (process)
    WHERE role = 'rank' AND activities > 0 GROUP BY rank"""
KERNELS = """
    SELECT rank, name, sum(calls)::DOUBLE, sum(total_ns)::DOUBLE FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'gpu' AND kind = 'call' AND tallies.phase = 'steady'
        AND NOT starts_with(name, '[CUDA ')
    GROUP BY rank, name"""
RECORDED = "SELECT rank, recorded_steps FROM gpu_recordings JOIN ranks USING (process) WHERE windows > 0"
RANGES = """
    SELECT rank, within, sum(total_ns) FILTER (layer = 'nvtx'), sum(total_ns) FILTER (layer = 'cuda_api')
    FROM range_tallies JOIN ranks USING (process) WHERE role = 'rank' AND kind = 'call' GROUP BY ALL"""

Values = Mapping[int, float]  # by rank, ns per step


@dataclass(frozen=True, slots=True)
class DeviceCause:
    """A rank that the others wait for on the device, and what of it was longer; times are those of a step."""

    rank: int
    host: str
    name: str
    excess_ns: float
    waited_ns: float
    step_ns: float
    steps: int
    usual_ns: float
    evidence: str


def device_causes(tables: Tables) -> list[DeviceCause]:
    """The cause of the one rank that stands out, or nothing."""
    steps = {rank_steps.rank: rank_steps for rank_steps in steps_of(tables).ranks}
    known = collectives_of(tables)
    if len(steps) < 2 or not known.splits or not tables.query(ON_DEVICE):
        return []
    waiting = sums(known)
    place, verdict = straggler(known, waiting)
    rank = known.log.ranks[place] if place is not None else -1
    if place is None or verdict != AWAITED or set(steps) != set(known.log.ranks):
        return []
    count = min(len(step.number) for step in steps.values())
    if count < FEWEST_STEPS or max(len(step.number) for step in steps.values()) != count:
        return []
    waited_ns = float(waiting.caused_ns[place]) / (len(steps) - 1) / count
    cause = _on_the_device(tables, rank, count, waited_ns) or _on_the_host(tables, rank, steps, waited_ns)
    if cause is None:
        return []
    step_ns = float(np.mean([step.length_ns.mean() for step in steps.values()]))
    name, excess_ns, usual_ns, evidence = cause
    if excess_ns < NOTICEABLE * step_ns:
        return []
    return [
        DeviceCause(rank, steps[rank].host, name, excess_ns, waited_ns, step_ns, count, usual_ns, evidence),
    ]


Found = tuple[str, float, float, str]  # cause, excess, what its peers need, in words


def _excess(values: Values, rank: int) -> tuple[float, float]:
    """How much more than the median of its peers, and that median."""
    usual = float(np.median([value for other, value in values.items() if other != rank]))
    return values.get(rank, 0.0) - usual, usual


def _explains(excess_ns: float, waited_ns: float) -> bool:
    return MOST * waited_ns <= excess_ns <= TOO_MUCH * waited_ns


def _on_the_device(tables: Tables, rank: int, steps: int, waited_ns: float) -> Found | None:
    rows = tables.query(DEVICES)
    recorded = dict.fromkeys((of_rank for of_rank, _, _ in rows), float(steps)) | dict(tables.query(RECORDED))
    if not all(recorded.values()):
        return None
    compute_ns = {of_rank: value / recorded[of_rank] for of_rank, value, _ in rows}
    activities = {of_rank: value / recorded[of_rank] for of_rank, _, value in rows}
    if rank not in compute_ns or len(compute_ns) < 2:
        return None
    excess_ns, usual_ns = _excess(compute_ns, rank)
    if not _explains(excess_ns, waited_ns):
        return None
    more, usual = _excess(activities, rank)
    same = abs(more) <= SAME_WORK * usual
    evidence = f"its GPU computes {_ms(usual_ns + excess_ns)} per step, its peers' {_ms(usual_ns)}"
    evidence += f", with {usual + more:.0f} kernels and copies against {usual:.0f}"
    return _one_kernel(tables, rank, recorded, excess_ns, evidence) or (
        "slower device" if same else "more work on the device",
        excess_ns,
        usual_ns,
        evidence,
    )


def _one_kernel(
    tables: Tables, rank: int, recorded: Mapping[int, float], excess_ns: float, evidence: str
) -> Found | None:
    """The kernel to which most of the excess goes: one that its peers do not have, call less often, or finish sooner.

    Where all kernels take longer alike, it is the device, whichever of them takes most.
    """
    calls: dict[str, dict[int, float]] = {}
    times: dict[str, dict[int, float]] = {}
    for of_rank, name, count, ns in tables.query(KERNELS):
        if of_rank in recorded and not communicates(name):
            calls.setdefault(name, dict.fromkeys(recorded, 0.0))[of_rank] = count / recorded[of_rank]
            times.setdefault(name, dict.fromkeys(recorded, 0.0))[of_rank] = ns / recorded[of_rank]
    if not times:
        return None
    name = max(times, key=lambda each: _excess(times[each], rank)[0])
    (more_ns, usual_ns), (more, usual) = _excess(times[name], rank), _excess(calls[name], rank)
    if more_ns < MOST * excess_ns:
        return None
    called = kernel_names(tables, loaded=False).get(name, name)
    text = f"{evidence}; {called} {_ms(usual_ns + more_ns)} per step, its peers {_ms(usual_ns)}"
    if not usual_ns:
        return f"an extra kernel: {called}", more_ns, usual_ns, text
    if more > SAME_WORK * usual:
        return (
            f"more calls of the kernel {called}",
            more_ns,
            usual_ns,
            f"{text}, in {usual + more:.3g} calls against {usual:.3g}",
        )
    others_ns = {other: sum(of[other] for key, of in times.items() if key != name) for other in recorded}
    rest_ns, rest_usual_ns = _excess(others_ns, rank)
    if rest_usual_ns and rest_ns / rest_usual_ns >= ALIKE * more_ns / usual_ns:
        return None
    return f"a slower kernel: {called}", more_ns, usual_ns, text


def _on_the_host(tables: Tables, rank: int, steps: Mapping[int, RankSteps], waited_ns: float) -> Found | None:
    calls = dict(tables.query(CALLS))
    if set(calls) != set(steps):
        return None
    count = len(steps[rank].number)
    own_ns = {number: float(step.length_ns.mean()) - calls[number] / count for number, step in steps.items()}
    excess_ns, usual_ns = _excess(own_ns, rank)
    if min(own_ns.values()) < 0 or not _explains(excess_ns, waited_ns):
        return None
    sentence = (
        f"its host is busy outside CUDA calls for {_ms(usual_ns + excess_ns)} per step, its peers for {_ms(usual_ns)}"
    )
    for name, values in _components(tables, steps, count).items():
        more_ns, peers_ns = _excess(values, rank)
        if MOST * excess_ns <= more_ns:
            return name, more_ns, peers_ns, f"{sentence}; {name} {_ms(peers_ns + more_ns)}, its peers {_ms(peers_ns)}"
    return "own compute on the host", excess_ns, usual_ns, sentence


def _components(tables: Tables, steps: Mapping[int, RankSteps], count: int) -> dict[str, Values]:
    """What the host's time may have gone to, what can strike anywhere first; the rest of a step holds CUDA calls."""
    components: dict[str, Values] = {}
    for key, title in WITHIN.items():
        if all(key in step.of_which for step in steps.values()):
            components[title] = {rank: float(rank_steps.of_which[key].mean()) for rank, rank_steps in steps.items()}
    parts = {name for step in steps.values() for name in step.own} - {"other"}
    for name in sorted(parts):
        components[TITLES.get(name, name)] = {
            rank: float(rank_steps.own[name].mean()) if name in rank_steps.own else 0.0
            for rank, rank_steps in steps.items()
        }
    return components | _ranges(tables, steps, count)


def _ranges(tables: Tables, steps: Mapping[int, RankSteps], count: int) -> dict[str, Values]:
    """Time of each NVTX range outside the ranges and the CUDA calls in it."""
    host: dict[tuple[int, str], float] = {}
    calls: dict[tuple[int, str], float] = {}
    for rank, within, host_ns, calls_ns in tables.query(RANGES):
        host[rank, within], calls[rank, within] = host_ns or 0.0, calls_ns or 0.0
    own_ns = {key: host[key] - calls[key] for key in host}
    for (rank, within), value in host.items():
        around = (rank, within.rpartition(INSIDE)[0])
        if around in own_ns:
            own_ns[around] -= value
    by_range: dict[str, dict[int, float]] = {}
    for (rank, within), value in own_ns.items():
        name = within.rpartition(INSIDE)[2].partition("/")[2]
        of_rank = by_range.setdefault(f"range {name}", dict.fromkeys(steps, 0.0))
        if rank in of_rank:
            of_rank[rank] += value / count
    return dict(by_range)


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:.3g} ms"
