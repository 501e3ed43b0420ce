"""The runs of a folder, newest first, without reading more of them than whether they run."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from rankscope.model import BadFile
from rankscope.rank_files.facts import Here
from rankscope.rank_files.live import read_moment
from rankscope.store.folder import read_job

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
