"""The runs of a folder, newest first, without reading more of them than whether they run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.model import BadFile, Moment
from rankscope.questions.live.standing import Standing, standing
from rankscope.rank_files.facts import Here
from rankscope.rank_files.live import LiveFile, read_moment
from rankscope.store.folder import Job, NoRun, find_run, listed, rank_files, read_job
from rankscope.store.roles import assign_roles

# ---------------------------------------------------------------------------------------------------------------------
# The ranks of a run as they are now, for the commands that look at running jobs.
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


# ---------------------------------------------------------------- runs
MOST_ASKED = 64  # rank files of a run that are asked whether their process runs


@dataclass(frozen=True, slots=True)
class Listed:
    """One run of a folder."""

    name: str
    folder: Path
    command: str
    started_ns: int
    files: int
    expected_ranks: int | None
    running: bool


def is_run(place: Path) -> bool:
    return (place / "ranks").is_dir() or (place / "loaded").is_dir()


def runs_in(folder: Path) -> list[Listed]:
    """The runs right below a folder, or the folder itself where it is one; links, such as `latest`, are left out."""
    if is_run(folder):
        return [listed_run(folder)]
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    found = [listed_run(folder / name) for name in names if is_run(folder / name)]
    return sorted(found, key=lambda one: (-one.started_ns, one.name))


def listed_run(folder: Path) -> Listed:
    """What can be told of a run at a glance."""
    job, _ = read_job(folder)
    files = sorted(folder.glob("ranks/*/*.rank"))
    started_ns = job.started_ns or folder.stat().st_mtime_ns
    running = any(_runs(path) for path in files[:MOST_ASKED])
    return Listed(folder.name, folder, shlex.join(job.command), started_ns, len(files), job.expected_ranks, running)


def _runs(path: Path) -> bool:
    try:
        return read_moment(path, Here(), 1).facts.ending == "running"
    except (BadFile, OSError):
        return False


def stays_inside(run: Path, root: Path) -> bool:
    """Whether no link in the run leads out of the folder that may be shown."""
    bound = os.path.realpath(root)
    if not _within(os.path.realpath(run), bound):
        return False
    for place, folders, files in os.walk(run, followlinks=False):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            if os.path.islink(path) and not _within(os.path.realpath(path), bound):
                return False
    return True


def _within(path: str, bound: str) -> bool:
    return path == bound or path.startswith(bound.rstrip("/") + "/")
