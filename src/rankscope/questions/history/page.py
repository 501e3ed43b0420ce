"""The page of a history: what became slower since when, step times over runs, slow hosts, and figures by commit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.model.tables import Cell, Table
from rankscope.pictures import Advice, AnswerPage, Chart, Figure, Points, Section
from rankscope.questions.history.history import (
    Answer,
    Event,
    Runs,
    Series,
    changed_with,
    commits_of,
    levels,
    short_commit,
)
from rankscope.questions.history.tables import RUN_COLUMNS, number, signed, verdict_of, when
from rankscope.questions.wording import counted, seconds

MOST_SERIES = 12  # that are drawn: those with changes first
MOST_RUNS = 600  # of each of them, the newest
MOST_ROWS = 2_000  # of a table
MOST_POINTS = 8


def history_page(answer: Answer, where: str, tables: Sequence[Table], warnings: Sequence[str]) -> AnswerPage:
    """Regressions on the first screen beside the runs of the series that has the largest."""
    drawn = _drawn(answer)
    named = {table.name: table for table in tables}
    for table in named.values():
        if len(table.rows) > MOST_ROWS:
            table.notes.append(f"{len(table.rows) - MOST_ROWS} more rows: rankscope history --format csv has all.")
            del table.rows[MOST_ROWS:]
    named["history"].warnings = []
    sections = [
        *([_runs_section(answer, drawn)] if drawn else []),
        Section("changes", "What changed, since which run, and how sure is it?", [named["regressions"]], group="Runs"),
        Section("series", "What is compared with what?", [named["history"]], group="Runs"),
        Section("hosts", "Which hosts are repeatedly slow?", [named["slow_hosts"]], group="Hosts"),
        *(Section(name, f"By {by}", [named[name]], group="Groups") for name, by in _by(named)),
    ]
    for section in sections[1:4]:
        section.unfolded = True
    return AnswerPage(
        "History",
        where,
        _facts(answer),
        verdict(answer),
        _figures(answer),
        [_points(answer), _hosts(answer)],
        sections,
        warnings,
        "runs" if drawn else "",
    )


def _by(named: dict[str, Table]) -> list[tuple[str, str]]:
    titles = {"history_by_commit": "commit", "history_by_host": "hosts", "history_by_version": "version of rankscope"}
    return [(name, title) for name, title in titles.items() if name in named]


def _facts(answer: Answer) -> list[str]:
    runs = answer.runs
    started = runs.numbers["started_ns"]
    span = f"{when(started[0])[:10]} to {when(started[-1])[:10]}"
    return [f"{len(runs):,} runs", f"{len(answer.series):,} series", counted(len(runs.host_of.values), "host"), span]


def verdict(answer: Answer) -> str:
    """The answer in a sentence."""
    going = [event for event in answer.events if event.is_worse and event.goes_on]
    past = sum(event.is_worse and not event.goes_on for event in answer.events)
    over = f"{counted(past, 'regression')} in the past {'is' if past == 1 else 'are'} over. " if past else ""
    slow = answer.slow_hosts
    hosts = (
        f"Repeatedly slow: {', '.join(host.host for host in slow[:3])}{' and more' * (len(slow) > 3)}." if slow else ""
    )
    if not going:
        return f"No ongoing regression. {over}{hosts}".strip()
    worst = going[0]
    since = f"since {when(answer.runs.numbers['started_ns'][worst.since])[:10]}"
    sentence = f"{worst.metric.title} of {worst.series.name} {signed(worst.change.share)} {since}"
    go_on = f"{counted(len(going), 'regression')} {'goes' if len(going) == 1 else 'go'} on"
    return f"{go_on}; the largest: {sentence}. {over}{hosts}".strip()


def _figures(answer: Answer) -> list[Figure]:
    worse = [event for event in answer.events if event.is_worse]
    figures = [
        Figure(
            "Runs", f"{len(answer.runs):,}", "number of runs that were summarised", f"{len(answer.series):,} series"
        ),
        Figure(
            *(
                "Regressions",
                str(len(worse)),
                "changes for the worse that are sure: less than 5 % chance of any false one",
            ),
            f"{sum(event.goes_on for event in worse)} go on",
        ),
        Figure("Improvements", str(len(answer.events) - len(worse)), "changes for the better that are sure"),
        Figure("Slow hosts", str(len(answer.slow_hosts)), "hosts that are slow in most of their runs"),
    ]
    return figures


def _points(answer: Answer) -> Points:
    worse = [event for event in answer.events if event.is_worse][:MOST_POINTS]
    entries = [_point(answer.runs, event) for event in worse]
    return Points("regressions", "Regressions", entries, "None is sure.")


def _point(runs: Runs, event: Event) -> Advice:
    change, metric = event.change, event.metric
    low, high = signed(change.low), signed(change.high)
    sides = f"{seconds(change.before)} before, {seconds(change.after)} since"
    if not metric.is_time:
        sides = f"{100 * change.before:.0f} % before, {100 * change.after:.0f} % since"
    also = [f"{other.title} {signed(change.share)}" for other, change in event.also] + changed_with(event, runs)
    start = when(runs.numbers["started_ns"][event.since])
    begin = "gradually, sure since" if change.gradual else "since"
    commit = commits_of(event, runs)
    words = [
        f"{sides}; 95 % interval {low} … {high}; p-value {event.chance:.1g}",
        f"{begin} run {runs.text('run', event.since)} ({start})",
        f"commit {commit}",
        *([f"also: {'; '.join(also)}"] if also else []),
        f"{change.at - change.begins} runs before, {change.until - change.at} since",
    ]
    level = "WORSE" if event.goes_on else "OVER"
    title = f"{metric.title} {signed(change.share)}: {event.series.name}"
    return Advice(level, title, "; ".join(words), [], verdict_of(event))


def _hosts(answer: Answer) -> Points:
    entries = [
        Advice(
            "SLOW",
            f"{host.host} {signed(host.slower)}",
            f"slower in {host.slow_runs} of {host.runs} runs; p-value {host.chance:.1g}",
            [],
            "",
        )
        for host in answer.slow_hosts[:MOST_POINTS]
    ]
    return Points("slow_host_points", "Slow hosts", entries, "None is repeatedly slow.")


# ---------------------------------------------------------------- the picture
def _drawn(answer: Answer) -> list[Series]:
    """The series with the largest regressions that go on, then others with changes, then the newest."""
    order = dict.fromkeys(event.series.name for event in answer.events)
    by_name = {series.name: series for series in answer.series}
    chosen = [by_name[name] for name in order] + [series for series in answer.series if series.name not in order]
    return [series for series in chosen if len(series.known["step_ns"]) > 1][:MOST_SERIES]


def _runs_section(answer: Answer, drawn: Sequence[Series]) -> Section:
    table = Table("history_runs", "Runs", RUN_COLUMNS, [])
    for series in drawn:
        table.rows += _rows(answer.runs, series)
    if len(drawn) < len(answer.series) or any(len(series.rows) > MOST_RUNS for series in drawn):
        table.notes.append(f"The newest {MOST_RUNS} runs of up to {MOST_SERIES} series, those with changes first.")
    first = drawn[0]
    shift = [change for change in first.changes["step_ns"] if not change.gradual]
    words = f"{counted(len(shift), 'change')}" if shift else "no sudden change"
    title = f"Step time of {first.name} over {len(first.known['step_ns']):,} runs: {words}"
    chart = Chart("history", table.name, title, "run", ("step_ns", "level_ns"), "step", "run", series="series")
    return Section("runs", "Step time over runs", [table], [chart], group="Runs")


def _rows(runs: Runs, series: Series) -> list[tuple[Cell, ...]]:
    rows = series.known["step_ns"][-MOST_RUNS:]
    level = levels(series, runs.numbers["step_ns"])[-MOST_RUNS:]
    places = np.searchsorted(series.rows, rows) + 1
    return [
        (
            *(series.name, int(place), runs.text("run", row), when(runs.numbers["started_ns"][row])),
            *(short_commit(runs.text("commit", row)), ", ".join(runs.hosts(row)[:4])),
            *(number(runs.numbers[name][row]) for name in ("step_ns", "exposed_ns", "startup_ns", "goodput")),
            float(height),
        )
        for row, place, height in zip(rows.tolist(), places.tolist(), level.tolist(), strict=True)
    ]
