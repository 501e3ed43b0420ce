"""How does each rank behave: one number a rank for each of the things in which ranks may differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS
from rankscope.model.tables import Column, Table, Tables, Unit, sql_list
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.collectives.waiting import Waiting, sums
from rankscope.questions.mpi.calls import IS_COMMUNICATION
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import steps_of
from rankscope.questions.wording import ranges

Array = Any  # of numpy
TO_SIGMA = 1.4826  # from the median of distances to what is a standard deviation of normal values
LEAST = {"ms": 1.0, "MiB": 1.0, "count": 10.0, "%": 5.0}  # a smaller spread is none
LEAST_SHARE = 0.01  # of the median
FAR = 3.5  # spreads from the median, from which a rank is told
TAIL_SIGMAS, TAIL_TIMES = 4.5, 6.0  # of a hundred thousand ranks none comes last more often than that by chance
ROUTINES = 8  # those that take most time
KNOWN = 0.5  # of the ranks that must have a number
FACTS = """
    SELECT process, rank, host, coalesce(mpi_elapsed_ns, elapsed_ns) / 1e6, (user_ns + system_ns) / 1e6,
        max_rss_bytes / 1048576,
        involuntary_switches, major_faults FROM ranks WHERE role = 'rank' ORDER BY rank"""
ABOUT = (("elapsed", "ms"), ("CPU time", "ms"), ("memory", "MiB"), ("switches", "count"), ("major faults", "count"))
NAMED = f"""
    WITH most AS (
        SELECT name FROM tallies WHERE {IS_COMMUNICATION} AND kind = 'call' GROUP BY name
        ORDER BY sum(total_ns) DESC, name LIMIT {ROUTINES})
    SELECT process, name, sum(total_ns) / 1e6 AS total FROM tallies
    WHERE {IS_COMMUNICATION} AND kind = 'call' AND name IN (SELECT name FROM most) GROUP BY process, name"""
LOGGED = f"SELECT 1 FROM untraced_events WHERE layer IN {sql_list(COLLECTIVE_LAYERS)} AND sequence > 0 LIMIT 1"


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing in which ranks may differ."""

    name: str
    unit: str  # "ms", "MiB", "count" or "%"
    values: Array  # by rank, nan where it is not known
    adds_up: int = 0  # shares of one whole, which so many collectives make: that of several ranks is the sum
    chance: float = 0.0  # a spread that chance alone can make

    @property
    def usual(self) -> float:
        return float(np.nanmedian(self.values))

    @property
    def spread(self) -> float:
        """How far ranks usually are from the median: as a standard deviation, but no rank alone can change it."""
        apart = float(np.nanmedian(np.abs(self.values - self.usual)))
        return max(TO_SIGMA * apart, LEAST_SHARE * abs(self.usual), LEAST[self.unit], self.chance)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """All ranks of a run and what is measured of them."""

    ranks: Sequence[int]
    hosts: Sequence[str]
    measures: Sequence[Measure]


_KEPT: WeakKeyDictionary[Tables, Behaviour] = WeakKeyDictionary()


def behaviour(tables: Tables) -> Behaviour:
    """Worked out once for each run that is open; waiting only where the logs were read."""
    if tables not in _KEPT:
        _KEPT[tables] = _behaviour(tables)
    return _KEPT[tables]


def _behaviour(tables: Tables) -> Behaviour:
    rows = tables.query(FACTS)
    ranks = [row[1] for row in rows]
    place = {row[0]: at for at, row in enumerate(rows)}
    columns = zip(*(row[3:] for row in rows), strict=True) if rows else ()
    measures = [
        Measure(name, unit, np.array([np.nan if value is None else float(value) for value in values]))
        for (name, unit), values in zip(ABOUT, columns, strict=False)
    ]
    measures += _routines(tables, place)
    measures += _steps(tables, {rank: at for at, rank in enumerate(ranks)})
    if len(ranks) > 1 and tables.query(LOGGED):
        measures += _waiting(tables, len(ranks))
    return Behaviour(ranks, [row[2] for row in rows], telling(measures))


def telling(measures: Sequence[Measure]) -> list[Measure]:
    """Those that are known of enough ranks, and not nothing for all of them."""
    known = [
        measure for measure in measures if np.isfinite(measure.values).sum() >= max(2.0, KNOWN * len(measure.values))
    ]
    return [measure for measure in known if np.nanmax(np.abs(measure.values)) > 0]


def _routines(tables: Tables, place: dict[int, int]) -> list[Measure]:
    columns = tables.columns(NAMED)
    names = columns["name"]
    measures = []
    for code, name in enumerate(names.values):
        values = np.zeros(len(place))
        for process, total in zip(
            columns["process"][names.codes == code].tolist(),
            columns["total"][names.codes == code].tolist(),
            strict=True,
        ):
            if process in place:
                values[place[process]] = total
        measures.append(Measure(f"in {name}", "ms", values))
    return sorted(measures, key=lambda measure: (-float(measure.values.sum()), measure.name))


def _steps(tables: Tables, place: dict[int, int]) -> list[Measure]:
    steps = steps_of(tables)
    values = np.full(len(place), np.nan)
    for rank in steps.ranks:
        own_ns = rank.own_ns[steps.steady(rank)]
        if len(own_ns) and rank.rank in place:
            values[place[rank.rank]] = float(own_ns.mean()) / 1e6
    return [Measure("own time in a step", "ms", values)] if np.isfinite(values).any() else []


def _waiting(tables: Tables, ranks: int) -> list[Measure]:
    known = collectives_of(tables)
    if not known.splits or len(known.log.ranks) != ranks:
        return []
    waiting = sums(known)
    return [
        Measure("waiting in collectives", "ms", waiting.wait_ns / 1e6),
        Measure("wait caused", "ms", waiting.caused_ns / 1e6, chance=_chance(waiting) / 1e6),
    ]


def _chance(waiting: Waiting) -> float:
    """Ns: a rank that comes last no more often than others may still do so this much more often in few collectives."""
    total = max(1.0, float(waiting.last.sum()))
    often = total / max(1, len(waiting.last))
    return float(waiting.all_caused_ns) / total * (TAIL_SIGMAS * math.sqrt(often) + TAIL_TIMES) / FAR


# ---------------------------------------------------------------- which ranks behave alike?
COLUMNS = (
    Column("group", Unit.NAME, "Group", "number, from the largest group on"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks in the group"),
    Column("hosts", Unit.COUNT, "Hosts", "number of hosts they are on"),
    Column("which", Unit.NAME, "Which", "the ranks of the group"),
    Column(
        "differs",
        Unit.NAME,
        "Differs from the first group in",
        "the measures in which it is cut from the first group, at most three, the farthest first by spreads: its "
        "mean and that of the first group",
    ),
)
FEWEST = 4  # ranks
GAP = 0.1  # of the median: between two ranks that follow each other, from which they are of different kinds,
SPREADS = 4.0  # and so many spreads
MOST_TOLD = 3


def alike(tables: Tables, selection: Selection = ALL) -> Table:
    """Groups of ranks between which there is a gap in something that is measured, the largest group first."""
    return ranks_alike(behaviour(tables), selection)


def ranks_alike(measured: Behaviour, selection: Selection = ALL) -> Table:
    """The same of ranks whose behaviour is known already."""
    table = Table("alike", "Ranks that behave alike", COLUMNS, [])
    if len(measured.ranks) < FEWEST or not measured.measures:
        return table
    kinds = np.stack([kinds_of(measure) for measure in measured.measures], axis=1)
    _, which, sizes = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    order = np.argsort(-sizes, kind="stable").tolist()
    first = np.flatnonzero(which == order[0])
    for number, group in enumerate(order, 1):
        places = np.flatnonzero(which == group)
        ranks = [measured.ranks[at] for at in places.tolist()]
        if selection.ranks is None or selection.ranks & set(ranks):
            hosts = len({measured.hosts[at] for at in places.tolist()})
            differences = _differences(measured, kinds, places, first) if number > 1 else ""
            table.rows.append((number, len(ranks), hosts, ranges(ranks), differences))
    return arranged(table, selection)


def kinds_of(measure: Measure) -> Array:
    """The ranks in order of the measure, numbered anew after each gap; those without a number are a kind too."""
    known = np.flatnonzero(np.isfinite(measure.values))
    order = known[np.argsort(measure.values[known], kind="stable")]
    least = max(GAP * abs(measure.usual), SPREADS * measure.spread)
    gaps = np.diff(measure.values[order]) > least
    kinds = np.full(len(measure.values), -1)
    kinds[order] = np.concatenate([[0], np.cumsum(gaps)])
    return kinds


def _differences(measured: Behaviour, kinds: Array, places: Array, first: Array) -> str:
    """The measures in which a group is of another kind, the farthest first: its mean, and that of the first group."""
    differences = []
    for at, measure in enumerate(measured.measures):
        if kinds[places[0], at] != kinds[first[0], at]:
            own_value, usual = (float(np.nanmean(measure.values[some])) for some in (places, first))
            if np.isfinite(own_value) and np.isfinite(usual):
                unit = "" if measure.unit == "count" else f" {measure.unit}"
                text = f"{measure.name} {_short(own_value)} against {_short(usual)}{unit}"
                differences.append((abs(own_value - usual) / measure.spread, text))
    return "; ".join(text for _, text in sorted(differences, reverse=True)[:MOST_TOLD])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
