"""Which runs belong together, where did they become slower or faster, and which hosts are slow again and again?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import comb, erfc
from pathlib import PurePath
from typing import Any, Literal

import numpy as np

from rankscope.model.tables import Words
from rankscope.questions.history.changes import FEWEST, NOTICEABLE, SURE, Change, level_changes
from rankscope.questions.wording import counted

Array = Any  # of numpy
UNKNOWN = "unknown"
SERIES_BY = ("project", "command", "ranks")  # runs that agree in all of these are compared
BY = ("commit", "host", "version", "libraries", "command", "project", "ranks", "launcher", "labels")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run that is followed over time."""

    name: str  # of its column
    title: str
    is_time: bool
    worse: int  # 1: more is worse, -1: less is
    of: str  # what a change has to matter to
    least: float  # of that


METRICS = (
    Metric("step_ns", "step", True, 1, "step_ns", NOTICEABLE),
    Metric("own_ns", "compute", True, 1, "step_ns", 0.01),
    Metric("exposed_ns", "exposed communication", True, 1, "step_ns", 0.01),
    Metric("startup_ns", "start-up", True, 1, "startup_ns", 0.05),
    Metric("goodput", "goodput", False, -1, "goodput", NOTICEABLE),
)
MOST_NEAR = 10  # runs on each side whose hosts are looked at
SAME_PLACE = 3  # runs: changes of several figures of a series that are no farther apart are one


@dataclass(slots=True)
class Runs:
    """The runs as columns, in the order of their start; figures that are not known are NaN."""

    texts: Mapping[str, Words]
    numbers: Mapping[str, Array]
    host_of: Words  # the hosts of all runs, one run after the other
    first_host: Array  # where the hosts of each run begin, and the end of the last
    host_own_ns: Array

    def __len__(self) -> int:
        return len(self.numbers["started_ns"])

    def figure(self, name: str) -> Array:
        """One figure of each run; `own_ns` is the median over its hosts."""
        return self.numbers[name] if name != "own_ns" else middle_host(self)[0]

    def text(self, name: str, row: int) -> str:
        words = self.texts[name]
        return words.values[words.codes[row]] or UNKNOWN

    def hosts(self, row: int) -> list[str]:
        codes = self.host_of.codes[self.first_host[row] : self.first_host[row + 1]]
        return [self.host_of.values[code] for code in codes]


@dataclass(slots=True)
class Series:
    """Runs of the same thing, oldest first."""

    name: str
    rows: Array
    changes: dict[str, list[Change]] = field(default_factory=dict)  # by metric; places among the runs that have it
    known: dict[str, Array] = field(default_factory=dict)  # by metric: those runs


@dataclass(frozen=True, slots=True)
class Event:
    """Something changed from one run on."""

    series: Series
    metric: Metric
    change: Change
    chance: float  # after correction for all series and figures
    since: int  # row of the first run
    last_before: int
    end: int  # row of the last run of the new level
    goes_on: bool
    also: tuple[tuple[Metric, Change], ...] = ()  # other figures that changed there

    @property
    def is_worse(self) -> bool:
        return (self.change.share > 0) == (self.metric.worse > 0)


@dataclass(frozen=True, slots=True)
class SlowHost:
    """One host that is slower than the others in most of its runs."""

    host: str
    runs: int
    slower: float  # median of its time ÷ that of the others − 1
    slow_runs: int  # in which it is noticeably slower
    chance: float
    last: int  # row of the last of its runs


@dataclass(slots=True)
class Answer:
    """All that is said of the runs."""

    runs: Runs
    series: list[Series]
    events: list[Event]  # worse ones first, then by size
    slow_hosts: list[SlowHost]
    tests: int


def ask(runs: Runs, by: Sequence[str] = SERIES_BY) -> Answer:
    """Changes are looked for twice: the second time without what slow hosts have added to steps."""
    series = series_of(runs, by)
    values = {metric.name: runs.figure(metric.name) for metric in METRICS}
    tests = max(1, sum(_count(values[metric.name], each) >= 2 * FEWEST for each in series for metric in METRICS))
    for each in series:
        _find_changes(runs, each, values, tests, METRICS)
    slow = slow_hosts_of(runs, series)
    if slow:
        factor = _slowed_by(runs, series, slow)
        values["step_ns"] = values["step_ns"] / factor
        values["own_ns"] = values["own_ns"] / np.where(np.diff(runs.first_host) == 1, factor, 1.0)
        for each in series:
            if (factor[each.rows] > 1).any():
                _find_changes(runs, each, values, tests, METRICS[:2])
    events = [event for each in series for event in _events(runs, each, tests)]
    events.sort(key=lambda event: (not event.is_worse, not event.goes_on, -abs(event.change.share)))
    return Answer(runs, series, events, slow, tests)


# ---------------------------------------------------------------- which runs belong together?
def series_of(runs: Runs, by: Sequence[str]) -> list[Series]:
    """By what was started, where, on how many ranks; those with the newest run first."""
    if not len(runs):
        return []
    keys = np.stack([_codes(runs, name) for name in by])
    _, inverse = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    edges = np.flatnonzero(np.diff(inverse.reshape(-1)[order])) + 1
    parts = [rows for rows in np.split(order, edges) if len(rows)]
    parts.sort(key=lambda rows: -rows[-1])
    named = [_name(runs, int(rows[-1]), by) for rows in parts]
    return [Series(name, rows) for name, rows in zip(_distinct(named), parts, strict=True)]


def _codes(runs: Runs, name: str) -> Array:
    if name == "host":
        return host_sets(runs).codes
    return runs.texts[name].codes if name in runs.texts else np.unique(runs.numbers[name], return_inverse=True)[1]


def host_sets(runs: Runs) -> Words:
    """The hosts of each run in one word."""
    known: dict[str, int] = {}
    codes = np.empty(len(runs), np.int64)
    for row in range(len(runs)):
        word = ", ".join(runs.hosts(row))
        codes[row] = known.setdefault(word, len(known))
    return Words(codes, list(known))


def _name(runs: Runs, row: int, by: Sequence[str]) -> tuple[str, str]:
    """What a reader calls it, and what tells it apart from others of that name."""
    words = []
    for name in by:
        if name == "command":
            words.append(short_command(runs.text(name, row)))
        elif name == "ranks":
            words.append(counted(int(runs.numbers[name][row]), "rank"))
        elif name == "host":
            words.append(", ".join(runs.hosts(row)) or UNKNOWN)
        elif name != "project":
            words.append(f"{name} {runs.text(name, row)}")
    project = PurePath(runs.text("project", row)).name if "project" in by else ""
    return ", ".join(words) or project, project


def _distinct(named: Sequence[tuple[str, str]]) -> list[str]:
    counts = Counter(name for name, _ in named)
    names: list[str] = []
    seen: dict[str, int] = {}
    for name, project in named:
        full = name if counts[name] == 1 or not project else f"{project}: {name}"
        seen[full] = seen.get(full, 0) + 1
        names.append(full if seen[full] == 1 else f"{full} (#{seen[full]})")
    return names


def short_command(command: str) -> str:
    """Without the launcher and the folder: from the script on."""
    words = command.split()
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), 0)
    return " ".join([PurePath(words[at]).name, *words[at + 1 :]]) if words else UNKNOWN


# ---------------------------------------------------------------- where did they change?
def _count(values: Array, series: Series) -> int:
    return int(np.isfinite(values[series.rows]).sum())


def _find_changes(
    runs: Runs, series: Series, values: Mapping[str, Array], tests: int, metrics: Sequence[Metric]
) -> None:
    for metric in metrics:
        rows = series.rows[np.isfinite(values[metric.name][series.rows])]
        matter = runs.numbers[metric.of][rows]
        least = metric.least * float(np.nanmedian(matter)) if np.isfinite(matter).any() else 0.0
        series.known[metric.name] = rows
        series.changes[metric.name] = level_changes(values[metric.name][rows], tests, least)


def _events(runs: Runs, series: Series, tests: int) -> list[Event]:
    """One for each place, with the figure that matters most: the step where it changed."""
    events: list[Event] = []
    for metric in METRICS:
        for change in series.changes[metric.name]:
            event = _event(series, metric, change, tests)
            same = [other for other in events if _is_same(series, other, event)]
            if same and not change.gradual:
                events[events.index(same[0])] = _joined(series, same[0], event)
                continue
            for other in same:  # a gradual change may be several steps of another figure
                event = _joined(series, other, event)
                events.remove(other)
            events.append(event)
    return events


def _event(series: Series, metric: Metric, change: Change, tests: int) -> Event:
    rows = series.known[metric.name]
    ends = int(rows[change.at]), int(rows[change.at - 1]), int(rows[change.until - 1])
    goes_on = change.until == len(rows)
    return Event(series, metric, change, min(1.0, change.chance * tests), *ends, goes_on)


def _is_same(series: Series, event: Event, other: Event) -> bool:
    """At the same place or, of figures of the same thing, at one that is as likely; what is gradual is so from its
    first run to its last."""
    at, place = (int(np.searchsorted(series.rows, each.since)) for each in (event, other))
    if abs(at - place) <= SAME_PLACE:
        return True
    if event.is_worse != other.is_worse or event.metric.of != other.metric.of:
        return False
    first, last = _span(series, event)
    again, until = _span(series, other)
    if event.change.gradual or other.change.gradual:
        return first <= place <= last if event.change.gradual else again <= at <= until
    return max(first, again) <= min(last, until)


def _span(series: Series, event: Event) -> tuple[int, int]:
    """Where it may have been, among the runs of the series."""
    rows, change = series.known[event.metric.name], event.change
    ends = rows[change.earliest], rows[min(change.latest, len(rows) - 1)]
    first, last = np.searchsorted(series.rows, ends)
    return int(first), int(last)


def _joined(series: Series, event: Event, other: Event) -> Event:
    """One event of two figures: the first tells how much, and the one that knows better tells since when; what one of
    them shows to be gradual is."""
    joined = replace(event, also=(*event.also, (other.metric, other.change)))
    spans = [last - first for first, last in (_span(series, event), _span(series, other))]
    if other.change.gradual and not event.change.gradual:
        return replace(other, also=(*event.also, (event.metric, event.change)))
    if not event.change.gradual and not other.change.gradual and spans[1] < spans[0]:
        at = int(np.searchsorted(series.known[event.metric.name], other.since))
        return replace(joined, change=replace(event.change, at=at), since=other.since, last_before=other.last_before)
    return joined


def levels(series: Series, values: Array, metric: str = "step_ns") -> Array:
    """The median of the level that each run with this figure belongs to."""
    rows = series.known[metric]
    level = np.empty(len(rows))
    for first, last in edges_of(series, metric):
        level[first:last] = np.median(values[rows[first:last]])
    return level


def edges_of(series: Series, metric: str) -> list[tuple[int, int]]:
    """Where each level begins and ends, among the runs with this figure."""
    edges = [0, *(change.at for change in series.changes[metric]), len(series.known[metric])]
    return [(first, last) for first, last in pairwise(edges) if last > first]


# ---------------------------------------------------------------- which hosts are slow again and again?
def slow_hosts_of(runs: Runs, series: Sequence[Series]) -> list[SlowHost]:
    """Hosts whose steps are noticeably longer than those of the other hosts of their runs or, of runs on one host, than
    those of the series at that time, in so many of their runs that it can hardly be chance."""
    host, ratio, row = _host_ratios(runs, series)
    order = np.argsort(host, kind="stable")
    host, ratio, row = host[order], ratio[order], row[order]
    edges = [0, *(np.flatnonzero(np.diff(host)) + 1).tolist(), len(host)] if len(host) else [0]
    hosts = max(1, len(edges) - 1)
    slow_hosts = []
    for first, last in pairwise(edges):
        count, slow = last - first, int((ratio[first:last] >= 1 + NOTICEABLE).sum())
        chance = min(1.0, hosts * at_least(count, slow))
        if chance <= SURE and hosts > 1:
            by = float(np.median(ratio[first:last])) - 1
            name = str(runs.host_of.values[int(host[first])])
            slow_hosts.append(SlowHost(name, count, by, slow, chance, int(row[first:last].max())))
    return sorted(slow_hosts, key=lambda host: -host.slower)


def _host_ratios(runs: Runs, series: Sequence[Series]) -> tuple[Array, Array, Array]:
    counts = np.diff(runs.first_host)
    run_of = np.repeat(np.arange(len(runs)), counts)
    ratio = np.full(len(run_of), np.nan)
    several = counts[run_of] > 1
    ratio[several] = _within_runs(runs, run_of, counts)[several]
    step = runs.numbers["step_ns"]
    for each in series:
        rows = each.known["step_ns"]
        relative = step[rows] / levels(each, step)
        for first, last in edges_of(each, "step_ns"):
            alone = np.arange(first, last)[counts[rows[first:last]] == 1]
            places = runs.first_host[rows[alone]]
            if len(np.unique(runs.host_of.codes[places])) > 1:  # else host and level cannot be told apart
                ratio[places] = relative[alone]
    is_known = np.isfinite(ratio)
    return runs.host_of.codes[is_known], ratio[is_known], run_of[is_known]


def middle_host(runs: Runs) -> tuple[Array, Array]:
    """Of each run the median and the sum over its hosts of their own time; NaN where it is not known."""
    counts, own_ns = np.diff(runs.first_host), runs.host_own_ns
    middle = np.full(len(counts), np.nan)
    run_of = np.repeat(np.arange(len(counts)), counts)
    if len(own_ns):
        order = np.lexsort((own_ns, run_of))
        some = np.flatnonzero(counts > 0)
        first = runs.first_host[some]
        low, high = order[first + (counts[some] - 1) // 2], order[first + counts[some] // 2]
        middle[some] = (own_ns[low] + own_ns[high]) / 2
    return middle, np.bincount(run_of, own_ns, minlength=len(counts))


def _within_runs(runs: Runs, run_of: Array, counts: Array) -> Array:
    """Each host's time ÷ the median of all hosts of its run; of two, ÷ that of the other."""
    middle, sums = middle_host(runs)
    own_ns = runs.host_own_ns
    against = np.where(counts[run_of] == 2, sums[run_of] - own_ns, middle[run_of])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(against > 0, own_ns / against, np.nan)


def at_least(count: int, slow: int) -> float:
    """The chance that so many of the runs are noticeably slower if each is with a chance of one half."""
    if count > 1000:
        score = (slow - 0.5 - count / 2) / (count**0.5 / 2)
        return erfc(score / 2**0.5) / 2
    return float(sum(comb(count, runs) for runs in range(slow, count + 1)) / 2**count)


def _slowed_by(runs: Runs, series: Sequence[Series], slow: Sequence[SlowHost]) -> Array:
    """By how much the slow hosts of each run make its step longer: the median of the runs with that host."""
    step = runs.numbers["step_ns"]
    relative = np.full(len(runs), np.nan)
    for each in series:
        if len(each.known["step_ns"]):
            relative[each.known["step_ns"]] = step[each.known["step_ns"]] / levels(each, step)
    run_of = np.repeat(np.arange(len(runs)), np.diff(runs.first_host))
    places = {name: at for at, name in enumerate(runs.host_of.values)}
    factor = np.ones(len(runs))
    for known in slow:
        rows = np.unique(run_of[runs.host_of.codes == places[known.host]])
        by = max(1.0, float(np.nanmedian(relative[rows]))) if np.isfinite(relative[rows]).any() else 1.0
        factor[rows] = np.maximum(factor[rows], by)
    return factor


# ---------------------------------------------------------------- what else was different?
TOLD: Mapping[str, Callable[[str], str]] = {
    "libraries": str,
    "version": lambda text: f"rankscope {text}",
    "launcher": str,
    "labels": str,
}


def changed_with(event: Event, runs: Runs) -> list[str]:
    """What the first run of the new level has otherwise than the last of the old one."""
    before, after = event.last_before, event.since
    changes = []
    for name, shown in TOLD.items():
        texts = runs.text(name, before), runs.text(name, after)
        if texts[0] != texts[1]:
            changes.append(f"{name} {shown(texts[0])} → {shown(texts[1])}")
    hosts = [_hosts_near(event, runs, side) for side in ("before", "after")]
    if all(hosts) and not set(hosts[0]) & set(hosts[1]):  # else jobs run here today and there tomorrow
        changes.append(f"hosts {_some(hosts[0])} → {_some(hosts[1])}")
    return changes


def _hosts_near(event: Event, runs: Runs, side: Literal["before", "after"]) -> list[str]:
    """Of some runs next to the change."""
    at = int(np.searchsorted(event.series.rows, event.since))
    rows = (
        event.series.rows[max(0, at - MOST_NEAR) : at] if side == "before" else event.series.rows[at : at + MOST_NEAR]
    )
    return sorted({host for row in rows.tolist() for host in runs.hosts(row)})


def commits_of(event: Event, runs: Runs, digits: int = 10) -> str:
    before, after = (short_commit(runs.text("commit", row), digits) for row in (event.last_before, event.since))
    return after if before == after else f"{before} → {after}"


def short_commit(text: str, digits: int = 10) -> str:
    """The first digits of a hash; other names as they are."""
    is_hash = len(text) in (40, 64) and all(letter in "0123456789abcdef" for letter in text)
    return text[:digits] if is_hash else text or UNKNOWN


def _some(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:2]) + (f" and {len(hosts) - 2} more" if len(hosts) > 2 else "") if hosts else UNKNOWN
