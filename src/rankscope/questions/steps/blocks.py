"""How long did steps take in the course of the job? Blocks of them tell it, also of those that newer ones overwrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import PARTS

Array = Any  # of numpy
QUARTILES = ("quarter", "median", "three_quarters")
NEEDED = (
    *("process", "first", "steps", "begin_ns", "end_ns", "exposed_ns", "own_communication_ns", "gc_ns", "runnable_ns"),
    *("long_steps", "long_ns"),
    *(f"{name}_ns" for name in QUARTILES),
    *(f"own_{part}_ns" for part in PARTS),
)
SQL = f"""
    SELECT rank, {", ".join(f"step_blocks.{name}" for name in NEEDED)} FROM step_blocks JOIN ranks USING (process)
    WHERE role = 'rank' AND NOT warmup ORDER BY rank, first"""


@dataclass(frozen=True, slots=True)
class RankBlocks:
    """One rank's steps but the first two: sums of any stretch of them, exact where it begins and ends with a block."""

    edges: Array  # numbers of the first step of each block, and of the one after the last
    begin_ns: Array  # when each block began, and when the last one ended; Unix time
    sums: Mapping[str, Array]  # up to each edge, by the names of RankSteps.values; quartiles times steps

    def mean(self, name: str, first: int, last: int) -> float:
        """Of a step, from the first to the last, without it."""
        ends = np.interp([first, last], self.edges, self.sums[name])
        return float(ends[1] - ends[0]) / max(1, last - first)

    def began_ns(self, number: int) -> int:
        """When a step began, if those of its block were of one length."""
        return int(self.begin_ns[0] + np.interp(number, self.edges, self.begin_ns - self.begin_ns[0]))


_KEPT: WeakKeyDictionary[Tables, dict[int, RankBlocks]] = WeakKeyDictionary()


def blocks_of(tables: Tables) -> dict[int, RankBlocks]:
    """By rank, of those whose files have blocks; worked out once for each run that is open."""
    if tables not in _KEPT:
        columns = tables.columns(SQL)
        ranks = np.asarray(columns["rank"])
        edges = [0, *(np.flatnonzero(np.diff(ranks)) + 1).tolist(), len(ranks)]
        _KEPT[tables] = {int(ranks[a]): _of_rank(columns, slice(a, b)) for a, b in pairwise(edges) if a < b}
    return _KEPT[tables]


def _of_rank(columns: Mapping[str, Any], rows: slice) -> RankBlocks:
    def of(name: str) -> Array:
        return np.asarray(columns[name])[rows]

    first, steps = of("first"), of("steps")
    own = {part: of(f"own_{part}_ns").astype(np.float64) for part in PARTS}
    own["other"] = own["other"] + of("own_communication_ns")
    values = {f"own {part}": total for part, total in own.items()}
    values |= {"own_ns": sum(own.values()), "exposed_ns": of("exposed_ns")}
    values |= {"length_ns": values["own_ns"] + values["exposed_ns"]}
    values |= {f"of which {name}": of(f"{name}_ns") for name in ("gc", "runnable")}
    values |= {f"{name}_ns": of(f"{name}_ns") * steps for name in QUARTILES}
    values |= {name: of(name) for name in ("long_steps", "long_ns")}
    sums = {name: np.concatenate([[0.0], np.cumsum(total, dtype=np.float64)]) for name, total in values.items()}
    return RankBlocks(np.append(first, first[-1] + steps[-1]), np.append(of("begin_ns"), of("end_ns")[-1]), sums)


# ---------------------------------------------------------------- where does their level change?
SHORTEST = 32  # steps of a new block, as the recorder has it
LONG = 1.25  # times the median, likewise
LEAST_SPREAD = 0.002  # of a step
OF_MEDIANS = 1.2533  # a median varies so many times as much as a mean does
QUARTILES_APART = 1.349  # in standard deviations


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a change of level must be to count."""

    deviations: float  # of the difference of two levels' medians
    share: float  # of the level before
    spreads: float  # of single steps
    levels: int  # at most


@dataclass(frozen=True, slots=True)
class Span:
    """Steps of one typical length, from the first number to the last, without it."""

    first: int
    last: int
    median: float
    spread: float = 0.0  # of single steps, as a share

    @property
    def steps(self) -> int:
        return self.last - self.first


def spans_of(ranks: Sequence[RankBlocks], first: int, last: int, inertia: float, bounds: Bounds) -> list[Span]:
    """The steps between two numbers, cut wherever the level changes: neighbouring blocks that do not surely differ are
    joined, the likest first. Each is the median of the ranks."""
    edges = ranks[0].edges[(ranks[0].edges > first) & (ranks[0].edges < last)].tolist() if ranks else []
    cells = [_cell(ranks, a, b) for a, b in pairwise([first, *edges, last]) if a < b]
    spans = list(cells)
    while len(spans) > 1:
        surely = [sureness(a, b, inertia, bounds) for a, b in pairwise(spans)]
        least = int(np.argmin(surely))
        if surely[least] >= 1 and len(spans) <= bounds.levels:
            break
        spans[least : least + 2] = [joined(spans[least], spans[least + 1])]
    return _placed(ranks, spans, cells)


def _cell(ranks: Sequence[RankBlocks], first: int, last: int) -> Span:
    quartiles = np.median([[rank.mean(f"{name}_ns", first, last) for name in QUARTILES] for rank in ranks], axis=0)
    low, median, high = np.maximum(quartiles, 1.0)
    return Span(first, last, float(median), max(LEAST_SPREAD, float(np.log(high / low)) / QUARTILES_APART))


def joined(a: Span, b: Span) -> Span:
    """As one level."""
    share = b.steps / (a.steps + b.steps)
    median, spread = a.median + share * (b.median - a.median), a.spread + share * (b.spread - a.spread)
    return Span(a.first, b.last, median, spread)


def sureness(a: Span, b: Span, inertia: float, bounds: Bounds) -> float:
    """That two levels differ, and noticeably, in multiples of the bounds."""
    differ = abs(float(np.log(max(b.median, 1.0) / max(a.median, 1.0))))
    error = OF_MEDIANS * inertia * float(np.hypot(a.spread / np.sqrt(a.steps), b.spread / np.sqrt(b.steps)))
    by = abs(b.median - a.median) / max(a.median, 1.0)
    return min(differ / (bounds.deviations * error), by / bounds.share, by / (bounds.spreads * max(a.spread, b.spread)))


def _placed(ranks: Sequence[RankBlocks], spans: list[Span], cells: list[Span]) -> list[Span]:
    """Each change at the step where it was: of the blocks beside it, that within which it happened tells by its mean
    how many of its steps were after."""
    for at in range(1, len(spans)):
        before, after = spans[at - 1], spans[at]
        near = [cell for cell in cells if before.last in (cell.first, cell.last) and cell.steps <= 2 * SHORTEST]
        if near:
            later = sum(_share(ranks, cell, before.median, after.median) * cell.steps for cell in near)
            edge = min(max(near[-1].last - round(later), before.first + 1), after.last - 1)
            spans[at - 1 : at + 1] = [replace(before, last=edge), replace(after, first=edge)]
    return spans


def _share(ranks: Sequence[RankBlocks], cell: Span, before: float, after: float) -> float:
    """Of the steps of a block, those after the change. Single steps may be longer than all others together: where most
    are as short as the shorter level, the longer one's are those that were counted as long; else the mean without what
    those take beyond the median tells. Its quartiles say within which quarter that can be."""

    def middle(name: str) -> float:
        return float(np.median([rank.mean(name, cell.first, cell.last) for rank in ranks]))

    low, high = min(before, after), max(before, after)
    is_short = middle("median_ns") < (low + high) / 2
    if is_short and high > LONG * low:
        longer = middle("long_steps")
    else:
        longer = (middle("length_ns") - middle("long_ns") - low) / max(1.0, high - low)
    beyond = sum(middle(f"{name}_ns") > (low + high) / 2 for name in QUARTILES)
    longer = float(np.clip(longer, beyond / 4, (beyond + 1) / 4))
    return longer if after > before else 1 - longer


# ---------------------------------------------------------------- the table
MOST_ROWS = 40
HISTORY_COLUMNS = (
    Column("first", Unit.NUMBER, "From step", "number of the first step of the stretch"),
    Column("last", Unit.NUMBER, "To step", "number of the last one; stretches have equally many, 32 at least"),
    Column("since", Unit.NAME, "Since (UTC)", "when the first rank began the first of them"),
    Column(
        "median_ns", Unit.NS, "Step p50", "median step of each block of neighbours, mean by steps; median of the ranks"
    ),
    Column("quarter_ns", Unit.NS, "p25", "likewise: a quarter of the steps are shorter"),
    Column("three_quarters_ns", Unit.NS, "p75", "likewise: a quarter of the steps are longer"),
    Column("mean_ns", Unit.NS, "Mean", "all steps ÷ their number; median of the ranks"),
    Column("exposed_ns", Unit.NS, "Exposed comm.", "mean time blocked in collectives; median of the ranks"),
    Column("longest_ns", Unit.NS, "Longest own time", "largest mean of a rank, without what it was blocked"),
    Column("longest_rank", Unit.NUMBER, "On rank", "which rank that is"),
)


def step_history(tables: Tables, selection: Selection = ALL, most: int = MOST_ROWS) -> Table:
    """The length of steps in the course of the whole job, in stretches of equally many, at most so many of these."""
    table = Table("step_history", "Steps over the job", HISTORY_COLUMNS, [])
    ranks = {
        rank: blocks for rank, blocks in blocks_of(tables).items() if selection.ranks is None or rank in selection.ranks
    }
    first = max((int(blocks.edges[0]) for blocks in ranks.values()), default=0)
    last = min((int(blocks.edges[-1]) for blocks in ranks.values()), default=0)
    length = max(SHORTEST, -(-(last - first) // most))
    table.rows = [_stretch(ranks, at, min(at + length, last)) for at in range(first, last, length)]
    return arranged(table, selection)


def _stretch(ranks: Mapping[int, RankBlocks], first: int, last: int) -> tuple[Cell, ...]:
    def middle(name: str) -> float:
        return float(np.median([blocks.mean(name, first, last) for blocks in ranks.values()]))

    own = {rank: blocks.mean("own_ns", first, last) for rank, blocks in ranks.items()}
    longest = max(own, key=lambda rank: own[rank])
    began_ns = next(iter(ranks.values())).began_ns(first)
    since = str(np.datetime64(began_ns, "ns").astype("datetime64[s]")).replace("T", " ")
    times = [middle(f"{name}_ns") for name in ("median", "quarter", "three_quarters", "length", "exposed")]
    return (first, last - 1, since, *times, own[longest], longest)
