"""Gives damaged files to the readers and sees that nothing but a BadFile comes of it."""

from __future__ import annotations

import re
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz.mutations import mutated
from rankscope.api.load import summed
from rankscope.formats.recognition import parts
from rankscope.formats.registry import FORMATS, Format, format_named
from rankscope.formats.source import Source
from rankscope.model.records import BadFile
from rankscope.store.columns import reading_tables, records_table

SECONDS_PER_MB = 5.0
LEAST_SECONDS = 2.0  # below this a small file is no hang
MOST_GROWTH_MIB = 512
MOST_READINGS = 100_000
FOREIGN = b"the job says hello 17 times"
DIGITS = re.compile(r"\d+")
COUNTED = re.compile(r"(\d+) (?:more )?(?:lines?|rows) ")
# formats of which every line is in a table or counted
LINE_FORMATS = frozenset(
    (
        *("darshan", "deepspeed_comms", "imagenet", "importtime", "ipm", "iprof", "mpip", "mpitrace", "nccl_tests"),
        *("nsys_stats", "nvprof", "nvprof_damaged", "osu", "ps_metrics", "rocprof", "strace_log", "strace_summary"),
        *("thapi", "unitrace"),
    )
)


class TooSlow(BaseException):
    """No Exception, so that no reader can catch it."""


@dataclass(slots=True)
class Seed:
    """A sound file of one format (empty: of none), as bytes."""

    data: bytes
    format: str = ""


@dataclass(slots=True)
class Findings:
    """How many inputs were given to each reader and what came of it; failures with the input."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    inputs: int = 0
    failures: list[tuple[bytes, str, str]] = field(default_factory=list)  # input, format, what happened
    slowest: tuple[float, str] = (0.0, "")
    foreign: Counter[tuple[str, str]] = field(default_factory=Counter)  # what came of a line that belongs to nothing


def fuzz(seeds: Sequence[Seed], numbers: range, scratch: Path, seed: int = 0, until: float | None = None) -> Findings:
    """One damaged input per number, reproducible by seed and number alone; stops early at the moment `until`."""
    found = Findings()
    for number in numbers:
        if until is not None and time.monotonic() > until:
            break
        dice = Random(f"{seed}:{number}")
        origin = dice.choice(seeds)
        try_input(mutated(origin.data, dice, [one.data for one in seeds]), origin.format, dice, scratch, found)
    return found


def try_input(data: bytes, origin: str, dice: Random, scratch: Path, found: Findings) -> None:
    """Give one input to the reader it was made for, to all that recognise it, and to one that it is not meant for."""
    scratch.write_bytes(data)
    found.inputs += 1
    heads: list[bytes] = []
    _guarded(data, "source", found, lambda: heads.append(_head(scratch)))
    wanted = {origin, *dice.sample(list(FORMATS), min(1, len(FORMATS)))} & FORMATS.keys()
    for known in map(format_named, FORMATS):
        if heads and _guarded(
            data, f"{known.name} sniff", found, lambda known=known: known.sniff(heads[0]), quiet=True
        ):
            wanted.add(known.name)
    for name in sorted(wanted):
        known = format_named(name)
        _guarded(data, name, found, lambda known=known: _read(known, scratch))
    if origin in LINE_FORMATS:
        _guarded(data, f"{origin} + line", found, lambda: _add_foreign_line(data, origin, dice, scratch, found), True)


def _add_foreign_line(data: bytes, name: str, dice: Random, scratch: Path, found: Findings) -> None:
    """Read it with one line more, which has to be told, or to change what is in the tables, or to be an error."""
    known, lines = format_named(name), data.split(b"\n")
    at = dice.randrange(len(lines) + 1)
    with suppress(BadFile):
        before = _told(known, scratch)
        scratch.write_bytes(b"\n".join([*lines[:at], FOREIGN, *lines[at:]]))
        try:
            said = _told(known, scratch) != before
        except BadFile:
            said = True
        found.foreign[name, "said" if said else "dropped"] += 1
        assert said, f"line {at + 1} was dropped in silence"


def _told(known: Format, path: Path) -> tuple[int, list[str], str]:
    """How many lines its notes speak of, what they say of them, and what is in the tables."""
    lines, texts, tables = 0, [], []
    for reading in known.read(Source(path)):
        counts = [COUNTED.match(note.text) for note in reading.notes]
        lines += sum(int(count[1]) if count else 1 for count in counts)
        texts += [DIGITS.sub("", note.text) for note in reading.notes]
        tables.append((reading.facts, reading.tallies, reading.range_tallies, reading.figures, reading.event_columns))
    if not tables:  # as loading has it
        raise BadFile("contains nothing that the reader recognises")
    return lines, sorted(texts), repr(tables)


def _head(path: Path) -> bytes:
    source = Source(path)
    head = source.head()
    parts(source, head)
    return head


def _read(known: Format, path: Path) -> None:
    """As loading does it: every reading becomes tables, and is forgotten."""
    found = ((known.name, reading) for reading in known.read(Source(path)))
    for number, (_, reading) in enumerate(summed(found)):
        reading_tables(0, reading, events=True)
        records_table("ranks", [0], [reading.facts])
        assert number < MOST_READINGS, "readings without end"
        assert not any("please report this" in note.text for note in reading.notes), reading.notes


def _guarded(data: bytes, name: str, found: Findings, work: Any, quiet: bool = False) -> Any:
    limit = max(LEAST_SECONDS, SECONDS_PER_MB * len(data) / 1e6)
    _forget_peak()
    before_mib, began = _peak_mib(), time.process_time()
    result, ended = None, "read"
    try:
        with _time_limit(limit):
            result = work()
    except BadFile as problem:
        ended = "refused"
        if "\n" in str(problem):
            found.failures.append((data, name, f"the error is more than one line: {problem!s:.200}"))
    except (Exception, TooSlow) as problem:
        ended = "failed"
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        told = f"{type(problem).__name__}: {problem!s:.200} ({Path(frame.filename).name}:{frame.lineno})"
        found.failures.append((data, name, told))
    if (grown := _peak_mib() - before_mib) > MOST_GROWTH_MIB:
        found.failures.append((data, name, f"{grown} MiB for {len(data)} bytes"))
    found.slowest = max(found.slowest, (time.process_time() - began, name))
    if not quiet:
        found.counts[name, ended] += 1
    return result


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # processor time: a busy machine is no hang
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _forget_peak() -> None:
    """What was once needed before would hide what is needed now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
