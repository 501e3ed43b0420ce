"""Many tiny collectives where few larger ones would do."""

from __future__ import annotations

import numpy as np

from rankscope.analyse.findings.finding import Finding, seconds
from rankscope.analyse.splitting import collectives_of
from rankscope.analyse.step_data import steps_of
from rankscope.model import Tables

TINY_BYTES = 4096
NEGOTIATION_BYTES = 64
FEWEST = 200
A_STEP = 8.0
NOTICEABLE = 0.02  # of the elapsed time of the collectives
FUSED = 8.0  # so many in one would be as fast as one


def tiny_collectives(tables: Tables) -> list[Finding]:
    """By the moving of data alone: what is waiting would be waited elsewhere."""
    known = collectives_of(tables)
    count, moving, negotiations = 0, 0.0, 0
    first, last = np.inf, -np.inf
    names: dict[str, int] = {}
    for split in known.splits:
        size = split.group.bytes.max(axis=1)
        tiny = (size > 0) & (size <= TINY_BYTES)
        first, last = min(first, float(split.enter_ns.min())), max(last, float(split.enter_ns.max()))
        count += int(tiny.sum())
        negotiations += int((tiny & (size <= NEGOTIATION_BYTES)).sum())
        moving += float(np.median(split.transfer_ns[tiny], axis=1).sum()) if tiny.any() else 0.0
        for code in split.group.name[tiny].tolist():
            names[known.log.names[code]] = names.get(known.log.names[code], 0) + 1
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
