"""Who waits for whom, and how long in all?"""

from __future__ import annotations

import numpy as np

from rankscope.analyse.lanes import lanes
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.selection import ALL, Selection

COLUMNS = (Column("rank", Unit.NAME, "Rank that waits"),)  # or a host, or several; then a column for each
MOST_LANES = 96


def wait_matrix(tables: Tables, selection: Selection = ALL) -> Table:
    """Waiting of each rank (row) for each other one (column), of all matched collectives. Many are put together."""
    known = collectives_of(tables)
    table = Table("wait_matrix", "Who waits for whom", COLUMNS, [])
    wanted = np.array([selection.ranks is None or rank in selection.ranks for rank in known.log.ranks], bool)
    if not known.splits or not wanted.any():
        return table
    rows = lanes(known.log.ranks, known.log.hosts, MOST_LANES)
    count = len(rows.labels)
    sums = np.zeros(count * count)
    for split in known.splits:
        members = split.group.members
        waits = (split.awaited >= 0) & wanted[members] & (split.wait_ns > 0)
        waiting = np.broadcast_to(rows.of[members], waits.shape)[waits]
        awaited = rows.of[members[split.awaited[waits]]]
        sums += np.bincount(waiting * count + awaited, split.wait_ns[waits], count * count)
    table.columns = (
        Column(rows.kind, Unit.NAME, f"{rows.kind.capitalize()} that waits"),
        *(Column(f"for_{label}_ns", Unit.NS, str(label)) for label in rows.labels),
    )
    found = np.round(sums).astype(np.int64).reshape(count, count)
    kept = np.flatnonzero(np.bincount(rows.of[wanted], minlength=count))
    table.rows = [(rows.labels[at], *found[at].tolist()) for at in kept.tolist()]
    if not rows.whole:
        table.notes.append(f"Sums over the ranks of one or some {rows.kind.rstrip('s')}s.")
    return table
