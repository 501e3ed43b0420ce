"""What of a rank file says where its rank is: sums, the newest collectives, calls and steps, and the kernel's word."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model import UNSIZED, BadFile, Calling, Entered, Group, Moment
from rankscope.rank_file import ChunkKind, CollectiveFlag, Kind, Layer, Part, Rows
from rankscope.rank_files.chunks import RankFile
from rankscope.rank_files.clock import Clock
from rankscope.readers.ending import Here, process_words
from rankscope.readers.rows import copy_rows

COMMUNICATES = np.isin(np.arange(256), (Layer.MPI, Layer.NCCL, Layer.GLOO))  # by number of the layer
# members of enumerations are slow to look up where thousands of files are read
TALLIES, STEPS, CALL = ChunkKind.TALLIES, ChunkKind.STEPS, int(Kind.CALL)
NONBLOCKING, WITHOUT_SIZE = int(CollectiveFlag.NONBLOCKING), int(CollectiveFlag.UNSIZED)
RECORD = struct.Struct("=3Q3Ii3H2B")  # of COLLECTIVE
NEWEST_STEPS = 8
STEPS_AHEAD = 64
NO_PEER = ANY = 1 << 31  # the lowest number: no peer is named; others below 0: any
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
    made, unix_ns = [], clock.unix_ns_at
    # unpacked in one go: picking numbers out of numpy's records one by one would take most of a look's time
    for enter, end, size, sequence, _, _, root, name, group, thread, _, flags in RECORD.iter_unpack(raw):
        if name >= len(strings) or group >= len(identities):
            raise BadFile(f"{path}: a collective with a name or a group that is not there")
        times = (unix_ns(enter), unix_ns(end) if end else None)
        moved = UNSIZED if flags & WITHOUT_SIZE else size
        made.append(
            Entered(identities[group], sequence, strings[name], *times, moved, root, flags & NONBLOCKING != 0, thread)
        )
    return made


def calling_of(threads: Sequence[Any], clock: Clock, strings: Sequence[str], groups: Sequence[Group]) -> list[Calling]:
    """The calls that threads are in; a word that was read while it changed may name what is not there."""
    identities = ["", *(group.identity for group in groups)]
    found = []
    for row in threads:
        call = int(row["call"])
        name, group, peer = call & 0xFFFF, call >> 16 & 0xFFFF, call >> 32
        if 0 < name < len(strings) and group < len(identities):
            told = None if peer == NO_PEER else -1 if peer & ANY else peer
            since_ns = clock.unix_ns_at(int(row["call_ticks"]))
            found.append(Calling(strings[name], since_ns, identities[group], told, int(row["slot"])))
    return found


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
    ticks = rows["part_ticks"].astype(np.float64)
    if not np.isfinite(ticks).all() or ticks.sum() <= 0:
        return
    moment.step_ns = float(ticks.sum() / len(ticks)) * clock.ns_per_tick
    moment.step_shares = {part.name.lower(): float(ticks[:, part].sum() / ticks.sum()) for part in Part}
    blocked = np.nan_to_num(rows["blocked_ticks"].astype(np.float64)).sum()
    moment.step_shares["blocked"] = float(min(1.0, blocked / ticks.sum()))


def _newest_step(ring: Rows, before: int) -> int:
    """The newest step that the ring has: mostly one of those right behind the newest of the last look."""
    numbers = ring["number"]
    if before and int(numbers[(before - 1) % len(ring)]) == before:  # not overwritten: less than a round ago
        ahead = np.arange(before + 1, before + 1 + min(STEPS_AHEAD, len(ring)))
        found = numbers[(ahead - 1) % len(ring)] == ahead
        if not found[-1]:
            return before + int(found.sum())
    return int(numbers.max())


def ask_kernel(moment: Moment, here: Here) -> None:
    """A rank stuck in a call cannot bring its own file up to date; on its host the kernel knows more."""
    facts = moment.facts
    moment.cpu_ns = (facts.user_ns or 0) + (facts.system_ns or 0)
    if facts.ending != "running" or facts.host != here.host:
        return
    try:
        told = process_words(here.proc, facts.pid or 0)
        moment.state = told[0]
        moment.cpu_ns = (int(told[11]) + int(told[12])) * 1_000_000_000 // TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return
