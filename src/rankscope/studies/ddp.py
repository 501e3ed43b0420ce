"""What does each way of averaging gradients cost: all-reduce, parameter servers, or both?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rankscope.api.run import Layout, Selection
from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.studies.activities import COLUMNS as PROFILE_COLUMNS
from rankscope.studies.activities import activities, rows
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons, is_elsewhere
from rankscope.studies.interpreters import is_true_after_import as is_true
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, Parameter, Settings, Study, by_place
from rankscope.studies.programs import path_of

AXES = ("hook", "servers", "backend")
HOOKS = ("allreduce", "hybrid", "rpc")
DEVICES = {"gloo": "cpu", "nccl": "cuda"}
BATCH = "batch_level_metric,batch_all"
STRAGGLER = "server_metric,straggler"
RPC_IS_THERE = "torch.distributed.rpc.is_available() and hasattr(torch.distributed.rpc, 'TensorPipeRpcBackendOptions')"
Place = tuple[str | int, ...]
PLACE_COLUMNS = (
    Column("hook", Unit.NAME, "Hook"),
    Column("backend", Unit.NAME, "Backend"),
    Column("trainers", Unit.COUNT, "Trainers"),
    Column("servers", Unit.COUNT, "Servers"),
)
# as the document has them: plain milliseconds in six digits, whatever their size
METRIC_COLUMNS = (
    *PLACE_COLUMNS,
    Column("name", Unit.NAME, "name"),
    *(Column(f"{statistic}_ms", Unit.NUMBER, statistic) for statistic in ("min", "max", "mean")),
    Column("variance_ms2", Unit.NUMBER, "variance"),
    Column("stdev_ms", Unit.NUMBER, "stdev"),
    Column("times", Unit.COUNT, "times"),
)
SPEED_COLUMNS = (
    *PLACE_COLUMNS,
    Column("samples_per_s", Unit.NUMBER, "Samples/s"),
    Column("batch_ns", Unit.NS, "Batch"),
    Column("warmup_batch_ns", Unit.NS, "Batch, warm-up"),
    Column("straggler_ns", Unit.NS, "Servers wait for the last trainer"),
    Column("straggler_max_ns", Unit.NS, "At most"),
    Column("straggler_share", Unit.SHARE, "% of the pass"),
)


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    chosen = {"hook": words(settings, "hooks", HOOKS), "backend": words(settings, "backends", tuple(DEVICES))}
    servers = words(settings, "servers", ())
    if any(not word.isdigit() for word in servers):
        raise BadStudy(f"--servers {settings['servers']}: give whole numbers, separated by commas")
    return {"hook": chosen["hook"], "servers": servers, "backend": chosen["backend"]}


def words(settings: Settings, option: str, known: Sequence[str]) -> list[str]:
    chosen = [word.strip() for word in settings[option].split(",") if word.strip()]
    if not chosen or any(word not in known for word in chosen if known):
        raise BadStudy(f"--{option} {settings[option]}: choose of {', '.join(known)}, separated by commas")
    return chosen


def sensible(cell: Cell, settings: Settings) -> bool:
    """All-reduce needs no server, the others need one; and somebody must train."""
    servers = int(cell["servers"])
    return cell.ranks > servers and (servers == 0) == (cell["hook"] == "allreduce")


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
    python = pythons.having("torch")
    if python is None:
        return Missing(pythons.without("torch"))
    needs_rpc = cell["hook"] != "allreduce" and not is_elsewhere(python)
    if needs_rpc and not is_true(python.path, "torch.distributed.rpc", RPC_IS_THERE):
        return Missing(f"the torch of {python.path} is built without TensorPipe (torch.distributed.rpc): use another")
    values = {"into": folder, "hook": cell["hook"], "servers": cell["servers"], "device": DEVICES[cell["backend"]]}
    values |= {name: settings[name] for name in ("batch", "batches", "width", "slow_rank", "slow_ms")}
    options = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", value)]
    return CellJob((python.path, path_of("ddp"), *options), "local", python.path, {"OMP_NUM_THREADS": "1"})


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    places = by_place(outcomes, *AXES)
    shown = [speeds(places)]
    for name, title, role, passed in (
        ("trainer_metrics", "metrics for trainer_metrics", "trainer", "measured"),
        ("server_metrics", "metrics for server_metrics", "server", "measured"),
        ("trainer_metrics_warmup", "metrics for trainer_metrics, warm-up", "trainer", "warmup"),
    ):
        table = Table(name, title, METRIC_COLUMNS, list(metric_rows(places, role, passed)))
        table.notes.append(
            "In ms, ms² for the variance (of a sample: ÷ times − 1). All processes of the role together."
        )
        shown += [table] if table.rows else []
    return [*shown, *profiles(places, int(settings["batches"]))]


def place_cells(place: Place) -> tuple[Value, ...]:
    hook, servers, backend, ranks = place
    return hook, backend, int(ranks) - int(servers), int(servers)


def times_of(repeats: Sequence[Outcome], role: str, passed: str) -> dict[str, list[float]]:
    """Milliseconds by metric, of all processes of a role and all repeats."""
    times_by_metric: dict[str, list[float]] = {}
    for process in (rank for outcome in repeats for rank in outcome.results if rank["role"] == role):
        for metric, times in process["times_ms"].get(passed, {}).items():
            times_by_metric.setdefault(metric, []).extend(times)
    return times_by_metric


def metric_rows(places: Mapping[Place, list[Outcome]], role: str, passed: str) -> Iterator[tuple[Value, ...]]:
    for place, repeats in places.items():
        for metric, times in sorted(times_of(repeats, role, passed).items()):
            variance = statistics.variance(times) if len(times) > 1 else 0.0
            figures = (min(times), max(times), statistics.fmean(times), variance, variance**0.5)
            yield (*place_cells(place), metric, *(f"{figure:.6g}" for figure in figures), len(times))


def speeds(places: Mapping[Place, list[Outcome]]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for place, repeats in places.items():
        batches = times_of(repeats, "trainer", "measured")[BATCH]
        mean_ms, trainers = statistics.fmean(batches), int(str(place_cells(place)[2]))
        waits = times_of(repeats, "server", "measured").get(STRAGGLER, [])
        passes_ms = sum(batches) / trainers  # of one trainer, over all repeats
        samples = trainers * repeats[0].results[0]["batch"]
        wait = (1e6 * statistics.fmean(waits), 1e6 * max(waits)) if waits else (None, None)
        servers = int(str(place_cells(place)[3]))
        waiting_ms = sum(
            result.get("waiting_ms", {}).get("measured", 0.0)
            for outcome in repeats
            for result in outcome.results
            if result["role"] == "server"
        )
        share = waiting_ms / servers / passes_ms if servers else None
        warm_ms = statistics.fmean(times_of(repeats, "trainer", "warmup")[BATCH])
        rows.append((*place_cells(place), 1e3 * samples / mean_ms, 1e6 * mean_ms, 1e6 * warm_ms, *wait, share))
    table = Table("ddp", "Hooks by trainers and parameter servers", SPEED_COLUMNS, rows)
    table.notes += [
        "Samples/s: trainers × batch ÷ the mean time of a batch of the measured pass; the warm-up pass is separate.",
        "Servers wait for the last trainer: from the arrival of the first trainer's gradient to that of the last "
        "one's, for each bucket that a server averages: mean and longest. Of the pass: the share of the measured "
        "pass in which at least one bucket of a server waited so, mean of the servers.",
        "allreduce: every bucket of gradients. rpc: every bucket goes to a server and comes back averaged. hybrid: the "
        "embedding's sparse gradients go to a server, the dense ones are all-reduced. Servers take turns.",
    ]
    return table


def profiles(places: Mapping[Place, list[Outcome]], batches: int) -> list[Table]:
    """Of each kind of cell the largest: every process for itself."""
    largest: dict[Place, Place] = {}
    for place in places:
        largest[place[:-1]] = max(largest.get(place[:-1], place), place, key=lambda place: int(place[-1]))
    return [per_process(place, places[place][0], batches) for place in largest.values()]


def per_process(place: Place, outcome: Outcome, batches: int) -> Table:
    hook, backend, trainers, servers = place_cells(place)
    name = f"processes_{hook}_{servers}_{backend}"
    title = f"Profile per process: {hook}, {backend}, {trainers} trainers, {servers} servers"
    if DEVICES[str(backend)] == "cuda":
        text = outcome.run.layout(Layout("nvprof"), Selection())
        return Table(name, title, (Column("line", Unit.NAME),), [(line,) for line in text.splitlines()], verbatim=True)
    columns = (Column("rank", Unit.NAME, "Rank"), Column("role", Unit.NAME, "Role"), *PROFILE_COLUMNS)
    table = Table(name, title, columns, [])
    for result in outcome.results:
        table.rows += process_rows(outcome, result, batches)
    table.notes.append(
        "No GPU: step parts of the measured pass, each without its blocked time, and its collectives, from "
        "start to end: the trainer with the smallest time is the one the others wait for. The barrier between "
        "the passes is in the first step. Waiting for a server is no collective: it is in backward."
    )
    return table


def process_rows(outcome: Outcome, result: Mapping[str, Any], batches: int) -> list[tuple[Value, ...]]:
    rank, role = result["rank"], result["role"]
    if role == "server":
        times = result["times_ms"].get("measured", {})
        sums = [(name, [1e6 * seconds for seconds in time]) for name, time in times.items()]
        return [
            (rank, role, "Server:", None, sum(times), len(times), statistics.fmean(times), min(times), max(times), name)
            for name, times in sums
            if times
        ]
    return [(rank, role, *row) for row in rows(activities(outcome.run, batches, rank))[0]]


STUDY = Study(
    "ddp",
    "DDP hooks: all-reduce and parameter servers, warm-up and measured pass",
    __doc__,
    axes,
    job,
    tables,
    {
        "hooks": Parameter("allreduce,hybrid,rpc", "how gradients are exchanged"),
        "servers": Parameter("0,1,2", "numbers of parameter servers; the other ranks are trainers"),
        "backends": Parameter("gloo", "gloo (CPU) and nccl (GPU; trainers may share one)"),
        "batch": Parameter("32", "samples per batch of a trainer"),
        "batches": Parameter("16", "batches per pass"),
        "width": Parameter("256", "width of the ten dense layers and the embedding"),
        "slow_rank": Parameter("-1", "trainer that sleeps in every forward pass; -1: none"),
        "slow_ms": Parameter("20", "how long it sleeps, in milliseconds"),
    },
    scales=(1, 2, 4),
    timeout_s=300,
    sensible=sensible,
)
