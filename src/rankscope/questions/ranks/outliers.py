"""Which ranks differ most from the others, and in what?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.ranks.behaviour import FAR, Array, Behaviour, Measure, behaviour
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import counted

# ---------------------------------------------------------------------------------------------------------------------
# Which hosts, or groups of hosts such as those of one switch, differ from the others, and in what?
PLACES_COLUMNS = (
    Column("by", Unit.NAME, "By", "`host` or `group`"),
    Column("place", Unit.NAME, "Host or group"),
    Column("ranks", Unit.COUNT, "Ranks", "number of its ranks"),
    Column("measure", Unit.NAME, "Measure"),
    Column("unit", Unit.NAME, "Unit", "ms, MiB or count"),
    Column("min", Unit.NUMBER, "Min", "smallest value of its ranks"),
    Column("p50", Unit.NUMBER, "p50", "median value of its ranks"),
    Column("p95", Unit.NUMBER, "p95", "95th percentile of the values of its ranks"),
    Column("max", Unit.NUMBER, "Max", "largest value of its ranks"),
    Column("usual", Unit.NUMBER, "All ranks", "median over all ranks"),
    Column(
        "spreads", Unit.NUMBER, "Deviation (robust z)", "(`p50` − `usual`) ÷ spread; rows are in the order of its size"
    ),
)
PLACES_FEWEST = 2  # places
CHANCE_SIGMAS = 2.0  # of how often a place is waited for by chance: what counts as a spread
MAPPED = 'SELECT host, "group" FROM host_groups'


def places(tables: Tables, selection: Selection = ALL) -> Table:
    """Percentiles over the ranks of each host, and of each group of a mapping file, the most different first."""
    return places_that_differ(behaviour(tables), dict(tables.query(MAPPED)), selection)


def places_that_differ(measured: Behaviour, group_of: Mapping[str, str], selection: Selection = ALL) -> Table:
    """The same of ranks whose behaviour is known already, with the group of each host."""
    table = Table("places", "Hosts and groups of hosts, the most different first", PLACES_COLUMNS, [])
    chosen = [selection.ranks is None or rank in selection.ranks for rank in measured.ranks]
    rows = [*_rows("host", measured, measured.hosts, chosen)]
    if group_of:
        rows += _rows("group", measured, [group_of.get(host, "") for host in measured.hosts], chosen)
        unknown = len({host for host in measured.hosts if host not in group_of})
        if unknown:
            table.notes.append(f"{counted(unknown, 'host')} of no group of the mapping file.")
    table.rows = sorted(rows, key=lambda row: -abs(float(row[-1] or 0.0)))
    if table.rows and not _is_far(table.rows[0]):
        table.notes.append(f"None differs: all are within {FAR} spreads of the median in everything.")
    return arranged(table, selection)


def far_places(table: Table) -> Table:
    """Only those that are as far from the median as ranks have to be to be told."""
    far = [row for row in table.rows if _is_far(row)]
    return Table(table.name, "Hosts and groups of hosts that differ", table.columns, far, table.notes, table.warnings)


def _is_far(row: Sequence[Cell]) -> bool:
    return abs(float(row[-1] or 0.0)) >= FAR


def _rows(by: str, measured: Behaviour, names: Sequence[str], chosen: Sequence[bool]) -> Iterator[tuple[Cell, ...]]:
    of_place: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if name and chosen[at]:
            of_place.setdefault(name, []).append(at)
    if len(of_place) < PLACES_FEWEST:
        return
    for measure in measured.measures:
        if measure.adds_up:
            yield from _sums(by, measure, of_place)
            continue
        usual, spread = measure.usual, measure.spread
        for name, ranks in of_place.items():
            values = measure.values[ranks]
            values = values[np.isfinite(values)]
            if len(values):
                low, middle, high, highest = _spots(values)
                figures = (low, middle, high, highest, usual, (middle - usual) / spread)
                yield (by, name, len(ranks), measure.name, measure.unit, *figures)


def _sums(by: str, measure: Measure, of_place: Mapping[str, Sequence[int]]) -> Iterator[tuple[Cell, ...]]:
    """What all ranks of a place have together, against the other places; not where one of them has most of it."""
    known = {name: np.nan_to_num(measure.values[list(ranks)]) for name, ranks in of_place.items()}
    share = 1 / len(known)
    chance = CHANCE_SIGMAS * 100 * math.sqrt(share * (1 - share) / measure.adds_up)
    combined = Measure(measure.name, measure.unit, np.array([values.sum() for values in known.values()]), chance=chance)
    usual, spread = combined.usual, combined.spread
    for (name, values), total in zip(known.items(), combined.values.tolist(), strict=True):
        if len(values) == 1 or values.max() <= total / 2:
            low, _, high, highest = _spots(values)
            figures = (low, total, high, highest, usual, (total - usual) / spread)
            yield (by, name, len(values), f"{measure.name}, together", measure.unit, *figures)


def _spots(values: Array) -> tuple[float, float, float, float]:
    """Min, median, p95 and max, as np.percentile has them, which takes ten times as long for a few numbers."""
    ordered = sorted(values.tolist())
    return ordered[0], _spot(ordered, 0.5), _spot(ordered, 0.95), ordered[-1]


def _spot(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    part, low, high = place - below, ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


# ---------------------------------------------------------------- outliers
OUTLIERS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("by", Unit.NAME, "Differs in", "the measure in which it is farthest from the median"),
    Column("value", Unit.NUMBER, "Value", "value of the rank in the measure `by`"),
    Column("usual", Unit.NUMBER, "Median", "median of that measure over the ranks"),
    Column("unit", Unit.NAME, "Unit", "unit of `value` and `usual`: ms, MiB or count"),
    Column("spreads", Unit.NUMBER, "Deviation (robust z)", "(`value` − `usual`) ÷ spread"),
    Column(
        "also",
        Unit.NAME,
        "Also in",
        "up to two other measures in which it is 3.5 spreads or more from the median, with their spreads",
    ),
)
OUTLIERS_FEWEST = 4  # ranks
MOST = 10


def outliers(tables: Tables, selection: Selection = ALL) -> Table:
    """The ten ranks farthest from the median in anything, in spreads of the ranks; none where all are alike."""
    return ranks_that_differ(behaviour(tables), selection)


def outlying_ranks(tables: Tables, selection: Selection = ALL) -> list[int]:
    """The ranks that `outliers` names, in its order."""
    return [int(str(row[0])) for row in outliers(tables, Selection(selection.ranks)).rows]


def ranks_that_differ(measured: Behaviour, selection: Selection = ALL) -> Table:
    """The same of ranks whose behaviour is known already."""
    table = Table("outliers", "Ranks that differ", OUTLIERS_COLUMNS, [])
    if len(measured.ranks) < OUTLIERS_FEWEST or not measured.measures:
        return table
    away = np.nan_to_num(np.stack([(measure.values - measure.usual) / measure.spread for measure in measured.measures]))
    farthest = np.abs(away).max(axis=0)
    for place in np.argsort(-farthest, kind="stable").tolist():
        if farthest[place] < FAR or len(table.rows) == MOST:
            break
        if selection.ranks is None or measured.ranks[place] in selection.ranks:
            table.rows.append(_row(measured, away[:, place], place))
    more = int((farthest >= FAR).sum()) - len(table.rows)
    if more > 0 and selection.ranks is None:
        table.notes.append(f"{more} more ranks are at least {FAR} spreads from the median in something: see alike.")
    return arranged(table, selection)


def _row(measured: Behaviour, away: Array, place: int) -> tuple[Cell, ...]:
    order = [at for at in np.argsort(-np.abs(away), kind="stable").tolist() if abs(away[at]) >= FAR]
    first = measured.measures[order[0]]
    also = ", ".join(f"{measured.measures[at].name} ({away[at]:+.0f})" for at in order[1:3])
    value = (float(first.values[place]), first.usual, first.unit, float(away[order[0]]))
    return measured.ranks[place], measured.hosts[place], first.name, *value, also
