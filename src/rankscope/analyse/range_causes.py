"""Which range of the program takes a late rank longer than its peers?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.model import Tables
from rankscope.questions.steps.data import steps_of

NESTED = 0.9  # of the largest excess: the ranges around the one that is longer are longer too
# What torch and the recorder name themselves is a part of the step, or lies in one.
SQL = """
    SELECT rank, name, sum(total_ns)::DOUBLE FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'torch' AND kind = 'call' GROUP BY rank, name"""


@dataclass(frozen=True, slots=True)
class LongerRange:
    """A range that is longer on one rank, per step."""

    name: str
    excess_ns: float
    usual_ns: float


def longer_range(tables: Tables, rank: int, least_ns: float) -> LongerRange | None:
    """The innermost of the ranges that take the rank so much longer than the median of its peers; by whole sums."""
    steps = {one.rank: len(one.number) for one in steps_of(tables).ranks}
    of_name: dict[str, dict[int, float]] = {}
    for of_rank, name, total_ns in tables.query(SQL):
        if steps.get(of_rank):
            of_name.setdefault(name, {})[of_rank] = total_ns / steps[of_rank]
    found = []
    for name, values in of_name.items():
        usual_ns = float(np.median([values.get(other, 0.0) for other in steps if other != rank]))
        excess_ns = values.get(rank, 0.0) - usual_ns
        if excess_ns >= least_ns:
            found.append(LongerRange(f"range {name}", excess_ns, usual_ns))
    most_ns = max((one.excess_ns for one in found), default=0.0)
    inner = [one for one in found if one.excess_ns >= NESTED * most_ns]
    return min(inner, key=lambda one: one.usual_ns + one.excess_ns, default=None)
