"""How fast is a collective by each library, from four bytes up, and how does that change as the job grows?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rankscope.model.records import API_LAYERS, Layer
from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit, sql_list
from rankscope.questions.mpi.calls import BYTES_SQL
from rankscope.studies.backends import HERE, backends, job_of, settled
from rankscope.studies.collective_tables import bandwidth, first_calls, full, latency, points, waits
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, Parameter, Settings, Study, by_place

# ---------------------------------------------------------------------------------------------------------------------
# Sizes of messages as people write them: 4,1k,4M, or 4..256M for every fourth power in between.
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SIZE = re.compile(r"(\d+) *([kmg]?)(?:i?b)?", re.IGNORECASE)
FACTOR = 4


def sizes(text: str) -> list[int]:
    """In bytes, rising, each once."""
    values: set[int] = set()
    for word in text.split(","):
        begin, dots, end = word.partition("..")
        values |= set(between(size(begin), size(end))) if dots else {size(word)}
    return sorted(values)


def between(begin: int, end: int) -> list[int]:
    if begin > end:
        raise BadStudy(f"--sizes {begin}..{end}: the first is larger than the last")
    values = [begin]
    while values[-1] * FACTOR <= end:
        values.append(values[-1] * FACTOR)
    return values


def size(text: str) -> int:
    match = SIZE.fullmatch(text.strip())
    if not match or not int(match[1]):
        raise BadStudy(f"--sizes {text.strip() or '(nothing)'}: give sizes as 4,64k,4M, or a range as 4..256M")
    return int(match[1]) * UNITS[match[2].lower()]


# ---------------------------------------------------------------------------------------------------------------------
# Host time and calls, device time and calls, memory bytes and calls: the backends side by side, by scale.
PARTS: dict[str, str] = {
    Layer.MPI: "BACKEND_MPI",
    Layer.GLOO: "BACKEND_GLOO",
    Layer.ONECCL: "BACKEND_ONECCL",
    Layer.HOROVOD: "BACKEND_HOROVOD",
    Layer.CUDA_API: "BACKEND_CUDA",
    Layer.ZE: "BACKEND_ZE",
    Layer.OPENCL: "BACKEND_CL",
    Layer.HIP_API: "BACKEND_HIP",
    Layer.GPU: "Device profiling",
}
COUNTS = (
    Column("backend", Unit.NAME, "Backend"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("part", Unit.NAME, "Part"),
    Column("hostnames", Unit.COUNT, "Hostnames"),
    Column("processes", Unit.COUNT, "Processes"),
    Column("threads", Unit.COUNT, "Threads"),
    Column("devices", Unit.COUNT, "Devices"),
    Column("total_ns", Unit.NS, "Total time"),
    Column("calls", Unit.COUNT, "Total calls"),
    Column("max_rss_bytes", Unit.BYTES, "Largest process"),
)
HOST = "Part 1: CPU host profiling, total time and total number of calls"
GPU = "Part 2: GPU profiling, total time and total number of calls"
COPIED = "Part 3: Memory profiling, total memory and total number of calls: copies and memsets on devices"
SENT = "Part 3: Memory profiling, total memory and total number of calls: messages"
ABSENT = "Absent: no device was used, or none that rankscope records."
# Gloo's collectives are done by threads of its own: their time is that from beginning to completion, for which the
# program waits. What other libraries have in progress overlaps with calls that are counted.
SEEN = f"""
    SELECT layer, sum(total_ns), sum(calls)::BIGINT, count(DISTINCT host), count(DISTINCT process),
        count(DISTINCT (process, thread)), count(DISTINCT (host, regexp_extract("group", '^GPU \\d+')))
    FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND calls > 0
    AND (layer = 'gloo' OR (kind = 'call' AND layer IN {sql_list([layer for layer in PARTS if layer != Layer.GLOO])}))
    GROUP BY layer"""
# Of what was begun by one call and completed by another either has the bytes. Copies into a fusion buffer send nothing.
CARRIED = f"""
    SELECT layer, sum(bytes)::BIGINT, sum(calls)::BIGINT FROM (
        SELECT layer, name, {BYTES_SQL} AS bytes, coalesce(nullif(sum(calls) FILTER (kind = 'call' AND bytes > 0), 0),
            sum(calls) FILTER (kind = 'progress' AND bytes > 0)) AS calls
        FROM tallies JOIN ranks USING (process) WHERE role = 'rank' AND NOT starts_with(name, 'fusion: ') GROUP BY 1, 2)
    WHERE bytes > 0 GROUP BY layer"""
# A library may call another: of those that were seen the first one is the program's.
LIBRARIES = (Layer.HOROVOD, Layer.ONECCL, Layer.NCCL, Layer.GLOO, Layer.MPI)
LARGEST = "SELECT max(max_rss_bytes) FROM ranks WHERE role = 'rank'"
Pair = tuple[Value, Value]  # time or bytes, and calls
NOTHING: Pair = (None, None)


@dataclass(frozen=True)
class LayerSums:
    """What one cell's run shows of one layer."""

    total_ns: float
    calls: int
    hosts: int
    processes: int
    threads: int
    devices: int


@dataclass(frozen=True)
class BackendProfile:
    """One cell, as far as these tables need it."""

    layers: Mapping[str, LayerSums]
    sent: Pair
    copied: Pair
    largest_bytes: int

    def host(self) -> Pair:
        outer = [layer for layer in LIBRARIES if layer in self.layers][:1]
        ours = [self.layers[layer] for layer in (*outer, *API_LAYERS) if layer in self.layers]
        return (sum(layer.total_ns for layer in ours), sum(layer.calls for layer in ours)) if ours else NOTHING

    def device(self) -> Pair:
        layer = self.layers.get("gpu")
        return (layer.total_ns, layer.calls) if layer else NOTHING


Places = Mapping[tuple[str | int, ...], BackendProfile]


def three_parts(outcomes: Sequence[Outcome]) -> list[Table]:
    """The header's counts, then the parts; a part that no cell has is said to be absent."""
    profiles = {place: profile(repeats[0]) for place, repeats in by_place(outcomes, "backend").items()}
    host = part(profiles, "host", HOST, ("Total CPU Time", "Total CPU calls"), Unit.NS, BackendProfile.host)
    host.notes.append(
        "Intercepted calls of MPI (also its initialisation), Gloo, oneCCL, Horovod and the GPUs' runtimes, summed over "
        "the ranks. Where one library calls another, Horovod MPI or oneCCL MPI, the outer one's: the other is in the "
        "table above."
    )
    device = part(profiles, "device", GPU, ("Total GPU Time", "Total GPU calls"), Unit.NS, BackendProfile.device)
    headings = ("Total Mem Bytes", "Total Mem calls")
    copied = part(profiles, "copied", COPIED, headings, Unit.BYTES, lambda profile_of: profile_of.copied)
    sent = part(profiles, "sent", SENT, headings, Unit.BYTES, lambda profile_of: profile_of.sent)
    sent.notes.append(
        "What the ranks pass to intercepted calls of MPI, Gloo, NCCL, oneCCL and Horovod, summed over the ranks; where "
        "one library calls another, to the outer one."
    )
    for table in (device, copied):
        table.notes += [ABSENT] * (not table.rows)
    unseen = [
        backend for backend in named(profiles) if not any(profiles[at].layers for at in profiles if at[0] == backend)
    ]
    if unseen:
        text = f"{', '.join(unseen)}: no calls were recorded, so these parts are empty (docs/studies/backends.md)"
        host.warnings.append(text)
    return [counts(profiles), host, device, copied, sent]


def profile(outcome: Outcome) -> BackendProfile:
    store = outcome.run.store()
    layers = {layer: LayerSums(float(total_ns), *rest) for layer, total_ns, *rest in store.query(SEEN)}
    carried: dict[str, Pair] = {layer: (moved, calls) for layer, moved, calls in store.query(CARRIED)}
    sent = next((carried[layer] for layer in LIBRARIES if layer in carried), NOTHING)
    return BackendProfile(layers, sent, carried.get(Layer.GPU, NOTHING), store.query(LARGEST)[0][0])


def named(profiles: Places) -> list[str]:
    return list(dict.fromkeys(str(backend) for backend, _ in profiles))


def part(
    profiles: Places,
    name: str,
    title: str,
    headings: tuple[str, str],
    unit: Unit,
    total: Callable[[BackendProfile], Pair],
) -> Table:
    """Rows by scale; of each backend its name, the total and the calls."""
    backends, size = named(profiles), "bytes" if unit is Unit.BYTES else "ns"
    columns = [Column("ranks", Unit.COUNT, "Ranks")]
    for backend in backends:
        columns.append(Column(f"{backend}_backend", Unit.NAME, " "))
        columns.append(Column(f"{backend}_{name}_{size}", unit, headings[0]))
        columns.append(Column(f"{backend}_{name}_calls", Unit.COUNT, headings[1]))
    table = Table(name, title, columns, [])
    for ranks in sorted({int(scale) for _, scale in profiles}):
        pairs = [total(profiles[backend, ranks]) if (backend, ranks) in profiles else NOTHING for backend in backends]
        if any(pair != NOTHING for pair in pairs):
            table.rows.append(
                (ranks, *(cell for backend, pair in zip(backends, pairs, strict=True) for cell in (backend, *pair)))
            )
    return table


def counts(profiles: Places) -> Table:
    """How many hosts, processes, threads and devices each part was seen on."""
    table = Table("counts", "Recorded data by backend", COUNTS, [])
    for (backend, ranks), profile_of in profiles.items():
        if not profile_of.layers:
            table.rows.append((backend, ranks, "nothing", *[None] * 6, profile_of.largest_bytes))
        for layer, seen in sorted(profile_of.layers.items(), key=lambda item: list(PARTS).index(item[0])):
            by_device = layer in (Layer.CUDA_API, Layer.GPU)  # its records do not tell whose thread it was
            observed = (seen.hosts, seen.processes, None if by_device else seen.threads)
            devices = seen.devices if layer == Layer.GPU else None
            table.rows.append(
                (backend, ranks, PARTS[layer], *observed, devices, seen.total_ns, seen.calls, profile_of.largest_bytes)
            )
    return table


# ---------------------------------------------------------------- allreduce
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


DEVICES = ("host", "ze")


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    checked(settings)
    return {"backend": backends(settings["backends"])}


def checked(settings: Settings) -> None:
    """Before anything is run."""
    if settings["op"] not in OPERATIONS:
        raise BadStudy(f"--op {settings['op']}: choose one of {', '.join(OPERATIONS)}")
    if not settings["iterations"].isdigit() or not int(settings["iterations"]):
        raise BadStudy(f"--iterations {settings['iterations']}: give a whole number above 0")
    if settings["device"] not in DEVICES:
        raise BadStudy(f"--device {settings['device']}: choose one of {', '.join(DEVICES)}")
    sizes(settings["sizes"])


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
    sizes_bytes = [4] if settings["op"] == "barrier" else sizes(settings["sizes"])
    options = [
        "--op",
        settings["op"],
        "--sizes",
        ",".join(map(str, sizes_bytes)),
        "--iterations",
        settings["iterations"],
    ]
    options += ["--device", settings["device"]] if settings["device"] != "host" else []
    return job_of(cell["backend"], "allreduce", options, pythons, folder)


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    """Latency and bandwidth, the three parts of the run as it was recorded, waiting, and every size in full."""
    measured_points = points(outcomes, settings["op"])
    return [
        latency(measured_points),
        *bandwidth(measured_points),
        *three_parts(outcomes),
        first_calls(measured_points),
        *waits(outcomes, settings["op"]),
        full(measured_points),
    ]


STUDY = Study(
    "allreduce",
    "Collectives: latency and bandwidth by backend, size and scale",
    __doc__,
    axes,
    job,
    tables,
    {
        "backends": Parameter(HERE, "libraries to compare; here: all that the given Pythons can run"),
        "op": Parameter("allreduce", f"the collective: {', '.join(OPERATIONS)}"),
        "sizes": Parameter("4,64,1k,16k,256k,4M", "message sizes, or a range in factors of four, as in 4..256M"),
        "iterations": Parameter("10", "timed calls per size; fewer above 6 MiB"),
        "device": Parameter("host", "where the buffers are; ze: on a Level Zero device, copied to the host and back"),
    },
    scales=(1, 2, 4, 8),
    timeout_s=600,
    settled=settled,
)
