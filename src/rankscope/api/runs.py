"""The runs of a folder, newest first, without reading more of them than whether they run."""

from __future__ import annotations

import json
import os
import shlex
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rankscope.api.run import NoRun, Run, Wrong
from rankscope.model.records import BadFile
from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.pictures import Screen
from rankscope.questions.page.step_times import step_curve
from rankscope.questions.wording import counted
from rankscope.rank_files.facts import Here
from rankscope.rank_files.live import read_moment
from rankscope.store.cache import fingerprint
from rankscope.store.folder import DATE, is_run, listed, read_job, run_folders
from rankscope.store.rank_files import below, stamp_of
from rankscope.whole_file import write_whole

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


def runs_in(folder: Path) -> list[Listed]:
    """The runs right below a folder, or the folder itself where it is one; links, such as `latest`, are left out."""
    if is_run(folder):
        return [listed_run(folder)]
    if not os.access(folder, os.R_OK):
        raise PermissionError(f"{folder} cannot be listed")
    runs = [listed_run(place) for place in run_folders(folder)]
    return sorted(runs, key=lambda run: (-run.started_ns, run.name))


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


# ---------------------------------------------------------------------------------------------------------------------
# The list of runs: what stands in run.json, and what a look into the rank files has shown once, which is kept.
SUMMARY = ".summary.json"  # in the folder of a run that has ended
LIST_COLUMNS = (
    Column("number", Unit.NAME, "#", "the run's number from the newest, which every command takes: @1"),
    Column("started", Unit.NAME, "When", "when it started or, for loaded files, was loaded; local time"),
    Column("name", Unit.NAME, "Run", "its folder's name without the leading date"),
    Column("command", Unit.NAME, "Command", "what was started, or the tools whose files were loaded"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks seen"),
    Column("step_ns", Unit.NS, "Step", "mean steady step, on the GPUs' clock where known"),
    Column("finding", Unit.NAME, "First finding", "what the report opens with"),
)
NOT_READ = "not read yet"
MOST_POINTS = 60  # of the curve of a run's steps


@dataclass(frozen=True, slots=True)
class Summary:
    """What the list says of one run beside its name."""

    command: str
    ranks: int
    step_ns: float | None
    finding: str
    facts: list[str] = field(default_factory=list)  # how long, how many ranks, how they ended
    curve: list[float] = field(default_factory=list)  # step times from the first to the last, ns


def run_table(folder: Path, most: int | None, budget_s: float) -> Table:
    """The newest runs of a folder; those not seen before are read as long as the time suffices."""
    paths = run_folders(folder)
    shown, until_s, unread = paths[:most], time.monotonic() + budget_s, 0
    table = Table("runs", f"Runs in {folder}", LIST_COLUMNS, [])
    for place, run in enumerate(shown, 1):
        summary = kept_summary(run)
        if summary is None and time.monotonic() < until_s:
            summary = summarise(run)
        entry = listed_run(run)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.started_ns / 1e9))
        unread += summary is None
        said = summary or Summary(entry.command, entry.files, None, NOT_READ)
        finding = "running" if entry.running else said.finding
        row = (f"@{place}", when, DATE.sub("", entry.name), said.command, said.ranks or None, said.step_ns, finding)
        table.rows.append(row)
    if unread:
        table.notes.append(f"{unread} not read yet: --read reads them all.")
    if len(paths) > len(shown):
        table.notes.append(f"{len(paths) - len(shown)} older runs: --all lists them.")
    return table


def _stamp(run: Path) -> str:
    return fingerprint(run, {below(run, Path(path)): stamp_of(Path(path)) for path in listed(f"{run}/ranks")})


def kept_summary(run: Path) -> Summary | None:
    """What was worked out before, where the run is as it was then."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        stored = json.loads((run / SUMMARY).read_bytes())
        if stored.pop("of") == _stamp(run):
            return Summary(**stored)
    return None


def summarise(run: Path, keep: bool = True) -> Summary:
    """Worked out, and kept if the run has ended; without the right to write it is worked out again."""
    try:
        opened = Run(run)
        screen = opened.screen(logs=opened.reads_logs)
    except (NoRun, Wrong) as problem:
        return Summary("", 0, None, str(problem).removeprefix(f"{run}: "))
    problems = [text for text in screen.problems if not text.startswith("RUNNING")]  # the list says so itself
    findings = [*problems, *(advice.title.partition("; ")[0] for advice in screen.advice), screen.verdict]
    summary = Summary(
        *(screen.name, screen.rank_count, screen.step_ns, findings[0]),
        facts=list(screen.facts),
        curve=step_curve(opened.store(), MOST_POINTS) if opened.is_small else [],
    )
    if keep and not screen.running:
        stored = {"of": _stamp(run), **asdict(summary)}
        with suppress(OSError):
            write_whole(run / SUMMARY, [json.dumps(stored).encode()])
    return summary


# ---------------------------------------------------------------------------------------------------------------------
# The first screen about a study: a line for each point of its matrix, which are runs of their own.
CELL_COLUMNS = (
    Column("cell", Unit.NAME, "Cell", "value of each axis of the study"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks asked for"),
    Column("done", Unit.NAME, "Done", "successful repeats, of all"),
    Column("wall_ns", Unit.NS, "Wall time", "median of the repeats, launcher included"),
    Column("step_ns", Unit.NS, "Step", "mean steady step, median of the repeats"),
    Column("finding", Unit.NAME, "First finding", "first finding of its first repeat's report, or why it failed"),
)


def study_screen(folder: Path, budget_s: float) -> Screen | None:
    """What became of the cells of a study; None: the folder is none."""
    try:
        about = json.loads((folder / "study.json").read_bytes())
        title, planned = str(about["title"]), len(about["cells"])
        cells = [(path.parent, json.loads(path.read_bytes())) for path in sorted(folder.glob("cells/*/cell.json"))]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    until_s = time.monotonic() + budget_s
    points: dict[tuple[str, int], list[tuple[Path, dict[str, Any]]]] = {}
    for place, cell_record in cells:
        axes = ", ".join(f"{name} {value}" for name, value in cell_record["values"].items())
        points.setdefault((axes, cell_record["ranks"]), []).append((place, cell_record))
    rows = [_point(axes, ranks, repeats, until_s) for (axes, ranks), repeats in points.items()]
    rows.sort(key=lambda row: (row[3] is None, row[3] or 0))
    failed = [(place, cell_record) for place, cell_record in cells if cell_record["state"] != "done"]
    problems = [f"INCOMPLETE: {len(cells)} of {planned} cells have run: --resume"] if len(cells) < planned else []
    problems += (
        [f"FAILED: {len(failed)} of {planned} cells: {failed[0][0].name}: {failed[0][1]['reason']}"] if failed else []
    )
    facts = [counted(planned, "cell"), counted(about.get("repeats", 1), "repeat")]
    document = next(iter(sorted(folder.glob("*.md"))), None)
    return Screen(
        title,
        [f"study {folder.name}", *facts],
        problems,
        f"Complete: {planned} of {planned} cells done",
        None,
        None,
        [],
        f"Read the document: {document}"
        if document
        else "There is no document yet: `rankscope study --resume` writes it.",
        Table("cells", "Cells", CELL_COLUMNS, rows),
        "fastest first; one cell: rankscope report CELL/attempt-1/run",
        [],
        [],
        0,
        None,
        False,
    )


def _point(axes: str, ranks: int, repeats: list[tuple[Path, dict[str, Any]]], until_s: float) -> tuple[Cell, ...]:
    done = [(place, record) for place, record in repeats if record["state"] == "done"]
    summaries = []
    for place, cell in done:
        run = place / str(cell["attempt"]) / "run"
        known = kept_summary(run) or (summarise(run) if time.monotonic() < until_s else None)
        summaries += [known] if known is not None else []
    steps = [summary.step_ns for summary in summaries if summary.step_ns is not None]
    seconds = [float(record["seconds"]) for _, record in done if record.get("seconds") is not None]
    finding = summaries[0].finding if summaries else NOT_READ
    return (
        *(axes, ranks, f"{len(done)}/{len(repeats)}"),
        *(median(seconds) * 1e9 if seconds else None, median(steps) if steps else None),
        finding if done else str(repeats[0][1].get("reason") or repeats[0][1]["state"]),
    )
