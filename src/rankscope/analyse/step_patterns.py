"""Where are the steps of a program that tells of none? In the pattern that its collectives repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.analyse.periods import commonest_runs, period_of
from rankscope.model import Tables

Array = Any
SMALL_BYTES = 64  # counters, flags, negotiations of Horovod: no steps of their own where larger ones come too
FEWEST_STEPS = 8
LEAST_SHARE = 0.6  # of the collectives that must lie in steps
MOST_ROTATIONS = 64
MOST_TOLD = 4
ASKED_RANKS = 6  # whose collectives are looked at for the period
LOOKED_AT = 4_096  # collectives of each, the latest
CLEARLY = 2.0  # times longer
EXTRAS = 2  # collectives between those of a step that do not break it
MOST_RECORDS = 4_000_000  # of all ranks: each of them is looked at, one after the other
SQL = """
    SELECT process, rank, host, layer, name, "group", coalesce(sequence, 0) AS sequence, start_ns,
        coalesce(call_ns + start_ns, end_ns, start_ns) AS end_ns, coalesce(bytes, 0) AS bytes
    FROM untraced_events JOIN ranks USING (process)
    WHERE role = 'rank' AND layer IN ('mpi', 'gloo', 'nccl') AND sequence > 0 ORDER BY rank, start_ns"""
COUNTED = "SELECT count(*) FROM untraced_events WHERE layer IN ('mpi', 'gloo', 'nccl') AND sequence > 0"


@dataclass(slots=True)
class PatternSteps:
    """The steps of one rank: from the end of one step's last collective to the end of the next one's."""

    rank: int
    host: str
    slots: list[str]
    number: Array
    begin_ns: Array
    end_ns: Array
    gaps_ns: Array  # steps × slots: outside collectives, before each of them


@dataclass(slots=True)
class _Rank:
    rank: int
    host: str
    tokens: Array
    start_ns: Array
    end_ns: Array
    kept: Array  # places of those that may belong to a step
    anchor: list[tuple[str, int]]  # group and sequence of each

    @property
    def idle_ns(self) -> Array:
        """What the program did before each kept collective and after the kept one before; 0 for the first."""
        idle = np.maximum(self.start_ns[self.kept][1:] - self.end_ns[self.kept][:-1], 0)
        return np.concatenate([[0], idle])


@dataclass(slots=True)
class _Rotation:
    """One way to cut the pattern out of a rank's collectives."""

    places: Array  # steps × period, among the kept ones
    idle_ns: float  # median before its first
    extras: int  # others in between


def pattern_steps(tables: Tables) -> tuple[list[PatternSteps], list[str]]:
    """The steps of all ranks and what to say of them; none where any rank's collectives have no period."""
    if tables.query(COUNTED)[0][0] > MOST_RECORDS:
        return [], [f"Steps were not looked for in the pattern of more than {MOST_RECORDS:,} collectives."]
    ranks, words = _ranks(tables.columns(SQL))
    asked = ranks[:: max(1, len(ranks) // ASKED_RANKS)]
    period = _common_period(asked)
    cut = [_rotations(one, period) for one in asked] if period else []
    if not cut or not all(cut):
        return [], []
    shared = set.intersection(*(set(one) for one in cut))
    # one late rank must not begin its steps elsewhere than the others do
    best = _best(cut, shared) if shared else ()
    made = []
    for one in ranks:
        chosen = best or _own_rotation(one, period)
        places = _whole_steps(one.tokens[one.kept], chosen) if chosen else np.zeros((0, 1), np.int64)
        if len(places) < FEWEST_STEPS or len(places) * period < LEAST_SHARE * len(one.kept):
            return [], []
        rows = one.kept[places]  # steps × period: places in the log
        rows = rows[rows[:, 0] > 0]  # nobody knows when the first of the log began
        steps = _measured(one, rows, [words[token] for token in chosen])
        made.append((steps, [one.anchor[at] for at in rows[:, 0]]))
    _number([one for one, _ in made], [anchors for _, anchors in made])
    steps_of_all = [one for one, _ in made]
    least = min(len(one.number) for one in steps_of_all)
    told = f"Steps are those of a pattern that the collectives repeat ({_slots(steps_of_all[0].slots)})"
    return steps_of_all, [f"{told}: {least} of them; time inside collectives is communication, all else compute."]


def _slots(slots: list[str]) -> str:
    """The collectives of a step in few words: 2 MPI_Allreduce, MPI_Bcast."""
    runs: list[tuple[int, str]] = []
    for slot in slots:
        if runs and runs[-1][1] == slot:
            runs[-1] = (runs[-1][0] + 1, slot)
        else:
            runs.append((1, slot))
    told = [f"{count} {slot}" if count > 1 else slot for count, slot in runs]
    return ", ".join(told[:MOST_TOLD]) + (" …" if len(told) > MOST_TOLD else "")


def _own_rotation(one: _Rank, period: int) -> tuple[int, ...]:
    """Of a rank whose groups are others than those of the rest."""
    found = _rotations(one, period)
    return _best([found], set(found)) if found else ()


def _common_period(ranks: list[_Rank]) -> int:
    """The period that most ranks have: the times of a single one may suggest another."""
    periods = Counter(period_of(one.tokens[one.kept][-LOOKED_AT:], one.idle_ns[-LOOKED_AT:][1:]) for one in ranks)
    return periods.most_common(1)[0][0] if ranks else 0


def _ranks(columns: Mapping[str, Any]) -> tuple[list[_Rank], list[str]]:
    if not len(columns["rank"]):
        return [], []
    name, group = columns["name"], columns["group"]
    keys = np.stack([name.codes, group.codes, columns["bytes"]], axis=1)
    distinct, tokens = np.unique(keys, axis=0, return_inverse=True)
    tokens = tokens.reshape(-1)
    words = [name.values[code] for code, _, _ in distinct.tolist()]
    made = []
    for rows in np.split(np.arange(len(tokens)), np.flatnonzero(np.diff(columns["rank"])) + 1):
        groups = [group.values[code] for code in group.codes[rows]]
        made.append(
            _Rank(
                rank=int(columns["rank"][rows[0]]),
                host=columns["host"].values[columns["host"].codes[rows[0]]],
                tokens=tokens[rows],
                start_ns=columns["start_ns"][rows],
                end_ns=columns["end_ns"][rows],
                kept=_kept(columns["bytes"][rows] <= SMALL_BYTES),
                anchor=list(zip(groups, columns["sequence"][rows].tolist(), strict=True)),
            )
        )
    return made, words


def _kept(small: Array) -> Array:
    return np.arange(len(small)) if small.all() else np.flatnonzero(~small)


def _rotations(one: _Rank, period: int) -> dict[tuple[int, ...], _Rotation]:
    """All ways to cut the commonest run of so many collectives, those with nearly as many steps as any."""
    tokens, idle = one.tokens[one.kept][-LOOKED_AT:], one.idle_ns[-LOOKED_AT:]
    if len(tokens) < period:
        return {}
    at = commonest_runs(tokens, period)[0]
    common = tuple(tokens[at : at + period].tolist())
    turned = {common[at:] + common[:at] for at in range(period)} if period <= MOST_ROTATIONS else {common}
    found = {rotation: _whole_steps(tokens, rotation) for rotation in sorted(turned)}
    most = max(len(places) for places in found.values())
    return {
        rotation: _Rotation(
            places,
            float(np.median(idle[places[:, 0]])),
            int((places[:, -1] - places[:, 0] - period + 1).sum()),
        )
        for rotation, places in found.items()
        if len(places) and len(places) >= most - 1
    }


def _best(found: list[dict[tuple[int, ...], _Rotation]], among: set[tuple[int, ...]]) -> tuple[int, ...]:
    """The rotation that the ranks compute clearly longest before, or else the one with least in between."""
    idle = {one: float(np.median([rotations[one].idle_ns for rotations in found])) for one in among}
    extras = {one: sum(rotations[one].extras for rotations in found) for one in among}
    order = sorted(among, key=lambda one: (-idle[one], one))
    if len(order) > 1 and idle[order[0]] < CLEARLY * idle[order[1]]:
        steps = {one: sum(len(rotations[one].places) for rotations in found) for one in among}
        order.sort(key=lambda one: (extras[one], -steps[one], -idle[one]))
    return order[0]


def _whole_steps(tokens: Array, pattern: tuple[int, ...]) -> Array:
    """Where the pattern is, a few other collectives in between allowed: steps × period."""
    list_of, found, at = tokens.tolist(), [], 0
    while at < len(list_of):
        places = _one_step(list_of, at, pattern)
        if places:
            found.append(places)
            at = places[-1] + 1
        else:
            at += 1
    return np.array(found, np.int64).reshape(-1, len(pattern))


def _one_step(tokens: list[int], at: int, pattern: tuple[int, ...]) -> list[int]:
    places: list[int] = []
    extras = 0
    for wanted in pattern:
        while at < len(tokens) and tokens[at] != wanted:
            at, extras = at + 1, extras + 1
            if not places or extras > EXTRAS:
                return []
        if at == len(tokens):
            return []
        places.append(at)
        at += 1
    return places


def _measured(one: _Rank, rows: Array, slots: list[str]) -> PatternSteps:
    begin, end = one.end_ns[rows[:, 0] - 1], one.end_ns[rows[:, -1]]
    idle = np.concatenate([[0.0], np.maximum(one.start_ns[1:] - np.maximum.accumulate(one.end_ns)[:-1], 0)])
    summed = np.concatenate([[0.0], np.cumsum(idle)])
    before = np.concatenate([rows[:, :1] - 1, rows[:, :-1]], axis=1)
    gaps = summed[rows + 1] - summed[before + 1]
    return PatternSteps(one.rank, one.host, slots, np.arange(1, len(rows) + 1), begin, end, gaps)


def _number(found: list[PatternSteps], anchors: list[list[tuple[str, int]]]) -> None:
    """The same number on every rank for the same step: by the first collective where all ranks share its group."""
    groups = {group for told in anchors for group, _ in told}
    if len(groups) == 1:
        places = {sequence: at for at, sequence in enumerate(sorted({at for told in anchors for _, at in told}), 1)}
        for one, told in zip(found, anchors, strict=True):
            one.number = np.array([places[sequence] for _, sequence in told])
        return
    most = max(len(one.number) for one in found)
    for one in found:  # the end of a log is whole, its beginning may be overwritten
        one.number = np.arange(most - len(one.number) + 1, most + 1)
