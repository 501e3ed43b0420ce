"""Reads where one rank is at this moment, and no more of its file than that needs."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model.records import UNSIZED, BadFile, Calling, Entered, Group, Moment
from rankscope.rank_file import (
    GROUP,
    HEADER,
    ChunkKind,
    CollectiveFlag,
    Idle,
    Kind,
    LayerNumber,
    MessageFlag,
    Part,
    Rows,
    State,
)
from rankscope.rank_files.chunks import ChunkPlaces, RankFile, copy_rows, open_rank_file
from rankscope.rank_files.clock import Clock
from rankscope.rank_files.facts import Here, KeptFacts, facts_of, process_words
from rankscope.rank_files.read import group_of, last_ticks, log_rows

# ---------------------------------------------------------------------------------------------------------------------
# What of a rank file says where its rank is: sums, the newest collectives, calls and steps, and the kernel's word.
COMMUNICATION = (LayerNumber.MPI, LayerNumber.NCCL, LayerNumber.GLOO, LayerNumber.ONECCL)
COMMUNICATES = np.isin(np.arange(256), COMMUNICATION)  # by number of the layer
# members of enumerations are slow to look up where thousands of files are read
TALLIES, STEPS, CALL = ChunkKind.TALLIES, ChunkKind.STEPS, int(Kind.CALL)
NONBLOCKING, WITHOUT_SIZE = int(CollectiveFlag.NONBLOCKING), int(CollectiveFlag.UNSIZED)
RECORD = struct.Struct("=3Q3Ii3H2B")  # of COLLECTIVE
NEWEST_STEPS = 8
STEPS_AHEAD = 64
NO_PEER = ANY = 1 << 31  # the lowest number: no peer is named; others below 0: any
WAITS = ("MPI_Wait", "ccl::event::wait")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def tally_sums(file: RankFile) -> tuple[int, int]:
    """Calls of all layers, and the ticks inside calls that communicate."""
    calls, ticks = 0, 0
    for part in file.parts(TALLIES):
        rows, _ = copy_rows(part.rows, "seq")
        calls += int(rows["calls"].sum())
        inside = COMMUNICATES[rows["layer"]] & (rows["kind"] == CALL)
        ticks += int(rows["total_ticks"][inside].sum())
    return calls, ticks


def entered_of(raw: bytes, clock: Clock, strings: Sequence[str], groups: Sequence[Group], path: Path) -> list[Entered]:
    """The records of a log, as they are asked about."""
    identities = ["", *(group.identity for group in groups)]
    entered, unix_ns = [], clock.unix_ns_at
    # unpacked in one go: picking numbers out of numpy's records one by one would take most of a look's time
    for enter, end, size, sequence, _, _, root, name, group, thread, _, flags in RECORD.iter_unpack(raw):
        if name >= len(strings) or group >= len(identities):
            raise BadFile(f"{path}: a collective with a name or a group that is not there")
        times = (unix_ns(enter), unix_ns(end) if end else None)
        moved = UNSIZED if flags & WITHOUT_SIZE else size
        entered.append(
            Entered(identities[group], sequence, strings[name], *times, moved, root, flags & NONBLOCKING != 0, thread)
        )
    return entered


def calling_of(
    file: RankFile, threads: Sequence[Any], clock: Clock, strings: Sequence[str], groups: Sequence[Group]
) -> list[Calling]:
    """The calls that threads are in; a word that was read while it changed may name what is not there."""
    identities = ["", *(group.identity for group in groups)]
    has_tags = int(file.header["header_bytes"]) >= HEADER.itemsize  # files of earlier recorders say 0 there
    calls = []
    for row in threads:
        call = int(row["call"])
        name, group, peer = call & 0xFFFF, call >> 16 & 0xFFFF, call >> 32
        if 0 < name < len(strings) and group < len(identities):
            peer_rank = None if peer == NO_PEER else -1 if peer & ANY else peer
            since_ns = clock.unix_ns_at(int(row["call_ticks"]))
            tag = int(row["call_tag"]) if peer_rank is not None and has_tags else -1
            calling = Calling(
                strings[name], since_ns, identities[group], peer_rank, int(row["slot"]), tag if tag >= 0 else None
            )
            calls.append(_waited_for(file, calling, identities) if strings[name].startswith(WAITS) else calling)
    return calls


def _waited_for(file: RankFile, calling: Calling, identities: Sequence[str]) -> Calling:
    """A wait with the message that it is for, where only one is under way: of several any may be missing."""
    rings = [part.rows for part in file.parts(ChunkKind.MESSAGES) if part.thread == calling.thread]
    under_way = [row for ring in rings for row in ring[(ring["end_ticks"] == 0) & (ring["number"] > 0)]]
    if len(under_way) != 1 or int(under_way[0]["group"]) >= len(identities):
        return calling
    row = under_way[0]
    tag, sends = int(row["tag"]), not row["flags"] & MessageFlag.RECEIVE
    group, peer = identities[int(row["group"])], max(int(row["peer"]), -1)
    return replace(calling, group=group, peer=peer, tag=tag if tag >= 0 else None, sends=bool(sends))


def add_steps(moment: Moment, file: RankFile, clock: Clock, before: int = 0) -> None:
    """How many steps are done and what the newest were made of; so many were done at the last look."""
    parts = file.parts(STEPS)
    if not parts or not len(parts[0].rows):
        return
    ring = parts[0].rows
    moment.steps = _newest_step(ring, before)
    newest = range(moment.steps, max(0, moment.steps - min(NEWEST_STEPS, len(ring))), -1)
    slots = [(number - 1) % len(ring) for number in newest]
    rows = ring[slots]
    rows = rows[(rows["number"] != 0) & (rows["number"] == ring["number"][slots])]  # not overwritten meanwhile
    ticks = np.column_stack([rows["part_ticks"], rows["compute_ticks"]]).astype(np.float64)
    if not np.isfinite(ticks).all() or ticks.sum() <= 0:
        return
    moment.step_ns = float(ticks.sum() / len(ticks)) * clock.ns_per_tick
    moment.step_shares = {part.name.lower(): float(ticks[:, part].sum() / ticks.sum()) for part in Part}
    blocked = np.nan_to_num(np.column_stack([rows["blocked_ticks"], rows["blocked_compute_ticks"]])).sum(
        dtype=np.float64
    )
    moment.step_shares["blocked"] = float(min(1.0, blocked / ticks.sum()))


def add_device_steps(moment: Moment, file: RankFile) -> None:
    """What the newest steps on the GPUs were made of, as shares that add up to 1."""
    parts = file.parts(ChunkKind.DEVICE_STEPS)
    if not parts:
        return
    rows, unsettled = copy_rows(parts[0].rows, "number", zero_is_busy=True)
    numbers = rows["number"].astype(np.int64)
    rows = rows[~unsettled & (numbers > 0) & (numbers > numbers.max() - NEWEST_STEPS)]
    sums = {name: float(rows[f"{name}_ns"].sum()) for name in ("compute", "exposed", "copy")}
    sums |= {f"idle {cause.name.lower()}": float(rows["idle_ns"][:, cause].sum()) for cause in Idle}
    total = sum(sums.values())
    if np.isfinite(total) and total > 0 and min(sums.values()) >= 0:
        moment.device_shares = {name: ns / total for name, ns in sums.items()}


def _newest_step(ring: Rows, before: int) -> int:
    """The newest step that the ring has: mostly one of those right behind the newest of the last look."""
    numbers = ring["number"]
    if before and int(numbers[(before - 1) % len(ring)]) == before:  # not overwritten: less than a round ago
        ahead = np.arange(before + 1, before + 1 + min(STEPS_AHEAD, len(ring)))
        is_next = numbers[(ahead - 1) % len(ring)] == ahead
        if not is_next[-1]:
            return before + int(is_next.sum())
    return int(numbers.max())


def ask_kernel(moment: Moment, here: Here) -> None:
    """A rank stuck in a call cannot bring its own file up to date; on its host the kernel knows more."""
    facts = moment.facts
    moment.cpu_ns = (facts.user_ns or 0) + (facts.system_ns or 0)
    if facts.ending != "running" or facts.host != here.host:
        return
    try:
        words = process_words(here.proc, facts.pid or 0)
        moment.state = words[0]
        moment.cpu_ns = (int(words[11]) + int(words[12])) * 1_000_000_000 // TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return


# ---------------------------------------------------------------- live
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
        self._layout, self._facts, self._steps = ChunkPlaces(), KeptFacts(), 0
        self._raw_groups: list[bytes] = []
        self._groups: list[Group] = []
        self._raw_log: tuple[Any, ...] = ()
        self._entered: list[Entered] = []

    def moment(self, here: Here, records: int | None = None) -> Moment:
        """The rank as it is now, with at most so many of its newest collectives; raises BadFile."""
        if self._ended is not None and self._ended[0] == _state(self.path, records):
            ended = self._ended[1]  # whose facts get a role from who looks
            return replace(ended, read_ns=here.now_ns(), facts=replace(ended.facts))
        file = self._open()
        moment = self._read(file, here, records)
        has_ended = int(file.header["state"]) != RUNNING
        self._ended = (_state(self.path, records), replace(moment, facts=replace(moment.facts))) if has_ended else None
        return moment

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
        moment = Moment(facts, read_ns, groups, self._entered_list(log, clock, strings))
        moment.calling = calling_of(file, threads, clock, strings, groups) if threads else []
        moment.calls = calls
        under_way_ns = sum(max(0, read_ns - record.start_ns) for record in moment.entered if is_inside(record))
        under_way_ns += sum(max(0, read_ns - call.since_ns) for call in moment.calling)
        moment.communication_ns = communication_ticks * clock.ns_per_tick + under_way_ns
        add_steps(moment, file, clock, self._steps)
        add_device_steps(moment, file)
        facts.ended_steps = self._steps = moment.steps or 0
        ask_kernel(moment, here)
        return moment

    def _strings(self, file: RankFile) -> list[str]:
        raw = file.string_bytes()
        if raw not in self._shared:
            self._shared[raw] = file.strings()
        return self._shared[raw]

    def _group_list(self, raw: bytes, strings: list[str]) -> list[Group]:
        """Only those whose row has changed are made anew: programs with ranges have hundreds."""
        size = GROUP.itemsize
        raw_groups = [raw[at : at + size] for at in range(0, len(raw), size)]
        known = self._raw_groups
        changed = [at for at, row in enumerate(raw_groups) if at >= len(known) or row != known[at]]
        if changed:
            rows = np.frombuffer(raw, GROUP)
            groups = [*self._groups[: len(raw_groups)], *[NO_GROUP] * (len(raw_groups) - len(self._groups))]
            for at in changed:
                again = at < len(known) and _but_collectives(known[at]) == _but_collectives(raw_groups[at])
                groups[at] = _going_on(groups[at], raw_groups[at]) if again else group_of(rows[at], strings, self.path)
            self._raw_groups, self._groups = raw_groups, groups
        return self._groups

    def _entered_list(self, log: Rows, clock: Clock, strings: list[str]) -> list[Entered]:
        raw = log.tobytes()
        log_state = (raw, clock.origin_ticks, clock.origin_unix_ns, clock.ns_per_tick)
        if log_state != self._raw_log:
            self._entered = entered_of(raw, clock, strings, self._groups, self.path)
            self._raw_log = log_state
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
        status = os.stat(path)
    except OSError as problem:
        raise BadFile(f"{path}: cannot be read: {problem.strerror}") from None
    return status.st_ino, status.st_size, status.st_mtime_ns, -1 if records is None else records
