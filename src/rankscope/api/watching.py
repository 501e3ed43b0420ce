"""The ranks of a run as they are now, for the commands that look at running jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.analyse.standing import Standing, standing
from rankscope.model import BadFile, Moment
from rankscope.readers.ending import Here
from rankscope.readers.moment import read_moment
from rankscope.store.folder import Job, NoRun, find_run, rank_files, read_job
from rankscope.store.roles import assign_roles


@dataclass(slots=True)
class Watched:
    """A run whose rank files are read again and again; never written."""

    folder: Path
    job: Job
    here: Here = field(default_factory=Here)
    bad: dict[Path, str] = field(default_factory=dict)

    def look(self, records: int | None = None) -> Standing:
        """Where every rank is now."""
        moments: list[Moment] = []
        self.bad.clear()
        for path in rank_files(self.folder):
            try:
                moments.append(read_moment(path, self.here, records))
            except BadFile as problem:
                self.bad[path] = str(problem)
        if not moments:
            raise NoRun(f"{self.folder}: none of its files could be read: {next(iter(self.bad.values()))}")
        assign_roles([one.facts for one in moments])
        return standing([one for one in moments if one.facts.role == "rank"], self.job.expected_ranks)


def watch(path: Path | None, find: Callable[[Path | None], Path] = find_run) -> Watched:
    """The run that was asked for, by default the latest."""
    folder = find(path)
    job, _ = read_job(folder)
    return Watched(folder, job)
