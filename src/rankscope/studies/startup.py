"""How long is it from the start of a job to its first step, and where does that time go as the job grows?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.studies.backends import HERE, backends, job_of, settled
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, Parameter, Settings, Study, by_place

PARTS = {
    "import": "Import",
    "init": "Init",
    "first_collective": "First all_reduce",
    "second_collective": "Second all_reduce",
    "model": "Model",
    "first_step": "First step",
    "second_step": "Second step",
    "total": "Total",
}
ONE_BY_ONE = tuple(part for part in PARTS if part != "total")
PHASES = ("phase", "what", "ranks", "min_ns", "median_ns", "max_ns", "longest_rank")  # of the table phases
RECORDED = (
    Column("backend", Unit.NAME, "Backend"),
    Column("scale", Unit.COUNT, "Ranks"),
    Column("phase", Unit.NAME, "Phase"),
    Column("what", Unit.NAME, "What"),
    Column("ranks", Unit.COUNT, "Ranks with it"),
    Column("min_ns", Unit.NS, "Min"),
    Column("median_ns", Unit.NS, "Median"),
    Column("max_ns", Unit.NS, "Max"),
    Column("longest_rank", Unit.NAME, "Longest on"),
)


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    if not settings["elements"].isdigit() or not int(settings["elements"]):
        raise BadStudy(f"--elements {settings['elements']}: give a whole number above 0")
    return {"backend": backends(settings["backends"])}


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
    return job_of(cell["backend"], "startup", ["--elements", settings["elements"]], pythons, folder)


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    """All parts together, each part with the backends side by side, and the phases as they were recorded."""
    seconds_of = {place: seconds(repeats) for place, repeats in by_place(outcomes, "backend").items()}
    return [
        together(seconds_of, steps(outcomes)),
        *(one_part(seconds_of, part) for part in ONE_BY_ONE),
        phases(outcomes),
    ]


def seconds(repeats: Sequence[Outcome]) -> dict[str, float]:
    """Each part by its slowest rank (all wait for it), the median over the repeats."""
    slowest = {
        part: [max(result["seconds"][part] for result in outcome.results) for outcome in repeats] for part in PARTS
    }
    return {part: statistics.median(values) for part, values in slowest.items()}


def steps(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """What a step is, by backend."""
    return {outcome.cell["backend"]: str(outcome.results[0].get("step", "")) for outcome in outcomes if outcome.done}


def together(seconds_of: Mapping[tuple[str | int, ...], Mapping[str, float]], step: Mapping[str, str]) -> Table:
    columns = [Column("backend", Unit.NAME, "Backend"), Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(f"{part}_ns", Unit.NS, title) for part, title in PARTS.items()]
    rows: list[tuple[Value, ...]] = [
        (*place, *(parts_s[part] * 1e9 for part in PARTS)) for place, parts_s in seconds_of.items()
    ]
    table = Table("startup", "Start-up by backend and scale", columns, rows)
    table.notes += [
        "By the program's own clock: each part by its slowest rank, the median over the repeats. "
        "Total: from the first line of the program.",
        "Init includes MPI's initialisation also for mpi4py, which otherwise does it while it is imported.",
        f"A step: {'; '.join(f'{backend}: {what}' for backend, what in step.items())}.",
    ]
    return table


def one_part(seconds_of: Mapping[tuple[str | int, ...], Mapping[str, float]], part: str) -> Table:
    """A row for each scale, a column for each backend."""
    names = list(dict.fromkeys(str(backend) for backend, _ in seconds_of))
    columns = [Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(f"{name}_{part}_ns", Unit.NS, f"{name} {PARTS[part].lower()}") for name in names]
    table = Table(part, PARTS[part], columns, [])
    for ranks in sorted({int(scale) for _, scale in seconds_of}):
        per_backend = [seconds_of.get((name, ranks)) for name in names]
        table.rows.append((ranks, *(parts[part] * 1e9 if parts else None for parts in per_backend)))
    return table


def phases(outcomes: Sequence[Outcome]) -> Table:
    """What the recorder saw of the same jobs, from the start of the processes to their end."""
    table = Table("recorded_phases", "The same as recorded: phases from process start to end", RECORDED, [])
    for (backend, ranks), repeats in by_place(outcomes, "backend").items():
        answer = repeats[0].run.table("phases")
        places = [answer.columns.index(name) for name in PHASES]
        table.rows += [(backend, ranks, *(row[place] for place in places)) for row in answer.rows]
    table.notes.append("First repeat only; for the phases see docs/reference/metrics.md, phases.")
    return table


STUDY = Study(
    "startup",
    "Start-up: import, init, first and second collective, first step",
    __doc__,
    axes,
    job,
    tables,
    {
        "backends": Parameter(HERE, "libraries to compare; here: all that the given Pythons can run"),
        "elements": Parameter(str(1024 * 1024), "elements of the reduced tensor, four bytes each"),
    },
    scales=(1, 2, 4),
    timeout_s=300,
    settled=settled,
)
