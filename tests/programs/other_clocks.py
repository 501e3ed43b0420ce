"""Copies of recorded runs whose ranks seem to have run on other hosts, with clocks that are off and drift."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankscope.rank_file import HEADER, TickSource


@dataclass(frozen=True)
class OtherClock:
    host: str
    offset_ns: int = 0
    drift: float = 0.0


def with_clocks(run: Path, copy: Path, clocks: Mapping[int, OtherClock]) -> Path:
    """A copy of a run in which these ranks have other clocks: only the anchors and host names are changed."""
    for path in run.glob("ranks/*/*.rank"):
        raw = bytearray(path.read_bytes())
        header = np.frombuffer(raw, HEADER, count=1)
        clock = clocks.get(int(header["rank"][0]))
        host = clock.host if clock else path.parent.name
        if clock:
            _change(header, clock)
        target = copy / "ranks" / host / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(raw)
    if (run / "run.json").exists():
        shutil.copy(run / "run.json", copy / "run.json")
    return copy


def _change(header: np.ndarray, clock: OtherClock) -> None:
    loaded, last = header["loaded"], header["facts"]["anchor"]
    if header["tick_source"][0] == TickSource.MONOTONIC:
        header["tick_source"] = TickSource.TSC  # the same clock, but of a rate that the anchors tell
    span_ns = int(last["monotonic_ns"][0]) - int(loaded["monotonic_ns"][0])
    assert span_ns > 0, "the rank ended before its clock was read a second time"
    last["monotonic_ns"] += np.int64(round(span_ns * clock.drift)).astype(np.uint64)
    loaded["realtime_ns"] += np.int64(clock.offset_ns).astype(np.uint64)
    last["realtime_ns"] += np.int64(clock.offset_ns + round(span_ns * clock.drift)).astype(np.uint64)
    header["host"] = clock.host.encode()
