"""What THAPI's iprof tells: host calls by backend, device work and memory traffic, summed over all processes."""

from __future__ import annotations

from typing import Any

from rankscope.model.records import Layer
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.selection import ALL, Selection

BACKENDS: dict[str, str] = {
    Layer.MPI: "BACKEND_MPI",
    Layer.ZE: "BACKEND_ZE",
    Layer.CUDA_API: "BACKEND_CUDA",
    Layer.HIP_API: "BACKEND_HIP",
    Layer.OPENCL: "BACKEND_CL",
}
# Who moved the bytes, by how copies and memsets are called; CUDA's have other words, too.
COPIED_BY: dict[str, str] = {"[HIP ": Layer.HIP_API, "[OpenCL ": Layer.OPENCL, "cl": Layer.OPENCL, "ze": Layer.ZE}
COUNTED = ("hostnames", "processes", "threads", "devices", "subdevices")
DEVICE, TRAFFIC = "Device profiling", "Explicit memory traffic"
# A loaded tally is shown row by row in its order: names are cut, so that equal names need not be the same thing.
LOADED = """
    SELECT "group", layer, name, calls, total_ns, min_ns, max_ns, bytes, errors FROM tallies
    WHERE process IN (SELECT process FROM ranks WHERE versions = 'iprof') ORDER BY process"""
# NCCL's operations by algorithm are those of the layer nccl once more.
RECORDED = f"""
    SELECT '' AS "group", layer, name, sum(calls)::BIGINT, sum(total_ns), min(min_ns), max(max_ns), NULL,
        sum(errors)::BIGINT
    FROM tallies JOIN ranks USING (process)
    WHERE kind = 'call' AND calls > 0
    AND layer NOT IN {sql_list([Layer.MEMORY, Layer.NVTX, Layer.NCCL_ALGO, Layer.STEP])} AND {{condition}}
    GROUP BY layer, name"""
SENT = f"""
    SELECT layer, name, sum(calls)::BIGINT, 0, NULL, NULL, sum(bytes)::BIGINT, 0
    FROM tallies JOIN ranks USING (process)
    WHERE layer IN {sql_list([Layer.MPI, Layer.GPU])} AND bytes > 0 AND {{condition}} GROUP BY layer, name"""
# a tile is a device of its own in a process; whose it is stands in its name
TILES = r"""
    WITH used AS (
        SELECT DISTINCT host, process, regexp_extract("group", '^GPU (\d+)', 1) AS device
        FROM tallies JOIN ranks USING (process) WHERE layer = 'gpu' AND calls > 0 AND {condition}),
    told AS (
        SELECT process, device::VARCHAR AS device, regexp_extract(name, ', tile \d+ of GPU (\d+)$', 1) AS root
        FROM gpus)
    SELECT count(DISTINCT (host, coalesce(nullif(root, ''), device))),
        count(DISTINCT (host, device)) FILTER (root <> '')
    FROM used LEFT JOIN told USING (process, device)"""
BOUNDS = "SELECT series, name, statistic, value FROM figures WHERE unit = 'bytes' AND statistic IN ('min', 'max')"
COUNTS = f"SELECT series, name, value::BIGINT FROM figures WHERE name IN {COUNTED} AND unit = 'count'"
SEEN = """
    SELECT count(DISTINCT host), count(DISTINCT process), count(DISTINCT (process, thread)),
        count(DISTINCT (host, regexp_extract("group", '^GPU \\d+'))), max(thread)
    FROM tallies JOIN ranks USING (process)
    WHERE layer = ? AND calls > 0 AND {condition}"""


def iprof_parts(tables: Tables, selection: Selection = ALL) -> list[Table]:
    """One table for each backend, one for the devices and one for each kind of traffic; the last row is the sum."""
    is_loaded = bool(tables.query("SELECT 1 FROM ranks WHERE versions = 'iprof' LIMIT 1"))
    condition = "true" if selection.ranks is None else selection.condition  # iprof knows no ranks, only processes
    rows = tables.query(LOADED) if is_loaded else tables.query(RECORDED.format(condition=condition))
    if not is_loaded:
        rows = [*rows, *map(_sent, tables.query(SENT.format(condition=condition)))]
    bounds = {(series, name, which): value for series, name, which, value in tables.query(BOUNDS)}
    parts: dict[tuple[str, str], list[Any]] = {}
    for group, layer, *row in rows:
        parts.setdefault((layer, group or _title(layer)), []).append(row)
    ordered = sorted(parts, key=_place)
    return [_part(tables, layer, title, parts[layer, title], bounds, condition) for layer, title in ordered]


def _sent(row: Any) -> tuple[Any, ...]:
    """Bytes of MPI or of a device's copies, under the heading of the backend that moved them."""
    layer, name, *sums = row
    layers = (by for start, by in COPIED_BY.items() if name.startswith(start))
    by = layer if layer == Layer.MPI else next(layers, Layer.CUDA_API)
    return _traffic(by), Layer.MEMORY, name, *sums


def _traffic(layer: str) -> str:
    return f"{TRAFFIC} ({BACKENDS[layer]})"


def _title(layer: str) -> str:
    if layer in (Layer.GPU, Layer.MEMORY):
        return DEVICE if layer == Layer.GPU else _traffic(Layer.MPI)
    return BACKENDS.get(layer, f"BACKEND_{layer.upper()}")


def _place(key: tuple[str, str]) -> int:
    """Host parts first, then the devices, then the traffic; each in the order it came (sorting is stable)."""
    return 1 if key[0] == Layer.GPU else 2 if key[0] == Layer.MEMORY else 0


def _part(tables: Tables, layer: str, title: str, rows: list[Any], bounds: dict[Any, float], who: str) -> Table:
    size = layer == "memory"
    unit, what = (Unit.BYTES, "bytes") if size else (Unit.NS, "ns")
    lines = [_numbers(row, title, bounds) if size else _times(row) for row in rows]
    lines.sort(key=lambda row: -row[1])  # equal ones stay as they came
    total = sum(row[1] for row in lines)
    columns = (
        Column("name", Unit.NAME),
        Column(f"total_{what}", unit),
        Column("share", Unit.SHARE),
        Column("calls", Unit.COUNT),
        *(Column(f"{name}_{what}", unit) for name in ("mean", "min", "max")),
        Column("errors", Unit.COUNT),
    )
    shown: list[tuple[Cell, ...]] = [_row(row, total) for row in lines]
    errors = sum(row[5] for row in lines)
    shown.append(("Total", total, 1.0 if total else None, sum(row[2] for row in lines), None, None, None, errors))
    return Table(title, _header(tables, layer, title, who), columns, shown)


def _times(row: Any) -> tuple[Any, ...]:
    name, calls, total_ns, min_ns, max_ns, _, errors = row
    return name, total_ns or 0.0, calls, min_ns, max_ns, errors


def _numbers(row: Any, title: str, bounds: dict[Any, float]) -> tuple[Any, ...]:
    name, calls, _, _, _, size, errors = row
    return name, size or 0, calls, bounds.get((title, name, "min")), bounds.get((title, name, "max")), errors


def _row(row: tuple[Any, ...], total: float) -> tuple[Cell, ...]:
    name, value, calls, least, most, errors = row
    good = calls - errors
    return name, value, value / total if total else None, calls, value / good if good else None, least, most, errors


def _header(tables: Tables, layer: str, title: str, condition: str) -> str:
    """The title with the numbers of hosts, processes, threads and devices."""
    numbers = {name: value for series, name, value in tables.query(COUNTS) if series == title}
    if not numbers:
        source = layer if layer != "memory" else "mpi" if title == _traffic("mpi") else "gpu"
        seen = tables.query(SEEN.format(condition=condition), [source])[0]
        numbers = dict(zip(COUNTED, seen[:-1] if source == "gpu" else seen[:3], strict=False))
        if source == Layer.GPU or (source == Layer.CUDA_API and not seen[-1]):
            del numbers[
                "threads"
            ]  # CUPTI's buffers are added up by a thread of ours: whose calls they were is not kept
        if source == Layer.GPU:
            numbers["devices"], tiles = tables.query(TILES.format(condition=condition))[0]
            numbers |= {"subdevices": tiles} if tiles else {}
    counts = [f"{numbers[name]} {name.capitalize()}" for name in COUNTED if name in numbers]
    return " | ".join([title, *counts]) + " | "
