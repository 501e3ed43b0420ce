"""All ranks of one host are slower than all others."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.analyse.block_means import estimates
from rankscope.model import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.stragglers.lateness import Chosen
from rankscope.questions.wording import ranges

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


_KEPT: WeakKeyDictionary[Tables, list[SlowHost]] = WeakKeyDictionary()


def slow_host(tables: Tables) -> list[SlowHost]:
    """The host whose ranks, two at least, all take longer than every rank elsewhere."""
    if tables not in _KEPT:
        _KEPT[tables] = _slow_host(steps_of(tables))
    return _KEPT[tables]


def _slow_host(found: Steps) -> list[SlowHost]:
    common = found.common()
    hosts = {host: at for at, host in enumerate(sorted({one.host for one in found.ranks}))}
    if len(hosts) < 2 or len(common) < FEWEST_STEPS:
        return []
    chosen = Chosen(found.ranks, common)
    own = np.array([one.value for one in estimates(chosen.table(lambda one: one.own_ns))])
    step_ns = float(np.median(found.pooled(found.ranks, lambda one: one.length_ns), overwrite_input=True))
    made = []
    host_of = np.array([hosts[one.host] for one in found.ranks])
    for host, at in hosts.items():
        here = host_of == at
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
