"""Reads foreign files into the folder of a run, several at once when that pays."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rankscope.formats.recognition import pieces, readings
from rankscope.formats.source import Hints, Source
from rankscope.model import BadFile, RankFacts, Reading, Severity
from rankscope.readers.ranks import settle_ranks
from rankscope.store.foreign import LoadedFile

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
