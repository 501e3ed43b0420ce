"""How fast is a collective by each library, from four bytes up, and how does that change as the job grows?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankscope.model import Table
from rankscope.studies.backends import HERE, backends, job_of, settled
from rankscope.studies.collective_points import points
from rankscope.studies.collective_tables import bandwidth, first_calls, full, latency
from rankscope.studies.collective_waits import waits
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.message_sizes import sizes
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell, Job, Missing, Parameter, Settings, Study
from rankscope.studies.three_parts import three_parts

OPERATIONS = (
    "allreduce",
    "broadcast",
    "reduce",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "gather",
    "scatter",
    "barrier",
)


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    checked(settings)
    return {"backend": backends(settings["backends"])}


def checked(settings: Settings) -> None:
    """Before anything is run."""
    if settings["op"] not in OPERATIONS:
        raise BadStudy(f"--op {settings['op']}: choose one of {', '.join(OPERATIONS)}")
    if not settings["iterations"].isdigit() or not int(settings["iterations"]):
        raise BadStudy(f"--iterations {settings['iterations']}: give a whole number above 0")
    sizes(settings["sizes"])


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> Job | Missing:
    asked = [4] if settings["op"] == "barrier" else sizes(settings["sizes"])
    options = ["--op", settings["op"], "--sizes", ",".join(map(str, asked)), "--iterations", settings["iterations"]]
    return job_of(cell["backend"], "allreduce", options, pythons, folder)


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    """Latency and bandwidth, the three parts of the run as it was recorded, waiting, and every size in full."""
    found = points(outcomes, settings["op"])
    return [
        latency(found),
        *bandwidth(found),
        *three_parts(outcomes),
        first_calls(found),
        *waits(outcomes, settings["op"]),
        full(found),
    ]


STUDY = Study(
    "allreduce",
    "Collectives: latency and bandwidth by backend, size and scale",
    __doc__,
    axes,
    job,
    tables,
    {
        "backends": Parameter(HERE, "the libraries to compare; here: all that can be run with the Pythons at hand"),
        "op": Parameter("allreduce", f"the collective: {', '.join(OPERATIONS)}"),
        "sizes": Parameter("4,64,1k,16k,256k,4M", "as 4,64k,4M, or a range that grows by four as 4..256M"),
        "iterations": Parameter("10", "timed calls of each size; fewer of sizes above 6 MiB"),
    },
    scales=(1, 2, 4, 8),
    timeout_s=600,
    settled=settled,
)
