"""Reads where one rank is at this moment, and no more of its file than that needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.model import BadFile, Calling, Entered, Group, Moment
from rankscope.rankfile import ChunkKind, CollectiveFlag, Kind, Layer, Part, Rows
from rankscope.readers.chunks import RankFile, open_rank_file
from rankscope.readers.clock import Clock
from rankscope.readers.ending import Here
from rankscope.readers.facts import facts_of
from rankscope.readers.rankfile import group_of, last_ticks, log_rows
from rankscope.readers.rows import copy_rows

COMMUNICATION = (Layer.MPI, Layer.NCCL, Layer.GLOO)
NEWEST_STEPS = 8
NO_PEER = ANY = 1 << 31  # the lowest number: no peer is named; others below 0: any
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read_moment(path: Path, here: Here | None = None, records: int | None = None) -> Moment:
    """One rank as it is now, with at most so many of its newest collectives; raises BadFile."""
    here = here or Here()
    file = open_rank_file(path)
    clock = Clock(file.header)
    log = log_rows(file, records)
    calls, communication_ticks = _tally_sums(file)
    threads = [row for part in file.parts(ChunkKind.THREADS) for row in part.rows.copy() if row["call"]]
    group_rows = [row for part in file.parts(ChunkKind.GROUPS) for row in part.rows.copy()]
    strings = file.strings()
    groups = [group_of(row, strings, path) for row in group_rows]
    read_ns = here.now_ns()
    made = Moment(facts_of(file, clock, last_ticks(file.header, log), here), read_ns, groups)
    made.entered = _entered(log, clock, strings, groups, path)
    made.calling = _calling(threads, clock, strings, groups)
    made.calls = calls
    under_way_ns = sum(max(0, read_ns - one.start_ns) for one in made.entered if is_inside(one))
    under_way_ns += sum(max(0, read_ns - one.since_ns) for one in made.calling)
    made.communication_ns = communication_ticks * clock.ns_per_tick + under_way_ns
    _add_steps(made, file, clock)
    _ask_kernel(made, here)
    return made


def is_inside(entered: Entered) -> bool:
    """Whether the rank stands in this call."""
    return entered.end_ns is None and not entered.nonblocking


def _tally_sums(file: RankFile) -> tuple[int, int]:
    """Calls of all layers, and the ticks inside calls that communicate."""
    calls, ticks = 0, 0
    for part in file.parts(ChunkKind.TALLIES):
        rows, _ = copy_rows(part.rows, "seq")
        calls += int(rows["calls"].sum())
        inside = np.isin(rows["layer"], COMMUNICATION) & (rows["kind"] == Kind.CALL)
        ticks += int(rows["total_ticks"][inside].sum())
    return calls, ticks


def _entered(log: Rows, clock: Clock, strings: Sequence[str], groups: Sequence[Group], path: Path) -> list[Entered]:
    identities = ["", *(group.identity for group in groups)]
    if len(log) and (int(log["name"].max()) >= len(strings) or int(log["group"].max()) >= len(identities)):
        raise BadFile(f"{path}: a collective with a name or a group that is not there")
    unended = (log["end_ticks"] == 0).tolist()
    nonblocking = ((log["flags"] & CollectiveFlag.NONBLOCKING) != 0).tolist()
    # columns of plain numbers: picking them out of numpy's records one by one would take most of a look's time
    moments = [clock.unix_ns(log[name]).tolist() for name in ("enter_ticks", "end_ticks")]
    numbers = [log[name].tolist() for name in ("group", "name", "sequence", "bytes", "root", "thread")]
    return [
        Entered(identities[group], sequence, strings[name], start, None if open_ else end, size, root, waits, thread)
        for group, name, sequence, size, root, thread, start, end, open_, waits in zip(
            *numbers, *moments, unended, nonblocking, strict=True
        )
    ]


def _calling(threads: Sequence[Any], clock: Clock, strings: Sequence[str], groups: Sequence[Group]) -> list[Calling]:
    """The calls that threads are in; a word that was read while it changed may name what is not there."""
    identities = ["", *(group.identity for group in groups)]
    found = []
    for row in threads:
        call = int(row["call"])
        name, group, peer = call & 0xFFFF, call >> 16 & 0xFFFF, call >> 32
        if 0 < name < len(strings) and group < len(identities):
            told = None if peer == NO_PEER else -1 if peer & ANY else peer
            since_ns = int(clock.unix_ns(int(row["call_ticks"])))
            found.append(Calling(strings[name], since_ns, identities[group], told, int(row["slot"])))
    return found


def _add_steps(moment: Moment, file: RankFile, clock: Clock) -> None:
    parts = file.parts(ChunkKind.STEPS)
    if not parts or not len(parts[0].rows):
        return
    ring = parts[0].rows
    moment.steps = int(ring["number"].max())
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


def _ask_kernel(moment: Moment, here: Here) -> None:
    """A rank stuck in a call cannot bring its own file up to date; on its host the kernel knows more."""
    facts = moment.facts
    moment.cpu_ns = (facts.user_ns or 0) + (facts.system_ns or 0)
    if facts.ending != "running" or facts.host != here.host:
        return
    try:
        told = (here.proc / str(facts.pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        moment.state = told[0]
        moment.cpu_ns = (int(told[11]) + int(told[12])) * 1_000_000_000 // TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return
