"""The profiles of libmpitrace as they are written: one after the other, in files or pasted into a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

START = re.compile(r" {0,8}Data for MPI rank (\d{1,9}) of (\d{1,9}):\s*$")
LAYOUTS = {"Times and statistics from MPI_Init()": "old", "Times from MPI_Init()": "new"}
WHOLE, TENTH, MILLI, CENTI = r"(\d{1,18})", r"(\d{1,15}\.\d)", r"(\d{1,9}\.\d{3})", r"(\d{1,9}\.\d\d)"
ROUTINE = re.compile(rf"(MPI_\w{{1,80}}) +{WHOLE} +{TENTH} +{MILLI}\s*$")
SIZED = re.compile(r"(MPI_\w{1,80}) +#calls +avg\. bytes +time\(sec\)\s*$")
SIZE = re.compile(rf" +{WHOLE} +{TENTH} +{MILLI}\s*$")
OWN = re.compile(r"MPI task (\d{1,9}) of (\d{1,9}) had the (minimum|median|maximum) communication time\.")
TOTAL = re.compile(
    rf"(total communication time|total elapsed time|user cpu time|system time|max resident set size) +="
    rf" +{MILLI} +(seconds|MBytes|MiB)\."
)
LARGEST = re.compile(
    rf" {{0,4}}Rank (\d{{1,9}}) reported the largest (memory utilization|elapsed time) : {CENTI} (MBytes|MiB|sec)"
)
EXTREME = re.compile(rf" +(minimum|median|maximum) +communication time = {MILLI} sec for task (\d{{1,9}})\s*$")
TASK = re.compile(rf" *(\d{{1,9}}) +(\S{{1,255}})(?: +(\d{{1,6}}))?((?: +\d{{1,9}}\.\d\d){{5}}) +{WHOLE}\s*$")
DAMAGED = re.compile(r"(MPI_\w{1,80})\s")
# Rules, and the headings of tables: they say nothing that has to be kept.
HEADING = re.compile(
    r"-{5,200}\s*$|MPI Routine +#calls +avg\. bytes +time\(sec\)\s*$|Message size distributions:\s*$"
    r"|(?:MPI timing|Communication) summary for all (?:ranks|tasks):\s*$|Summary for all tasks:\s*$"
    r"|taskid +host(?:name)?(?: +cpu)? +comm\(s\) +elapsed\(s\) +user\(s\) +system\(s\) +size\(Mi?B\) +switches\s*$"
)


@dataclass(slots=True)
class Count:
    """A row of calls, mean bytes and seconds, as printed."""

    line: int
    calls: int
    mean_bytes: str
    time_s: str


@dataclass(slots=True)
class Told:
    """A number that is told of one task, as printed."""

    line: int
    rank: int
    value: str


@dataclass(slots=True)
class TaskLine:
    """A line of the table of all ranks, as printed: comm, elapsed, user, system in seconds, memory in MiB."""

    line: int
    rank: int
    host: str
    cpu: int | None
    numbers: list[str]
    switches: int


@dataclass(slots=True)
class RankProfile:
    """One rank's profile, as printed."""

    line: int
    rank: int
    world_size: int
    layout: str = "old"
    routines: dict[str, Count] = field(default_factory=dict)
    sizes: dict[str, list[Count]] = field(default_factory=dict)
    totals: dict[str, Told] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)  # "minimum", … that this rank says it had, and the line
    extremes: dict[str, Told] = field(default_factory=dict)
    largest: dict[str, Told] = field(default_factory=dict)
    tasks: list[TaskLine] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)  # rows that say nothing that can be used
    unread: list[int] = field(default_factory=list)  # lines that are none of a profile's
    last_line: int = 0
    sizing: str = ""  # the routine whose sizes are being read


Row = TypeVar("Row")


def profiles(lines: Iterable[tuple[int, str]]) -> Iterator[RankProfile]:
    """Every profile in the lines, whatever else stands between them."""
    now: RankProfile | None = None
    before: list[int] = []  # lines before the first one
    for number, text in lines:
        if begun := START.match(text):
            if now:
                yield now
            now, before = RankProfile(number, int(begun[1]), int(begun[2]), unread=before), []
        elif now is not None:
            _take(now, number, text)
        elif text.strip() and not HEADING.match(text) and not text.startswith(tuple(LAYOUTS)):
            before.append(number)
        if now is not None:
            now.last_line = number
    if now:
        yield now


def _take(profile: RankProfile, number: int, text: str) -> None:
    for pattern, action in ACTIONS:
        if match := pattern.match(text):
            if not action(profile, number, match):
                profile.damaged.append(number)
            return
    for phrase, layout in LAYOUTS.items():
        if text.startswith(phrase):
            profile.layout = layout
            break
    else:
        if DAMAGED.match(text):
            profile.damaged.append(number)
        elif text.strip() and not HEADING.match(text):
            profile.unread.append(number)
    if not text.startswith(" "):
        profile.sizing = ""


# Each of these is asked with a line of its kind, and answers whether it could be used.
def _routine(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    return _once(profile.routines, match[1], Count(number, int(match[2]), match[3], match[4]))


def _once(rows: dict[str, Row], key: str, row: Row) -> bool:
    return rows.setdefault(key, row) is row


def _sized(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    is_new = not profile.sizes.setdefault(match[1], [])
    profile.sizing = match[1] if is_new else ""
    return is_new


def _size(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    if profile.sizing:
        profile.sizes[profile.sizing].append(Count(number, int(match[1]), match[2], match[3]))
    return bool(profile.sizing)


def _own(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    is_own = (int(match[1]), int(match[2])) == (profile.rank, profile.world_size) and match[3] not in profile.own
    if is_own:
        profile.own[match[3]] = number
    return is_own


def _total(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    return _once(profile.totals, match[1], Told(number, profile.rank, match[2]))


def _largest(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    return _once(profile.largest, match[2], Told(number, int(match[1]), match[3]))


def _extreme(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    return _once(profile.extremes, match[1], Told(number, int(match[3]), match[2]))


def _task(profile: RankProfile, number: int, match: re.Match[str]) -> bool:
    cpu = int(match[3]) if match[3] is not None else None
    profile.tasks.append(TaskLine(number, int(match[1]), match[2], cpu, match[4].split(), int(match[5])))
    return True


ACTIONS: tuple[tuple[re.Pattern[str], Callable[[RankProfile, int, re.Match[str]], bool]], ...] = (
    (ROUTINE, _routine),
    (SIZE, _size),
    (SIZED, _sized),
    (TASK, _task),
    (TOTAL, _total),
    (OWN, _own),
    (LARGEST, _largest),
    (EXTREME, _extreme),
)
