"""A job's metrics for those who watch it elsewhere: read from its rank files, again and again until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rankscope.api.lineage import other_accounts
from rankscope.api.live import LiveView, NoRun, watch
from rankscope.api.run import Run
from rankscope.model.metrics import Metric, Point, Snapshot, Undelivered, Unusable
from rankscope.model.records import BadFile
from rankscope.questions.live import metrics
from rankscope.questions.live.metrics import METRICS, STEPS, Look, StepSums
from rankscope.questions.run.goodput import Account
from rankscope.questions.steps.data import steps_of

__all__ = [
    "METRICS",
    "Destination",
    "JobMetrics",
    "Metric",
    "NoRun",
    "Outlet",
    "Snapshot",
    "Unusable",
    "deliver",
    "job_metrics",
]

READING_SHARE = 0.2  # of the time at most is spent on reading
BETWEEN_LOOKS_FOR_IT_S = 0.5
FIRST_LOOK_S = 2.0  # after so long at the latest there is something to show
LAST_PAUSES_S = (1.0, 2.0)  # between attempts at delivering the last values
LONGEST_PAUSE_S = 300.0  # between two attempts at a destination that does not answer


class Destination(Protocol):
    """Where values go: one file of output/publish each."""

    name: str

    def send(self, now: Snapshot) -> None:
        """Raises Undelivered."""

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        """The job has ended: these are the values of the whole run, and those of its steps if they are wanted."""


# ---------------------------------------------------------------------------------------------------------------------
# What is published.
class JobMetrics:
    """The metrics of a run, by looks at what its ranks do now and, more rarely, readings of all it has recorded."""

    def __init__(self, path: Path | None, per_rank: bool) -> None:
        self.view = LiveView(watch(path), 0, tells_slow=False)
        self.folder, self.per_rank = self.view.watched.folder, per_rank
        self.name = self.folder.resolve().name
        self.is_over = self.view.is_over
        self._others: list[Account] | None = None
        self._steps = StepSums()
        self._read_at_s = self._reading_s = 0.0
        self._of_run: list[Point] = []
        self._run: Run | None = None  # once it has ended

    @property
    def reading_s(self) -> float:
        """How long a look takes: more of them than one in five times as long would do nothing else."""
        return self.view.reading_s

    def look(self) -> Snapshot:
        """The job now."""
        self.view.look()
        self.is_over = self.view.is_over
        passed_s = time.monotonic() - self._read_at_s
        if self.is_over or not self._read_at_s or passed_s >= self._reading_s / READING_SHARE:
            self._read()
        return self._snapshot()

    def history(self) -> list[Snapshot]:
        """Of a run that has ended: its steps, one after the other."""
        return metrics.history(self._run.store(), self.name, self._started_ns) if self._run is not None else []

    @property
    def _started_ns(self) -> int:
        moments = self.view.now.ranks.values()
        first = min((moment.facts.started_ns for moment in moments if moment.facts.started_ns), default=None)
        now_ns = time.time_ns()
        return min(self.view.watched.job.started_ns or first or now_ns, now_ns)

    def _read(self) -> None:
        """All that was recorded so far; what cannot be read now may be at the next reading."""
        began_s = time.monotonic()
        try:
            if self._others is None:
                self._others, _ = other_accounts(self.folder)
            run = Run(self.folder, keep=False)
            store = run.store(events=run.reads_logs if self.is_over else run.is_small)
            self._steps.add(steps_of(store))
            self._of_run = list(metrics.run_points(store, self._others))
            if self.is_over:
                self._run = run
                self._of_run += metrics.ended_points(store, self.per_rank)
        except (BadFile, NoRun, OSError):
            pass
        self._read_at_s = time.monotonic()
        self._reading_s = self._read_at_s - began_s

    def _snapshot(self) -> Snapshot:
        view = self.view
        look = Look(view.now, view.verdict, view.pace, view.behaviour if view.many else None)
        live = metrics.steps_done(view.now)
        done = live if live is not None else self._steps.done
        points = [*metrics.look_points(look), *self._steps.points(self.is_over), *self._of_run]
        points += [Point(STEPS, done)] if done is not None else []
        points += metrics.rank_points(look) if self.per_rank else []
        return Snapshot(self.name, self._started_ns, time.time_ns(), done, points)


def job_metrics(path: Path | None, per_rank: bool, wait_s: float) -> JobMetrics:
    """Of the run that was asked for; one that is not there yet is waited for so long."""
    until_s = time.monotonic() + wait_s
    while True:
        try:
            return JobMetrics(path, per_rank)
        except NoRun:
            if time.monotonic() >= until_s:
                raise
        time.sleep(BETWEEN_LOOKS_FOR_IT_S)


# ---------------------------------------------------------------------------------------------------------------------
# Where it goes, and what happens where nobody answers.
@dataclass(slots=True)
class Outlet:
    """A destination that may fail: it is tried again, ever more rarely, and a failure is told once."""

    destination: Destination
    say: Callable[[str], None]
    every_s: float
    failures: int = 0
    next_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def send(self, now: Snapshot) -> None:
        if self.clock() >= self.next_s:
            self._attempt(lambda: self.destination.send(now))

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        """The last values matter most: they are tried some times."""
        for pause_s in (*LAST_PAUSES_S, None):
            self._attempt(lambda: self.destination.finish(last, history))
            if not self.failures or pause_s is None:
                break
            self.sleep(pause_s)

    def _attempt(self, send: Callable[[], None]) -> None:
        try:
            send()
        except Undelivered as problem:
            if not self.failures:
                self.say(f"{self.destination.name}: {problem}; trying again")
            self.failures += 1
            self.next_s = self.clock() + min(LONGEST_PAUSE_S, self.every_s * 2 ** min(self.failures - 1, 16))
            return
        if self.failures:
            self.say(f"{self.destination.name}: delivered again, after {self.failures} failures")
        self.failures = 0


def deliver(job: JobMetrics, outlets: Sequence[Outlet], every_s: float, once: bool) -> Iterator[Snapshot]:
    """Publish until the job has ended, or once; gives what was published."""
    pause_s = min(every_s, FIRST_LOOK_S)
    while not job.is_over:
        time.sleep(max(pause_s, job.reading_s / READING_SHARE))
        pause_s, now = every_s, job.look()
        if job.is_over or once:
            break
        for outlet in outlets:
            outlet.send(now)
        yield now
    else:
        now = job.look()
    for outlet in outlets:
        outlet.finish(now, job.history if job.is_over else list)
    yield now
