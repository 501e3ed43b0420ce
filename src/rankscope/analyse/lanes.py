"""Which ranks share a row of a picture that cannot hold them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Lanes:
    """The rows of a picture: their labels, and the row of each rank (by its place)."""

    kind: str  # what a row is: "rank", "host", "hosts" or "ranks"
    labels: list[str | int]
    of: Any  # array of int
    sizes: Any  # array of int: ranks in each row

    @property
    def whole(self) -> bool:
        return self.kind == "rank"


def lanes(ranks: Sequence[int], hosts: Sequence[str], most: int) -> Lanes:
    """One row a rank; where these are too many, one a host; where those are, some neighbours in each."""
    if len(ranks) <= most:
        return Lanes("rank", list(ranks), np.arange(len(ranks)), np.ones(len(ranks), np.int64))
    places = {host: at for at, host in enumerate(dict.fromkeys(hosts))}
    if len(places) > 1:
        return _joined("host", list(places), np.array([places[host] for host in hosts], np.int64), most)
    return _joined("rank", [str(rank) for rank in ranks], np.arange(len(ranks)), most)


def _joined(kind: str, labels: Sequence[str], of: Any, most: int) -> Lanes:
    """The same with as many neighbours in a row as it takes."""
    size = -(-len(labels) // most)
    told: list[str | int] = list(labels)
    if size > 1:
        kind, of = f"{kind}s", of // size
        told = [f"{labels[at]} … {labels[min(at + size, len(labels)) - 1]}" for at in range(0, len(labels), size)]
    return Lanes(kind, told, of, np.bincount(of, minlength=len(told)))
