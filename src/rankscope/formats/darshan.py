"""Reads the text that darshan-parser makes of a Darshan log: opens, reads, writes, bytes and times of each module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats.event_columns import OtherLines, UnreadLines
from rankscope.formats.printed import count, number
from rankscope.formats.source import Source
from rankscope.model.records import Layer, Note, RankFacts, Reading, Role, Severity, Tally

SNIFFED = re.compile(rb"(?m)^# darshan log version: \d")
HEADER = re.compile(r"# (?P<key>[a-z][a-z_ ]{1,40}): (?P<value>.{0,4000})")
COUNTER = re.compile(
    r"(?P<module>[A-Z][A-Z0-9_/-]{1,20})\t(?P<rank>-?\d{1,9})\t\d{1,20}\t(?P<name>[A-Z][A-Z0-9_]{2,60})\t(?P<value>\S{1,40})\t"
)
NUMBERS = ("nprocs", "start_time", "end_time", "run time")  # of the header
S = Decimal(10**9)
MAX_RANKS = 200_000
# what a module counts under several names; the bytes and times are counted per direction
CALLS = {
    "OPENS": "open", "FILENOS": "fileno", "DUPS": "dup", "STATS": "stat", "SEEKS": "seek", "FSYNCS": "fsync",
    "FDSYNCS": "fdsync", "MMAPS": "mmap", "FLUSHES": "flush", "SYNCS": "sync",
    "READS": "read", "INDEP_READS": "read", "COLL_READS": "read", "SPLIT_READS": "read", "NB_READS": "read",
    "WRITES": "write", "INDEP_WRITES": "write", "COLL_WRITES": "write", "SPLIT_WRITES": "write", "NB_WRITES": "write",
    "INDEP_OPENS": "open", "COLL_OPENS": "open",
}  # fmt: skip
BYTES = {"BYTES_READ": "read", "BYTES_WRITTEN": "write"}
TIMES = {"F_READ_TIME": "read", "F_WRITE_TIME": "write", "F_META_TIME": "metadata"}

Key = tuple[int, str, str]  # rank, module, operation


@dataclass(slots=True)
class DarshanLog:
    source: Source
    header: dict[str, str] = field(default_factory=dict)
    unread: list[tuple[int, str]] = field(default_factory=list)  # lines of the header that should hold a number
    tallies: dict[Key, Tally] = field(default_factory=dict)
    incomplete: dict[str, int] = field(default_factory=dict)  # module to the line that says so


def sniff(head: bytes) -> bool:
    """The first line of the header."""
    return SNIFFED.search(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading for each rank, and one for the files that all ranks share."""
    log = DarshanLog(source)
    other, counters = OtherLines(source), UnreadLines("of other counters (not in any table)")
    for line, text in source.lines():
        if text.startswith("#"):
            _take_header(log, line, text)
        elif not (match := COUNTER.match(text)):
            other.add(line, text)
        elif not _take(log, line, match):
            counters.add(line)
    yield from other.told_with_last(counters.told_with_last(_readings(log), source))


def _readings(log: DarshanLog) -> Iterator[Reading]:
    source = log.source
    if not log.header:
        raise source.bad("contains no darshan-parser header")
    ranks = sorted({rank for rank, _, _ in log.tallies}) or [-1]
    for place, rank in enumerate(ranks):
        yield _reading(log, rank, place == 0)


def _take_header(log: DarshanLog, line: int, text: str) -> None:
    match = HEADER.fullmatch(text)
    if match and len(log.header) < 1000:
        value = log.header.setdefault(match["key"], match["value"].strip())
        if match["key"] in NUMBERS and number(value) is None:
            log.unread.append((line, f"{match['key']} is {value[:40]!r}, not a number"))
    elif "incomplete" in text.lower() and "module" in text.lower() and len(log.incomplete) < 100:
        log.incomplete.setdefault(text.lstrip("#* ").strip()[:200], line)


def _take(log: DarshanLog, line: int, match: re.Match[str]) -> bool:
    """Whether the counter is one that a table has."""
    prefix = f"{match['module'].replace('-', '')}_"
    counter = match["name"].removeprefix(prefix)
    operation = CALLS.get(counter) or BYTES.get(counter) or TIMES.get(counter)
    if operation is None:
        return False
    value = number(match["value"])
    if value is None:
        raise log.source.bad(f"{match['name']} is {match['value']!r}, not a number", line)
    if value.value < 0:
        return True  # Darshan's way to say that it does not know
    tally = _tally(log, line, (int(match["rank"]), match["module"], operation))
    if counter in TIMES:
        tally.total_ns = (tally.total_ns or 0.0) + float(value.value * S)
    elif value.value != int(value.value) or value.value >= 2**62:
        raise log.source.bad(f"{match['name']} is {match['value']}, not a count", line)
    elif counter in BYTES:
        tally.bytes = min((tally.bytes or 0) + int(value.value), 2**63 - 1)
    else:
        tally.calls = min((tally.calls or 0) + int(value.value), 2**63 - 1)
    return True


def _tally(log: DarshanLog, line: int, key: Key) -> Tally:
    if key not in log.tallies:
        if len(log.tallies) > MAX_RANKS * 10:
            raise log.source.bad("too many ranks and modules for one job", line)
        log.tallies[key] = Tally(Layer.IO, key[2], 0, 0.0, key[1])
    return log.tallies[key]


def _reading(log: DarshanLog, rank: int, first: bool) -> Reading:
    header, source = log.header, log.source
    facts = RankFacts(rank=rank if rank >= 0 else None, command=header.get("exe", ""), source=str(source))
    facts.world_size = count(header.get("nprocs", ""))
    facts.versions = f"darshan {header.get('darshan log version', '')}"
    runtime = number(header.get("run time", ""))
    facts.elapsed_ns = int(runtime.value * S) if runtime and 0 <= runtime.value < 2**33 else None
    start, end = count(header.get("start_time", "")), count(header.get("end_time", ""))
    facts.started_ns = start * 10**9 if start is not None and start < 2**33 else None
    facts.ended_ns = end * 10**9 if end is not None and end < 2**33 else None
    tallies = [tally for (owner, _, _), tally in log.tallies.items() if owner == rank]
    reading = Reading(facts, tallies=[tally for tally in tallies if tally.calls or tally.total_ns or tally.bytes])
    reading.notes = [Note(text, Severity.WARNING, str(source)) for text in _problems(log, facts, reading.tallies)]
    if first:
        reading.notes += [Note(text, Severity.WARNING, source.at(line)) for text, line in log.incomplete.items()]
        reading.notes += [Note(text, Severity.WARNING, source.at(line)) for line, text in log.unread]
    if rank < 0 and reading.tallies:
        facts.role = Role.HELPER if len(log.tallies) > len(tallies) else Role.RANK
        reading.notes.append(
            Note("files shared by all ranks are counted once, for all ranks together", where=str(source))
        )
    return reading


def _problems(log: DarshanLog, facts: RankFacts, tallies: list[Tally]) -> Iterator[str]:
    processes = 1 if facts.rank is not None else facts.world_size or 1
    if facts.rank is not None and facts.world_size is not None and facts.rank >= facts.world_size:
        yield f"rank {facts.rank} of a job of {facts.world_size} processes"
    for tally in tallies:
        if tally.bytes and not tally.calls:
            yield f"{tally.group}: {tally.bytes} bytes but no {tally.name}"
        # threads of one process may wait at the same time, so only far more than its run time cannot be
        total_ns = tally.total_ns or 0.0
        if facts.elapsed_ns and total_ns > 1000 * processes * facts.elapsed_ns:
            yield f"{tally.group}: {total_ns / 1e9:g} s of {tally.name} in a job of {facts.elapsed_ns / 1e9:g} s"
    if facts.started_ns and facts.ended_ns and facts.started_ns > facts.ended_ns:
        yield "the job ends before it starts"
