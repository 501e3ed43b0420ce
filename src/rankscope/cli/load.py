"""`rankscope load`: reads other tools' files into a run."""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.formats.recognition import find_files, is_run, pieces, readings, settle_ranks
from rankscope.formats.registry import FORMATS
from rankscope.formats.source import Hints, Source
from rankscope.model import BadFile, RankFacts, Reading, Severity
from rankscope.output.cells import printable
from rankscope.questions.wording import counted
from rankscope.record.place import cleaned
from rankscope.record.run_folder import ROOT, Folder, Json, describe, new_folder, point_latest
from rankscope.store.foreign import LoadedFile, loaded_folders, remove_replaced

# ---------------------------------------------------------------------------------------------------------------------
# Reads foreign files into the folder of a run, several at once when that pays.
POOL_FROM_FILES = 16
POOL_FROM_BYTES = 32 << 20
POLL_SECONDS = 0.2

Show = Callable[[int, int], None]  # which file, how many bytes of it


@dataclass(frozen=True, slots=True)
class Task:
    """One file to load, and how."""

    place: int
    path: Path
    size_bytes: int
    run: Path
    wanted: str | None
    hints: Hints
    loaded_ns: int


@dataclass(slots=True)
class Outcome:
    """What came of one file."""

    task: Task
    key: str = ""
    formats: list[str] = field(default_factory=list)
    processes: int = 0
    warnings: int = 0
    problem: str = ""


def content_key(path: Path) -> str:
    """A short name for the content of a file."""
    digest = hashlib.blake2b(digest_size=8)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def load_file(task: Task, watch: Callable[[int], None] | None = None) -> Outcome:
    """Read one file into the run; whatever is wrong with it becomes the outcome's problem."""
    outcome = Outcome(task)
    source = Source(task.path, task.hints, watch=watch)
    try:
        chosen = pieces(source, task.wanted)
        made = LoadedFile(task.run, os.path.abspath(task.path))
    except BadFile as problem:
        outcome.problem = str(problem)
        return outcome
    except OSError as problem:
        outcome.problem = f"{problem.filename or task.path}: {problem.strerror or problem}"
        return outcome
    except Exception as problem:  # a format that cannot even say whether it knows a file is our mistake
        told = " ".join(f"{type(problem).__name__}: {problem}"[:200].split())
        outcome.problem = f"{task.path}: could not be recognised ({told}): please report this"
        return outcome
    try:
        _fill(made, source, chosen, outcome)
    except BadFile as problem:
        outcome.problem = str(problem)
    except OSError as problem:
        outcome.problem = f"{task.path}: could not be kept in {task.run}: {problem.strerror or problem}"
    finally:
        made.abandon()
    return outcome


def _fill(made: LoadedFile, source: Source, chosen: Any, outcome: Outcome) -> None:
    for name, reading in readings(source, chosen):
        made.add(reading)
        outcome.warnings += sum(note.severity is Severity.WARNING for note in reading.notes)
        if name and name not in outcome.formats:
            outcome.formats.append(name)
    notes = settle_ranks(source, made.settle())
    outcome.warnings += sum(note.severity is Severity.WARNING for note in notes)
    made.add(Reading(RankFacts(), continues=True, notes=notes))
    outcome.processes = sum(facts.role != "document" for facts in made.processes)
    task = outcome.task
    outcome.key = content_key(task.path)
    made.finish(
        outcome.key,
        {
            "formats": outcome.formats,
            "options": {"as": task.wanted, "rank": task.hints.rank, "map": str(task.hints.mapping or "") or None},
            "size_bytes": task.size_bytes,
            "loaded_ns": task.loaded_ns,
            "place": task.place,
        },
    )


def load_all(tasks: Sequence[Task], show: Show) -> Iterator[Outcome]:
    """Every outcome, as it comes."""
    workers = min(len(os.sched_getaffinity(0)), len(tasks))
    much = len(tasks) >= POOL_FROM_FILES or sum(task.size_bytes for task in tasks) >= POOL_FROM_BYTES
    if workers < 2 or not much:
        for task in tasks:
            yield load_file(task, partial(show, task.place))
        return
    yield from _in_pool(tasks, workers, show)


_done: Any = None  # how many bytes of each file the workers have taken


def _watched(task: Task) -> Outcome:
    def watch(done_bytes: int) -> None:
        _done[task.place] = done_bytes

    return load_file(task, watch)


def _in_pool(tasks: Sequence[Task], workers: int, show: Show) -> Iterator[Outcome]:
    global _done
    context = multiprocessing.get_context("fork")  # workers need not import everything again
    _done = context.RawArray("q", max(task.place for task in tasks) + 1)
    with ProcessPoolExecutor(workers, context) as pool:
        pending: dict[Future[Outcome], Task] = {pool.submit(_watched, task): task for task in tasks}
        while pending:
            ready, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            for task in pending.values():
                show(task.place, _done[task.place])
            for future in ready:
                yield _outcome(future, pending.pop(future))


def _outcome(future: Future[Outcome], task: Task) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:  # killed, most likely for its memory; which file it was cannot be known
        return Outcome(task, problem=f"{task.path}: the process that read it was killed; load it by itself")


# ---------------------------------------------------------------------------------------------------------------------
# A bar on the terminal that shows how far loading is; nothing where nobody looks.
NAME_WIDTH = 40


@contextmanager
def byte_bar(files: Sequence[tuple[Path, int]]) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the place of a file and the bytes taken of it."""
    if not sys.stderr.isatty():
        yield lambda place, done_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)
    bar = Progress(name, BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(file=sys.stderr))
    taken = [0] * len(files)
    with bar:
        task = bar.add_task("", total=sum(size for _, size in files))

        def show(place: int, done_bytes: int) -> None:
            path, size = files[place]
            grown = min(done_bytes, size) - taken[place]
            if grown > 0:  # a file is opened more than once; only the furthest counts
                taken[place] += grown
                bar.update(task, advance=grown, description=printable(path.name)[-NAME_WIDTH:])

        yield show


# ---------------------------------------------------------------- load
HELP = "read other tools' files into a run"
ABOUT = """\
Reads profiles, traces and logs of other tools into a run, which every other command takes as its own. The format is
found from the content; gzip and zstd are unpacked on the way; folders are read with all that is below them. A file
that was loaded before is replaced, never counted twice."""
EXIT_CODES = "Exit code: 0 all files were read, 1 some could not (a line each says why), 2 none could, or wrong usage."


class Wrong(Exception):
    """What was asked for cannot be done, in one line."""


def run(argv: list[str]) -> int:
    """0: all read; 1: some files could not be read; 2: nothing was read."""
    options = parser().parse_args(argv)
    if options.list:
        print("\n".join(f"{name:16} {about}" for name, about in FORMATS.items()))
        return 0
    try:
        return load(options)
    except Wrong as problem:
        say(str(problem))
        return 2
    except KeyboardInterrupt:
        say("interrupted; what was read before is kept")
        return 130


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("rankscope load", description=ABOUT, epilog=EXIT_CODES)
    made.add_argument("files", nargs="*", metavar="FILE|FOLDER", help="files, folders or patterns such as '*.json.gz'")
    made.add_argument("--as", dest="wanted", metavar="FORMAT", help="read them as this format, whatever they look like")
    made.add_argument("--rank", type=int, metavar="N", help="the rank they speak of, where they do not say it")
    made.add_argument("--name", metavar="RUN", help="name of the run; one that exists is extended")
    made.add_argument("--out", type=Path, metavar="DIR", help="folder of the run; one that exists is extended")
    made.add_argument("--map", type=Path, metavar="FILE", help="what the columns of hand-made tables mean")
    made.add_argument("--list", action="store_true", help="name the formats that can be read, and stop")
    return made


def load(options: argparse.Namespace) -> int:
    check(options)
    found = find_files(options.files)
    for problem in found.problems:
        say(problem)
    files = without_copies(found.files)
    outcomes = load_into(files, options) if files else []
    failed = [one for one in outcomes if one.problem]
    for one in failed:
        say(one.problem)
    if len(failed) == len(outcomes):
        return 2
    return 1 if failed or found.problems else 0


def check(options: argparse.Namespace) -> None:
    if not options.files:
        raise Wrong("name the files or folders to load (see rankscope load --help)")
    if options.wanted is not None and options.wanted not in FORMATS:
        raise Wrong(f"--as {options.wanted}: no such format; choose one of {', '.join(FORMATS)}")
    if options.rank is not None and not 0 <= options.rank < 2**31:
        raise Wrong(f"--rank {options.rank}: give a number from 0 on")
    if options.name is not None and options.out is not None:
        raise Wrong("give --name or --out, not both")
    if options.map is not None and not options.map.is_file():
        raise Wrong(f"--map {options.map}: no such file")


def without_copies(files: Sequence[Path]) -> list[Path]:
    """Each content once: a copy would count everything twice."""
    sizes = Counter(path.stat().st_size for path in files)
    first: dict[str, Path] = {}
    kept = []
    for path in files:
        key = content_key(path) if sizes[path.stat().st_size] > 1 else ""
        if key and key in first:
            say(f"{path}: has the same content as {first[key]}: read once")
            continue
        first[key] = path
        kept.append(path)
    return kept


def load_into(files: Sequence[Path], options: argparse.Namespace) -> list[Outcome]:
    """Load the files into the wanted run, which is not made if none of them can be read."""
    folder, is_new = run_folder(options, files[0])
    sizes = [(path, path.stat().st_size) for path in files]
    hints, now_ns = Hints(options.rank, options.map), time.time_ns()
    tasks = [Task(place, path, size, folder, options.wanted, hints, now_ns) for place, (path, size) in enumerate(sizes)]
    try:
        with byte_bar(sizes) as show:
            outcomes = sorted(load_all(tasks, show), key=lambda one: one.task.place)
    finally:
        settle_folder(folder, is_new, options)
    good = [one for one in outcomes if not one.problem]
    for one in good:
        remove_replaced(folder, os.path.abspath(one.task.path), one.key)
    if good:
        print(summary(folder, good))
    return outcomes


def run_folder(options: argparse.Namespace, first: Path) -> tuple[Path, bool]:
    """The run's folder and whether it was made just now."""
    try:
        if options.out is None and options.name is None:
            dated = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{cleaned(first.name.partition('.')[0])}"
            return Path(new_folder(os.path.abspath(ROOT), dated).path), True
        folder = options.out.absolute() if options.out is not None else named_folder(options.name)
        if folder.is_dir() and any(folder.iterdir()):
            if not is_run(folder):
                raise Wrong(f"{folder}: is no run, and not empty: name another folder")
            return folder, False
        folder.mkdir(parents=True, exist_ok=True)
        return folder, True
    except OSError as problem:
        raise Wrong(f"{problem.filename}: cannot be made: {problem.strerror}") from None


def named_folder(name: str) -> Path:
    """The run of that name, also one that was recorded under it and so has a date before it."""
    exact = Path(ROOT).absolute() / cleaned(name)
    if exact.exists():
        return exact.resolve()
    dated = sorted(exact.parent.glob(f"????-??-??T??-??-??-{exact.name}"))
    return dated[-1] if dated else exact


def settle_folder(folder: Path, is_new: bool, options: argparse.Namespace) -> None:
    """Describe a new run and point `latest` to it, or take it away if nothing came in."""
    if is_new and not loaded_folders(folder):
        for empty in (folder / "loaded", folder):
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
    elif is_new:
        describe(made := Folder(str(folder), True), description(folder))
        if options.out is None:
            point_latest(made)


def description(folder: Path) -> dict[str, Json]:
    """What run.json says: of the job itself nothing, since the files tell that."""
    made: dict[str, Json] = {"made_ns": time.time_ns(), "made_on": platform.node(), "made_in": os.getcwd()}
    return {"format": 1, "loaded": True, "name": folder.name, **made, "rankscope_version": __version__}


def summary(folder: Path, good: Sequence[Outcome]) -> str:
    """What came in, and what to do next."""
    formats = Counter(name for one in good for name in one.formats)
    counts = ", ".join(f"{count} {name}" for name, count in formats.most_common())
    warnings = sum(one.warnings for one in good)
    told = f"; {counted(warnings, 'warning')} about them in the report" if warnings else ""
    shown = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
    count = sum(one.processes for one in good)
    processes = f"{count} process{'' if count == 1 else 'es'}"
    read = f"{counted(len(good), 'file')} read ({counts}), {processes}{told}"
    return f"{printable(read)}\nrankscope report {printable(shlex.quote(shown))}"


def say(text: str) -> None:
    """One line on stderr, with nothing in it that a terminal would obey."""
    print(f"rankscope: {printable(text)}", file=sys.stderr)
