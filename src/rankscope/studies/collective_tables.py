"""Latency and bandwidth of collectives: backends side by side, every size, and first calls against later ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.studies.collective_points import Point

FULL = (
    Column("backend", Unit.NAME, "Backend"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("size_bytes", Unit.BYTES, "Size"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("min_ns", Unit.NS, "Min"),
    Column("median_ns", Unit.NS, "Median"),
    Column("max_ns", Unit.NS, "Max"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("algorithm_rate", Unit.RATE, "Algorithm bw"),
    Column("bus_rate", Unit.RATE, "Bus bw"),
    Column("first_ns", Unit.NS, "First"),
    Column("first_ratio", Unit.NUMBER, "First ÷ median"),
)
FIRST = (
    Column("backend", Unit.NAME, "Backend"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("size_bytes", Unit.BYTES, "Size"),
    Column("first_ns", Unit.NS, "First of the job"),
    Column("median_ns", Unit.NS, "Later, median"),
    Column("first_ratio", Unit.NUMBER, "First ÷ later"),
    Column("other_ratio", Unit.NUMBER, "Largest of the other sizes"),
    Column("other_bytes", Unit.BYTES, "At size"),
)
NCCL_TESTS = (
    "As nccl-tests define them: time is the mean over the timed calls and the ranks, algorithm bandwidth = size ÷ "
    "time, bus bandwidth = algorithm bandwidth × a factor (all-reduce 2(n − 1) ÷ n; all-gather, reduce-scatter, "
    "all-to-all, gather, scatter (n − 1) ÷ n; broadcast and reduce 1)."
)


def side_by_side(
    points: Sequence[Point], name: str, title: str, unit: Unit, of: Callable[[Point], float | None]
) -> Table:
    """A row for each number of ranks and size, a column for each backend."""
    backends = list(dict.fromkeys(point.backend for point in points))
    columns = [Column("ranks", Unit.COUNT, "Ranks"), Column("size_bytes", Unit.BYTES, "Size")]
    columns += [Column(f"{backend}_{name}", unit, backend) for backend in backends]
    found: dict[tuple[int, int], dict[str, Value]] = {}
    for point in points:
        found.setdefault((point.ranks, point.size_bytes), {})[point.backend] = of(point)
    rows = [(*place, *(told.get(backend) for backend in backends)) for place, told in sorted(found.items())]
    return Table(name, title, columns, rows)


def latency(points: Sequence[Point]) -> Table:
    made = side_by_side(points, "latency_ns", "Latency: median call", Unit.NS, lambda one: one.median_ns)
    made.notes.append("A call lasts as long as on its slowest rank. All results were checked value by value.")
    return made


def bandwidth(points: Sequence[Point]) -> list[Table]:
    """Empty where the operation moves nothing."""
    if not any(point.size_bytes for point in points):
        return []
    made = [
        side_by_side(points, "algorithm_rate", "Algorithm bandwidth", Unit.RATE, lambda one: one.algorithm_rate),
        side_by_side(points, "bus_rate", "Bus bandwidth", Unit.RATE, lambda one: one.bus_rate),
    ]
    made[1].rows = [row for row in made[1].rows if row[0] != 1]
    made[1].notes.append(NCCL_TESTS)
    return made


def full(points: Sequence[Point]) -> Table:
    rows: list[tuple[Value, ...]] = [tuple(getattr(one, column.name) for column in FULL) for one in points]
    made = Table("sizes", "Every size", FULL, rows)
    made.notes.append("Min, median and max of the timed calls, each by its slowest rank; warm-up and first call apart.")
    return made


def first_calls(points: Sequence[Point]) -> Table:
    """What the first collective of a job costs more than later ones, and the first of the other sizes."""
    rows: list[tuple[Value, ...]] = []
    for backend, ranks in dict.fromkeys((one.backend, one.ranks) for one in points):
        ours = [one for one in points if (one.backend, one.ranks) == (backend, ranks)]
        first, others = ours[0], ours[1:]
        worst = max(others, key=lambda one: one.first_ratio or 0.0, default=None)
        other = (worst.first_ratio, worst.size_bytes) if worst else (None, None)
        rows.append((backend, ranks, first.size_bytes, first.first_ns, first.median_ns, first.first_ratio, *other))
    made = Table("first", "First against later calls", FIRST, rows)
    made.notes.append("The job's first collective also waits for ranks that come later out of their initialisation.")
    return made
