"""The history of runs as tables: what is compared with what, what changed, slow hosts, figures by commit or host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.questions.history.changes import FEWEST, NOTICEABLE, SURE, Change
from rankscope.questions.history.history import (
    BY,
    METRICS,
    UNKNOWN,
    Answer,
    Event,
    Metric,
    Runs,
    Series,
    changed_with,
    commits_of,
    host_sets,
    short_commit,
)
from rankscope.questions.wording import counted

Array = Any
FIGURES = (
    Column("step_ns", Unit.NS, "Step", "median of the runs' `step_p50` ([compare](../commands/compare.md))"),
    Column("exposed_share", Unit.SHARE, "Exposed", "median of exposed communication of a step ÷ step"),
    Column("startup_ns", Unit.NS, "Start-up", "median of the time from process start to the end of the first step"),
    Column("goodput", Unit.SHARE, "Goodput", "median of useful steps ÷ wall time ([goodput](#goodput))"),
)
HISTORY_COLUMNS = (
    Column("series", Unit.NAME, "Series", "runs of one project, command and number of ranks, or as `--series` says"),
    Column("project", Unit.NAME, "Project", "folder in which the command was started"),
    Column("runs", Unit.COUNT, "Runs", "number of them"),
    Column("last", Unit.NAME, "Last run", "when the newest one started; local time"),
    *FIGURES,
    Column("verdict", Unit.NAME, "Verdict", "the last ongoing change of the step, or else of another figure"),
)
REGRESSION_COLUMNS = (
    Column("series", Unit.NAME, "Series", "as in `history`"),
    Column(
        "what", Unit.NAME, "What", "the figure that changed: step, compute, exposed communication, start-up or goodput"
    ),
    Column("verdict", Unit.NAME, "Verdict", "worse or better"),
    Column("share", Unit.SHARE, "By", "`after` ÷ `before` − 1"),
    Column(
        "low", Unit.SHARE, "From", "lower end of the 95 % interval of `share`, from all pairs of runs near the change"
    ),
    Column("high", Unit.SHARE, "To", "upper end of it"),
    Column("chance", Unit.NUMBER, "p-value", "chance of such a change anywhere in all series and figures"),
    Column("run", Unit.NAME, "Since run", "the first run of the new level"),
    Column("since", Unit.NAME, "Since", "when it started; local time"),
    Column("commit", Unit.NAME, "Commit", "of the last run before → of the first one since"),
    Column("also", Unit.NAME, "Also", "other figures that changed there, and what else was different"),
    Column("before_ns", Unit.NS, "Before", "median of the level before; of times"),
    Column("after_ns", Unit.NS, "Since then", "median of the level since; of times"),
    Column("before_share", Unit.SHARE, "Before", "the same of goodput"),
    Column("after_share", Unit.SHARE, "Since then", "the same of goodput"),
    Column("runs_before", Unit.COUNT, "Runs before", "number of runs of the level before"),
    Column("runs_since", Unit.COUNT, "Runs since", "number of runs of the new level"),
    Column("goes_on", Unit.NAME, "Ongoing", "yes where the newest run belongs to the new level"),
    Column("until", Unit.NAME, "Until run", "the last run of the new level"),
    Column("kind", Unit.NAME, "Kind", "step: from one run to the next; gradual: a line describes it better"),
)
HOST_COLUMNS = (
    Column("host", Unit.NAME, "Host"),
    Column("slower", Unit.SHARE, "Slower by", "median over its runs of its time ÷ that of the others, − 1"),
    Column("slow_runs", Unit.COUNT, "Slow in", f"runs in which it is at least {NOTICEABLE:.0%} slower"),
    Column("runs", Unit.COUNT, "Of runs", "number of its runs that can be compared"),
    Column(
        "chance", Unit.NUMBER, "p-value", "chance of so many slow runs, of any host, if each were slow every other time"
    ),
    Column("last", Unit.NAME, "Last run", "when the newest of them started; local time"),
)
BY_COLUMNS = (
    Column("value", Unit.NAME, "Value"),
    Column("runs", Unit.COUNT, "Runs", "number of them"),
    Column("first", Unit.NAME, "First run", "when the oldest one started; local time"),
    Column("last", Unit.NAME, "Last run", "when the newest one started; local time"),
    Column("relative", Unit.NUMBER, "Step ÷ usual", "median of step ÷ median step of the run's series"),
    *FIGURES,
)
RUN_COLUMNS = (
    Column("series", Unit.NAME, "Series", "as in `history`"),
    Column("place", Unit.COUNT, "#", "its place in the series, from 1"),
    Column("run", Unit.NAME, "Run"),
    Column("started", Unit.NAME, "When", "when it started; local time"),
    Column("commit", Unit.NAME, "Commit", "of the program"),
    Column("hosts", Unit.NAME, "Hosts"),
    Column("step_ns", Unit.NS, "Step", "`step_p50` ([compare](../commands/compare.md))"),
    Column("exposed_ns", Unit.NS, "Exposed", "exposed communication of a step"),
    Column("startup_ns", Unit.NS, "Start-up", "from process start to the end of the first step, median of the ranks"),
    Column("goodput", Unit.SHARE, "Goodput", "useful steps ÷ wall time ([goodput](#goodput))"),
    Column("level_ns", Unit.NS, "Level", "median step of the level that it belongs to"),
)


def when(started_ns: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(started_ns / 1e9))


def number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def middle(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def figures(runs: Runs, rows: Array) -> tuple[Cell, ...]:
    step, exposed = runs.numbers["step_ns"][rows], runs.numbers["exposed_ns"][rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(step > 0, exposed / step, np.nan)
    return middle(step), middle(share), *(middle(runs.numbers[name][rows]) for name in ("startup_ns", "goodput"))


# ---------------------------------------------------------------- series
def history_table(answer: Answer, top: int | None = None, dated: bool = True) -> Table:
    """A row a series: those with regressions that go on first, then those with the newest run."""
    table = Table("history", "Series of runs", HISTORY_COLUMNS, [])
    by_series: dict[str, list[Event]] = {}
    for event in answer.events:
        by_series.setdefault(event.series.name, []).append(event)
    ordered = sorted(answer.series, key=lambda series: _rank(by_series.get(series.name, [])))
    for series in ordered[:top]:
        table.rows.append(_series_row(answer.runs, series, by_series.get(series.name, []), dated))
    if top is not None and len(ordered) > top:
        table.notes.append(f"{len(ordered) - top} more series: --all lists them.")
    return table


def _rank(events: Sequence[Event]) -> int:
    return 0 if any(event.is_worse and event.goes_on for event in events) else 1


def _series_row(runs: Runs, series: Series, events: Sequence[Event], dated: bool) -> tuple[Cell, ...]:
    now = series.rows[_level_begin(series) :]
    last = int(series.rows[-1])
    project = runs.text("project", last)
    newest = when(runs.numbers["started_ns"][last])
    head = series.name, project, len(series.rows), newest if dated else newest[:10]
    return (*head, *figures(runs, now), _verdict(runs, series, events, dated))


def _level_begin(series: Series) -> int:
    """The place of the first run of the newest level of the step."""
    changes = series.changes["step_ns"]
    return int(np.searchsorted(series.rows, series.known["step_ns"][changes[-1].at])) if changes else 0


def _verdict(runs: Runs, series: Series, events: Sequence[Event], dated: bool) -> str:
    known = max((len(rows) for rows in series.known.values()), default=0)
    if known < 2 * FEWEST:
        return f"too few runs ({known} of {2 * FEWEST})"
    going = [event for event in events if event.goes_on]
    if not going:
        return "steady" if not events else "steady again"
    event = min(going, key=lambda event: (event.metric.name != "step_ns", not event.is_worse))
    since = f" since {when(runs.numbers['started_ns'][event.since])[:10]}" if dated else ""
    return f"{verdict_of(event)}: {event.metric.title} {signed(event.change.share)}{since}"


def verdict_of(event: Event) -> str:
    return "worse" if event.is_worse else "better"


def signed(share: float, unit: str = " %") -> str:
    return f"{'+' if share > 0 else '−'}{abs(100 * share):.{0 if abs(share) >= 0.1 else 1}f}{unit}"


# ---------------------------------------------------------------- changes
def regressions_table(answer: Answer, top: int | None = None) -> Table:
    """A row for each change that is sure, regressions first."""
    table = Table("regressions", "Regressions and improvements", REGRESSION_COLUMNS, [])
    table.rows = [_event_row(answer.runs, event) for event in answer.events[:top]]
    judged = sum(
        max((len(rows) for rows in series.known.values()), default=0) >= 2 * FEWEST for series in answer.series
    )
    if not judged:
        table.notes.append(
            f"Nothing can be said yet: no series has {2 * FEWEST} runs, {FEWEST} on each side of a change."
        )
    elif not answer.events:
        table.notes.append(f"No change of {100 * NOTICEABLE:.0f} % or more is sure in {judged:,} series.")
    if top is not None and len(answer.events) > top:
        table.notes.append(f"{len(answer.events) - top} more: --all lists them.")
    if answer.slow_hosts and table.rows:
        table.notes.append("Steps of runs on slow hosts count without what those hosts add to them.")
    return table


def _event_row(runs: Runs, event: Event) -> tuple[Cell, ...]:
    change, metric = event.change, event.metric
    values = (change.before, change.after) if metric.is_time else (None, None)
    shares = (None, None) if metric.is_time else (change.before, change.after)
    return (
        *(event.series.name, metric.title, verdict_of(event), change.share, change.low, change.high, event.chance),
        *(runs.text("run", event.since), when(runs.numbers["started_ns"][event.since]), commits_of(event, runs)),
        "; ".join([*(_also(*also) for also in event.also), *changed_with(event, runs)]),
        *(*values, *shares, change.at - change.begins, change.until - change.at),
        *("yes" if event.goes_on else "no", runs.text("run", event.end)),
        "gradual" if change.gradual else "step",
    )


def _also(metric: Metric, change: Change) -> str:
    return f"{metric.title} {signed(change.share)}"


# ---------------------------------------------------------------- hosts
def slow_hosts_table(answer: Answer, top: int | None = None) -> Table:
    """Hosts that are slow again and again."""
    table = Table("slow_hosts", "Hosts that are repeatedly slow", HOST_COLUMNS, [])
    started = answer.runs.numbers["started_ns"]
    for host in answer.slow_hosts[:top]:
        last = when(started[host.last])
        table.rows.append((host.host, host.slower, host.slow_runs, host.runs, host.chance, last))
    if top is not None and len(answer.slow_hosts) > top:
        table.notes.append(f"{len(answer.slow_hosts) - top} more: --all lists them.")
    if not table.rows:
        table.notes.append("None.")
    return table


# ---------------------------------------------------------------- by commit, host, …
def by_table(answer: Answer, by: str, top: int | None = None) -> Table:
    """A row for each value, the newest first."""
    runs = answer.runs
    titles = {"host": "hosts", "libraries": "versions of libraries", "version": "version of rankscope"}
    table = Table(f"history_by_{by}", f"By {titles.get(by, by)}", BY_COLUMNS, [])
    relative = _relative(answer)
    groups = sorted(_groups(runs, by).items(), key=lambda pair: -int(pair[1][-1]))
    for value, rows in groups[:top]:
        started = runs.numbers["started_ns"][rows]
        row = (
            short_commit(value) if by == "commit" else value or UNKNOWN,
            len(rows),
            when(started[0]),
            when(started[-1]),
            middle(relative[rows]),
        )
        table.rows.append((*row, *figures(runs, rows)))
    if top is not None and len(groups) > top:
        table.notes.append(f"{len(groups) - top} more: --all lists them.")
    return table


def _groups(runs: Runs, by: str) -> Mapping[str, Array]:
    if by == "ranks":
        codes = runs.numbers["ranks"].astype(np.int64)
        names: Mapping[int, str] = {int(code): str(code) for code in np.unique(codes)}
    else:
        words = host_sets(runs) if by == "host" else runs.texts[by]
        codes, names = words.codes, dict(enumerate(words.values))
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    return {names[int(codes[rows[0]])]: rows for rows in np.split(order, edges) if len(rows)}


def _relative(answer: Answer) -> Array:
    step = answer.runs.numbers["step_ns"]
    relative = np.full(len(step), np.nan)
    for series in answer.series:
        usual = middle(step[series.rows])
        if usual:
            relative[series.rows] = step[series.rows] / usual
    return relative


# ---------------------------------------------------------------- one screen
WEEK_NS = 7 * 86_400 * 10**9
SCREEN_EVENTS, SCREEN_HOSTS, SCREEN_SERIES = 9, 4, 9  # rows
SCREEN_REGRESSIONS = (
    Column("series", Unit.NAME, "Series", "as in `history`"),
    Column("what", Unit.NAME, "What", "the figure that changed"),
    Column("by", Unit.NAME, "By", "change of the median, and its 95 % interval"),
    Column("since", Unit.NAME, "Since", "when the first run of the new level started"),
    Column("commit", Unit.NAME, "Commit", "before → since"),
    Column("chance", Unit.NUMBER, "p-value", "corrected for all series and figures"),
    Column("until", Unit.NAME, "Until", "empty while it lasts"),
)


def screen_tables(answer: Answer, where: str) -> list[Table]:
    """What matters most, in few columns: regressions, slow hosts, series."""
    runs = answer.runs
    worse = [event for event in answer.events if event.is_worse]
    going = sum(event.goes_on for event in worse)
    noun = "run" if len(runs) == 1 else "runs"
    head = f"{len(runs):,} {noun} of {where} in {len(answer.series):,} series"
    counts = f"{counted(len(worse), 'regression')} ({going} ongoing)"
    regressions = regressions_table(answer)
    first = Table(
        "regressions", f"{head}: {counts}", SCREEN_REGRESSIONS, [], list(regressions.notes), list(regressions.warnings)
    )
    first.rows = [_screen_row(runs, event) for event in worse[:SCREEN_EVENTS]]
    better = len(answer.events) - len(worse)
    more = [f"{len(worse) - SCREEN_EVENTS} more regressions"] if len(worse) > SCREEN_EVENTS else []
    more += [f"{counted(better, 'improvement')}"] if better else []
    if more:
        first.notes.insert(0, f"{' and '.join(more)}: --all lists them.")
    hosts = slow_hosts_table(answer, SCREEN_HOSTS)
    return [first, *([hosts] if hosts.rows else []), _short_history(answer)]


def _short_history(answer: Answer) -> Table:
    """Without the project, and since when: that stands above."""
    full_table = history_table(answer, SCREEN_SERIES, dated=False)
    shown_columns = [at for at, column in enumerate(full_table.columns) if column.name != "project"]
    rows = [tuple(row[at] for at in shown_columns) for row in full_table.rows]
    return Table(
        full_table.name,
        full_table.title,
        [full_table.columns[at] for at in shown_columns],
        rows,
        full_table.notes,
        full_table.warnings,
    )


def _screen_row(runs: Runs, event: Event) -> tuple[Cell, ...]:
    change = event.change
    started = runs.numbers["started_ns"]
    by = f"{signed(change.share)} ({signed(change.low, '')} … {signed(change.high, '')})"
    letters = len("2026-11-17") if started[-1] - started[0] > WEEK_NS else None  # of a week or less also the time
    since = f"{'about ' * change.gradual}{when(started[event.since])[:letters]}"
    until = "" if event.goes_on else when(started[event.end])[:letters]
    return event.series.name, event.metric.title, by, since, commits_of(event, runs, 8), event.chance, until


__all__ = [
    "BY",
    "BY_COLUMNS",
    "HISTORY_COLUMNS",
    "HOST_COLUMNS",
    "METRICS",
    "REGRESSION_COLUMNS",
    "RUN_COLUMNS",
    "SURE",
    "by_table",
    "history_table",
    "regressions_table",
    "screen_tables",
    "slow_hosts_table",
]
