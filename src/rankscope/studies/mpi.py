"""What does data-parallel training ask of MPI: which routines, which sizes, how evenly, and how much is negotiation?"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.api.run import Layout, Run, Selection
from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.mpi.calls import BYTES_SQL, IS_COMMUNICATION
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Python, Pythons, is_elsewhere, is_true_after_import, said
from rankscope.studies.launchers import MPI_KINDS, mpi_kind
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, Parameter, Settings, Study, by_place
from rankscope.studies.programs import path_of

# ---------------------------------------------------------------------------------------------------------------------
# The tables of the study of MPI: what the recorded runs say of routines, sizes, balance and negotiation, by scale.
Place = tuple[str | int, ...]
Places = Mapping[Place, Sequence[Outcome]]
SMALL_CLASS, SMALL_BYTES = 4, 8  # size classes: docs/reference/metrics.md
ALL_SHOWN = 8  # ranks whose flat profile is shown; of more only the first
PLACE = (
    Column("library", Unit.NAME, "Library"),
    Column("mpi", Unit.NAME, "MPI"),
    Column("ranks", Unit.COUNT, "Ranks"),
)
FROM = f"FROM tallies JOIN ranks USING (process) WHERE {IS_COMMUNICATION} AND role = 'rank'"
ROUTINES = f"""
    SELECT name AS routine, (sum(calls) FILTER (kind = 'call'))::BIGINT, {BYTES_SQL},
        sum(total_ns) FILTER (kind = 'call') {FROM} GROUP BY routine ORDER BY 4 DESC"""
SIZES = f"""
    SELECT name AS routine, size_class, sum(calls)::BIGINT, sum(bytes)::BIGINT, sum(total_ns) {FROM}
    AND kind = 'call' AND size_class > 0 GROUP BY routine, size_class ORDER BY routine, size_class"""
SMALL = f"""
    SELECT coalesce(sum(calls) FILTER (small), 0)::BIGINT, coalesce(sum(total_ns) FILTER (small), 0),
        coalesce(sum(calls) FILTER (small AND reduces), 0)::BIGINT,
        coalesce(sum(total_ns) FILTER (small AND reduces), 0),
        coalesce(sum(calls) FILTER (reduces), 0)::BIGINT, coalesce(sum(total_ns) FILTER (reduces), 0),
        coalesce(sum(total_ns), 0)
    FROM (SELECT calls, total_ns, size_class BETWEEN 1 AND {SMALL_CLASS} AS small,
              name = 'MPI_Allreduce' AS reduces {FROM} AND kind = 'call')"""


def version(place: Place, outcome: Outcome) -> tuple[Value, ...]:
    """The cell, its MPI as it calls itself."""
    library, kind, ranks = place
    versions = outcome.run.query("SELECT any_value(versions) FROM ranks WHERE role = 'rank'").rows[0][0]
    named = [part.strip() for part in str(versions or "").split(";") if "mpi" in part.lower()]
    return library, named[0] if named and kind == "any" else kind, ranks


def figures(run: Run, sql: str) -> list[tuple[Any, ...]]:
    return list(run.query(sql).rows)


def negotiation(places: Places) -> Table:
    """How much of MPI is agreeing and not moving data."""
    columns = (
        *PLACE,
        Column("samples_per_s", Unit.NUMBER, "Samples/s"),
        Column("step_ns", Unit.NS, "Step"),
        Column("mpi_share", Unit.SHARE, "MPI, % of elapsed"),
        Column("small_calls", Unit.COUNT, "Calls ≤ 8 bytes"),
        Column("small_ns", Unit.NS, "Their time"),
        Column("small_share", Unit.SHARE, "% of MPI time"),
        Column("reduce_calls_share", Unit.SHARE, "% of all-reduce calls"),
        Column("reduce_share", Unit.SHARE, "% of all-reduce time"),
        Column("small_wait_share", Unit.SHARE, "Wait share, ≤ 8 bytes"),
        Column("large_wait_share", Unit.SHARE, "Wait share, larger"),
    )
    table = Table("negotiation", "Negotiation: calls of at most 8 bytes", columns, [])
    for place, repeats in places.items():
        ranks, outcome = int(place[-1]), repeats[0]
        speed = statistics.median(map(samples_per_s, repeats))
        calls, small_ns, few, few_ns, reduces, reduce_ns, all_ns = map(float, figures(outcome.run, SMALL)[0])
        elapsed = figures(outcome.run, "SELECT sum(mpi_elapsed_ns) FROM ranks WHERE role = 'rank'")[0][0]
        samples = outcome.results[0]["batch"] * ranks
        table.rows.append(
            (
                *version(place, outcome),
                speed,
                1e9 * samples / speed,
                all_ns / float(elapsed) if elapsed else None,
                round(calls / ranks),
                small_ns / ranks,
                small_ns / all_ns if all_ns else None,
                few / reduces if reduces else None,
                few_ns / reduce_ns if reduce_ns else None,
                *waiting(outcome.run),
            )
        )
    table.notes += [
        "Samples/s: steps × batch × ranks ÷ the seconds of the slowest rank, over the epochs after the first.",
        "Calls and times: mean of the ranks, from MPI_Init to MPI_Finalize. A call of at most 8 bytes carries no "
        "gradient: with it, ranks agree that a tensor is ready everywhere.",
        "Wait share: of the time in collectives, the part until the last rank arrived; the rest is transfer "
        "and exit skew. Ranks wait in the first collective after their work, which is the small one.",
    ]
    return table


def waiting(run: Run) -> tuple[float | None, float | None]:
    """Of the time in small and in larger collectives: what was waiting for the last rank."""
    frame = run.table("collectives")
    at = {column.name: place for place, column in enumerate(frame.table.columns)}
    shares: list[float | None] = []
    for least, most in ((1, SMALL_BYTES), (SMALL_BYTES + 1, math.inf)):
        rows = [row for row in frame.rows if least <= int(str(row[at["up_to_bytes"]] or 0)) <= most]
        times = [[float(str(row[at[name]] or 0)) for row in rows] for name in ("wait_ns", "transfer_ns", "leaving_ns")]
        all_ns = sum(map(sum, times))
        shares.append(sum(times[0]) / all_ns if all_ns else None)
    return shares[0], shares[1]


def samples_per_s(outcome: Outcome) -> float:
    epochs = outcome.results[0]["seconds"]
    later = slice(1, None) if len(epochs) > 1 else slice(None)
    steps = sum(len(epoch) for epoch in epochs[later])
    slowest_s = max(sum(sum(epoch) for epoch in result["seconds"][later]) for result in outcome.results)
    return float(steps * outcome.results[0]["batch"] * len(outcome.results) / slowest_s)


def routines(places: Places) -> Table:
    """The flat profile by scale, in libmpitrace's columns."""
    columns = (
        *PLACE,
        Column("name", Unit.NAME, "MPI Routine"),
        Column("calls", Unit.NUMBER, "#calls"),
        Column("mean_bytes", Unit.NUMBER, "avg. bytes"),
        Column("time_s", Unit.NUMBER, "time(sec)"),
        Column("share", Unit.SHARE, "% of MPI time"),
    )
    table = Table("routines", "MPI routines by scale, mean of the ranks", columns, [])
    for place, repeats in places.items():
        rows = figures(repeats[0].run, ROUTINES)
        all_ns = sum(float(row[3] or 0) for row in rows)
        for name, calls, size, total_ns in rows:
            share = float(total_ns) / all_ns if all_ns else None
            means = per_rank(calls, size, total_ns, int(place[-1]))
            table.rows.append((*version(place, repeats[0]), name, *means, share))
    return table


def per_rank(calls: Any, size: Any, total_ns: Any, ranks: int) -> tuple[str, str, str]:
    """As libmpitrace prints them: calls, average bytes, seconds in three digits after the point."""
    mean_bytes = float(size or 0) / calls if calls else 0.0
    return f"{calls / ranks:g}", f"{mean_bytes:.1f}", f"{float(total_ns or 0) / ranks / 1e9:.3f}"


def sizes(places: Places) -> Table:
    columns = (
        *PLACE,
        Column("name", Unit.NAME, "MPI Routine"),
        Column("calls", Unit.NUMBER, "#calls"),
        Column("mean_bytes", Unit.NUMBER, "avg. bytes"),
        Column("time_s", Unit.NUMBER, "time(sec)"),
        Column("mean_ns", Unit.NS, "Per call"),
    )
    table = Table("sizes", "Message size distributions by scale, mean of the ranks", columns, [])
    for place, repeats in places.items():
        for name, _, calls, size, total_ns in figures(repeats[0].run, SIZES):
            means = per_rank(calls, size, total_ns, int(place[-1]))
            table.rows.append((*version(place, repeats[0]), name, *means, float(total_ns) / calls if calls else None))
    return table


def balance(places: Places) -> Table:
    """Communication time of the ranks: least, median, most; and whether work is shared evenly."""
    columns = (
        *PLACE,
        Column("least_ns", Unit.NS, "Minimum communication"),
        Column("least_rank", Unit.NAME, "Task"),
        Column("median_ns", Unit.NS, "Median"),
        Column("median_rank", Unit.NAME, "Its task"),
        Column("most_ns", Unit.NS, "Maximum"),
        Column("most_rank", Unit.NAME, "Its task"),
        Column("elapsed_ns", Unit.NS, "Elapsed"),
        Column("outside_ratio", Unit.NUMBER, "Outside MPI, largest ÷ mean"),
    )
    table = Table("balance", "Communication summary for all tasks, by scale", columns, [])
    for place, repeats in places.items():
        rows = repeats[0].run.table("communication").rows
        shares = repeats[0].run.table("balance")
        outside = [float(str(row[4])) for row in shares.rows if row[4] is not None]
        ratio = max(outside) * len(outside) / sum(outside) if outside and sum(outside) else None
        extremes = [value for row in rows for value in (row[3], row[1])]
        longest = max((float(str(row[4])) for row in rows if row[4] is not None), default=None)
        table.rows.append((*version(place, repeats[0]), *extremes, longest, ratio))
    table.notes.append("Where ranks wait for each other, the rank with the least time in MPI is the straggler.")
    return table


def layout(place: Place, outcome: Outcome) -> Table:
    """The recorded run of the largest scale, as libmpitrace would have printed it."""
    library, kind, ranks = version(place, outcome)
    shown = None if int(str(ranks)) <= ALL_SHOWN else frozenset({0})
    lines = outcome.run.layout(Layout("mpitrace"), Selection(shown)).splitlines()
    rows: list[tuple[Value, ...]] = [(line,) for line in lines]
    title = f"Profile of {ranks} ranks: {library}, {kind}"
    return Table(f"mpitrace_{place[0]}_{place[1]}", title, (Column("line", Unit.NAME),), rows, verbatim=True)


# ---------------------------------------------------------------- mpi
AXES = ("library", "mpi")
MODULES = {"mpi4py": ("mpi4py", "numpy"), "horovod": ("horovod", "torch", "numpy"), "torch": ("torch", "numpy")}
ANY = "any"


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    return {"library": words(settings, "libraries", tuple(MODULES)), "mpi": words(settings, "mpi", (ANY, *MPI_KINDS))}


def words(settings: Settings, option: str, known: Sequence[str]) -> list[str]:
    chosen = [word.strip() for word in settings[option].split(",") if word.strip()]
    if not chosen or any(word not in known for word in chosen):
        raise BadStudy(f"--{option} {settings[option]}: choose of {', '.join(known)}, separated by commas")
    return chosen


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
    library, device = cell["library"], settings["device"]
    modules = MODULES[library] if device == "cpu" else tuple({*MODULES[library], "torch"})
    having = [python for python in pythons.all if all(name in python.modules for name in modules)]
    if not having:
        return Missing(pythons.without(*modules))
    python = next((python for python in having if fits(python, cell["mpi"])), None)
    if python is None:
        return Missing(f"no {cell['mpi']} beside {', '.join(python.path for python in having)}: name one with --python")
    why = "" if is_elsewhere(python) else lacking(python, library, device)
    if why:
        return Missing(why)
    values = {"into": folder, "library": library, "device": device}
    values |= {name: settings[name] for name in PARAMETERS if name not in ("libraries", "mpi", "device")}
    options = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", value)]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return CellJob((python.path, path_of("mpi_training"), *options), "mpirun", python.path, one_thread)


def fits(python: Python, kind: str) -> bool:
    return bool(python.mpirun) and kind in (ANY, mpi_kind(python.mpirun))


def lacking(python: Python, library: str, device: str) -> str:
    """Why it cannot run there, with the next action; "" where nothing speaks against it."""
    if library == "torch" and not is_true_after_import(python.path, "torch", "torch.distributed.is_mpi_available()"):
        return f"the torch of {python.path} is built without MPI: build it from source beside an MPI, or use mpi4py"
    if library == "horovod" and not is_true_after_import(python.path, "horovod.torch", "horovod.torch.mpi_built()"):
        return f"the Horovod of {python.path} is built without MPI: build it with HOROVOD_WITH_MPI=1"
    if device == "cuda" and library == "torch":
        return "gradients on a GPU need mpi4py: choose --libraries mpi4py, or --device cpu"
    if device == "cuda" and not takes_gpu_buffers(python):
        return f"the MPI of {python.path} is not CUDA-aware: build it with CUDA, or choose --device cpu"
    return ""


def takes_gpu_buffers(python: Python) -> bool:
    """As the MPI's own tool says."""
    beside = os.path.dirname(python.mpirun)
    if mpi_kind(python.mpirun) == "openmpi":
        return "mpi_built_with_cuda_support:value:true" in said(f"{beside}/ompi_info", "--parsable", "--all")
    return "cuda" in said(f"{beside}/mpichversion").lower()


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    places = by_place(outcomes, *AXES)
    shown = [negotiation(places), routines(places), sizes(places), balance(places)]
    largest = {place[:-1]: place for place in sorted(places, key=lambda place: int(place[-1]))}
    return [*shown, *(layout(place, places[place][0]) for place in largest.values())]


PARAMETERS = {
    "libraries": Parameter("mpi4py", "libraries that reduce the gradients: mpi4py, horovod, torch (its MPI backend)"),
    "mpi": Parameter(ANY, "openmpi, mpich or impi, found beside the Pythons; any: the first Python's"),
    "device": Parameter("cpu", "cpu, or cuda if the MPI is CUDA-aware"),
    "epochs": Parameter("2", "epochs; the first is warm-up"),
    "steps": Parameter("25", "steps per epoch"),
    "batch": Parameter("64", "samples per rank and step"),
    "hidden": Parameter("384", "width of the hidden layers"),
    "layers": Parameter("3", "layers of the network"),
    "negotiate": Parameter(
        "tensor", "negotiate in eight bytes before each tensor, before each step, or no: not at all"
    ),
    "slow_rank": Parameter("-1", "rank that sleeps in every step; -1: none"),
    "slow_ms": Parameter("5", "how long it sleeps, in milliseconds"),
}
STUDY = Study(
    "mpi",
    "MPI in data-parallel training: routines, sizes, balance, negotiation",
    __doc__,
    axes,
    job,
    tables,
    PARAMETERS,
    scales=(1, 2, 4),
    timeout_s=300,
)
