"""Which ranks differ most from the others, and in what?"""

from __future__ import annotations

import numpy as np

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.ranks.behaviour import FAR, Array, Behaviour, behaviour
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("by", Unit.NAME, "Differs in"),
    Column("value", Unit.NUMBER, "Has"),
    Column("usual", Unit.NUMBER, "Usual"),
    Column("unit", Unit.NAME, "Unit"),
    Column("spreads", Unit.NUMBER, "Spreads away"),
    Column("also", Unit.NAME, "Also in"),
)
FEWEST = 4  # ranks
MOST = 10


def outliers(tables: Tables, selection: Selection = ALL) -> Table:
    """The ten ranks farthest from the median in anything, in spreads of the ranks; none where all are alike."""
    return ranks_that_differ(behaviour(tables), selection)


def outlying_ranks(tables: Tables, selection: Selection = ALL) -> list[int]:
    """The ranks that `outliers` names, in its order."""
    return [int(str(row[0])) for row in outliers(tables, Selection(selection.ranks)).rows]


def ranks_that_differ(found: Behaviour, selection: Selection = ALL) -> Table:
    """The same of ranks whose behaviour is known already."""
    table = Table("outliers", "Ranks that differ", COLUMNS, [])
    if len(found.ranks) < FEWEST or not found.measures:
        return table
    away = np.nan_to_num(np.stack([(one.values - one.usual) / one.spread for one in found.measures]))
    farthest = np.abs(away).max(axis=0)
    for place in np.argsort(-farthest, kind="stable").tolist():
        if farthest[place] < FAR or len(table.rows) == MOST:
            break
        if selection.ranks is None or found.ranks[place] in selection.ranks:
            table.rows.append(_row(found, away[:, place], place))
    more = int((farthest >= FAR).sum()) - len(table.rows)
    if more > 0 and selection.ranks is None:
        table.notes.append(f"{more} more ranks are at least {FAR} spreads from the median in something: see alike.")
    return arranged(table, selection)


def _row(found: Behaviour, away: Array, place: int) -> tuple[Cell, ...]:
    order = [at for at in np.argsort(-np.abs(away), kind="stable").tolist() if abs(away[at]) >= FAR]
    first = found.measures[order[0]]
    also = ", ".join(f"{found.measures[at].name} ({away[at]:+.0f})" for at in order[1:3])
    value = (float(first.values[place]), first.usual, first.unit, float(away[order[0]]))
    return found.ranks[place], found.hosts[place], first.name, *value, also
