"""How long is it from the start of a job to its first step, and where does that time go as the job grows?"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.studies.backends import backends, job_of
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell, Job, Missing, Parameter, Settings, Study
from rankscope.studies.pythons import Pythons
from rankscope.studies.rows import by_place

PARTS = {
    "import": "Import",
    "init": "Init",
    "first_collective": "First all-reduce",
    "second_collective": "Second all-reduce",
    "first_step": "First step",
    "second_step": "Second step",
    "total": "Total",
}


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    return {"backend": backends(settings["backends"])}


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> Job | Missing:
    return job_of(cell["backend"], "startup", ["--elements", settings["elements"]], pythons, folder)


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    """The slowest rank of each part (all wait for it), the median over the repeats."""
    columns = [Column("backend", Unit.NAME, "Backend"), Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(f"{part}_ns", Unit.NS, title) for part, title in PARTS.items()]
    rows: list[tuple[Value, ...]] = []
    for (backend, ranks), repeats in by_place(outcomes, "backend").items():
        parts = [[max(one["seconds"][part] for one in outcome.results) for part in PARTS] for outcome in repeats]
        rows.append((backend, ranks, *(statistics.median(values) * 1e9 for values in zip(*parts, strict=True))))
    made = Table("startup", "Start-up by backend and scale", columns, rows)
    made.notes.append(
        "Each part by its slowest rank, the median over the repeats. Total: from the first line of the program."
    )
    return [made]


STUDY = Study(
    "startup",
    "Start-up: import, init, first and second collective, first step",
    __doc__,
    axes,
    job,
    tables,
    {
        "backends": Parameter("mpi4py,gloo", "the libraries to compare"),
        "elements": Parameter(str(1024 * 1024), "of the tensor that is reduced, four bytes each"),
    },
    scales=(1, 2, 4),
    timeout_s=300,
)
