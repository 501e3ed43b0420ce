"""The tables of the study of imports, in the layout of those that people make by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.imports.frameworks import (
    FRAMEWORK_COLUMNS,
    ImportTime,
    StagedImport,
    staged_times,
    time_per_place,
)
from rankscope.questions.imports.projection import FileServer, ImportCounts, projected, recorded_counts
from rankscope.questions.imports.trees import sums
from rankscope.questions.scaling.crossovers import crossovers
from rankscope.questions.scaling.growth import Series, growth
from rankscope.questions.scaling.models import LawEstimate
from rankscope.slowfs.mount import Unavailable, duration_ns, of_server
from rankscope.studies.plan import Outcome, Settings

COUNTED, STAGED, TOTAL = "counted", "staged", "staged, with transfer"
CACHE_OF = {"slow": "walk", "cached": "negative"}  # which count is what the clients of that place ask for
FAILED = (Column("failed_of", Unit.NAME, "failed"), Column("failed_calls", Unit.COUNT, "Calls"))
RANKS = Column("ranks", Unit.COUNT, "Ranks")
FIRST_RANK = "SELECT process FROM ranks WHERE role = 'rank' ORDER BY rank LIMIT 1"
OF_RANK = f"SELECT {sums()} FROM system_calls WHERE process = ({FIRST_RANK})"
CALLS = f"SELECT calls, opens, stats, failed FROM ({OF_RANK})"
BOUND = (
    Column("framework", Unit.NAME, "Framework"),
    Column("place", Unit.NAME, "Place"),
    RANKS,
    Column("expected_operations", Unit.COUNT, "Operations expected"),
    Column("asked_operations", Unit.COUNT, "Operations counted"),
    Column("at_least_ns", Unit.NS, "Lower bound"),
    Column("at_most_ns", Unit.NS, "Upper bound"),
    Column("local_ns", Unit.NS, "Local"),
    Column("measured_ns", Unit.NS, "Measured"),
    Column("of_bound", Unit.NUMBER, "Measured ÷ (local + upper bound)"),
)
PROJECTION = (
    Column("framework", Unit.NAME, "Framework"),
    RANKS,
    Column("calls", Unit.COUNT, "Calls × ranks"),
    Column("calls_ns", Unit.NS, "At most"),
    Column("path_operations", Unit.COUNT, "Paths × ranks"),
    Column("path_ns", Unit.NS, "At most"),
    Column("cached_operations", Unit.COUNT, "Cached by ranks"),
    Column("cached_ns", Unit.NS, "At most"),
    Column("grown_ns", Unit.NS, "Extrapolated"),
)


@dataclass(frozen=True, slots=True)
class Times:
    """What the cells say, in the units of the tables: the slowest rank of each, the median over the repeats."""

    imports: list[ImportTime]
    staged: list[StagedImport]


def import_tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    """Calls, times by place, with staging, break-evens, bounds."""
    times, counts = times_of(outcomes), counts_of(outcomes)
    tables = [calls_table(outcomes), place_table(times), staged_table(times), break_even_table(outcomes, settings)]
    tables += [bound_table(outcomes, times, counts, settings), projection_table(outcomes, counts, settings)]
    return [table for table in tables if table.rows]


def import_series(outcomes: Sequence[Outcome], settings: Settings) -> list[Series]:
    """The import of each framework by ranks, a series for each place; staged also with its transfer."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for outcome in outcomes:
        if outcome.done and outcome.cell["place"] != COUNTED:
            what, ranks = f"import {outcome.cell['framework']}", float(outcome.cell.ranks)
            points.setdefault((what, outcome.cell["place"]), []).append((ranks, import_ns(outcome)))
            if outcome.cell["place"] == STAGED:
                points.setdefault((what, TOTAL), []).append((ranks, import_ns(outcome) + transfer_ns(outcome)))
    return [Series(place, what, "ns", "ranks", tuple(point)) for (what, place), point in points.items()]


def import_ns(outcome: Outcome) -> float:
    """Of the slowest rank: all wait for it."""
    return max(float(result["seconds"]["import"]) for result in outcome.results) * 1e9


def transfer_ns(outcome: Outcome) -> float:
    """What a rank waited for its copy, the start of the command that stages included; the longest."""
    results = [
        json.loads(path.read_text(encoding="utf-8")) for path in Path(outcome.folder, "times").glob("rank-*.json")
    ]
    return max((float(result["waited_ns"]) for result in results), default=0.0)


def times_of(outcomes: Sequence[Outcome]) -> Times:
    grouped: dict[tuple[str, str, int], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.done:
            grouped.setdefault((outcome.cell["framework"], outcome.cell["place"], outcome.cell.ranks), []).append(
                outcome
            )
    times = Times([], [])
    for (framework, place, ranks), repeats in grouped.items():
        wall_ns = median(import_ns(repeat) for repeat in repeats)
        if place == STAGED:
            waited_ns = median(transfer_ns(repeat) for repeat in repeats)
            times.staged.append(StagedImport(framework, ranks, waited_ns, wall_ns))
        elif place != COUNTED:
            times.imports.append(ImportTime(place, framework, ranks, wall_ns))
    return times


def counted(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    return {
        outcome.cell["framework"]: outcome for outcome in outcomes if outcome.done and outcome.cell["place"] == COUNTED
    }


def counts_of(outcomes: Sequence[Outcome]) -> dict[str, ImportCounts]:
    """What one rank asks for, below the environment it imports from."""
    counts = {}
    for framework, outcome in counted(outcomes).items():
        store = outcome.run.store()
        ((process,),) = store.query(FIRST_RANK)
        counts[framework] = recorded_counts(store, int(process), str(outcome.results[0]["prefix"]))
    return counts


def calls_table(outcomes: Sequence[Outcome]) -> Table:
    """Total, opens, stats and failed calls of one rank."""
    table = Table("import_frameworks", "System calls to import, one rank", (*FRAMEWORK_COLUMNS, *FAILED), [])
    for name, outcome in counted(outcomes).items():
        counts = outcome.run.store().query(CALLS)[0]
        labels = [f"{kind} {name}" for kind in ("Total", "openat", "stats", "failed")]
        table.rows.append(tuple(cell for pair in zip(labels, counts, strict=True) for cell in pair))
    table.notes.append(
        "openat: all calls that open a file; stats: the whole family; failed: of all calls. Of a process that starts, "
        "imports the framework and leaves its result; a constant of one rank, but for what its MPI does when it starts."
    )
    return table


def place_table(times: Times) -> Table:
    table = time_per_place(times.imports)
    note = "The slowest rank, the median over the repeats. The ranks of a machine share its cores and its page cache."
    slow = "slow, cached: every rank has its own cold mount, as if alone on a node; all share the server's rate."
    return replace(table, columns=(RANKS, *table.columns[1:]), notes=[note, slow])


def staged_table(times: Times) -> Table:
    table = staged_times(times.staged)
    note = "tmp transfer: longest time from a rank's start until its copy is ready; ranks of a node share one copy."
    return replace(table, columns=(RANKS, *table.columns[1:]), notes=[note])


def break_even_table(outcomes: Sequence[Outcome], settings: Settings) -> Table:
    """Each place against staging, transfer included."""
    grown = [growth(series) for series in import_series(outcomes, settings) if series.name != STAGED]
    against = [growth_of for growth_of in grown if growth_of.series.name == TOTAL]
    if not against:
        return Table("import_break_even", "Break-even", (), [])
    return replace(crossovers(grown, against), name="import_break_even", title="Ranks from which staging is faster")


def bound_table(
    outcomes: Sequence[Outcome], times: Times, counts: dict[str, ImportCounts], settings: Settings
) -> Table:
    """On the slow file system what is asked and how long that takes are known beforehand: does it hold?"""
    server = FileServer(float(settings["rate"]), duration_ns(settings["latency"]))
    table = Table("import_bound", "The slow file system: expected and measured", BOUND, [])
    local = {(timed.framework, timed.nodes): timed.wall_ns for timed in times.imports if timed.place == "local"}
    for timed in times.imports:
        cache = CACHE_OF.get(timed.place, "")
        projected_times = (
            projected(counts[timed.framework], cache, timed.nodes, 1, server)
            if timed.framework in counts and cache
            else None
        )
        if projected_times is None or timed.wall_ns is None:
            continue
        operations = asked_operations(outcomes, timed)
        local_ns = local.get((timed.framework, timed.nodes))
        share = timed.wall_ns / (local_ns + projected_times.at_most_ns) if local_ns else None
        bounds = (projected_times.time_ns, projected_times.at_most_ns, local_ns, timed.wall_ns, share)
        table.rows.append(
            (timed.framework, timed.place, timed.nodes, projected_times.server_operations, operations, *bounds)
        )
    table.notes.append(
        "Expected: operations of one rank × ranks; counted: by the file system. The larger and the sum of "
        "latency and queue bound the file system's time; local: the time for computing, on shared cores."
    )
    return table


def asked_operations(outcomes: Sequence[Outcome], import_time: ImportTime) -> int | None:
    """Of all ranks together, the median over the repeats."""
    place = (import_time.framework, import_time.place, import_time.nodes)
    operations = []
    for outcome in outcomes:
        if outcome.done and (outcome.cell["framework"], outcome.cell["place"], outcome.cell.ranks) == place:
            try:
                operations.append(of_server(Path(outcome.folder, "server"))["metadata"])
            except (Unavailable, KeyError):
                continue
    return int(median(operations)) if operations else None


def projection_table(outcomes: Sequence[Outcome], counts: dict[str, ImportCounts], settings: Settings) -> Table:
    """Ranks × calls against a server's operations a second: no more than an upper bound."""
    server = FileServer(float(settings["server"]))
    grown = {series.what: growth(series) for series in import_series(outcomes, settings) if series.name == "slow"}
    table = Table("import_projection", "Projected to larger jobs, as an upper bound", PROJECTION, [])
    refused: dict[str, None] = {}
    for framework, import_counts in counts.items():
        for ranks in map(int, settings["jobs"].split(",")):
            row: list[Value] = [framework, ranks]
            for cache in ("calls", "none", "negative"):
                estimate = projected(import_counts, cache, ranks, 1, server)
                row += [estimate.server_operations, estimate.server_bound_ns] if estimate else [None, None]
            law = grown[f"import {framework}"].at(ranks) if f"import {framework}" in grown else None
            if isinstance(law, str):
                refused[f"{framework}: {law}"] = None
            table.rows.append((*row, law.value if isinstance(law, LawEstimate) else None))
    rate = f"{int(settings['server']):,} operations per second"
    table.notes.append(
        f"If all of it reached a server with {rate}: every system call; every path below the environment, as one "
        "operation; each such name once for each rank. Not a forecast: nodes with a shared cache send far fewer."
    )
    if grown:
        table.notes.append(
            "Extrapolated: the model fitted to the times measured at place slow, which has a different server."
        )
    table.notes += [f"Not extrapolated: {text}" for text in refused]
    return table
