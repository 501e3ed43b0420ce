"""After how many collectives does a program begin again?"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
LONGEST = 2_048
REPEATS = 4  # times that a period must fit into what there is
AGREES = 0.6  # of the tokens that must be equal to the one a period before
NEARLY = 0.99  # of the best agreement: the shortest period that has it is taken
MOSTLY = 0.75  # agreement at which a shorter period is looked at
COVERED = 0.85  # of the time between collectives that must lie in the runs of a shorter period
EXPLAINED = 0.75  # of the variance of the idle times, by the place within a longer period
VARIES = 0.1  # standard deviation of the logarithm of the idle times: below, they are all alike
MULTIPLES = 8


def period_of(tokens: Array, idle_ns: Array) -> int:
    """The shortest period of the tokens, or the multiple that the times show; 0 where there is none."""
    agreement = _agreement(tokens)
    if not len(agreement) or agreement.max() < AGREES:
        return 0
    longest = int(np.flatnonzero(agreement >= NEARLY * agreement.max())[0]) + 1
    shorter = (np.flatnonzero(agreement[: longest - 1] >= MOSTLY) + 1).tolist()
    period = next((lag for lag in shorter if _is_regular(tokens, idle_ns, lag)), longest)
    return period * _multiple(tokens, idle_ns, period)


def _is_regular(tokens: Array, idle_ns: Array, period: int) -> bool:
    """Whether the commonest run of so many tokens takes about the same time wherever it is.

    A loop with something extra every tenth step has the long period of ten steps as well; a step of many equal
    collectives nearly has the period of one. Only in the first is the short one regular, with little time left out.
    """
    places = commonest_runs(tokens, period)
    summed = np.concatenate([[0.0], np.cumsum(np.concatenate([[0.0], idle_ns]))])
    lengths = (summed[places + period] - summed[places])[places > 0]
    if len(lengths) < REPEATS:
        return False
    low, middle, high = np.percentile(lengths, (5, 50, 95))
    covered = sum(summed[at + period] - summed[at] for at in _apart(places, period))
    return bool(high - low <= middle and covered >= COVERED * summed[-1])


def _apart(places: Array, length: int) -> list[int]:
    """Of runs of that length those that do not overlap, from the first on."""
    kept: list[int] = []
    for at in places.tolist():
        if not kept or at >= kept[-1] + length:
            kept.append(at)
    return kept


def commonest_runs(tokens: Array, length: int) -> Array:
    """Where the run of so many tokens is that comes most often."""
    numbers = np.random.default_rng(0).integers(1, 2**63, int(tokens.max()) + 1, dtype=np.uint64)[tokens]
    digest = np.zeros(len(tokens) - length + 1, np.uint64)
    for at in range(length):  # a polynomial of the tokens, modulo 2^64: equal runs have equal ones
        digest = digest * np.uint64(6_364_136_223_846_793_005) + numbers[at : at + len(digest)]
    _, kinds, counts = np.unique(digest, return_inverse=True, return_counts=True)
    return np.flatnonzero(kinds.reshape(-1) == np.argmax(counts))


def _agreement(tokens: Array) -> Array:
    """For each lag from 1: the share of tokens that are equal to the one so much later."""
    longest = min(LONGEST, len(tokens) // REPEATS)
    return np.array([float(np.mean(tokens[:-lag] == tokens[lag:])) for lag in range(1, longest + 1)])


def _multiple(tokens: Array, idle_ns: Array, period: int) -> int:
    """How many periods make a step where equal collectives alternate in what the program does before them."""
    first, last = _longest_stretch(tokens, period)
    logs = np.log(np.maximum(idle_ns[first : last - 1].astype(np.float64), 1_000.0))
    if len(logs) < REPEATS or float(logs.std()) < VARIES:
        return 1
    best, chosen = _explained(logs, period), 1
    for times in range(2, MULTIPLES + 1):
        if len(logs) < REPEATS * period * times:
            break
        share = _explained(logs, period * times)
        if share >= EXPLAINED and 1 - share < 0.5 * (1 - best):
            best, chosen = share, times
    return chosen


def _explained(values: Array, period: int) -> float:
    """The share of the variance that is gone when each place within the period has its own mean."""
    whole = len(values) // period * period
    total = float(values[:whole].var())
    if not whole or not total:
        return 0.0
    table = values[:whole].reshape(-1, period)
    places = period - 1
    left = float(table.var(axis=0).mean()) * len(table) / max(len(table) - 1, 1)
    return 1 - left / total if places else 0.0


def _longest_stretch(tokens: Array, period: int) -> tuple[int, int]:
    """The longest run of tokens that the period holds for without a break."""
    broken = np.flatnonzero(tokens[:-period] != tokens[period:])
    edges = np.concatenate([[-1], broken, [len(tokens) - period]])
    at = int(np.argmax(np.diff(edges)))
    return int(edges[at]) + 1, int(edges[at + 1]) + period
