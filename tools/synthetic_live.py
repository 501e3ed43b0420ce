"""A synthetic run while it runs: its rank files as recorders leave them at a moment of the law's time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rankscope.rank_file import COLLECTIVE, GROUP, TALLY, ChunkKind, Flag, State
from synthetic_law import START_NS, Array, Law
from synthetic_run import FIRST_PID, STEADY, Template, each_ns, host_name


class LiveRun:
    """Rank files that are written over in place, as recorders do, whenever time goes on.

    `stuck` are ranks that never enter more than so many collectives; the others then wait in the next one."""

    def __init__(
        self, folder: Path, law: Law, start_ns: int = START_NS, stuck: Mapping[int, int] | None = None
    ) -> None:
        self.folder, self.law, self.start_ns, self.stuck = folder, law, start_ns, dict(stuck or {})
        self.template = Template(law, killed=False)
        self._log = self.template._log_rows()
        for host in range(law.hosts):
            (folder / "ranks" / host_name(host)).mkdir(parents=True)
        told = {"format": 1, "command": ["python", "train.py"], "expected_ranks": law.ranks, "started_ns": start_ns}
        (folder / "run.json").write_text(json.dumps(told))

    def at(self, now_ns: int) -> int:
        """Bring every file to this moment, ns of true time since the start; returns its Unix time."""
        for rank in sorted(set(range(self.law.ranks)) - set(self.law.absent)):
            place = self.path(rank)
            opened = os.open(place, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(opened, self._of_rank(rank, now_ns).data, 0)
            finally:
                os.close(opened)
        return self.start_ns + now_ns

    def path(self, rank: int) -> Path:
        law = self.law
        return self.folder / "ranks" / host_name(law.host(rank)) / f"{FIRST_PID + rank % law.ranks_per_host}.rank"

    def _of_rank(self, rank: int, now_ns: int) -> Array:
        made, law = self.template, self.law
        enter, leave = law.times_ns(rank)
        entered, ended = (int(np.searchsorted(times, now_ns, "right")) for times in (enter, leave))
        if self.stuck:
            last = min(self.stuck.values())
            entered, ended = min(entered, self.stuck.get(rank, last + 1)), min(ended, last)
        made._patch_header(rank, self.start_ns - START_NS, 0.0)
        header = made.header
        header["state"], header["flags"], header["phase"] = State.RUNNING, Flag.MPI_STARTED, STEADY
        header["ended_ticks"] = header["mpi_finalized_ticks"] = 0
        header["log_written"], header["facts"]["anchor"]["ticks"] = entered, now_ns
        group = made.rows(ChunkKind.GROUPS, GROUP)
        group["my_rank"], group["collectives"] = rank, entered
        self._patch_tallies(rank, (leave - enter)[:ended], now_ns)
        log, kept = made.rows(ChunkKind.LOG, COLLECTIVE), np.arange(entered)[-made.capacity :]
        log[:] = np.zeros(1, COLLECTIVE)
        rows = self._log[kept]
        rows["enter_ticks"], rows["number"] = enter[kept], kept + 1
        rows["end_ticks"] = np.where(kept < ended, leave[kept], 0)
        log[kept % made.capacity] = rows
        return made.data

    def _patch_tallies(self, rank: int, stay_ns: Array, now_ns: int) -> None:
        """The collectives that are over; point-to-point calls go on evenly all the time."""
        rows = self.template.rows(ChunkKind.TALLIES, TALLY)
        kinds = self.template.kinds
        for at, (_, _, chosen) in enumerate(kinds):
            stays = stay_ns[chosen[: len(stay_ns)]]
            rows["calls"][at], rows["total_ticks"][at] = len(stays), stays.sum()
        rest = rows[len(kinds) :]
        rest["calls"] = 10 * (1 + np.arange(len(rest)) % 7) * now_ns // self.law.end_ns
        rest["total_ticks"] = rest["calls"] * each_ns(self.law, rank, len(rest))
