"""Why is the rank late that the others wait for?"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import PARTS, TITLES, steps_of
from rankscope.questions.stragglers.device_causes import DeviceCause, device_causes
from rankscope.questions.stragglers.lateness import WITHIN, Estimate, Late, late_ranks, lateness_ns, preempted_ns
from rankscope.questions.wording import seconds

# ---------------------------------------------------------------------------------------------------------------------
# Which range of the program takes a late rank longer than its peers?
NESTED = 0.9  # of the largest excess: the ranges around the one that is longer are longer too
# What torch and the recorder name themselves is a part of the step, or lies in one.
SQL = """
    SELECT rank, name, sum(total_ns)::DOUBLE FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'torch' AND kind = 'call' GROUP BY rank, name"""


@dataclass(frozen=True, slots=True)
class LongerRange:
    """A range that is longer on one rank, per step."""

    name: str
    excess_ns: float
    usual_ns: float


def longer_range(tables: Tables, rank: int, least_ns: float) -> LongerRange | None:
    """The innermost of the ranges that take the rank so much longer than the median of its peers; by whole sums."""
    steps = {rank_steps.rank: len(rank_steps.number) for rank_steps in steps_of(tables).ranks}
    of_name: dict[str, dict[int, float]] = {}
    for of_rank, name, total_ns in tables.query(SQL):
        if steps.get(of_rank):
            of_name.setdefault(name, {})[of_rank] = total_ns / steps[of_rank]
    longer = []
    for name, values in of_name.items():
        usual_ns = float(np.median([values.get(other, 0.0) for other in steps if other != rank]))
        excess_ns = values.get(rank, 0.0) - usual_ns
        if excess_ns >= least_ns:
            longer.append(LongerRange(f"range {name}", excess_ns, usual_ns))
    most_ns = max((range_.excess_ns for range_ in longer), default=0.0)
    inner = [range_ for range_ in longer if range_.excess_ns >= NESTED * most_ns]
    return min(inner, key=lambda range_: range_.usual_ns + range_.excess_ns, default=None)


# ---------------------------------------------------------------- causes
COLUMNS = (
    Column("rank", Unit.NAME, "Rank", "rank whose own time in a step is longer than that of its peers"),
    Column("host", Unit.NAME, "Host"),
    Column(
        "cause",
        Unit.NAME,
        "Cause",
        "data loading, zero_grad, forward, backward, optimizer, checkpoint, other, garbage collection, preemption, "
        "page faults, slower processor, range NAME, own compute; on the device: an extra kernel: NAME, more calls of "
        "the kernel NAME, a slower kernel: NAME, slower device, more work on the device, range NAME, own compute on "
        "the host",
    ),
    Column(
        "excess_ns",
        Unit.NS,
        "Longer by",
        "excess of own time over the median of the other ranks in the same step, per step",
    ),
    Column(
        "error_ns",
        Unit.NS,
        "±",
        "error of `excess_ns`: 1.2533 × 1.4826 × median absolute deviation of the means of blocks of steps ÷ √blocks",
    ),
    Column("share", Unit.SHARE, "% of step", "`excess_ns` ÷ median step"),
    Column(
        "waited_ns",
        Unit.NS,
        "Others wait",
        "per step, how much longer its peers (median) are blocked in collectives, by the same estimate",
    ),
    Column("steps", Unit.COUNT, "Steps", "number of steps compared"),
    Column("cause_ns", Unit.NS, "Due to it", "excess in the cause alone, per step"),
    Column("usual_ns", Unit.NS, "Peers", "mean of what its peers (median) need for the cause, per step"),
    Column("total_ns", Unit.NS, "Total", "`excess_ns` × `steps`"),
    Column("evidence", Unit.NAME, "Evidence", "the measured values that name the cause, in words"),
)
MOST = 0.5  # of the excess that a cause must explain
SURE = 3.0  # standard errors
MORE = 0.5  # of what the peers have of it
NOTHING = Estimate(0.0, 0.0)
MINOR_FAULT_NS = 700.0  # what one costs at least on today's machines, zeroing its page included
MAJOR_FAULT_NS = 50_000.0
SIMILAR = 0.5  # the least of the compute parts' growth ÷ the largest: a slower processor slows all of them
SLOWER = 0.05


@dataclass(slots=True)
class LateCause:
    """A late rank and what of it was longer."""

    late: Late
    name: str  # one of the names in docs/reference/metrics.md
    ns: float  # per step, of the excess, in the cause
    usual_ns: float | None
    evidence: str


_KEPT: WeakKeyDictionary[Tables, list[LateCause]] = WeakKeyDictionary()


def causes_of(tables: Tables) -> list[LateCause]:
    """Every rank that stands out, with its cause, the latest first; worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = _causes_of(tables)
    return _KEPT[tables]


def _causes_of(tables: Tables) -> list[LateCause]:
    return [in_a_range(tables, _with_switches(tables, cause_of(late))) for late in late_ranks(steps_of(tables))]


def causes(tables: Tables, selection: Selection = ALL) -> Table:
    """One line per rank that the others wait for; none where nobody stands out."""
    table = Table("causes", "Late ranks and why", COLUMNS, [])
    for cause in causes_of(tables):
        if selection.ranks is None or cause.late.rank in selection.ranks:
            table.rows.append(_row(cause))
    if not table.rows:
        found_there = [
            device_cause
            for device_cause in device_causes(tables)
            if selection.ranks is None or device_cause.rank in selection.ranks
        ]
        table.rows += [_device_row(cause) for cause in found_there]
    steps = steps_of(tables)
    if not table.rows and len(steps.ranks) > 1:
        table.notes.append("No rank's own time in a step stands out from its peers'.")
    return arranged(table, selection)


def _row(late_cause: LateCause) -> tuple[Cell, ...]:
    late = late_cause.late
    share = late.excess.value / late.step_ns if late.step_ns else None
    return (
        *(
            late.rank,
            late.host,
            late_cause.name,
            late.excess.value,
            late.excess.error,
            share,
            late.waited_ns,
            late.steps,
        ),
        *(late_cause.ns, late_cause.usual_ns, late.excess.value * late.steps, late_cause.evidence),
    )


def _device_row(device_cause: DeviceCause) -> tuple[Cell, ...]:
    """By sums over the run, so without an error."""
    return (
        *(
            device_cause.rank,
            device_cause.host,
            device_cause.name,
            device_cause.excess_ns,
            None,
            device_cause.excess_ns / device_cause.step_ns,
            device_cause.waited_ns,
            device_cause.steps,
        ),
        *(
            device_cause.excess_ns,
            device_cause.usual_ns,
            device_cause.excess_ns * device_cause.steps,
            device_cause.evidence,
        ),
    )


def cause_of(late: Late) -> LateCause:
    """What explains most of the excess: first what can strike in any part, then the parts themselves."""
    by = lateness_ns(late)
    for component, name in (("gc", "garbage collection"), ("runnable", "preemption")):
        estimate = late.components.get(component, NOTHING)
        if component == "runnable" and (component not in late.outstanding or preempted_ns(late) < MOST * by):
            continue
        if estimate.value >= max(MOST * by, SURE * estimate.error, MORE * late.usual_ns.get(component, 0.0)):
            return _caused(late, component, name)
    faults_ns = _fault_ns(late)
    if faults_ns >= MOST * by:
        text = ", ".join(f"{late.counts[name].value:+.0f} {name.replace('_', ' ')}" for name in FAULTS)
        return LateCause(late, "page faults", faults_ns, None, f"{text} per step")
    if _all_slower(late):
        return LateCause(late, "slower processor", by, None, _growths(late))
    parts = {name: excess.value for name, excess in late.components.items() if name not in WITHIN}
    longest = max(parts, key=lambda name: parts[name], default="")  # none where the ranks have no part in common
    if longest and parts[longest] >= MOST * by:
        return _caused(late, longest, TITLES.get(longest, f"own compute {longest}"))
    return LateCause(late, "own compute", by, None, _growths(late))


FAULTS = {"minor_faults": MINOR_FAULT_NS, "major_faults": MAJOR_FAULT_NS}
COMPUTE = ("forward", "backward", "optimizer")


def _caused(late: Late, component: str, name: str) -> LateCause:
    excess, usual = late.components[component], late.usual_ns[component]
    evidence = (
        f"{TITLES.get(component, component)} {seconds(usual + excess.value)} per step, its peers {seconds(usual)}"
    )
    if component in (*COMPUTE, "other") and "cpu" in late.components:
        more_ns = late.components["cpu"].value
        is_busy = more_ns >= MOST * excess.value / 2
        evidence += f"; {seconds(more_ns)} of it more CPU time" if is_busy else "; no more CPU time"
    return LateCause(late, name, excess.value, usual, evidence)


def _fault_ns(late: Late) -> float:
    return sum(max(0.0, late.counts[name].value) * cost for name, cost in FAULTS.items() if name in late.counts)


def _all_slower(late: Late) -> bool:
    """Whether every part that computes has grown, by about the same factor, and together they are the excess."""
    grown = [late.components[name].value / late.usual_ns[name] for name in COMPUTE if late.usual_ns.get(name)]
    compute_ns = sum(late.components[name].value for name in COMPUTE if name in late.components)
    if len(grown) < len(COMPUTE) or min(grown) < SLOWER:
        return False
    return min(grown) >= SIMILAR * max(grown) and compute_ns >= MOST * late.excess.value


SMALLEST = 0.01  # of what the rank is late: less explains nothing


def _growths(late: Late) -> str:
    least = SMALLEST * abs(late.excess.value)
    texts = [
        f"{TITLES.get(name, name)} {_signed(component.value)}"
        for name, component in late.components.items()
        if name not in WITHIN and (name in PARTS or late.usual_ns[name]) and abs(component.value) >= least
    ]
    return ", ".join(texts or [f"all own time {_signed(late.excess.value)}"]) + " per step against its peers"


def _with_switches(tables: Tables, cause: LateCause) -> LateCause:
    """Steps of a pattern have no counters of their own: there the switches of the whole process must tell."""
    if cause.late.counts:
        return cause
    sql = """SELECT rank, involuntary_switches::DOUBLE / greatest(elapsed_ns, 1) * 1e9,
        (user_ns + system_ns) / greatest(elapsed_ns, 1) FROM ranks
        WHERE role = 'rank' AND involuntary_switches IS NOT NULL AND user_ns IS NOT NULL"""
    rates = {rank: (rate, busy) for rank, rate, busy in tables.query(sql)}
    own_rate = rates.pop(cause.late.rank, None)
    if own_rate is None or not rates:
        return cause
    usual = sorted(rate for rate, _ in rates.values())[len(rates) // 2]
    most = max(rate for rate, _ in rates.values())
    usual_busy = sorted(busy for _, busy in rates.values())[len(rates) // 2]
    if (
        own_rate[0] >= SWITCHES_A_SECOND
        and own_rate[0] >= TIMES_MORE * usual
        and own_rate[0] > most
        and own_rate[1] < LESS_CPU * usual_busy
    ):
        text = f"{own_rate[0]:.0f} involuntary switches a second, its peers {usual:.0f}"
        return LateCause(cause.late, "preemption", cause.late.excess.value, None, text)
    return cause


def in_a_range(tables: Tables, cause: LateCause) -> LateCause:
    """Where no part says more than that it is the rank's own: a range that the program has a name for may."""
    if cause.name != "other" and not cause.name.startswith("own compute"):
        return cause
    longer = longer_range(tables, cause.late.rank, MOST * lateness_ns(cause.late))
    if longer is None:
        return cause
    text = f"{longer.name} {seconds(longer.usual_ns + longer.excess_ns)} per step, its peers {seconds(longer.usual_ns)}"
    return LateCause(cause.late, longer.name, longer.excess_ns, longer.usual_ns, text)


SWITCHES_A_SECOND = 20.0
TIMES_MORE = 2.0
LESS_CPU = 0.9  # of the CPU time that its peers get


def _signed(value_ns: float) -> str:
    return f"{'-' if value_ns < 0 else '+'}{seconds(abs(value_ns))}"
