"""Where are the steps of a program that tells of none? In the pattern that its collectives repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS, Role
from rankscope.model.tables import Tables, sql_list
from rankscope.questions.collectives.matching import WHO
from rankscope.questions.disk_matrix import in_threads
from rankscope.questions.steps.arrays import RankSteps, Same, StepFile
from rankscope.questions.steps.periods import (
    CollectiveTokens,
    LogKind,
    RankLog,
    commonest_runs,
    distinct_period,
    period_of,
    rank_logs,
)

# ---------------------------------------------------------------------------------------------------------------------
# How is a pattern that collectives repeat cut into steps?
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


def common_periods(series: Sequence[Series]) -> Iterator[int]:
    """Periods to try in turn, each that of most ranks: the times of a single one may suggest another."""
    latest = [(tokens[-LOOKED_AT:], idle_ns[-LOOKED_AT:][1:]) for tokens, idle_ns in series]
    if latest:
        yield Counter(period_of(tokens, idle_ns) for tokens, idle_ns in latest).most_common(1)[0][0]
        yield Counter(distinct_period(tokens) for tokens, _ in latest).most_common(1)[0][0]


def rotations(tokens: Array, idle_ns: Array, period: int, key: Key) -> Rotations:
    """All ways to cut the commonest run of so many collectives, those with nearly as many steps as any."""
    tokens, idle_ns = tokens[-LOOKED_AT:], idle_ns[-LOOKED_AT:]
    if len(tokens) < period:
        return {}
    at = commonest_runs(tokens, period)[0]
    common = tuple(tokens[at : at + period].tolist())
    turned = {common[at:] + common[:at] for at in range(period)} if period <= MOST_ROTATIONS else {common}
    places_of = {rotation: whole_steps(tokens, rotation) for rotation in sorted(turned, key=key)}
    most = max(len(places) for places in places_of.values())
    return {
        rotation: Rotation(
            places,
            float(np.median(idle_ns[places[:, 0]])),
            int((places[:, -1] - places[:, 0] - period + 1).sum()),
        )
        for rotation, places in places_of.items()
        if len(places) and len(places) >= most - 1
    }


def best(of_logs: Sequence[Rotations], among: set[Pattern], key: Key) -> Pattern:
    """The rotation that the ranks compute clearly longest before, or else the one with least in between."""
    idle = {pattern: float(np.median([rotations[pattern].idle_ns for rotations in of_logs])) for pattern in among}
    extras = {pattern: sum(rotations[pattern].extras for rotations in of_logs) for pattern in among}
    order = sorted(among, key=lambda pattern: (-idle[pattern], key(pattern)))
    if len(order) > 1 and idle[order[0]] < CLEARLY * idle[order[1]]:
        steps = {pattern: sum(len(rotations[pattern].places) for rotations in of_logs) for pattern in among}
        order.sort(key=lambda pattern: (extras[pattern], -steps[pattern], -idle[pattern]))
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
    step_places: list[list[int]] = []
    list_of: list[int] = []
    for first, is_exact in zip(candidates.tolist(), exact[candidates].tolist(), strict=True):
        if first < at:
            continue
        if is_exact:
            step_places.append([first + place for place in within])
        else:
            list_of = list_of or tokens.tolist()
            places = _one_step(list_of, first, pattern)
            if not places:
                continue
            step_places.append(places)
        at = step_places[-1][-1] + 1
    return np.array(step_places, np.int64).reshape(-1, period)


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


# ---------------------------------------------------------------- inferred
# of numpy
FEWEST_STEPS = 8
LEAST_SHARE = 0.6  # of the collectives that must lie in steps
MOST_TOLD = 4
MANY_MORE = 1.5
ASKED_RANKS = 6  # whose collectives are looked at for the period
# A nonblocking collective of MPI stands where the program stood still for it: in the call that waited, before its end.
WHO_OF = "SELECT process, rank, host FROM ranks"
LOGGED = f"layer IN {sql_list(COLLECTIVE_LAYERS)} AND sequence > 0"
HAVING = f"SELECT DISTINCT process FROM untraced_events WHERE {LOGGED}"
SQL = f"""
    SELECT process, layer, name, "group", sequence, bytes,
        CASE WHEN waited THEN greatest(start_ns, end_ns - call_ns) ELSE start_ns END AS start_ns,
        CASE WHEN waited THEN end_ns ELSE coalesce(call_ns + start_ns, end_ns, start_ns) END AS end_ns
    FROM (
        SELECT rank, process, layer, name, "group", sequence, start_ns, end_ns, call_ns, coalesce(bytes, 0) AS bytes,
            layer = 'mpi' AND call_ns IS NOT NULL AND end_ns IS NOT NULL AS waited
        FROM untraced_events JOIN ranks USING (process) WHERE {{}} AND {LOGGED})
    ORDER BY rank, 7"""
THE_RANKS = "role = 'rank'"
COUNTED = f"SELECT count(*) FROM untraced_events WHERE {LOGGED}"
MOST_RECORDS = 4_000_000  # that are asked for at a time

Part = Any  # of a large run: the logs of some ranks, its `processes`; `timed` reads them
Who = Mapping[int, tuple[int, str]]  # by process: its rank and host


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the steps are in a log: the same for all logs of a kind."""

    rows: Array  # steps × period
    before: Array  # the collective of the step before each, or that before the step
    slots: list[str]  # the names of the collectives of a step
    groups: frozenset[str]  # those of the first collective of each step


@dataclass(slots=True)
class _Cut:
    """How the logs are cut into steps."""

    words: CollectiveTokens
    period: int
    pattern: Pattern  # () where ranks have none in common

    def steps(self, log: RankLog) -> _Places | None:
        """None where its collectives repeat no pattern."""
        pattern = self.pattern or self._own(log)
        if not pattern:
            return None
        if pattern not in log.kind.cut:
            log.kind.cut[pattern] = self._places(log.kind, pattern)
        places: _Places | None = log.kind.cut[pattern]
        return places

    def _places(self, kind: LogKind, pattern: Pattern) -> _Places | None:
        rows = kind.kept[whole_steps(kind.tokens[kind.kept], pattern)]
        if len(rows) < FEWEST_STEPS or len(rows) * self.period < LEAST_SHARE * len(kind.kept):
            return None
        rows = rows[rows[:, 0] > 0]  # nobody knows when the first of the log began
        before = np.concatenate([rows[:, :1] - 1, rows[:, :-1]], axis=1)
        groups = frozenset(kind.group.values[code] for code in np.unique(kind.group.codes[rows[:, 0]]).tolist())
        return _Places(rows, before, [self.words.name(token) for token in pattern], groups)

    def _own(self, log: RankLog) -> Pattern:
        """Of a rank whose groups are others than those of the rest."""
        turns = rotations(*log.series, self.period, self.words.key)
        return best([turns], set(turns), self.words.key) if turns else ()


@dataclass(slots=True)
class _Found:
    """The steps of one rank, not numbered yet."""

    steps: RankSteps
    groups: frozenset[str]  # those of the first collective of each step,
    sequence: Array  # and its numbers there


def pattern_steps(tables: Tables) -> tuple[list[RankSteps], list[str]]:
    """The steps of all ranks and what to say of them; none where any rank's collectives have no period."""
    who: Who = {process: (rank, host) for process, rank, host in tables.query(WHO)}
    parts: Sequence[Part] | None = getattr(tables, "log_parts", lambda: None)()  # of a run with too many for memory
    if parts is not None:
        ranks = _together(_of_parts(tables, parts, who, in_threads), StepFile())
    elif tables.query(COUNTED)[0][0] > MOST_RECORDS:  # in one database with what other tools recorded
        ranks = _together(_of_parts(tables, [_Asked(tables, process) for process in who], who, map), StepFile())
    else:
        ranks = _together(_of_all(tables, who, THE_RANKS), None)
    return ranks, [_told(ranks)] if ranks else []


def attempt_steps(tables: Tables, attempt: int) -> list[RankSteps]:
    """The steps of an attempt that was followed by another."""
    those = f"role = '{Role.ATTEMPT}' AND attempt = {attempt:d}"
    who = {process: (rank, host) for process, rank, host in tables.query(f"{WHO_OF} WHERE {those} ORDER BY rank")}
    return _together(_of_all(tables, who, those), None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The log of one rank, as the database has it."""

    tables: Tables
    process: int

    @property
    def processes(self) -> Sequence[int]:
        return (self.process,)

    def timed(self) -> Mapping[str, Any]:
        return self.tables.columns(SQL.format(f"{THE_RANKS} AND process = ?"), (self.process,))


def _of_all(tables: Tables, who: Who, those: str) -> Iterable[list[_Found] | None]:
    words = CollectiveTokens()
    logs = list(rank_logs(tables.columns(SQL.format(those)), who, words))
    cut = _cut_of(logs[:: _apart(logs)], words)
    return [_of_logs(logs, cut, who)] if cut is not None else []


def _of_parts(
    tables: Tables, parts: Sequence[Part], who: Who, over: Callable[[Any, Sequence[Part]], Iterable[Any]]
) -> Iterable[list[_Found] | None]:
    """A few ranks tell how logs are cut; then all are, those of a part at a time."""
    words = CollectiveTokens()
    having = {process for (process,) in tables.query(HAVING)}
    processes = [process for process in who if process in having]
    cut = _cut_of(_asked_logs(parts, processes[:: _apart(processes)], words), words)
    words.is_settled = True
    return over(partial(_of_part, cut=cut, who=who), parts) if cut is not None else []


def _apart(ranks: Sequence[Any]) -> int:
    return max(1, len(ranks) // ASKED_RANKS)


def _asked_logs(parts: Sequence[Part], processes: Sequence[int], words: CollectiveTokens) -> list[RankLog]:
    """Those of some ranks of a large run, in their order."""
    columns = {process: part.timed() for part in parts for process in processes if process in part.processes}
    return [
        log for process in processes if process in columns for log in rank_logs(columns[process], (process,), words)
    ]


def _cut_of(logs: Sequence[RankLog], words: CollectiveTokens) -> _Cut | None:
    """The first that cuts all of them."""
    for period in common_periods([log.series for log in logs]):
        turns = [rotations(*log.series, period, words.key) for log in logs] if period else []
        if not turns or not all(turns):
            continue
        shared = set.intersection(*(set(turn) for turn in turns))
        # one late rank must not begin its steps elsewhere than the others do
        cut = _Cut(words, period, best(turns, shared, words.key) if shared else ())
        if all(cut.steps(log) is not None for log in logs):
            return cut
    return None


def _of_part(part: Part, cut: _Cut, who: Who) -> list[_Found] | None:
    return _of_logs(rank_logs(part.timed(), who, cut.words), cut, who)


def _of_logs(logs: Iterable[RankLog], cut: _Cut, who: Who) -> list[_Found] | None:
    """None where the collectives of one of them repeat no pattern."""
    results = []
    for log in logs:
        steps = cut.steps(log)
        if steps is None:
            return None
        results.append(_measured(log, steps, *who[log.process]))
    return results


def _together(parts: Iterable[list[_Found] | None], file: StepFile | None) -> list[RankSteps]:
    """All ranks' steps in the order of ranks, their values in the file if there is one."""
    ranks: list[_Found] = []
    same = Same()
    for some in parts:
        if some is None:
            return []
        for rank_steps in some:
            rank_steps.sequence, rank_steps.steps.flagged = same(rank_steps.sequence), same(rank_steps.steps.flagged)
            if file is not None:
                rank_steps.steps.values = file.add(rank_steps.steps.values)
            ranks.append(rank_steps)
    _number(ranks)
    return sorted((rank_steps.steps for rank_steps in ranks), key=lambda steps: steps.rank)


def _told(ranks: Sequence[RankSteps]) -> str:
    least = min(len(rank_steps.number) for rank_steps in ranks)
    sentence = f"Steps are inferred from a pattern that the collectives repeat ({_slots(ranks[0].slots)})"
    return f"{sentence}: {least} of them; time inside collectives is communication, everything else compute."


def _slots(slots: list[str]) -> str:
    """The collectives of a step in few words: 2 MPI_Allreduce, MPI_Bcast."""
    runs: list[tuple[int, str]] = []
    for slot in slots:
        if runs and runs[-1][1] == slot:
            runs[-1] = (runs[-1][0] + 1, slot)
        else:
            runs.append((1, slot))
    names = [f"{count} {slot}" if count > 1 else slot for count, slot in runs]
    return ", ".join(names[:MOST_TOLD]) + (" …" if len(names) > MOST_TOLD else "")


def _measured(log: RankLog, places: _Places, rank: int, host: str) -> _Found:
    rows, slots = places.rows, places.slots
    begin, end = log.end_ns[places.before[:, 0]], log.end_ns[rows[:, -1]]
    idle_ns = np.maximum(log.start_ns[1:] - np.maximum.accumulate(log.end_ns)[:-1], 0)
    until_ns = np.zeros(len(log.start_ns))  # outside collectives, from the first to each
    np.cumsum(idle_ns, out=until_ns[1:], dtype=np.float64)
    gaps = until_ns[rows] - until_ns[places.before]
    length, compute = (end - begin).astype(np.float64), gaps.sum(axis=1)
    values = {"begin_ns": begin, "length_ns": length, "exposed_ns": length - compute, "own compute": compute}
    values |= {f"gap {at}": gaps[:, at - 1] for at in range(1, len(slots) + 1)}
    steps = RankSteps(rank, host, np.zeros(0, np.int64), np.zeros(len(rows), bool), values, slots)
    return _Found(steps, places.groups, log.sequence[rows[:, 0]])


def _number(ranks: Sequence[_Found]) -> None:
    """The same number on every rank for the same step: by the first collective where all ranks share its group."""
    numbers: dict[int, Array] = {}
    distinct = {id(rank_steps.sequence): rank_steps.sequence for rank_steps in ranks}
    most = max((len(sequence) for sequence in distinct.values()), default=0)
    is_one_group = len({group for rank_steps in ranks for group in rank_steps.groups}) == 1
    places = np.unique(np.concatenate(list(distinct.values()))) if is_one_group else ()
    # far more places than any rank has steps: those of some begin at another of the collectives of a step
    if is_one_group and len(places) < MANY_MORE * most:
        numbers = {key: np.searchsorted(places, sequence) + 1 for key, sequence in distinct.items()}
    else:  # the end of a log is whole, its beginning may be overwritten
        by_length = {len(sequence): np.arange(most - len(sequence) + 1, most + 1) for sequence in distinct.values()}
        numbers = {key: by_length[len(sequence)] for key, sequence in distinct.items()}
    for rank_steps in ranks:
        rank_steps.steps.number = numbers[id(rank_steps.sequence)]
