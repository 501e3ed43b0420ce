"""Which ranks behave alike?"""

from __future__ import annotations

import numpy as np

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.ranks.behaviour import Array, Behaviour, Measure, behaviour
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ranges

COLUMNS = (
    Column("group", Unit.NAME, "Group"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("hosts", Unit.COUNT, "Hosts"),
    Column("which", Unit.NAME, "Which"),
    Column("differs", Unit.NAME, "Differs from the first group in"),
)
FEWEST = 4  # ranks
GAP = 0.1  # of the median: between two ranks that follow each other, from which they are of different kinds,
SPREADS = 4.0  # and so many spreads
MOST_TOLD = 3


def alike(tables: Tables, selection: Selection = ALL) -> Table:
    """Groups of ranks between which there is a gap in something that is measured, the largest group first."""
    return ranks_alike(behaviour(tables), selection)


def ranks_alike(found: Behaviour, selection: Selection = ALL) -> Table:
    """The same of ranks whose behaviour is known already."""
    table = Table("alike", "Ranks that behave alike", COLUMNS, [])
    if len(found.ranks) < FEWEST or not found.measures:
        return table
    kinds = np.stack([kinds_of(one) for one in found.measures], axis=1)
    _, which, sizes = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    order = np.argsort(-sizes, kind="stable").tolist()
    first = np.flatnonzero(which == order[0])
    for number, group in enumerate(order, 1):
        places = np.flatnonzero(which == group)
        ranks = [found.ranks[at] for at in places.tolist()]
        if selection.ranks is None or selection.ranks & set(ranks):
            hosts = len({found.hosts[at] for at in places.tolist()})
            told = _differences(found, kinds, places, first) if number > 1 else ""
            table.rows.append((number, len(ranks), hosts, ranges(ranks), told))
    return arranged(table, selection)


def kinds_of(measure: Measure) -> Array:
    """The ranks in order of the measure, numbered anew after each gap; those without a number are a kind too."""
    known = np.flatnonzero(np.isfinite(measure.values))
    order = known[np.argsort(measure.values[known], kind="stable")]
    least = max(GAP * abs(measure.usual), SPREADS * measure.spread)
    gaps = np.diff(measure.values[order]) > least
    made = np.full(len(measure.values), -1)
    made[order] = np.concatenate([[0], np.cumsum(gaps)])
    return made


def _differences(found: Behaviour, kinds: Array, places: Array, first: Array) -> str:
    """The measures in which a group is of another kind, the farthest first: its mean, and that of the first group."""
    told = []
    for at, measure in enumerate(found.measures):
        if kinds[places[0], at] != kinds[first[0], at]:
            own, usual = (float(np.nanmean(measure.values[some])) for some in (places, first))
            if np.isfinite(own) and np.isfinite(usual):
                unit = "" if measure.unit == "count" else f" {measure.unit}"
                text = f"{measure.name} {_short(own)} against {_short(usual)}{unit}"
                told.append((abs(own - usual) / measure.spread, text))
    return "; ".join(text for _, text in sorted(told, reverse=True)[:MOST_TOLD])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
