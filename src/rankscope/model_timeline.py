"""What timelines are made of: processes, tracks and slices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rankscope.model import Words


@dataclass(frozen=True, slots=True)
class Track:
    """One line of a timeline."""

    number: int  # from 1, over all processes
    process: int
    kind: str  # "thread", "ranges", "stream", "communicator", "steps" or "phases"
    name: str
    lane: int = 0  # of those that overlap without lying within each other


@dataclass(frozen=True, slots=True)
class Actor:
    """One process of a timeline."""

    process: int
    name: str
    host: str
    pid: int


@dataclass(slots=True)
class Slices:
    """Some slices of one process, as columns in the order in which a timeline opens them."""

    process: int
    track: Any  # numbers of tracks
    name: Words
    start_ns: Any  # Unix time on the run's common clock
    end_ns: Any  # less than start_ns where it has not ended
    flow: Any  # the same number for what belongs together on several processes, 0: none
    bytes: Any  # 0: none, or not known
    new_tracks: list[Track] = field(default_factory=list)  # that no slices before had
