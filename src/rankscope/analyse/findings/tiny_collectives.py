"""Many tiny collectives where few larger ones would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from rankscope.model import Tables
from rankscope.questions.collectives.matching import Log
from rankscope.questions.collectives.wait_and_transfer import Split, collectives_of, usually_asked
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.steps.data import steps_of

TINY_BYTES = 4096
NEGOTIATION_BYTES = 64
FEWEST = 200
A_STEP = 8.0
NOTICEABLE = 0.02  # of the elapsed time of the collectives
FUSED = 8.0  # so many in one would be as fast as one


@dataclass(slots=True)
class _Tiny:
    """Of one split: how many, how long they move data, and the span of all its collectives."""

    count: int
    negotiations: int
    moving_ns: float
    names: Counter[str]
    first_ns: float
    last_ns: float


@usually_asked
def _tiny(log: Log, split: Split) -> _Tiny:
    size = split.group.bytes.max(axis=1)
    tiny = (size > 0) & (size <= TINY_BYTES)
    return _Tiny(
        int(tiny.sum()),
        int((tiny & (size <= NEGOTIATION_BYTES)).sum()),
        float(np.median(split.transfer_ns[tiny], axis=1).sum()) if tiny.any() else 0.0,
        Counter(log.names[code] for code in split.group.name[tiny].tolist()),
        float(split.enter_ns.min()),
        float(split.enter_ns.max()),
    )


def tiny_collectives(tables: Tables) -> list[Finding]:
    """By the moving of data alone: what is waiting would be waited elsewhere."""
    known = collectives_of(tables)
    told = known.of_each(_tiny)
    count, negotiations = sum(one.count for one in told), sum(one.negotiations for one in told)
    moving = sum(one.moving_ns for one in told)
    first, last = (
        min((one.first_ns for one in told), default=np.inf),
        max((one.last_ns for one in told), default=-np.inf),
    )
    names: Counter[str] = Counter()
    for one in told:
        names.update(one.names)
    steps = max((len(one.number) for one in steps_of(tables).ranks), default=0)
    saved = moving * (1 - 1 / FUSED)
    if count < FEWEST or count < A_STEP * steps or saved < NOTICEABLE * (last - first):
        return []
    name = max(names, key=lambda key: names[key])
    horovod = negotiations > count / 2
    per_step = f", {count / steps:.0f} a step" if steps else ""
    return [
        Finding(
            "tiny_collectives",
            f"{count} collectives of at most 4 KiB{per_step}, mostly {name}",
            "with Horovod raise HOROVOD_CYCLE_TIME and use its response cache; else send flags and counters together "
            "and less often"
            if horovod
            else "put gradients into few large buffers (DDP bucket_cap_mb, Horovod fusion threshold, one array)",
            [f"collectives: rows up to 4 KiB move data for {seconds(moving)}, {seconds(moving / count)} each"],
            saved,
        )
    ]
