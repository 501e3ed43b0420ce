"""Reads where one rank is at this moment, and no more of its file than that needs."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model import BadFile, Entered, Group, Moment
from rankscope.rank_file import GROUP, ChunkKind, Rows, State
from rankscope.rank_files.chunks import Layout, RankFile, open_rank_file
from rankscope.rank_files.clock import Clock
from rankscope.rank_files.facts import KeptFacts, facts_of
from rankscope.rank_files.read import group_of, last_ticks, log_rows
from rankscope.readers.ending import Here
from rankscope.readers.moment_parts import add_steps, ask_kernel, calling_of, entered_of, tally_sums

NO_GROUP = Group("")
COUNT = struct.Struct("=Q")
GROUP_MEMBERS: Any = GROUP.fields
COLLECTIVES = GROUP_MEMBERS["collectives"][1]
# members of enumerations are slow to look up where thousands of files are read
RUNNING, THREADS, GROUPS = State.RUNNING, ChunkKind.THREADS, ChunkKind.GROUPS


def read_moment(path: Path, here: Here | None = None, records: int | None = None) -> Moment:
    """One rank as it is now, with at most so many of its newest collectives; raises BadFile."""
    return LiveFile(path).moment(here or Here(), records)


class LiveFile:
    """A rank file that is looked at again and again: what has not changed since is not worked out again.

    It is opened for each look: only then does a network file system ask its server for what is new."""

    def __init__(self, path: Path, shared: dict[bytes, list[str]] | None = None) -> None:
        self.path = path
        self._shared = shared if shared is not None else {}  # strings by what stands for them in files: mostly alike
        self._process: tuple[int, ...] = ()
        self._ended: tuple[tuple[int, ...], Moment] | None = None
        self._forget()

    def _forget(self) -> None:
        self._layout, self._facts, self._steps = Layout(), KeptFacts(), 0
        self._raw_groups: list[bytes] = []
        self._groups: list[Group] = []
        self._raw_log: tuple[Any, ...] = ()
        self._entered: list[Entered] = []

    def moment(self, here: Here, records: int | None = None) -> Moment:
        """The rank as it is now, with at most so many of its newest collectives; raises BadFile."""
        if self._ended is not None and self._ended[0] == _state(self.path, records):
            return replace(self._ended[1], read_ns=here.now_ns())
        file = self._open()
        made = self._read(file, here, records)
        self._ended = (_state(self.path, records), made) if int(file.header["state"]) != RUNNING else None
        return made

    def _open(self) -> RankFile:
        file = open_rank_file(self.path)
        header = file.header
        process = (int(header["pid"]), int(header["start_jiffies"]), int(header["loaded"]["ticks"]))
        if process != self._process or self._layout.end > int(header["used_bytes"]):
            self._forget()
            self._process = process
        file.layout = self._layout
        return file

    def _read(self, file: RankFile, here: Here, records: int | None) -> Moment:
        """Rows first, then groups, then strings: see RankFile."""
        clock = Clock(file.header)
        log = log_rows(file, records)
        calls, communication_ticks = tally_sums(file)
        threads = [row for part in file.parts(THREADS) for row in part.rows[part.rows["call"] != 0]]
        group_rows = b"".join(part.rows.tobytes() for part in file.parts(GROUPS))
        strings = self._strings(file)
        groups = self._group_list(group_rows, strings)
        read_ns = here.now_ns()
        facts = facts_of(file, clock, last_ticks(file.header, log), here, self._facts)
        made = Moment(facts, read_ns, groups, self._entered_list(log, clock, strings))
        made.calling = calling_of(threads, clock, strings, groups) if threads else []
        made.calls = calls
        under_way_ns = sum(max(0, read_ns - one.start_ns) for one in made.entered if is_inside(one))
        under_way_ns += sum(max(0, read_ns - one.since_ns) for one in made.calling)
        made.communication_ns = communication_ticks * clock.ns_per_tick + under_way_ns
        add_steps(made, file, clock, self._steps)
        self._steps = made.steps or 0
        ask_kernel(made, here)
        return made

    def _strings(self, file: RankFile) -> list[str]:
        raw = file.string_bytes()
        if raw not in self._shared:
            self._shared[raw] = file.strings()
        return self._shared[raw]

    def _group_list(self, raw: bytes, strings: list[str]) -> list[Group]:
        """Only those whose row has changed are made anew: programs with ranges have hundreds."""
        size = GROUP.itemsize
        told = [raw[at : at + size] for at in range(0, len(raw), size)]
        known = self._raw_groups
        changed = [at for at, row in enumerate(told) if at >= len(known) or row != known[at]]
        if changed:
            rows = np.frombuffer(raw, GROUP)
            groups = [*self._groups[: len(told)], *[NO_GROUP] * (len(told) - len(self._groups))]
            for at in changed:
                again = at < len(known) and _but_collectives(known[at]) == _but_collectives(told[at])
                groups[at] = _going_on(groups[at], told[at]) if again else group_of(rows[at], strings, self.path)
            self._raw_groups, self._groups = told, groups
        return self._groups

    def _entered_list(self, log: Rows, clock: Clock, strings: list[str]) -> list[Entered]:
        raw = log.tobytes()
        told = (raw, clock.origin_ticks, clock.origin_unix_ns, clock.ns_per_tick)
        if told != self._raw_log:
            self._entered = entered_of(raw, clock, strings, self._groups, self.path)
            self._raw_log = told
        return self._entered


def _but_collectives(row: bytes) -> bytes:
    return row[:COLLECTIVES] + row[COLLECTIVES + COUNT.size :]


def _going_on(group: Group, row: bytes) -> Group:
    """The same group some collectives later."""
    entered = COUNT.unpack_from(row, COLLECTIVES)[0] % 2**63
    about = (group.name, group.identity, group.kind, group.size, group.my_rank)
    return Group(*about, entered, group.guessed, group.freed)


def is_inside(entered: Entered) -> bool:
    """Whether the rank stands in this call."""
    return entered.end_ns is None and not entered.nonblocking


def _state(path: Path, records: int | None) -> tuple[int, ...]:
    """While it is the same, nothing was written into the file of a process that has ended."""
    try:
        found = os.stat(path)
    except OSError as problem:
        raise BadFile(f"{path}: cannot be read: {problem.strerror}") from None
    return found.st_ino, found.st_size, found.st_mtime_ns, -1 if records is None else records
