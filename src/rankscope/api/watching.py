"""The ranks of a run as they are now, for the commands that look at running jobs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.analyse.standing import Standing, standing
from rankscope.model import BadFile, Moment
from rankscope.readers.ending import Here
from rankscope.readers.moment import LiveFile
from rankscope.store.folder import Job, NoRun, find_run, rank_files, read_job
from rankscope.store.roles import assign_roles

MOST_STRINGS = 256


@dataclass(slots=True)
class Watched:
    """A run whose rank files are read again and again; never written."""

    folder: Path
    job: Job
    here: Here = field(default_factory=Here)
    bad: dict[Path, str] = field(default_factory=dict)
    _files: dict[Path, LiveFile] = field(default_factory=dict)
    _strings: dict[bytes, list[str]] = field(default_factory=dict)

    def look(self, records: int | None = None) -> Standing:
        """Where every rank is now."""
        self.bad.clear()
        collected = gc.isenabled()
        gc.disable()  # hundreds of thousands of objects without a circle among them: searching for one takes longest
        try:
            moments = self._moments(records)
            assign_roles([one.facts for one in moments])
            return standing([one for one in moments if one.facts.role == "rank"], self.job.expected_ranks)
        finally:
            if collected:
                gc.enable()

    def _moments(self, records: int | None) -> list[Moment]:
        paths = rank_files(self.folder)
        self._files = {path: self._files.get(path) or LiveFile(path, self._strings) for path in paths}
        if len(self._strings) > MOST_STRINGS + len(paths):
            self._strings.clear()  # tables of names that have grown since
        moments: list[Moment] = []
        for path, file in self._files.items():
            try:
                moments.append(file.moment(self.here, records))
            except BadFile as problem:
                self.bad[path] = str(problem)
        if not moments:
            raise NoRun(f"{self.folder}: none of its files could be read: {next(iter(self.bad.values()))}")
        return moments


def watch(path: Path | None, find: Callable[[Path | None], Path] = find_run) -> Watched:
    """The run that was asked for, by default the latest."""
    folder = find(path)
    job, _ = read_job(folder)
    return Watched(folder, job)
