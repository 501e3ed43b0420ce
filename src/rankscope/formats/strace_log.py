"""Reads strace's log of single system calls into tallies for each process and thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from rankscope.formats import strace_summary
from rankscope.formats.event_columns import OtherLines
from rankscope.formats.source import Source
from rankscope.formats.strace_line import Ended, Resumed, Signal, StraceLine, SystemCall, parsed
from rankscope.formats.sums import Sums
from rankscope.model.records import Layer, Note, RankFacts, Reading, Role, Severity, Tally

SNIFFED_LINES = 40
MARKS = (b"execve(", b"<unfinished ...>", b" resumed>", b"+++ exited with", b" = -1 E", b" = 0x7f")
ATTACHED = re.compile(r"strace: Process \d+ attached$")
THREAD_MAKERS = ("clone", "clone3")
CHILD_MAKERS = (*THREAD_MAKERS, "fork", "vfork")
DAY_NS = 86_400 * 10**9
MAX_TASKS = 100_000


def sniff(head: bytes) -> bool:
    """Most of the first lines are strace's, and at least one has a mark that only strace leaves."""
    if not any(mark in head for mark in MARKS):
        return False
    lines = [line for line in head.decode("utf-8", "replace").split("\n")[:SNIFFED_LINES] if line.strip()]
    kinds = [parsed(line).what for line in lines]
    recognised = [
        what for what in kinds if what and (not isinstance(what, SystemCall) or what.result or what.unfinished)
    ]
    return 2 * len(recognised) >= len(lines) and any(
        isinstance(what, SystemCall) and what.result for what in recognised
    )


@dataclass(slots=True)
class TracedThread:
    """What is known of one thread."""

    number: int
    calls: int = 0
    pending: str | None = None  # the arguments so far of a call that another thread's line interrupted
    pending_name: str = ""
    command: str = ""
    first_ns: int | None = None
    last_ns: int | None = None
    ended: Ended | None = None


@dataclass(slots=True)
class StraceLog:
    """A log as it streams by."""

    source: Source
    sums: Sums
    other: OtherLines
    tasks: dict[int, TracedThread] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)  # thread to the one that made it
    parents: dict[int, int] = field(default_factory=dict)
    timed: int = 0  # calls with their time
    relative_ns: int = 0
    unix: bool = False
    broken_off: tuple[int, str, str] | None = None  # an unfinished line without strace's word for it
    notes: list[Note] = field(default_factory=list)

    def task(self, number: int) -> TracedThread:
        if number not in self.tasks:
            if len(self.tasks) >= MAX_TASKS:
                raise self.source.bad(f"more than {MAX_TASKS} processes and threads")
            self.tasks[number] = TracedThread(number)
        return self.tasks[number]


def read(source: Source) -> Iterator[Reading]:
    """One reading for each process; its threads are told apart in its tallies."""
    log = StraceLog(source, Sums(source), OtherLines(source))
    lines = source.lines()
    for number, text in lines:
        if text.startswith("% time "):
            _compare(log, chain([(number, text)], lines))
            break
        if text and not _take(log, text):
            log.other.add(number, text)
    if not any(task.calls or task.ended for task in log.tasks.values()):
        raise source.bad("no system call in it")
    yield from log.other.told_with_last(_readings(log))


def _take(log: StraceLog, text: str) -> bool:
    """Whether the line is strace's."""
    line = parsed(text)
    task = log.task(line.task)
    _keep_time(log, task, line)
    if isinstance(line.what, SystemCall):
        return _take_call(log, task, line.what, text)
    if isinstance(line.what, Resumed):
        return _take_resumed(log, task, line.what)
    if isinstance(line.what, Signal):
        log.sums.add(Layer.SIGNALS, line.what.name, None, thread=task.number)
    elif isinstance(line.what, Ended):
        _end(log, task, line.what)
    elif log.broken_off is not None and ") " in text and "= " in text:
        place, name, begun = log.broken_off
        log.broken_off = None
        return _finish(log, log.task(place), parsed(f"{name}({begun}{text}").what)
    else:
        return ATTACHED.search(text) is not None
    return True


def _take_call(log: StraceLog, task: TracedThread, call: SystemCall, text: str) -> bool:
    if call.result:
        return _finish(log, task, call)
    if call.unfinished:
        task.pending, task.pending_name = call.arguments, call.name
    elif cut := ATTACHED.search(text):  # on a terminal, strace's own words break into the line
        log.broken_off = (task.number, call.name, text[text.index("(") + 1 : cut.start()])
    elif call.name in ("exit", "exit_group"):
        task.pending = None
    else:
        return False
    return True


def _take_resumed(log: StraceLog, task: TracedThread, resumed: Resumed) -> bool:
    begun = task.pending or ""
    task.pending = None
    return _finish(log, task, parsed(f"{resumed.name}({begun}{resumed.rest}").what)


def _finish(log: StraceLog, task: TracedThread, call: object) -> bool:
    """Count a call, if its result is there."""
    if not isinstance(call, SystemCall) or not call.result:
        return False
    task.calls += 1
    if call.name in ("exit", "exit_group") and call.result == "?" and not call.error:
        return True  # does not return, and strace -c does not count it either
    log.timed += call.ns is not None
    log.sums.add(Layer.CALLS, call.name, call.ns, call.error, thread=task.number, errors=bool(call.error))
    if call.name == "execve" and call.result == "0":
        task.command = call.command()
    child = int(call.result) if call.name in CHILD_MAKERS and call.result.isdigit() else 0
    if child and len(log.threads) + len(log.parents) < 2 * MAX_TASKS:
        is_thread = call.name in THREAD_MAKERS and "CLONE_THREAD" in call.arguments
        (log.threads if is_thread else log.parents)[child] = task.number
    return True


def _keep_time(log: StraceLog, task: TracedThread, line: StraceLine) -> None:
    if line.relative:
        log.relative_ns = min(log.relative_ns + (line.ns or 0), 2**62)
        now: int | None = log.relative_ns
    else:
        now, log.unix = line.ns, log.unix or line.unix
    if now is None:
        return
    if task.first_ns is None:
        task.first_ns = now
    task.last_ns = now


def _end(log: StraceLog, task: TracedThread, ended: Ended) -> None:
    if not ended.replaced_by:
        task.ended = ended


def _compare(log: StraceLog, rest: Iterator[tuple[int, str]]) -> None:
    """With -C a summary follows the log: it must tell of the same calls."""
    for summary in strace_summary.summaries(log.source, rest, log.other):
        seen: dict[str, int] = {}
        for tally in log.sums.tallies():
            if tally.layer == "calls":
                seen[tally.name] = seen.get(tally.name, 0) + (tally.calls or 0)
        for row in summary.rows:
            if row.whole("calls") != seen.get(row.name, 0):
                text = (
                    f"{row.name}: {row.whole('calls')} calls in the summary, {seen.get(row.name, 0)} in the log above"
                )
                log.notes.append(Note(text, Severity.WARNING, log.source.at(row.line)))
        problems = strace_summary.checked(summary)
        log.notes += [Note(text, Severity.WARNING, log.source.at(line)) for line, text in problems]


def _readings(log: StraceLog) -> Iterator[Reading]:
    owners = _owners(log)
    by_process: dict[int, list[Tally]] = {}
    for tally in log.sums.tallies():
        process = owners[tally.thread]
        tally.thread = tally.thread if tally.thread != process else 0
        by_process.setdefault(process, []).append(tally)
    members: dict[int, list[TracedThread]] = {}
    for number, task in log.tasks.items():
        members.setdefault(owners[number], []).append(task)
    first = True
    for process, tasks in members.items():
        if process in by_process or any(task.ended for task in tasks):
            yield _reading(log, tasks, log.task(process), by_process.get(process, []), first)
            first = False


def _reading(
    log: StraceLog, tasks: list[TracedThread], task: TracedThread, tallies: list[Tally], first: bool
) -> Reading:
    reading = Reading(_facts(log, task, len(tasks), first), tallies=tallies)
    if first:
        reading.notes = [*log.notes, *_general_notes(log)]
    for other in (task for task in tasks if task.pending is not None):
        text = f"{other.pending_name} of {other.number or 'the process'} had not returned when the log ended"
        reading.notes.append(Note(text, where=str(log.source)))
    return reading


def _general_notes(log: StraceLog) -> Iterator[Note]:
    if not log.timed:
        yield Note("the calls carry no times: record with strace -T to get them", where=str(log.source))


def _facts(log: StraceLog, task: TracedThread, threads: int, first: bool) -> RankFacts:
    parent = log.parents.get(task.number)
    facts = RankFacts(pid=task.number or None, parent_pid=parent or None, command=task.command, source=str(log.source))
    facts.role = Role.RANK if first else Role.HELPER
    facts.rank = log.source.hints.rank if first else None
    facts.threads = threads if task.number else None
    if task.first_ns is not None and task.last_ns is not None:
        facts.elapsed_ns = task.last_ns - task.first_ns + (DAY_NS if task.last_ns < task.first_ns else 0)
    if log.unix:
        facts.started_ns, facts.ended_ns = task.first_ns, task.last_ns
    if task.ended is not None:
        facts.ending = "signalled" if task.ended.signal else "exited"
        facts.exit_code, facts.end_signal = task.ended.exit_code, task.ended.signal
    return facts


def _owners(log: StraceLog) -> dict[int, int]:
    """The process each thread belongs to: the first in its chain of makers that no thread call made."""
    owners: dict[int, int] = {}
    for number in log.tasks:
        passed: dict[int, None] = {}
        at = number
        while at not in owners and at not in passed:
            passed[at] = None
            at = log.threads.get(at, at)
        owners.update(dict.fromkeys(passed, owners.get(at, at)))
    return owners
