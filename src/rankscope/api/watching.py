"""The ranks of a run as they are now, for the commands that look at running jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.model import BadFile, Moment
from rankscope.questions.live.standing import Standing, standing
from rankscope.rank_files.live import LiveFile
from rankscope.readers.ending import Here
from rankscope.store.folder import Job, NoRun, find_run, listed, rank_files, read_job
from rankscope.store.roles import assign_roles

MOST_STRINGS = 256


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
        assign_roles([one.facts for one in moments])
        return standing([one for one in moments if one.facts.role == "rank"], self.job.expected_ranks)

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
