"""What imports ask of a file server as a job grows, and from how many nodes on staging is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rankscope.api.import_replay import operations_of
from rankscope.api.run import NoRun, Run
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, Wrong
from rankscope.questions.imports.break_even import NoSeries, ScaleFit, break_evens, fits, fitted, series_of
from rankscope.questions.imports.projection import (
    CACHES,
    FileServer,
    ImportCounts,
    counts_of,
    has_table,
    projected,
    projection,
    recorded_counts,
)

__all__ = ["CACHES", "ImportCounts", "NoRun", "NoSeries", "ProjectionAsked", "project_imports"]


@dataclass(frozen=True, slots=True)
class ProjectionAsked:
    """Whose imports, on which job and server, beside which measured times."""

    source: Path | None  # a run, operations as text, or a log of strace
    folder: str = "/"  # where the server's files are
    counts: ImportCounts = field(default_factory=ImportCounts)  # instead of the source's, as far as given
    nodes: Sequence[int] = ()
    ppn: int = 1  # ranks on each node
    server_operations: int | None = None  # in a second
    latency_ns: int = 0
    caches: Sequence[str] = ()  # none: all of which something is known
    measured: Sequence[str] = ()  # [PLACE=]TIMES in place
    staging: Sequence[str] = ()  # [PLACE=]TIMES of staging and importing from there


def project_imports(request: ProjectionAsked) -> list[Table]:
    """The projection, what fits the measured times, and the break-evens: each as far as the data allow."""
    is_run = request.source is not None and not request.source.is_file()
    tables = Run(request.source).store() if is_run else None
    counts = _counts(request, tables)
    shown: list[Table] = []
    if any(value is not None for value in (counts.calls, counts.path_operations)):
        shown.append(_projection(request, counts))
    places = {place: series_of(text, tables) for place, text in map(_named, request.measured)}
    if places:
        fits_by_place = {place: (len(points), fitted(points)) for place, points in places.items()}
        shown += [fits(fits_by_place, counts.path_operations, request.ppn), _fitted_times(fits_by_place, request.nodes)]
    if request.staging:
        shown.append(break_evens(_compared(places, request.staging, tables)))
    if not shown:
        raise Wrong("nothing to project: give a run recorded with --imports calls, --calls, or --measured")
    return shown


def _projection(request: ProjectionAsked, counts: ImportCounts) -> Table:
    if not request.server_operations:
        raise Wrong("give the server's rate with --server-ops, as in 600000")
    server = FileServer(request.server_operations, request.latency_ns)
    known = [cache for cache in CACHES if projected(counts, cache, 1, request.ppn, server) is not None]
    return projection(counts, request.caches or known, request.nodes, request.ppn, server)


def _counts(request: ProjectionAsked, tables: Tables | None) -> ImportCounts:
    """Those of the run or file, each replaced by what was given."""
    base = ImportCounts()
    if tables is not None and _has_calls(tables):
        base = recorded_counts(tables, _first_process(tables), request.folder)
    elif request.source is not None and request.source.is_file():
        base = counts_of(operations_of(request.source, None)[0], request.folder)
    given = {name: value for name, value in asdict(request.counts).items() if value is not None}
    return replace(base, **given)


def _has_calls(tables: Tables) -> bool:
    return has_table(tables, "system_calls") and bool(tables.query("SELECT 1 FROM system_calls LIMIT 1"))


def _first_process(tables: Tables) -> int:
    """The lowest rank that has counts, or else the first process that has."""
    rows = tables.query(
        "SELECT process FROM system_calls LEFT JOIN ranks USING (process) ORDER BY rank NULLS LAST, process LIMIT 1"
    )
    return int(rows[0][0])


def _named(text: str) -> tuple[str, str]:
    """The place and its times: what stands before an equals sign names it, or else the text itself."""
    place, equals, times = text.partition("=")
    return (place, times) if equals else (text, text)


def _compared(
    places: dict[str, dict[int, float]], staging: Sequence[str], tables: Tables | None
) -> dict[str, tuple[dict[int, float], dict[int, float]]]:
    """Each place with the staging that is meant for it, or else the one that is meant for all."""
    if not places:
        raise Wrong("--staging is compared with times in place: give them with --measured")
    split = [text.partition("=") for text in staging]
    staged = {place if equals else "": series_of(times if equals else place, tables) for place, equals, times in split}
    if unknown := set(staged) - {"", *places}:
        raise Wrong(f"--staging {sorted(unknown)[0]}: no such place among those of --measured")
    without = [place for place in places if place not in staged and "" not in staged]
    if without:
        raise Wrong(f"{without[0]}: has no staging to compare with: give --staging {without[0]}=… or one for all")
    return {place: (points, staged.get(place, staged.get("", {}))) for place, points in places.items()}


def _fitted_times(fits_by_place: dict[str, tuple[int, ScaleFit]], nodes: Sequence[int]) -> Table:
    """What the fits say of other sizes."""
    good = {place: fit for place, (_, fit) in fits_by_place.items() if not fit.refusal}
    columns = [Column("nodes", Unit.COUNT, "nodes"), *(Column(f"{place}_ns", Unit.NS, place) for place in good)]
    rows: list[tuple[Cell, ...]] = []
    for count in nodes:
        times = [fit.at(count) for fit in good.values()]
        rows.append((count, *(None if value is None else value * 1e9 for value in times)))
    notes = ["empty: more than 4 times as many nodes as were measured"] if any(None in row for row in rows) else []
    return Table("import_fitted", "Fitted import times in place", columns, rows if good else [], notes)
