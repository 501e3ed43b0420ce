"""Finds a run's folder, its description and its rank files."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

FORMAT = 1
RUNS = Path("rankscope-runs")
LATEST = RUNS / "latest"
DATE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-")  # before the name of a run


class NoRun(Exception):
    """There is no run to open there, in one line with the next action."""


@dataclass(slots=True)
class Job:
    """What run.json tells: what was started, where, when and with how many ranks."""

    command: list[str] = field(default_factory=list)
    launcher: str = ""
    expected_ranks: int | None = None
    started_ns: int | None = None
    host: str = ""
    cwd: str = ""
    rankscope_version: str = ""
    library_path: str = ""  # LD_LIBRARY_PATH
    lineage: str = ""  # what it shares with the other starts of the same job: --lineage, or the batch system's number
    out: str = ""  # --out
    commit: str = ""  # of the program, by its repository or --label commit=…
    labels: dict[str, str] = field(default_factory=dict)  # --label NAME=VALUE


RECORD_ONE = "record one with `rankscope run COMMAND`, or name a run's folder"


def find_run(path: Path | None) -> Path:
    """The folder of a run by its path, its name, `latest` (the default), or its number: @1 is the newest."""
    folder = LATEST if path is None else path if path.exists() else _by_name(str(path)) or path
    if not folder.exists():
        if path is None and not run_folders(RUNS):
            raise NoRun(f"no runs in {RUNS}/: {RECORD_ONE}")
        raise NoRun(f"{folder}: no such run: {_instead(str(path or ''))}")
    if not folder.is_dir():
        raise NoRun(f"{folder}: not a folder: name the folder that `rankscope run` made")
    return folder


def _by_name(text: str) -> Path | None:
    if text == "latest":
        return LATEST
    if text.startswith("@"):
        paths = run_folders(RUNS)
        place = int(text[1:]) if text[1:].isdecimal() and len(text) < 8 else 0
        if not paths:
            raise NoRun(f"{text}: no runs in {RUNS}/: {RECORD_ONE}")
        if not 0 < place <= len(paths):
            count = "1 run" if len(paths) == 1 else f"{len(paths)} runs"
            raise NoRun(f"{text}: {count} in {RUNS}/: @1 is the newest (rankscope runs lists them)")
        return paths[place - 1]
    return named_run(RUNS, text)


def named_run(folder: Path, name: str) -> Path | None:
    """The run of that name, also one that has a date before it: of several the newest."""
    if "/" not in name and (folder / name).is_dir():
        return folder / name
    dated = [known for known in _names(str(folder)) if DATE.match(known) and DATE.sub("", known, count=1) == name]
    return folder / dated[-1] if dated else None


def _instead(text: str) -> str:
    """What to do: other names that are like it, or how to make a run."""
    known = {DATE.sub("", name, count=1): None for name in _names(str(RUNS)) if not name.startswith(".")}
    like = get_close_matches(text, [name for name in known if name != "latest"], 3, 0.5)
    if like:
        return f"did you mean {' or '.join(like)}? (rankscope runs lists them)"
    return RECORD_ONE


def is_run(place: Path) -> bool:
    """Whether it has a run's parts; a run may itself be called `loaded`, and its folder's parent is no run."""
    parts = (place / "ranks", place / "loaded")
    return any(part.is_dir() and not (part / "run.json").exists() for part in parts)


def run_folders(folder: Path) -> list[Path]:
    """The runs right below a folder, newest first, by a look at run.json alone; links, as `latest`, are left out."""
    try:
        with os.scandir(folder) as entries:
            paths = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted((path for path in paths if is_run(path)), key=lambda path: (-moment_of(path), path.name))


def moment_of(run: Path) -> int:
    """When it was started or, of one that holds loaded files, made."""
    try:
        description = json.loads((run / "run.json").read_bytes())
        moments = [description.get(key) for key in ("started_ns", "made_ns")]
        return next(moment for moment in moments if type(moment) is int)
    except (OSError, ValueError, AttributeError, StopIteration):
        return run.stat().st_mtime_ns


def rank_files(folder: Path, loaded: Sequence[object] = ()) -> list[Path]:
    """All rank files of a run, in a fixed order; a run into which files were loaded may have none."""
    files = [Path(path) for path in listed(f"{folder}/ranks")]
    if not files and not loaded:
        why = "still starting, started without `rankscope run`, or recorded with --local: then `rankscope gather`"
        raise NoRun(f"{folder}: no rank files in ranks/ ({why})")
    return files


def listed(ranks: str) -> Iterator[str]:
    """Rank files by host and name, each folder listed once: a glob of 100,000 files takes ten times as long."""
    for host in _names(ranks):
        for name in _names(f"{ranks}/{host}"):
            if name.endswith(".rank"):
                yield f"{ranks}/{host}/{name}"


def unrecorded(folder: Path) -> list[str]:
    """Programs that processes of the run started and that could not take the recorder, each with how often and why."""
    counts: Counter[tuple[str, str]] = Counter()
    for host in _names(f"{folder}/unrecorded"):
        try:
            lines = (folder / "unrecorded" / host).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        counts.update((why, program) for why, _, program in (line.partition("\t") for line in lines) if program)
    return [f"not recorded: {count} × {program}: {why}" for (why, program), count in sorted(counts.items())]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # not there, no folder, or no right to look: no rank files
        return []


def read_job(folder: Path) -> tuple[Job, list[str]]:
    """What run.json says, and what is wrong with it: a run without one can still be read."""
    path = folder / "run.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Job(), [f"{path} is missing: what was started and how many ranks were expected is not known"]
    except (OSError, ValueError) as problem:
        return Job(), [f"{path} cannot be read: {problem}"]
    if not isinstance(description, dict):
        return Job(), [f"{path} cannot be read: not an object"]
    newer = [f"{path} has format {description.get('format')}, this rankscope knows {FORMAT}"]
    return _job(description), newer if description.get("format") != FORMAT else []


def _job(description: dict[str, Any]) -> Job:
    """Only what has the right type: the file may have been edited."""
    command = description.get("command")
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    names = ("launcher", "host", "cwd", "rankscope_version", "library_path", "lineage", "commit")
    texts = {key: description[key] for key in names if isinstance(description.get(key), str)}
    numbers = {key: description[key] for key in ("expected_ranks", "started_ns") if type(description.get(key)) is int}
    labels = description.get("labels")
    pairs = labels.items() if isinstance(labels, dict) else ()
    options = description.get("options")
    out = options.get("out") if isinstance(options, dict) else None
    if isinstance(out, str):
        texts["out"] = out
    job = Job(words, **texts, **{key: value for key, value in numbers.items() if 0 <= value < 2**63})
    job.labels = {name: value for name, value in pairs if isinstance(value, str)}
    job.commit = job.labels.get("commit", job.commit)
    return job


def lineage_of(run: Path) -> list[Path]:
    """The runs beside it that are starts of the same job, oldest first: one name, one batch job, or one --out."""
    job, _ = read_job(run)
    here = run.resolve()

    def is_same(other: Path) -> bool:
        theirs, _ = read_job(other)
        if job.lineage or theirs.lineage:
            return job.lineage == theirs.lineage
        is_given = bool(job.out) and Path(job.out).name != RUNS.name  # else it is where all runs are
        return is_given and (job.out, job.cwd, job.command) == (theirs.out, theirs.cwd, theirs.command)

    those = [other for other in run_folders(here.parent) if other.resolve() == here or is_same(other)]
    return sorted(those or [run], key=moment_of)


# ---------------------------------------------------------------------------------------------------------------------
# Which hosts belong together, by a mapping file: lines of host and group, as those of one switch.
FILE = "groups.csv"  # in the folder of the run
HEADING = ("host", "group")


def read_host_groups(path: Path) -> dict[str, str]:
    """The group of each host."""
    groups: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                words = [word.strip() for word in row]
                if not any(words) or tuple(words) == HEADING or words[0].startswith("#"):
                    continue
                if len(words) != len(HEADING) or not all(words):
                    raise NoRun(f"{path}:{number}: write a host and its group, with a comma between")
                groups[words[0]] = words[1]
    except (OSError, UnicodeError, csv.Error) as problem:
        raise NoRun(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    return groups


def host_groups(path: Path | None, run: Path) -> dict[str, str]:
    """Of the file that was named, or of the one in the run's folder, if there is one."""
    chosen = path if path is not None else run / FILE
    return read_host_groups(chosen) if path is not None or chosen.is_file() else {}


def host_groups_table(path: Path | None, run: Path) -> pa.Table:
    """The same as a table."""
    groups = host_groups(path, run)
    return pa.table({"host": pa.array(groups, pa.string()), "group": pa.array(groups.values(), pa.string())})
