"""Reads other tools' files into the folder of a run, several at once when that pays."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.formats.recognition import find_files, is_run, pieces, readings, settle_ranks
from rankscope.formats.registry import FORMATS
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Note, RankFacts, Reading, Role, Severity
from rankscope.model.tables import Wrong
from rankscope.questions.wording import counted
from rankscope.record.place import cleaned
from rankscope.record.run_folder import ROOT, Json, RunFolder, describe, new_folder, point_latest
from rankscope.store.folder import named_run
from rankscope.store.foreign import LoadedFile, loaded_folders, remove_replaced

__all__ = ["FORMATS", "LoadOptions", "Loading", "load"]

POOL_FROM_FILES = 16
POOL_FROM_BYTES = 32 << 20
POLL_SECONDS = 0.2

Show = Callable[[int, int], None]  # which file, how many bytes of it
Bar = Callable[[Sequence[tuple[Path, int]]], AbstractContextManager[Show]]  # of files and their sizes
Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are to be read, and into which run: one that exists is extended."""

    form: str | None = None  # their format, whatever they look like
    rank: int | None = None  # of which they speak, where they do not say it
    mapping: Path | None = None  # what the columns of hand-made tables mean
    name: str | None = None  # of the run
    out: Path | None = None  # its folder


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file to load, and how."""

    place: int
    path: Path
    size_bytes: int
    run: Path
    wanted: str | None
    hints: Hints
    loaded_ns: int


@dataclass(slots=True)
class FileOutcome:
    """What came of one file."""

    task: FileTask
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


def load_file(task: FileTask, watch: Callable[[int], None] | None = None) -> FileOutcome:
    """Read one file into the run; whatever is wrong with it becomes the outcome's problem."""
    outcome = FileOutcome(task)
    source = Source(task.path, task.hints, watch=watch)
    try:
        chosen = pieces(source, task.wanted)
        loaded_file = LoadedFile(task.run, os.path.abspath(task.path))
    except BadFile as problem:
        outcome.problem = str(problem)
        return outcome
    except OSError as problem:
        outcome.problem = f"{problem.filename or task.path}: {problem.strerror or problem}"
        return outcome
    except Exception as problem:  # a format that cannot even say whether it knows a file is our mistake
        text = " ".join(f"{type(problem).__name__}: {problem}"[:200].split())
        outcome.problem = f"{task.path}: could not be recognised ({text}): please report this"
        return outcome
    try:
        _fill(loaded_file, source, chosen, outcome)
    except BadFile as problem:
        outcome.problem = str(problem)
    except OSError as problem:
        outcome.problem = f"{task.path}: could not be stored in {task.run}: {problem.strerror or problem}"
    finally:
        loaded_file.abandon()
    return outcome


@dataclass(slots=True)
class _ProcessTotals:
    """Sums up the events of one process; where that fails, which is our mistake, the events are kept all the same."""

    name: str = ""
    facts: RankFacts = field(default_factory=RankFacts)
    summed_layers: set[str] = field(default_factory=set)  # layers of which the source has sums of its own
    totals: Any = None
    problem: str = ""

    def add(self, name: str, reading: Reading) -> None:
        self.name, self.facts = name, reading.facts
        self.summed_layers.update(tally.layer for tally in reading.tallies)
        if reading.event_columns:
            if self.totals is None:
                from rankscope.questions.events.totals import TraceTotals  # most files have no single events

                self.totals = TraceTotals()
            self._guarded(lambda: self.totals.add(reading.event_columns))
        if self.totals is not None:
            self.totals.take_memory(reading)

    def readings(self) -> Iterator[tuple[str, Reading]]:
        if self.totals is None:
            return
        reading = self._guarded(lambda: self.totals.reading(self.facts, frozenset(self.summed_layers)))
        if reading is None:
            text = f"its events could not be aggregated ({self.problem}): please report this"
            reading = Reading(self.facts, True, notes=[Note(text, Severity.WARNING, self.facts.source)])
        yield self.name, reading

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return None if self.problem else work()
        except Exception as problem:
            self.problem = " ".join(f"{type(problem).__name__}: {problem}"[:200].split())
            return None


def summed(pairs: Iterable[tuple[str, Reading]]) -> Iterator[tuple[str, Reading]]:
    """The readings, and after those of each process that came with single events what these sum up to."""
    process = _ProcessTotals()
    for name, reading in pairs:
        if not reading.continues:
            yield from process.readings()
            process = _ProcessTotals()
        process.add(name, reading)
        yield name, reading
    yield from process.readings()


def _fill(loaded_file: LoadedFile, source: Source, chosen: Any, outcome: FileOutcome) -> None:
    for name, reading in summed(readings(source, chosen)):
        loaded_file.add(reading)
        outcome.warnings += sum(note.severity is Severity.WARNING for note in reading.notes)
        if name and name not in outcome.formats:
            outcome.formats.append(name)
    notes = settle_ranks(source, loaded_file.settle())
    outcome.warnings += sum(note.severity is Severity.WARNING for note in notes)
    loaded_file.add(Reading(RankFacts(), continues=True, notes=notes))
    outcome.processes = sum(facts.role != Role.DOCUMENT for facts in loaded_file.processes)
    task = outcome.task
    outcome.key = content_key(task.path)
    loaded_file.finish(
        outcome.key,
        {
            "formats": outcome.formats,
            "options": {"as": task.wanted, "rank": task.hints.rank, "map": str(task.hints.mapping or "") or None},
            "size_bytes": task.size_bytes,
            "loaded_ns": task.loaded_ns,
            "place": task.place,
        },
    )


def load_all(tasks: Sequence[FileTask], show: Show) -> Iterator[FileOutcome]:
    """Every outcome, as it comes."""
    workers = min(len(os.sched_getaffinity(0)), len(tasks))
    much = len(tasks) >= POOL_FROM_FILES or sum(task.size_bytes for task in tasks) >= POOL_FROM_BYTES
    if workers < 2 or not much:
        for task in tasks:
            yield load_file(task, partial(show, task.place))
        return
    yield from _in_pool(tasks, workers, show)


_done: Any = None  # how many bytes of each file the workers have taken


def _watched(task: FileTask) -> FileOutcome:
    def watch(done_bytes: int) -> None:
        _done[task.place] = done_bytes

    return load_file(task, watch)


def _in_pool(tasks: Sequence[FileTask], workers: int, show: Show) -> Iterator[FileOutcome]:
    global _done
    context = multiprocessing.get_context("fork")  # workers need not import everything again
    _done = context.RawArray("q", max(task.place for task in tasks) + 1)
    with ProcessPoolExecutor(workers, context) as pool:
        pending: dict[Future[FileOutcome], FileTask] = {pool.submit(_watched, task): task for task in tasks}
        while pending:
            ready, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            for task in pending.values():
                show(task.place, _done[task.place])
            for future in ready:
                yield _outcome(future, pending.pop(future))


def _outcome(future: Future[FileOutcome], task: FileTask) -> FileOutcome:
    try:
        return future.result()
    except BrokenProcessPool:  # killed, most likely for its memory; which file it was cannot be known
        return FileOutcome(task, problem=f"{task.path}: the process that read it was killed; load it by itself")


@dataclass(frozen=True, slots=True)
class Loading:
    """What came of all files."""

    folder: Path | None  # of the run; None where nothing was there to be read
    files: list[FileOutcome]
    absent: list[str]  # what was named and is not there

    @property
    def read(self) -> list[FileOutcome]:
        return [file for file in self.files if not file.problem]

    @property
    def problems(self) -> list[str]:
        """Why files could not be read, a line for each."""
        return [file.problem for file in self.files if file.problem]

    def summary(self) -> str:
        """What came in: files by format, processes, warnings."""
        formats = Counter(name for outcome in self.read for name in outcome.formats)
        counts = ", ".join(f"{count} {name}" for name, count in formats.most_common())
        warnings = sum(outcome.warnings for outcome in self.read)
        text = f"; {counted(warnings, 'warning')} about them in the report" if warnings else ""
        count = sum(outcome.processes for outcome in self.read)
        processes = f"{count} process{'' if count == 1 else 'es'}"
        return f"{counted(len(self.read), 'file')} read ({counts}), {processes}{text}"


def load(patterns: Sequence[str], options: LoadOptions, report: Told, bar: Bar) -> Loading:
    """Load files, folders and patterns into the wanted run, which is not made if none of them can be read."""
    check(options)
    found_files = find_files(patterns)
    for problem in found_files.problems:
        report(problem)
    files = without_copies(found_files.files, report)
    if not files:
        return Loading(None, [], found_files.problems)
    folder, is_new = run_folder(options, files[0])
    sizes = [(path, path.stat().st_size) for path in files]
    hints, now_ns = Hints(options.rank, options.mapping), time.time_ns()
    tasks = [FileTask(at, path, size, folder, options.form, hints, now_ns) for at, (path, size) in enumerate(sizes)]
    try:
        with bar(sizes) as show:
            outcomes = sorted(load_all(tasks, show), key=lambda outcome: outcome.task.place)
    finally:
        settle_folder(folder, is_new, options)
    loading = Loading(folder, outcomes, found_files.problems)
    for outcome in loading.read:
        remove_replaced(folder, os.path.abspath(outcome.task.path), outcome.key)
    return loading


def check(options: LoadOptions) -> None:
    if options.form is not None and options.form not in FORMATS:
        raise Wrong(f"--as {options.form}: no such format; choose one of {', '.join(FORMATS)}")
    if options.rank is not None and not 0 <= options.rank < 2**31:
        raise Wrong(f"--rank {options.rank}: give a number, 0 or more")
    if options.name is not None and options.out is not None:
        raise Wrong("give --name or --out, not both")
    if options.mapping is not None and not options.mapping.is_file():
        raise Wrong(f"--map {options.mapping}: no such file")


def without_copies(files: Sequence[Path], report: Told) -> list[Path]:
    """Each content once: a copy would count everything twice."""
    sizes = Counter(path.stat().st_size for path in files)
    first: dict[str, Path] = {}
    distinct = []
    for path in files:
        key = content_key(path) if sizes[path.stat().st_size] > 1 else ""
        if key and key in first:
            report(f"{path}: has the same content as {first[key]}: read once")
            continue
        first[key] = path
        distinct.append(path)
    return distinct


def run_folder(options: LoadOptions, first: Path) -> tuple[Path, bool]:
    """The run's folder and whether it was made just now."""
    try:
        if options.out is None and options.name is None:
            dated = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{cleaned(first.name.partition('.')[0])}"
            return Path(new_folder(os.path.abspath(ROOT), dated).path), True
        folder = options.out.absolute() if options.out is not None else named_folder(options.name or "")
        if folder.is_dir() and any(folder.iterdir()):
            if not is_run(folder):
                raise Wrong(f"{folder}: neither a run nor empty; choose another folder")
            return folder, False
        folder.mkdir(parents=True, exist_ok=True)
        return folder, True
    except OSError as problem:
        raise Wrong(f"{problem.filename}: cannot be created: {problem.strerror}") from None


def named_folder(name: str) -> Path:
    """The run of that name, also one that was recorded under it and so has a date before it."""
    root, cleaned_name = Path(ROOT).absolute(), cleaned(name)
    path = named_run(root, cleaned_name)
    return path.resolve() if path is not None else root / cleaned_name


def settle_folder(folder: Path, is_new: bool, options: LoadOptions) -> None:
    """Describe a new run and point `latest` to it, or take it away if nothing came in."""
    if is_new and not loaded_folders(folder):
        for empty in (folder / "loaded", folder):
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
    elif is_new:
        describe(destination := RunFolder(str(folder), True), description(folder))
        if options.out is None:
            point_latest(destination)


def description(folder: Path) -> dict[str, Json]:
    """What run.json says: of the job itself nothing, since the files tell that."""
    origin: dict[str, Json] = {"made_ns": time.time_ns(), "made_on": platform.node(), "made_in": os.getcwd()}
    return {"format": 1, "loaded": True, "name": folder.name, **origin, "rankscope_version": __version__}
