"""From how many nodes on is staging to node-local storage faster than importing in place?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.analyse.scale_fit import ScaleFit
from rankscope.model import Cell, Column, Table, Unit

TIE = 0.02  # of the staged time: measured times differ by more than that from one run to the next
COLUMNS = (
    Column("place", Unit.NAME, "place"),
    Column("break_even_nodes", Unit.NUMBER, "break-even nodes"),
    Column("largest_nodes", Unit.COUNT, "largest size"),
    Column("in_place_ns", Unit.NS, "in place there"),
    Column("staged_ns", Unit.NS, "staged there"),
    Column("verdict", Unit.NAME, "verdict"),
)
FIT_COLUMNS = (
    Column("place", Unit.NAME, "place"),
    Column("points", Unit.COUNT, "points"),
    Column("alone_ns", Unit.NS, "one node alone"),
    Column("per_node_ns", Unit.NS, "server, each node"),
    Column("latency_ns", Unit.NS, "each operation"),
    Column("server_operations_per_s", Unit.NUMBER, "server operations/s"),
    Column("factor", Unit.NUMBER, "typically off by a factor"),
    Column("verdict", Unit.NAME, "verdict"),
)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where the two curves meet; None: not in the range that was measured."""

    nodes: float | None
    verdict: str


def staged_at(staged: Mapping[int, float], nodes: int) -> float:
    """As measured at the largest size up to this one: staging hardly depends on it, and the first beyond it else."""
    below = [size for size in staged if size <= nodes]
    return staged[max(below) if below else min(staged)]


def break_even(in_place: Mapping[int, float], staged: Mapping[int, float]) -> BreakEven:
    """Between the measured sizes both are taken to be straight lines."""
    sizes = sorted(in_place)
    ahead = {size: in_place[size] - staged_at(staged, size) for size in sizes}  # above 0: staging is faster
    tied = {size: abs(ahead[size]) <= TIE * staged_at(staged, size) for size in sizes}
    if ahead[sizes[0]] > 0 and not tied[sizes[0]]:
        return BreakEven(sizes[0], f"staging is faster at every size from {sizes[0]} on" + _falls_back(ahead, 0))
    for at, size in enumerate(sizes):
        if tied[size]:
            return BreakEven(size, f"at {size} nodes both take the same within {TIE:.0%}" + _falls_back(ahead, at))
        if ahead[size] > 0:
            before = sizes[at - 1]
            share = -ahead[before] / (ahead[size] - ahead[before])
            nodes = before + share * (size - before)
            return BreakEven(nodes, f"staging is faster from about {nodes:.0f} nodes on" + _falls_back(ahead, at))
    return BreakEven(None, f"never in range: in place is faster at every size up to {sizes[-1]} nodes")


def _falls_back(ahead: Mapping[int, float], at: int) -> str:
    again = [size for size in sorted(ahead)[at + 1 :] if ahead[size] < 0]
    return f", but not at {', '.join(map(str, again))}" if again else ""


def break_evens(places: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]]) -> Table:
    """A row for each place: its times in place and staged, by nodes, in seconds."""
    rows: list[tuple[Cell, ...]] = []
    for place, (in_place, staged) in places.items():
        found, largest = break_even(in_place, staged), max(in_place)
        there = (in_place[largest] * 1e9, staged_at(staged, largest) * 1e9)
        rows.append((place, found.nodes, largest, *there, found.verdict))
    notes = ["between two measured sizes by interpolation; staged: at the largest measured size up to the one compared"]
    return Table("import_break_even", "From how many nodes on staging is faster", COLUMNS, rows, notes)


def fits(found: Mapping[str, tuple[int, ScaleFit]], operations_of_rank: int | None, ranks_per_node: int) -> Table:
    """What the measured points say of latency and server, where the operations of a rank are known."""
    rows: list[tuple[Cell, ...]] = []
    for place, (points, fit) in found.items():
        if fit.refusal:
            rows.append((place, points, None, None, None, None, None, f"no fit: {fit.refusal}"))
            continue
        asked = operations_of_rank
        latency = fit.alone_s * 1e9 / asked if asked else None
        rate = asked * ranks_per_node / fit.per_node_s if asked and fit.per_node_s else None
        verdict = "" if fit.per_node_s else "no growth with the nodes: the server was never busy"
        curve = (fit.alone_s * 1e9, fit.per_node_s * 1e9 or None)
        rows.append((place, points, *curve, latency, rate, fit.factor, verdict))
    notes = ["time = the larger of the two; an operation's share and the server's rate are as if all went to it"]
    return Table("import_fit", "What the measured times say", FIT_COLUMNS, rows, notes)
