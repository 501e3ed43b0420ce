"""The steps of a run as arrays, one set per rank: as recorded, or else as the log of collectives gives them away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.analyse.step_patterns import PatternSteps, pattern_steps
from rankscope.analyse.warmup import warmup_steps
from rankscope.model import Tables

Array = Any  # of numpy
PARTS = ("data", "zero_grad", "forward", "backward", "optimizer", "checkpoint", "other")
COUNTS = ("minor_faults", "major_faults", "involuntary_switches", "voluntary_switches")
OF_WHICH = ("hidden", "gc", "runnable", "cpu", "process_cpu")
SQL = """
    SELECT process, rank, host, steps.* EXCLUDE (process) FROM steps JOIN ranks USING (process)
    WHERE role = 'rank' ORDER BY rank, number"""
TITLES = {
    "data": "data wait",
    "zero_grad": "zero_grad",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "checkpoint": "checkpoint",
    "compute": "compute",
    "other": "other",
    "exposed": "communication, exposed",
    "wait": "waiting for others",
    "transfer": "moving data",
    "hidden": "communication, hidden",
    "gc": "garbage collection",
    "runnable": "waiting for a CPU",
    "cpu": "CPU time of the thread",
    "process_cpu": "CPU time of the process",
}


@dataclass(slots=True)
class RankSteps:
    """One rank's steps. `own` parts and `exposed_ns` add up to `length_ns`."""

    rank: int
    host: str
    number: Array
    begin_ns: Array
    length_ns: Array
    own: dict[str, Array]  # by part, without what was blocked in collectives
    exposed_ns: Array
    of_which: dict[str, Array] = field(default_factory=dict)  # times within the parts, or beside them
    counts: dict[str, Array] = field(default_factory=dict)
    flagged: Array = None  # the recorder's own warm-up flag
    slots: list[str] = field(default_factory=list)  # steps of a pattern: which collective each gap comes before
    gaps_ns: Array = None  # steps × slots

    @property
    def own_ns(self) -> Array:
        return self.length_ns - self.exposed_ns


@dataclass(slots=True)
class Steps:
    """All ranks' steps, and which of them are the steady ones."""

    ranks: list[RankSteps]
    source: str  # "recorded", "pattern" or ""
    left_out: int = 0  # warm-up steps, by number: those before the first steady one
    first_steady: int = 0
    notes: list[str] = field(default_factory=list)

    def steady(self, one: RankSteps) -> Array:
        return one.number >= self.first_steady

    def common(self) -> Array:
        """The numbers of the steady steps that every rank has."""
        found = [one.number[self.steady(one)] for one in self.ranks]
        shared = found[0] if found else np.zeros(0, np.int64)
        for numbers in found[1:]:
            shared = np.intersect1d(shared, numbers)
        return shared

    def between(self, first: int, last: int) -> Steps:
        """Only the steps of these numbers, all of them taken as steady."""
        return Steps([_cut(one, (one.number >= first) & (one.number <= last)) for one in self.ranks], self.source)


def _cut(one: RankSteps, kept: Array) -> RankSteps:
    return replace(
        one,
        **{name: getattr(one, name)[kept] for name in ("number", "begin_ns", "length_ns", "exposed_ns", "flagged")},
        own={name: values[kept] for name, values in one.own.items()},
        of_which={name: values[kept] for name, values in one.of_which.items()},
        counts={name: values[kept] for name, values in one.counts.items()},
        gaps_ns=one.gaps_ns[kept] if one.gaps_ns is not None else None,
    )


_KEPT: WeakKeyDictionary[Tables, Steps] = WeakKeyDictionary()


def steps_of(tables: Tables) -> Steps:
    """Worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = _steps_of(tables)
    return _KEPT[tables]


def _steps_of(tables: Tables) -> Steps:
    recorded = tables.columns(SQL)
    if len(recorded["rank"]):
        made = Steps(_recorded(recorded), "recorded")
        made.notes += _losses(tables)
    else:
        found, notes = pattern_steps(tables)
        made = Steps([_from_pattern(one) for one in found], "pattern" if found else "", notes=notes)
    if made.ranks:
        made.first_steady, made.left_out = _first_steady(made.ranks)
    return made


def _recorded(columns: Mapping[str, Any]) -> list[RankSteps]:
    ranks = columns["rank"]
    edges = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1))
    return [_of_rows(columns, rows) for rows in np.split(np.arange(len(ranks)), edges[1:])]


def _of_rows(columns: Mapping[str, Any], rows: Array) -> RankSteps:
    def of(name: str) -> Array:
        return np.asarray(columns[name][rows], np.float64)

    own = {part: np.maximum(of(f"{part}_ns") - of(f"blocked_{part}_ns"), 0) for part in PARTS}
    # a collective that blocks outside the other parts is a part of its own: what it was not blocked for is the host's
    own["other"] = own["other"] + np.maximum(of("communication_ns") - of("blocked_communication_ns"), 0)
    begin, end = columns["begin_ns"][rows], columns["end_ns"][rows]
    return RankSteps(
        rank=int(columns["rank"][rows[0]]),
        host=columns["host"].values[columns["host"].codes[rows[0]]],
        number=columns["number"][rows],
        begin_ns=begin,
        length_ns=(end - begin).astype(np.float64),
        own=own,
        exposed_ns=of("exposed_ns"),
        of_which={name: of(f"{name}_ns") for name in OF_WHICH},
        counts={name: of(name) for name in COUNTS},
        flagged=np.asarray(columns["warmup"][rows], bool),
    )


def _from_pattern(found: PatternSteps) -> RankSteps:
    length = (found.end_ns - found.begin_ns).astype(np.float64)
    compute = found.gaps_ns.sum(axis=1)
    return RankSteps(
        rank=found.rank,
        host=found.host,
        number=found.number,
        begin_ns=found.begin_ns,
        length_ns=length,
        own={"compute": compute},
        exposed_ns=length - compute,
        flagged=np.zeros(len(length), bool),
        slots=found.slots,
        gaps_ns=found.gaps_ns,
    )


def _first_steady(ranks: list[RankSteps]) -> tuple[int, int]:
    """The number of the first steady step and how many before it are left out, judged by the slowest rank of each."""
    numbers = np.unique(np.concatenate([one.number for one in ranks]))
    longest, flagged = np.zeros(len(numbers)), np.zeros(len(numbers), bool)
    for one in ranks:
        at = np.searchsorted(numbers, one.number)
        longest[at] = np.maximum(longest[at], one.length_ns)
        flagged[at] |= one.flagged
    left_out = warmup_steps(longest, flagged)
    return (int(numbers[left_out]) if left_out < len(numbers) else int(numbers[-1]) + 1), left_out


def _losses(tables: Tables) -> list[str]:
    sql = """SELECT text, list(rank ORDER BY rank) FROM notes JOIN ranks USING (process)
        WHERE role = 'rank' AND contains(text, 'steps were overwritten') GROUP BY text ORDER BY text"""
    return [f"Rank {', '.join(map(str, ranks[:8]))}: {text}." for text, ranks in tables.query(sql)]
