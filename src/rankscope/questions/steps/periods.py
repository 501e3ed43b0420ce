"""After how many collectives does a program begin again?"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS
from rankscope.model.tables import Words

# ---------------------------------------------------------------------------------------------------------------------
# The log of one rank's collectives as numbers in which a pattern can be looked for.
Array = Any  # of numpy
SMALL_BYTES = 64  # counters, flags, negotiations of Horovod: no steps of their own where larger ones come too
MOST_KINDS = 16  # of logs that are remembered: nearly always all ranks do the same
LATER = 1 << 30


@dataclass(slots=True)
class LogKind:
    """What collectives a log holds, in order: the same for all ranks that do the same."""

    name: Words
    group: Words
    bytes: Array
    tokens: Array  # a number for each name, group and size
    kept: Array  # places of those that may belong to a step
    cut: dict[Any, Any] = field(default_factory=dict)  # by pattern: its places in the log

    def is_of(self, name: Words, group: Words, size_bytes: Array) -> bool:
        return (
            len(size_bytes) == len(self.bytes)
            and np.array_equal(size_bytes, self.bytes)
            and np.array_equal(name.codes, self.name.codes)
            and np.array_equal(group.codes, self.group.codes)
            and name.values == self.name.values
            and group.values == self.group.values
        )


@dataclass(slots=True)
class RankLog:
    """The collectives of one rank in the order in which it entered them."""

    process: int
    kind: LogKind
    sequence: Array
    start_ns: Array
    end_ns: Array  # when the rank went on; of nonblocking ones of MPI both are those of the wait, else of the call

    @property
    def series(self) -> tuple[Array, Array]:
        """The kept tokens, and what the program did before each of them and after the kept one before; first 0."""
        chosen = self.kind.kept
        idle = np.maximum(self.start_ns[chosen][1:] - self.end_ns[chosen][:-1], 0)
        return self.kind.tokens[chosen], np.concatenate([[0], idle])


class CollectiveTokens:
    """Gives the same number to the same collective on every rank."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, int], int] = {}
        self._places: dict[str, int] = {}  # of names and groups in the order in which they came
        self._told: list[tuple[str, str, int]] = []
        self._kinds: list[LogKind] = []
        self._lock = Lock()
        self.is_settled = False  # then words come from several threads, and their order means nothing

    def name(self, token: int) -> str:
        return self._told[token][0]

    def key(self, pattern: tuple[int, ...]) -> Any:
        """An order of patterns that does not depend on who came first where that is chance."""
        return [(self._key("n", name), self._key("g", group), size) for name, group, size in map(self._at, pattern)]

    def _at(self, token: int) -> tuple[str, str, int]:
        return self._told[token]

    def _key(self, kind: str, word: str) -> tuple[int, str]:
        place = self._places.get(kind + word, LATER)
        return place, word if place == LATER else ""

    def kind(self, name: Words, group: Words, size_bytes: Array) -> LogKind:
        """What a log with these columns holds."""
        for known in list(self._kinds):
            if known.is_of(name, group, size_bytes):
                return known
        log_kind = LogKind(name, group, size_bytes, self._tokens(name, group, size_bytes), _kept(size_bytes))
        self._kinds = [log_kind, *self._kinds[: MOST_KINDS - 1]]
        return log_kind

    def _tokens(self, name: Words, group: Words, size_bytes: Array) -> Array:
        sizes, size = np.unique(size_bytes, return_inverse=True)
        codes = (name.codes.astype(np.int64) * len(group.values) + group.codes) * len(sizes) + size.reshape(-1)
        present, first, place = np.unique(codes, return_index=True, return_inverse=True)
        numbers = np.zeros(len(present), np.int64)
        with self._lock:
            for at in np.argsort(first).tolist():
                rest, of_size = divmod(int(present[at]), len(sizes))
                of_name, of_group = divmod(rest, len(group.values))
                numbers[at] = self._number(name.values[of_name], group.values[of_group], int(sizes[of_size]))
        return numbers[place.reshape(-1)]

    def _number(self, name: str, group: str, size_bytes: int) -> int:
        if not self.is_settled:
            for word in ("n" + name, "g" + group):
                self._places.setdefault(word, len(self._places))
        token = (name, group, size_bytes)
        if token not in self._numbers:
            self._told.append(token)
            self._numbers[token] = len(self._told) - 1
        return self._numbers[token]


def _kept(size_bytes: Array) -> Array:
    small = size_bytes <= SMALL_BYTES
    return np.arange(len(small)) if small.all() else np.flatnonzero(~small)


def rank_logs(columns: Mapping[str, Any], wanted: Container[int], words: CollectiveTokens) -> Iterator[RankLog]:
    """The logs in some records, which have each process's together."""
    process, layer = columns["process"], columns["layer"]
    known = np.isin(layer.codes, [at for at, name in enumerate(layer.values) if name in COLLECTIVE_LAYERS])
    good = known & (columns["sequence"] > 0)
    edges = [0, *(np.flatnonzero(np.diff(process)) + 1).tolist(), len(process)]
    for first, last in pairwise(edges):
        if first < last and int(process[first]) in wanted and good[first:last].any():
            yield _rank_log(columns, first, last, good[first:last], words)


def _rank_log(columns: Mapping[str, Any], first: int, last: int, good: Array, words: CollectiveTokens) -> RankLog:
    start_ns = columns["start_ns"][first:last]
    rows: Any = slice(first, last)
    if not good.all() or bool((np.diff(start_ns) < 0).any()):
        chosen = np.flatnonzero(good)
        rows = first + chosen[np.argsort(start_ns[chosen], kind="stable")]

    def of(name: str) -> Words:
        return Words(columns[name].codes[rows], columns[name].values)

    kind = words.kind(of("name"), of("group"), columns["bytes"][rows])
    process = int(columns["process"][first])
    return RankLog(process, kind, columns["sequence"][rows], columns["start_ns"][rows], columns["end_ns"][rows])


# ---------------------------------------------------------------- periods
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
    period = _without_repeats(tokens, idle_ns, period)
    return period * _multiple(tokens, idle_ns, period)


def _without_repeats(tokens: Array, idle_ns: Array, period: int) -> int:
    """The period of the commonest run itself, where the times do not say that it is one step.

    Where times vary, several steps in a row take about the same time more often than single ones do.
    """
    places = np.array(_apart(commonest_runs(tokens, period), period))
    run = tokens[places[0] : places[0] + period]
    inner = next((lag for lag in range(1, period // 2 + 1) if np.array_equal(run[lag:], run[:-lag])), period)
    if inner == period:
        return period
    idle = np.concatenate([[0.0], idle_ns])[places[:, None] + np.arange(period)]
    logs = np.log(np.maximum(idle[places > 0].astype(np.float64), 1_000.0))
    by_place = [_left(logs[:, at : at + 1]) for at in range(period)]
    by_inner = [_left(logs[:, at::inner]) for at in range(inner) for _ in range(at, period, inner)]
    total, left, left_inner = (
        float(logs.var()) if logs.size else 0.0,
        float(np.mean(by_place)),
        float(np.mean(by_inner)),
    )
    is_step = left <= (1 - EXPLAINED) * total and left < 0.5 * left_inner
    return period if is_step else inner


def _left(values: Array) -> float:
    """The variance of some values, as that of more like them."""
    return float(values.var()) * values.size / max(values.size - 1, 1) if values.size else 0.0


def distinct_period(tokens: Array) -> int:
    """The shortest period of two tokens or more that all differ; 0 where there is none.

    On a busy machine the times of a loop vary too much to show its period, and a longer one, of epochs say, may not
    repeat exactly. Collectives that all differ are hardly a part that repeats within a step."""
    agreement = _agreement(tokens)
    for lag in (np.flatnonzero(agreement[1:] >= MOSTLY) + 2).tolist():
        at = commonest_runs(tokens, lag)[0]
        if len(np.unique(tokens[at : at + lag])) == lag:
            return int(lag)
    return 0


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
    starts: list[int] = []
    for at in places.tolist():
        if not starts or at >= starts[-1] + length:
            starts.append(at)
    return starts


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
    length = len(values) // period * period
    total = float(values[:length].var())
    if not length or not total:
        return 0.0
    table = values[:length].reshape(-1, period)
    places = period - 1
    left = float(table.var(axis=0).mean()) * len(table) / max(len(table) - 1, 1)
    return 1 - left / total if places else 0.0


def _longest_stretch(tokens: Array, period: int) -> tuple[int, int]:
    """The longest run of tokens that the period holds for without a break."""
    broken = np.flatnonzero(tokens[:-period] != tokens[period:])
    edges = np.concatenate([[-1], broken, [len(tokens) - period]])
    at = int(np.argmax(np.diff(edges)))
    return int(edges[at]) + 1, int(edges[at + 1]) + period
