"""The ranks of a run as they are now: who waits for whom, and whether the job hangs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.model.records import BadFile, Moment, Role
from rankscope.model.tables import Table
from rankscope.questions.live.hang import HANGS, OVER, Verdict, verdict
from rankscope.questions.live.hang_report import groups_table, places_table, verdict_table
from rankscope.questions.live.standing import Standing, paces, standing
from rankscope.questions.live.top import (
    job_table,
    live_behaviour,
    many_tables,
    outlying_places,
    ranks_table,
    slowest_of_many,
)
from rankscope.questions.ranks.behaviour import Behaviour
from rankscope.questions.selection import MANY_RANKS
from rankscope.rank_files.facts import Here
from rankscope.rank_files.live import LiveFile
from rankscope.store.folder import Job, NoRun, find_run, host_groups, listed, rank_files, read_job
from rankscope.store.roles import assign_roles

__all__ = ["MANY_RANKS", "OUTLIERS", "Diagnosis", "LiveView", "NoRun", "Watched", "diagnose_hang", "live_view", "watch"]

MOST_STRINGS = 256
RECORDS = 64  # newest collectives of a rank: enough to see who waits for whom
FEW_RECORDS = 16  # of each of very many ranks
VERY_MANY_RANKS = 1024
OUTLIERS = 10  # ranks, places and groups of each kind that are shown of many
NOTHING = Behaviour([], [], [])
PATIENCE_NS = 10_000_000_000
SLOW_EVERY_S = 10.0  # all steps are read for it


@dataclass(slots=True)
class Watched:
    """A run whose rank files are read again and again; never written."""

    folder: Path
    job: Job
    here: Here = field(default_factory=Here)
    bad: dict[Path, str] = field(default_factory=dict)
    _files: dict[str, LiveFile] = field(default_factory=dict)
    _strings: dict[bytes, list[str]] = field(default_factory=dict)

    def look(self, records: Callable[[int], int] | None = None) -> Standing:
        """Where every rank is now, with so many of its newest collectives: told by how many files there are."""
        self.bad.clear()
        moments = self._moments(records)
        assign_roles([moment.facts for moment in moments])
        ranks = [moment for moment in moments if moment.facts.role == Role.RANK]
        launchers = [moment.facts for moment in moments if moment.facts.role == Role.LAUNCHER]
        return standing(ranks, self.job.expected_ranks, any(facts.ending == "running" for facts in launchers))

    def _opened(self, path: Path) -> LiveFile:
        return LiveFile(path, self._strings)

    def _moments(self, records: Callable[[int], int] | None) -> list[Moment]:
        names = list(listed(f"{self.folder}/ranks")) or rank_files(self.folder)  # which says why there are none
        self._files = {str(name): self._files.get(str(name)) or self._opened(Path(name)) for name in names}
        if len(self._strings) > MOST_STRINGS + len(self._files):
            self._strings.clear()  # tables of names that have grown since
        newest = records(len(self._files)) if records is not None else None
        moments: list[Moment] = []
        for file in self._files.values():
            try:
                moments.append(file.moment(self.here, newest))
            except BadFile as problem:
                self.bad[file.path] = str(problem)
        if not moments:
            raise NoRun(f"{self.folder}: none of its files could be read: {next(iter(self.bad.values()))}")
        return moments


def watch(path: Path | None, find: Callable[[Path | None], Path] = find_run) -> Watched:
    """The run that was asked for, by default the latest."""
    folder = find(path)
    job, _ = read_job(folder)
    return Watched(folder, job)


# ---------------------------------------------------------------------------------------------------------------------
# Does it hang?
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What holds up the job, by two looks at it."""

    watched: Watched
    before: Standing
    now: Standing
    verdict: Verdict

    @property
    def is_hang(self) -> bool:
        return self.verdict.kind in HANGS

    @property
    def is_inconclusive(self) -> bool:
        return self.verdict.kind == "inconclusive"

    def pids_here(self) -> dict[int, int]:
        """The ranks that run on this host, which can be asked more than their files tell."""
        return {
            rank: moment.facts.pid
            for rank, moment in self.now.ranks.items()
            if moment.facts.ending == "running" and moment.facts.host == self.watched.here.host and moment.facts.pid
        }

    def tables(self, lines: Mapping[int, str], collapse: bool) -> tuple[Table, Table, Table]:
        """The verdict, where each rank is (with its line of Python, as far as known), and the groups."""
        places = places_table(self.before, self.now, lines, collapse=collapse)
        return verdict_table(self.verdict, self.now), places, groups_table(self.now)


def diagnose_hang(path: Path | None, wait_s: float, patience_s: float) -> Diagnosis:
    """Look twice, so many seconds apart; a rank that may still come is waited for as long as the patience."""
    watched = watch(path)
    before = watched.look()
    time.sleep(wait_s)
    now = watched.look()
    return Diagnosis(watched, before, now, verdict(before, now, int(patience_s * 1e9)))


# ---------------------------------------------------------------------------------------------------------------------
# How does it go?
@contextmanager
def uncollected() -> Iterator[None]:
    """Hundreds of thousands of objects are made, no two in a circle: looking for one would take longest of all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class LiveView:
    """The job at the two newest moments."""

    def __init__(
        self, watched: Watched, rows: int, group_of: Mapping[str, str] | None = None, tells_slow: bool = True
    ) -> None:
        self.watched, self.rows, self.group_of, self._tells_slow = watched, rows, group_of or {}, tells_slow
        self.reading_s = 0.0
        self.slow, self._asked_s = "", time.monotonic()
        self.before = self.now = self._look()
        self._work_out()

    def look(self) -> None:
        self.before, self.now = self.now, self._look()
        self._work_out()

    def _look(self) -> Standing:
        began = time.monotonic()
        with uncollected():
            current = self.watched.look(lambda files: FEW_RECORDS if files > VERY_MANY_RANKS else RECORDS)
        self.reading_s = time.monotonic() - began
        return current

    def _work_out(self) -> None:
        """What a frame is made of, however many rows of it fit."""
        self.many = len(self.now.ranks) >= MANY_RANKS
        with uncollected():
            self.verdict = verdict(self.before, self.now, PATIENCE_NS)
            self.pace = paces(self.before, self.now)
            self.behaviour = live_behaviour(self.now, self.pace) if self.many else NOTHING
            self.by_place = outlying_places(self.behaviour, self.group_of)
        if self._tells_slow and not self.many and time.monotonic() - self._asked_s >= SLOW_EVERY_S:
            self.slow, self._asked_s = slow_now(self.watched.folder), time.monotonic()

    def tables(self, rows: int) -> list[Table]:
        """The job, and its ranks, in so many rows: each of them, or of many only what tells them apart."""
        with uncollected():
            return self._tables(self.rows or (min(rows, OUTLIERS) if self.many else rows))

    @property
    def is_over(self) -> bool:
        """Whether nobody is left."""
        return self.verdict.kind in OVER

    def _tables(self, most: int) -> list[Table]:
        if not self.many:
            ranks = ranks_table(self.now, self.verdict, self.pace, most)
            job = job_table(self.title(), self.now, self.verdict, self.pace)
            job.warnings += [self.slow] if self.slow else []
            return [job, ranks]
        slowest = slowest_of_many(self.behaviour, self.by_place)
        job = job_table(self.title(), self.now, self.verdict, self.pace, slowest)
        return [job, *many_tables(self.now, self.pace, self.behaviour, self.by_place, most)]

    def title(self) -> str:
        bad = f", {len(self.watched.bad)} files unreadable" if self.watched.bad else ""
        clock = time.strftime("%H:%M:%S")
        return f"{self.watched.folder}  {clock}  read in {self.reading_s * 1e3:.0f} ms{bad}"


def slow_now(folder: Path) -> str:
    """The slow-down that goes on, in a sentence; "" where there is none, or it cannot be read now."""
    from rankscope.api.run import Run
    from rankscope.questions.steps.slowdowns import slowdown_sentence, slowdowns_of

    try:
        going_on = [slowdown for slowdown in slowdowns_of(Run(folder, keep=False).store()) if slowdown.goes_on]
    except (BadFile, NoRun, OSError):
        return ""
    return slowdown_sentence(going_on[-1]) if going_on else ""


def live_view(path: Path | None, rows: int, groups: Path | None = None) -> LiveView:
    """The run that was asked for, by default the latest; hosts that belong together as the file of groups says."""
    watched = watch(path)
    return LiveView(watched, rows, host_groups(groups, watched.folder))
