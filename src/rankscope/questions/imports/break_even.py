"""From how many nodes on is staging to node-local storage faster than importing in place?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.run.overview import BY_DOCUMENT_SQL
from rankscope.questions.scaling.break_even import BreakEven, break_even

# ---------------------------------------------------------------------------------------------------------------------
# Which latency and which server rate do measured import times at several sizes of job support?
# A client that waits for answers needs the same time at any size; a server that is busy needs a time that grows with
# the number of nodes. So the time is taken as max(alone, per node × nodes), fitted to the logarithms, because times
# from seconds to minutes matter alike and scatter by factors.
FEWEST_POINTS = 4
SMALLEST_RANGE = 4  # largest ÷ smallest number of nodes
WORST_FACTOR = 1.6  # by which points may typically lie off the curve
FARTHEST = 4  # times the largest measured size: beyond it nothing is said


@dataclass(frozen=True, slots=True)
class ScaleFit:
    """The curve, or why there is none."""

    alone_s: float = 0.0  # what one client needs while the server is not busy
    per_node_s: float = 0.0  # what the server needs for each node; 0: no growth was seen
    factor: float = math.inf  # by which the points typically lie off
    largest: int = 0  # nodes that were measured
    refusal: str = ""

    def at(self, nodes: int) -> float | None:
        """Seconds, or None too far from what was measured."""
        if self.refusal or nodes > FARTHEST * self.largest:
            return None
        return max(self.alone_s, self.per_node_s * nodes)


def fitted(points: Mapping[int, float]) -> ScaleFit:
    """The best curve over all ways to part the points into those that wait and those that queue."""
    if reason := _too_little(points):
        return ScaleFit(refusal=reason)
    sizes = sorted(points)
    cuts = [cut for cut in range(1, len(sizes) + 1) if cut != len(sizes) - 1]  # one point does not show growth
    candidates = [_parted(points, sizes[:cut], sizes[cut:]) for cut in cuts]
    best = min(candidates, key=lambda law: law.factor)
    if best.factor > WORST_FACTOR:
        reason = f"the points lie off any such curve by a factor of {best.factor:.2g}: measure again, and repeat each"
        return ScaleFit(factor=best.factor, largest=sizes[-1], refusal=reason)
    return best


def _too_little(points: Mapping[int, float]) -> str:
    if any(value <= 0 for value in points.values()) or any(nodes < 1 for nodes in points):
        return "times and nodes must be above zero"
    if len(points) < FEWEST_POINTS:
        return f"{len(points)} points are too few for two unknowns: measure at least {FEWEST_POINTS} sizes"
    if max(points) < SMALLEST_RANGE * min(points):
        return f"the sizes lie too close together: measure over a range of at least {SMALLEST_RANGE} to 1"
    return ""


def _parted(points: Mapping[int, float], waiting: list[int], queueing: list[int]) -> ScaleFit:
    """Means of logarithms: of the time where it is constant, of the time for each node where it grows."""
    alone = math.exp(sum(math.log(points[nodes]) for nodes in waiting) / len(waiting))
    growing = [math.log(points[nodes] / nodes) for nodes in queueing]
    per_node = math.exp(sum(growing) / len(growing)) if growing else 0.0
    off = [math.log(points[nodes] / max(alone, per_node * nodes)) ** 2 for nodes in points]
    freedom = len(points) - (2 if growing else 1)
    return ScaleFit(alone, per_node, math.exp(math.sqrt(sum(off) / freedom)), max(points))


# ---------------------------------------------------------------------------------------------------------------------
# Import times by number of nodes: from what was typed, or from a series of a loaded document.
POINT = re.compile(r"(\d{1,7}):(\d{1,9}(?:\.\d{1,9})?)s?")
SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?s")
WITH_UNIT = r"\s*\([^()]*\)$"  # soft-CCL (s) is also found as soft-CCL
EVERY_SIZE = 1  # the size at which a time that does not depend on it is noted


class NoSeries(Exception):
    """What was named is not there, in one line."""


def series_of(text: str, tables: Tables | None) -> dict[int, float]:
    """Seconds by nodes of `1:23.8,2:12.4`, of `260s` (at any size), of a series by name, or of a sum with +."""
    parts = [_part(part.strip("\t"), tables) for part in text.split("+")]
    total = parts[0]
    for part in parts[1:]:
        total = _added(total, part)
    return total


def _part(text: str, tables: Tables | None) -> dict[int, float]:
    points = [POINT.fullmatch(point.strip()) for point in text.split(",")]
    if all(points):
        return {int(point[1]): float(point[2]) for point in points if point}
    if match := SECONDS.fullmatch(text.strip()):
        return {EVERY_SIZE: float(match[1])}
    return _loaded(text, tables)


def _loaded(name: str, tables: Tables | None) -> dict[int, float]:
    if tables is None:
        raise NoSeries(
            f"{name}: give points as in 1:23.8,2:12.4, a time as in 260s, or a run with a series of this name"
        )
    rows = tables.query(
        f"SELECT scale, value FROM ({BY_DOCUMENT_SQL}) WHERE scale_name = 'nodes' AND unit = 'ns' "
        f"AND (series = ? OR regexp_replace(series, '{WITH_UNIT}', '') = ?)",
        (name, name),
    )
    seconds: dict[int, float] = {}
    for nodes, value_ns in rows:
        if seconds.setdefault(int(nodes), value_ns / 1e9) != value_ns / 1e9:
            raise NoSeries(f"{name}: several series of that name differ at {int(nodes)} nodes: give points instead")
    if not seconds:
        raise NoSeries(f"{name}: no series of times by nodes has this name (see rankscope report --table figures)")
    return seconds


def _added(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Where only one of them was measured, the other's time at the largest size up to there."""
    return {size: _held(one, size) + _held(other, size) for size in sorted({*one, *other})}


def _held(series: Mapping[int, float], size: int) -> float:
    below = [known for known in series if known <= size]
    return series[max(below) if below else min(series)]


# ---------------------------------------------------------------- break even
BREAK_EVEN_COLUMNS = (
    Column("place", Unit.NAME, "place"),
    Column(
        "break_even_nodes",
        Unit.NUMBER,
        "break-even nodes",
        "number of nodes at which the times in place and staged meet",
    ),
    Column("largest_nodes", Unit.COUNT, "largest size", "largest number of nodes measured in place"),
    Column("in_place_ns", Unit.NS, "in place there", "import time in place on `largest_nodes`"),
    Column("staged_ns", Unit.NS, "staged there", "staged time (transfer + import) on `largest_nodes`"),
    Column("verdict", Unit.NAME, "verdict"),
)
FIT_COLUMNS = (
    Column("place", Unit.NAME, "place"),
    Column("points", Unit.COUNT, "points", "number of measured sizes"),
    Column(
        "alone_ns",
        Unit.NS,
        "one node alone",
        "*a* of the fit max(*a*, *b*·nodes): time of a node that never waits",
    ),
    Column(
        "per_node_ns",
        Unit.NS,
        "server, each node",
        "*b* of the fit max(*a*, *b*·nodes): time that each further node adds at the server",
    ),
    Column("latency_ns", Unit.NS, "each operation", "`alone_ns` ÷ path operations of a rank"),
    Column(
        "server_operations_per_s",
        Unit.NUMBER,
        "server operations/s",
        "ranks of a node × path operations of a rank ÷ `per_node_ns`",
    ),
    Column(
        "factor",
        Unit.NUMBER,
        "typically off by a factor",
        "exp √(Σ (ln measured − ln fitted)² ÷ (points − parameters))",
    ),
    Column("verdict", Unit.NAME, "verdict"),
)


def staged_at(staged: Mapping[int, float], nodes: int) -> float:
    """As measured at the largest size up to this one: staging hardly depends on it, and the first beyond it else."""
    below = [size for size in staged if size <= nodes]
    return staged[max(below) if below else min(staged)]


def staging_break_even(in_place: Mapping[int, float], staged: Mapping[int, float]) -> BreakEven:
    """At the sizes at which importing in place was measured."""
    sizes = sorted(in_place)
    return break_even(sizes, [in_place[size] for size in sizes], [staged_at(staged, size) for size in sizes])


def staging_verdict(crossing: BreakEven) -> str:
    return crossing.verdict("in place", "staging", "nodes")


def break_evens(places: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]]) -> Table:
    """A row for each place: its times in place and staged, by nodes, in seconds."""
    rows: list[tuple[Cell, ...]] = []
    for place, (in_place, staged) in places.items():
        crossing, largest = staging_break_even(in_place, staged), max(in_place)
        there = (in_place[largest] * 1e9, staged_at(staged, largest) * 1e9)
        rows.append((place, crossing.at, largest, *there, staging_verdict(crossing)))
    notes = ["between two measured sizes by interpolation; staged: at the largest measured size up to the one compared"]
    return Table("import_break_even", "Nodes from which staging is faster", BREAK_EVEN_COLUMNS, rows, notes)


def fits(
    fits_by_place: Mapping[str, tuple[int, ScaleFit]], operations_of_rank: int | None, ranks_per_node: int
) -> Table:
    """What the measured points say of latency and server, where the operations of a rank are known."""
    rows: list[tuple[Cell, ...]] = []
    for place, (points, fit) in fits_by_place.items():
        if fit.refusal:
            rows.append((place, points, None, None, None, None, None, f"no fit: {fit.refusal}"))
            continue
        operations = operations_of_rank
        latency = fit.alone_s * 1e9 / operations if operations else None
        rate = operations * ranks_per_node / fit.per_node_s if operations and fit.per_node_s else None
        verdict = "" if fit.per_node_s else "no growth with the nodes: the server was never busy"
        curve = (fit.alone_s * 1e9, fit.per_node_s * 1e9 or None)
        rows.append((place, points, *curve, latency, rate, fit.factor, verdict))
    notes = ["time = the larger of the two; an operation's share and the server's rate are as if all went to it"]
    return Table("import_fit", "Fit of the measured times", FIT_COLUMNS, rows, notes)
