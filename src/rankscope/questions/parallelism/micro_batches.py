"""Do the micro-batches of a pipeline take equally long, as its schedule assumes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model.tables import Tables

Array = Any  # of numpy
# forward and backward passes by rank, step, chunk and micro-batch
SQL = """
    SELECT rank, stage, step, chunk, micro_batch,
        sum(o.end_ns - o.start_ns) FILTER (regexp_matches(lower(kind), 'forward|^fwd')) AS forward_ns,
        sum(o.end_ns - o.start_ns) FILTER (regexp_matches(lower(kind), 'backward|^bwd')) AS backward_ns
    FROM operations AS o JOIN ranks USING (process)
    WHERE ranks.role = 'rank' AND o.role = 'compute' AND micro_batch >= 0
    GROUP BY ALL HAVING forward_ns > 0 AND backward_ns > 0"""
ALIKE = 0.8  # forward and backward passes of one micro-batch correlate as much where it is the micro-batch that differs
TAIL = 1.2  # one in twenty takes so many times the median
FEWEST = 40  # passes, to say anything


@dataclass(frozen=True, slots=True)
class Unequal:
    """How much micro-batches differ in what they cost."""

    correlation: float  # of forward and backward passes, beyond what rank, step and place in the step explain
    tail: float  # 95th percentile ÷ median


def unequal_micro_batches(tables: Tables) -> Unequal | None:
    """None where they are alike, or where they differ for another reason: a slow moment slows one pass, not both."""
    columns = tables.columns(SQL)
    if len(columns["rank"]) < FEWEST:
        return None
    forward, backward = (_unexplained(columns, columns[name]) for name in ("forward_ns", "backward_ns"))
    if not forward.std() or not backward.std():
        return None
    correlation = float(np.corrcoef(forward, backward)[0, 1])
    tail = float(np.quantile(backward, 0.95) / np.median(backward))
    return Unequal(correlation, tail) if correlation >= ALIKE and tail >= TAIL else None


def _unexplained(columns: Any, ns: Array) -> Array:
    """Passes over what is usual of their stage, chunk and place in the step, and of their rank in this step."""
    left = np.asarray(ns, np.float64)
    for names in (("stage", "chunk", "micro_batch"), ("rank", "step", "chunk")):
        keys = np.stack([columns[name] for name in names], axis=1)
        of_key = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        left = left / (np.bincount(of_key, left) / np.bincount(of_key))[of_key]
    return left
