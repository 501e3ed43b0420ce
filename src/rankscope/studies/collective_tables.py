"""Latency and bandwidth of collectives: backends side by side, every size, and first calls against later ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.collectives.collectives import rate
from rankscope.questions.collectives.operations import OPERATIONS, operation_of
from rankscope.questions.collectives.waiting import AWAITED
from rankscope.studies.plan import Outcome, by_place


# ---------------------------------------------------------------------------------------------------------------------
# Times of a collective at one size, as its ranks left them, and what nccl-tests would say of them.
@dataclass(frozen=True)
class MeasuredPoint:
    """One operation by one backend on so many ranks at one size; over all repeats."""

    operation: str
    backend: str
    ranks: int
    asked_bytes: int
    size_bytes: int
    calls: int
    first_ns: float  # by the slowest rank
    min_ns: float  # of calls by their slowest rank
    median_ns: float
    max_ns: float
    mean_ns: float  # over the calls and over the ranks, as nccl-tests have it

    @property
    def algorithm_rate(self) -> float | None:
        return rate(self.size_bytes, self.mean_ns)

    @property
    def bus_rate(self) -> float | None:
        """Nothing where no data goes anywhere: on one rank, and of operations without data."""
        return rate(self.size_bytes * bus_factor(self.operation, self.ranks), self.mean_ns)

    @property
    def first_ratio(self) -> float | None:
        return self.first_ns / self.median_ns if self.median_ns else None


def bus_factor(operation: str, ranks: int) -> float:
    """What bus bandwidth is of algorithm bandwidth, as nccl-tests define it."""
    return OPERATIONS[operation_of("", operation)].bus_factor(ranks)


def points(outcomes: Sequence[Outcome], operation: str) -> list[MeasuredPoint]:
    """Of all cells that are done, in their order, by size."""
    measured = []
    for (backend, ranks), repeats in by_place(outcomes, "backend").items():
        for place in range(len(repeats[0].results[0]["sizes"])):
            measured.append(point(operation, str(backend), int(ranks), repeats, place))
    return measured


def point(operation: str, backend: str, ranks: int, repeats: Sequence[Outcome], place: int) -> MeasuredPoint:
    """The size at that place, over all repeats."""
    ours = [[rank["sizes"][place] for rank in outcome.results] for outcome in repeats]
    slowest = [float(max(times)) for answer in ours for times in by_call(answer)]
    means = [statistics.fmean(rank["times_ns"]) for answer in ours for rank in answer]
    first = [max(rank["first_ns"] for rank in answer) for answer in ours]
    some = ours[0][0]
    return MeasuredPoint(
        operation, backend, ranks, some["asked_bytes"], some["size_bytes"], len(slowest), statistics.median(first),
        min(slowest), statistics.median(slowest), max(slowest), statistics.fmean(means),
    )  # fmt: skip


def by_call(ranks: Sequence[dict[str, list[int]]]) -> Iterator[tuple[int, ...]]:
    """Of each timed call, how long each rank was in it."""
    return zip(*(rank["times_ns"] for rank in ranks), strict=True)


# ---------------------------------------------------------------------------------------------------------------------
# Of the recorded time in collectives, how much was wait for the last rank and how much transfer?
PLACE = (Column("backend", Unit.NAME, "Backend"), Column("ranks", Unit.COUNT, "Ranks"))
PARTS = ("wait_ns", "transfer_ns", "leaving_ns")
SHARES = (
    *PLACE,
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("wait_ns", Unit.NS, "Wait, all ranks"),
    Column("transfer_ns", Unit.NS, "Transfer, all ranks"),
    Column("leaving_ns", Unit.NS, "Exit skew, all ranks"),
    Column("wait_share", Unit.SHARE, "Wait share"),
    Column("awaited", Unit.NAME, "Waited for"),
)
SIZES = (
    *PLACE,
    Column("name", Unit.NAME, "Recorded as"),
    Column("up_to_bytes", Unit.BYTES, "Up to"),
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("wait_ns", Unit.NS, "Wait, all ranks"),
    Column("transfer_ns", Unit.NS, "Transfer, all ranks"),
    Column("leaving_ns", Unit.NS, "Exit skew, all ranks"),
    Column("wait_share", Unit.SHARE, "Wait share"),
    Column("bus_rate", Unit.RATE, "Bus bw"),
    Column("naive_rate", Unit.RATE, "Bandwidth incl. wait"),
)


BY_ONECCL = "SELECT DISTINCT name FROM tallies WHERE layer = 'oneccl'"


def waits(outcomes: Sequence[Outcome], operation: str) -> list[Table]:
    """Sums by backend and scale, and by size; the recorder's, over the first repeat of each."""
    shares = Table("waits", "Wait and transfer", SHARES, [])
    sizes = Table("waits_by_size", "Wait and transfer, by size", SIZES, [])
    unseen: dict[str, list[str]] = {}
    for (backend, ranks), repeats in by_place(outcomes, "backend").items():
        if ranks == 1:
            continue
        by_size = recorded(repeats[0], operation, int(ranks))
        if not by_size:
            unseen.setdefault(str(backend), []).append(str(ranks))
            continue
        sizes.rows += [(backend, ranks, *(figures[column.name] for column in SIZES[2:])) for figures in by_size]
        shares.rows.append((backend, ranks, *sums(by_size), awaited(repeats[0])))
    shares.notes.append(
        "From the recorded run: first calls and warm-up included, summed over the ranks; what each column means: "
        "docs/reference/metrics.md, collectives."
    )
    for backend, scales in unseen.items():
        sentence = f"{backend}: the recorder saw no {operation} of it on {', '.join(scales)} ranks, so nothing is shown"
        shares.warnings.append(f"{sentence} (docs/studies/backends.md says what is recorded of each backend)")
    return [shares, sizes]


def recorded(outcome: Outcome, operation: str, ranks: int) -> list[dict[str, Value]]:
    """Of the studied operation only, in the order of sizes."""
    answer = outcome.run.table("collectives")
    wanted = operation_of("", operation)
    answers = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    ours = [
        answer for answer in answers if answer["members"] == ranks and operation_of("", str(answer["name"])) == wanted
    ]
    outer = {str(name) for (name,) in outcome.run.store().query(BY_ONECCL)}  # what oneCCL asks of an MPI is inside that
    ours = [answer for answer in ours if answer["name"] in outer] or ours
    return sorted(ours, key=lambda answer: (str(answer["name"]), int(str(answer["up_to_bytes"] or 0))))


def sums(answers: Sequence[dict[str, Value]]) -> tuple[Value, ...]:
    count = sum(int(str(answer["collectives"])) for answer in answers)
    wait, moving, leaving = (sum(float(str(answer[part] or 0)) for answer in answers) for part in PARTS)
    total = wait + moving + leaving
    return count, wait, moving, leaving, wait / total if total else None


def awaited(outcome: Outcome) -> str:
    """The rank that the others wait for, if one stands out."""
    answer = outcome.run.table("waiting")
    rank, verdict = answer.columns.index("rank"), answer.columns.index("verdict")
    return next((f"rank {row[rank]}" for row in answer.rows if row[verdict] == AWAITED), "")


# ---------------------------------------------------------------- collective tables
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
    points: Sequence[MeasuredPoint], name: str, title: str, unit: Unit, of: Callable[[MeasuredPoint], float | None]
) -> Table:
    """A row for each number of ranks and size, a column for each backend."""
    backends = list(dict.fromkeys(point.backend for point in points))
    columns = [Column("ranks", Unit.COUNT, "Ranks"), Column("size_bytes", Unit.BYTES, "Size")]
    columns += [Column(f"{backend}_{name}", unit, backend) for backend in backends]
    values_at: dict[tuple[int, int], dict[str, Value]] = {}
    for point in points:
        values_at.setdefault((point.ranks, point.size_bytes), {})[point.backend] = of(point)
    rows = [(*place, *(times.get(backend) for backend in backends)) for place, times in sorted(values_at.items())]
    return Table(name, title, columns, rows)


def latency(points: Sequence[MeasuredPoint]) -> Table:
    table = side_by_side(points, "latency_ns", "Latency: median call", Unit.NS, lambda measured: measured.median_ns)
    table.notes.append("A call lasts as long as on its slowest rank. All results were checked value by value.")
    return table


def bandwidth(points: Sequence[MeasuredPoint]) -> list[Table]:
    """Empty where the operation moves nothing."""
    if not any(point.size_bytes for point in points):
        return []
    tables = [
        side_by_side(
            points, "algorithm_rate", "Algorithm bandwidth", Unit.RATE, lambda measured: measured.algorithm_rate
        ),
        side_by_side(points, "bus_rate", "Bus bandwidth", Unit.RATE, lambda measured: measured.bus_rate),
    ]
    tables[1].rows = [row for row in tables[1].rows if row[0] != 1]
    tables[1].notes.append(NCCL_TESTS)
    return tables


def full(points: Sequence[MeasuredPoint]) -> Table:
    rows: list[tuple[Value, ...]] = [tuple(getattr(measured, column.name) for column in FULL) for measured in points]
    table = Table("sizes", "Every size", FULL, rows)
    table.notes.append(
        "Min, median and max of the timed calls, each by its slowest rank; warm-up and first call apart."
    )
    return table


def first_calls(points: Sequence[MeasuredPoint]) -> Table:
    """What the first collective of a job costs more than later ones, and the first of the other sizes."""
    rows: list[tuple[Value, ...]] = []
    for backend, ranks in dict.fromkeys((measured.backend, measured.ranks) for measured in points):
        ours = [measured for measured in points if (measured.backend, measured.ranks) == (backend, ranks)]
        first, others = ours[0], ours[1:]
        worst = max(others, key=lambda measured: measured.first_ratio or 0.0, default=None)
        other = (worst.first_ratio, worst.size_bytes) if worst else (None, None)
        rows.append((backend, ranks, first.size_bytes, first.first_ns, first.median_ns, first.first_ratio, *other))
    table = Table("first", "First against later calls", FIRST, rows)
    table.notes.append("The job's first collective also waits for ranks that come later out of their initialisation.")
    return table
