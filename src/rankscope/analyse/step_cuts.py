"""How is a pattern that collectives repeat cut into steps?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.questions.steps.periods import commonest_runs, period_of

Array = Any  # of numpy
Pattern = tuple[int, ...]  # tokens, one for each collective of a step
Key = Callable[[Pattern], Any]  # of two that are as good the one with the lower key is taken
MOST_ROTATIONS = 64
LOOKED_AT = 4_096  # collectives of a rank, the latest
CLEARLY = 2.0  # times longer
EXTRAS = 2  # collectives between those of a step that do not break it


@dataclass(slots=True)
class Rotation:
    """One way to cut the pattern out of a rank's collectives."""

    places: Array  # steps × period
    idle_ns: float  # median before its first
    extras: int  # others in between


Rotations = dict[Pattern, Rotation]
Series = tuple[Array, Array]  # the tokens of a rank, and what it did before each of them (ns)


def common_period(series: Sequence[Series]) -> int:
    """The period that most ranks have: the times of a single one may suggest another."""
    periods = Counter(period_of(tokens[-LOOKED_AT:], idle_ns[-LOOKED_AT:][1:]) for tokens, idle_ns in series)
    return periods.most_common(1)[0][0] if series else 0


def rotations(tokens: Array, idle_ns: Array, period: int, key: Key) -> Rotations:
    """All ways to cut the commonest run of so many collectives, those with nearly as many steps as any."""
    tokens, idle_ns = tokens[-LOOKED_AT:], idle_ns[-LOOKED_AT:]
    if len(tokens) < period:
        return {}
    at = commonest_runs(tokens, period)[0]
    common = tuple(tokens[at : at + period].tolist())
    turned = {common[at:] + common[:at] for at in range(period)} if period <= MOST_ROTATIONS else {common}
    found = {rotation: whole_steps(tokens, rotation) for rotation in sorted(turned, key=key)}
    most = max(len(places) for places in found.values())
    return {
        rotation: Rotation(
            places,
            float(np.median(idle_ns[places[:, 0]])),
            int((places[:, -1] - places[:, 0] - period + 1).sum()),
        )
        for rotation, places in found.items()
        if len(places) and len(places) >= most - 1
    }


def best(found: Sequence[Rotations], among: set[Pattern], key: Key) -> Pattern:
    """The rotation that the ranks compute clearly longest before, or else the one with least in between."""
    idle = {one: float(np.median([rotations[one].idle_ns for rotations in found])) for one in among}
    extras = {one: sum(rotations[one].extras for rotations in found) for one in among}
    order = sorted(among, key=lambda one: (-idle[one], key(one)))
    if len(order) > 1 and idle[order[0]] < CLEARLY * idle[order[1]]:
        steps = {one: sum(len(rotations[one].places) for rotations in found) for one in among}
        order.sort(key=lambda one: (extras[one], -steps[one], -idle[one]))
    return order[0]


def whole_steps(tokens: Array, pattern: Pattern) -> Array:
    """Where the pattern is, a few other collectives in between allowed: steps × period."""
    period, at = len(pattern), 0
    exact = np.zeros(len(tokens), bool)
    if len(tokens) >= period:
        exact[: len(tokens) - period + 1] = True
        for place, wanted in enumerate(pattern):
            exact[: len(tokens) - period + 1] &= tokens[place : place + len(tokens) - period + 1] == wanted
    candidates = np.flatnonzero(tokens == pattern[0])
    within = np.arange(period).tolist()
    found: list[list[int]] = []
    list_of: list[int] = []
    for first, is_exact in zip(candidates.tolist(), exact[candidates].tolist(), strict=True):
        if first < at:
            continue
        if is_exact:
            found.append([first + place for place in within])
        else:
            list_of = list_of or tokens.tolist()
            places = _one_step(list_of, first, pattern)
            if not places:
                continue
            found.append(places)
        at = found[-1][-1] + 1
    return np.array(found, np.int64).reshape(-1, period)


def _one_step(tokens: list[int], at: int, pattern: Pattern) -> list[int]:
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
