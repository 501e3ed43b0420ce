"""The runs of a folder over time: summarised once, kept beside them as Parquet, and asked what changed."""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankscope.api.run import NoRun, Run, Wrong
from rankscope.api.runs import listed_run
from rankscope.model.records import BadFile
from rankscope.model.summaries import RunSummary
from rankscope.model.tables import Table
from rankscope.output.html import to_html
from rankscope.questions.compare.measures import Metric, measures
from rankscope.questions.history.history import BY, SERIES_BY, Answer, Runs, ask
from rankscope.questions.history.page import history_page
from rankscope.questions.history.tables import (
    by_table,
    history_table,
    regressions_table,
    screen_tables,
    slow_hosts_table,
)
from rankscope.questions.run.goodput import USEFUL, account
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.phases import SEGMENTS, waterfalls
from rankscope.store.columns import columns_of
from rankscope.store.folder import RUNS, find_run, is_run, moment_of, read_job
from rankscope.store.history import History, schema, table_of
from rankscope.store.run import RunTables

__all__ = ["BY", "SERIES_BY", "NoRun", "RunHistory", "Told", "Wrong", "run_history"]

Told = Callable[[int, int], None]
SCREEN_ROWS = 12
BATCH = 32  # runs that are summarised before they are kept
TEXTS = ("run", "project", "command", "commit", "labels", "version", "libraries", "launcher")
NUMBERS = ("started_ns", "ranks", "step_ns", "exposed_ns", "startup_ns", "goodput", "elapsed_ns")


class RunHistory:
    """What the runs say, and the tables and the page of it."""

    def __init__(self, answer: Answer, where: str, warnings: Sequence[str]) -> None:
        self.answer, self.where, self.warnings = answer, where, list(warnings)

    def tables(self, by: Sequence[str] = ()) -> list[Table]:
        """Series, changes, slow hosts, and one table for each of `by`."""
        tables = [history_table(self.answer), regressions_table(self.answer)]
        tables += [slow_hosts_table(self.answer), *(by_table(self.answer, label) for label in by)]
        tables[0].warnings += self.warnings
        tables[0].title = f"Runs of {self.where}: {len(self.answer.runs):,} in {len(self.answer.series):,} series"
        return tables

    def screen(self, by: Sequence[str] = ()) -> list[Table]:
        """What matters most, on one screen."""
        tables = screen_tables(self.answer, self.where)
        tables[0].warnings += self.warnings
        return [*tables, *(by_table(self.answer, label, SCREEN_ROWS) for label in by)]

    def page_text(self) -> str:
        """All of it as one HTML file that works offline."""
        return to_html(history_page(self.answer, self.where, self.tables(("commit", "host", "version")), self.warnings))

    @property
    def regressed(self) -> bool:
        """Whether a regression goes on."""
        return any(event.is_worse and event.goes_on for event in self.answer.events)


def run_history(
    sources: Sequence[Path],
    *,
    only: str = "",
    series: Sequence[str] = SERIES_BY,
    last: int | None = None,
    again: bool = False,
    report: Told = lambda done, total: None,
) -> RunHistory:
    """The history of folders of runs, or of single runs; runs that are not known yet are summarised first."""
    parts, warnings = [], []
    for folder, chosen in _folders(sources or [RUNS]).items():
        summaries, said = _summaries(folder, chosen, again, report)
        parts.append(summaries)
        warnings += said
    rows = _chosen(pa.concat_tables([schema().empty_table(), *parts]), only, last)
    where = ", ".join(str(source) for source in sources or [RUNS])
    return RunHistory(ask(_columns(rows), series), where, warnings)


def _folders(sources: Sequence[Path]) -> dict[Path, set[str] | None]:
    """Folders of runs, each with the runs that were named, None: all."""
    folders: dict[Path, set[str] | None] = {}
    for source in sources:
        place = source if source.is_dir() else find_run(source)
        if not is_run(place):
            folders[place] = None
        elif folders.get(place.resolve().parent, set()) is not None:
            names = folders.setdefault(place.resolve().parent, set())
            assert names is not None
            names.add(place.resolve().name)
    return folders


# ---------------------------------------------------------------- summaries
def _summaries(folder: Path, chosen: set[str] | None, again: bool, report: Told) -> tuple[pa.Table, list[str]]:
    """What is kept of the folder's runs, after those that were not known have been added."""
    history = History(folder)
    stored = history.read()
    known = set() if again else set(stored.rows["run"].to_pylist()) - set(_unfinished(folder, stored.rows))
    new = [name for name in _names(folder) if name not in known and (chosen is None or name in chosen)]
    summaries: list[RunSummary] = []
    for first in range(0, len(new), BATCH):
        some: list[RunSummary] = []
        try:
            for name in new[first : first + BATCH]:
                some += summaries_of(folder / name)
                report(first + len(some), len(new))
        finally:  # also what was made before somebody pressed Ctrl-C
            history.add(some)
        summaries += some
    report(len(new), len(new))
    rows = stored.rows
    if summaries:
        gone = pc.is_in(rows["run"], pa.array([summary.run for summary in summaries], pa.string()))
        rows = pa.concat_tables([rows.filter(pc.invert(gone)), table_of(summaries)])
    if chosen is not None:
        rows = rows.filter(pc.is_in(rows["run"], pa.array(sorted(chosen), pa.string())))
    return rows, stored.warnings


def _names(folder: Path) -> list[str]:
    """The runs right below the folder; links, as `latest`, are left out."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except OSError as problem:
        raise NoRun(f"{folder}: cannot be listed: {problem.strerror}") from None
    return sorted(name for name in names if is_run(folder / name))


def _unfinished(folder: Path, rows: pa.Table) -> Iterator[str]:
    """Runs of which files were missing and have come since, as by `rankscope gather`."""
    some = rows.filter(pc.invert(rows["is_complete"]))
    for name, summarised_ns in zip(some["run"].to_pylist(), some["summarised_ns"].to_pylist(), strict=True):
        with suppress(OSError):
            places = [folder / name / "ranks", *(folder / name / "ranks").iterdir()]
            if max(place.stat().st_mtime_ns for place in places) > summarised_ns:
                yield name


def summaries_of(folder: Path) -> list[RunSummary]:
    """One run in one row; none while it runs."""
    job, _ = read_job(folder)
    if listed_run(folder).running:
        return []
    known = RunSummary(
        run=folder.name,
        started_ns=moment_of(folder),
        project=job.cwd,
        command=shlex.join(job.command),
        commit=job.commit,
        labels="; ".join(f"{name}={value}" for name, value in job.labels.items()),
        version=job.rankscope_version,
        launcher=job.launcher,
        summarised_ns=time.time_ns(),
    )
    try:
        run = Run(folder)
        return [_with_figures(known, run.store(events=run.reads_logs), job.expected_ranks)]
    except (NoRun, Wrong, BadFile, OSError) as problem:
        return [replace(known, is_complete=False, problem=str(problem))]


def _with_figures(known: RunSummary, store: RunTables, expected: int | None) -> RunSummary:
    run_measures = measures(store, known.run)
    wall = account(store)
    own_ns: dict[str, list[float]] = {}
    for rank in steps_of(store).ranks:
        if len(rank.own_ns):
            own_ns.setdefault(rank.host, []).append(float(rank.own_ns.mean()))
    has_steps = wall is not None and wall.useful + wall.lost > 0 and wall.wall_ns > 0
    return replace(
        known,
        command=known.command or ", ".join(run_measures.commands),
        libraries=", ".join(run_measures.versions),
        ranks=run_measures.ranks,
        is_complete=(expected is None or run_measures.ranks >= expected) and not run_measures.lost_files,
        failed_ranks=run_measures.ended_badly,
        steps=run_measures.steps,
        step_ns=run_measures.values.get(Metric("step", "step_p50")),
        exposed_ns=run_measures.values.get(Metric("part", "communication"), 0.0 if run_measures.steps else None),
        startup_ns=_startup_ns(store),
        goodput=wall.kinds[USEFUL] / wall.wall_ns if wall is not None and has_steps else None,
        elapsed_ns=run_measures.values.get(Metric("total", "elapsed")),
        hosts=run_measures.hosts,
        host_own_ns=[median(own_ns[host]) if host in own_ns else math.nan for host in run_measures.hosts],
    )


def _startup_ns(store: RunTables) -> float | None:
    """From the start of a process to the end of its first step, median of the ranks."""
    before = SEGMENTS[: SEGMENTS.index("steps")]
    starts = [
        sum(waterfall.segments.get(name, 0) for name in before)
        for waterfall in waterfalls(store)
        if "steps" in waterfall.segments
    ]
    return float(median(starts)) if starts else None


# ---------------------------------------------------------------- columns
def _chosen(rows: pa.Table, only: str, last: int | None) -> pa.Table:
    """In the order of time; those that match, and the newest of them."""
    rows = rows.sort_by([("started_ns", "ascending"), ("run", "ascending")])
    if only:
        try:
            re.compile(only)
            masks = [pc.match_substring_regex(rows[name], only) for name in ("run", "command", "project", "labels")]
        except (re.error, pa.ArrowInvalid) as problem:
            raise Wrong(f"--only {only}: not a regular expression: {problem}") from None
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.or_(mask, other)
        rows = rows.filter(mask)
    if last is not None:
        rows = rows.slice(max(0, rows.num_rows - last))
    if not rows.num_rows:
        raise NoRun("no run found: record one with `rankscope run COMMAND` or name a folder of runs")
    return rows


def _columns(rows: pa.Table) -> Runs:
    texts = columns_of(rows.select(TEXTS))
    numbers = columns_of(rows.select(NUMBERS))
    hosts = rows["hosts"].combine_chunks()
    hosts = hosts.chunk(0) if isinstance(hosts, pa.ChunkedArray) else hosts
    own_ns = rows["host_own_ns"].combine_chunks()
    own_ns = own_ns.chunk(0) if isinstance(own_ns, pa.ChunkedArray) else own_ns
    flat = columns_of(pa.table({"host": hosts.flatten(), "own": own_ns.flatten()}))
    lengths = pc.list_value_length(hosts).fill_null(0).to_numpy(zero_copy_only=False)
    return Runs(texts, numbers, flat["host"], np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), flat["own"])
