"""All ranks of one host are slower than all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analyse.block_means import estimates
from rankscope.analyse.findings.finding import Finding, seconds
from rankscope.analyse.step_data import steps_of
from rankscope.analyse.words import ranges
from rankscope.model import Tables

FEWEST_STEPS = 12
NOTICEABLE = 0.04  # of the step, between the fastest rank of the host and the slowest of all others


@dataclass(slots=True)
class SlowHost:
    host: str
    ranks: list[int]
    own_ns: float
    others_ns: float
    gap_ns: float
    steps: int


def slow_host(tables: Tables) -> list[SlowHost]:
    """The host whose ranks, two at least, all take longer than every rank elsewhere."""
    found = steps_of(tables)
    common = found.common()
    hosts = sorted({one.host for one in found.ranks})
    if len(hosts) < 2 or len(common) < FEWEST_STEPS:
        return []
    table = np.stack([one.own_ns[np.searchsorted(one.number, common)] for one in found.ranks])
    own = np.array([one.value for one in estimates(table)])
    step_ns = float(np.median(np.concatenate([one.length_ns[found.steady(one)] for one in found.ranks])))
    made = []
    for host in hosts:
        here = np.array([one.host == host for one in found.ranks])
        gap = float(own[here].min() - own[~here].max())
        if here.sum() > 1 and (~here).sum() > 1 and gap >= NOTICEABLE * step_ns:
            ranks = [one.rank for one in found.ranks if one.host == host]
            made.append(SlowHost(host, ranks, float(own[here].mean()), float(own[~here].mean()), gap, len(common)))
    return made


def host_imbalance(tables: Tables) -> list[Finding]:
    """The slow host, with what its ranks need more."""
    return [
        Finding(
            "host_imbalance",
            f"Host {one.host} is slow: its ranks {ranges(one.ranks)} need {seconds(one.own_ns)} a step, "
            f"all others {seconds(one.others_ns)}",
            "compare clock speed, temperature, other users and placement of that host with the others', or replace it",
            [f"step_parts: the fastest of its ranks is {seconds(one.gap_ns)} a step behind the slowest of the others"],
            one.gap_ns * one.steps,
        )
        for one in slow_host(tables)
    ]
