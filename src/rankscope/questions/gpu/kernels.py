"""Which kernels and copies take the time of the GPUs, and do the ranks agree?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankscope.model.records import API_LAYERS, Layer
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.activities import (
    COPIES_SQL,
    STATISTICS,
    Lengths,
    join,
    kind_of,
    say_what_is_lost,
    statistics,
)
from rankscope.questions.gpu.communication_kernels import SQL as COMMUNICATES
from rankscope.questions.gpu.windows import windows_note
from rankscope.questions.selection import ALL, Selection, arranged, spread, spread_columns

ACTIVITIES_COLUMNS = (
    Column("name", Unit.NAME, "Name", "kernel, copy, set, or function of CUDA"),
    Column("calls", Unit.COUNT, "Calls", "number of launches, copies or sets"),
    Column(
        "total_ns", Unit.NS, "Time", "sum of their durations: on the device, of CUDA calls inside the call on the host"
    ),
    Column(
        "share",
        Unit.SHARE,
        "% of all",
        "`total_ns` ÷ the time of the whole layer on the selected ranks; where a source lists only part of its "
        "rows, ÷ the whole that it implies (time ÷ share)",
    ),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`, over rows whose time is known"),
    Column("min_ns", Unit.NS, "Min", "shortest of them"),
    Column("max_ns", Unit.NS, "Max", "longest of them"),
    Column("bytes", Unit.BYTES, "Bytes", "bytes moved, where the source has them"),
    *spread_columns(Unit.NS),
)
WHOLES = """
    SELECT process, max(value) AS whole_ns FROM figures
    WHERE series = ? AND name = 'time of all rows' GROUP BY process"""
ACTIVITIES = """
    WITH by_rank AS (
        SELECT name, rank, sum(calls)::BIGINT AS calls, sum(total_ns) AS total_ns, min(min_ns) AS min_ns,
            max(max_ns) AS max_ns, nullif(sum(bytes), 0)::BIGINT AS bytes,
            sum(calls) FILTER (total_ns IS NOT NULL) AS timed_calls
        FROM tallies JOIN ranks USING (process) WHERE layer = ? AND kind = 'call' AND {condition} GROUP BY name, rank)
    SELECT name, sum(calls)::BIGINT, sum(total_ns), min(min_ns), max(max_ns), sum(bytes)::BIGINT,
        count(DISTINCT rank), sum(timed_calls)::BIGINT,
        min(total_ns), arg_min(rank, (total_ns, rank)) FILTER (total_ns IS NOT NULL), quantile_disc(total_ns, 0.5),
        max(total_ns), arg_max(rank, (total_ns, -rank)) FILTER (total_ns IS NOT NULL)
    FROM by_rank GROUP BY name ORDER BY 3 DESC NULLS LAST, name"""
ALL_NS = f"""
    WITH wholes AS ({WHOLES}),
    sums AS (SELECT process, sum(total_ns) AS sum_ns FROM tallies WHERE layer = ? AND kind = 'call' GROUP BY process)
    SELECT coalesce(sum(greatest(sum_ns, coalesce(whole_ns, 0))), 0)
    FROM sums JOIN ranks USING (process) LEFT JOIN wholes USING (process) WHERE {{condition}}"""


def gpu(tables: Tables, selection: Selection = ALL) -> Table:
    """Kernels, copies and memsets over the selected ranks, and how their time is spread over them."""
    return activities(tables, selection, "gpu", "GPU activities")


def activities(tables: Tables, selection: Selection, layer: str, title: str) -> Table:
    """Everything of one layer by name."""
    condition = selection.condition
    all_ns = float(tables.query(ALL_NS.format(condition=condition), (layer, layer))[0][0])
    rows = tables.query(ACTIVITIES.format(condition=condition), (layer,))
    table = Table(layer, title, ACTIVITIES_COLUMNS, [_row(row, all_ns) for row in rows])
    listed_ns = sum(float(row[2] or 0) for row in rows)
    if all_ns > 1.005 * listed_ns > 0:
        table.warnings.append(f"{100 * (1 - listed_ns / all_ns):.0f} % of the time is in rows that the source left out")
    table.notes += windows_note(tables)
    return arranged(table, selection)


def _row(row: tuple[Any, ...], all_ns: float) -> tuple[Cell, ...]:
    name, calls, total_ns, min_ns, max_ns, size, ranks, timed_calls, *spread = row
    share = total_ns / all_ns if all_ns and total_ns is not None else None
    mean_ns = total_ns / timed_calls if timed_calls and total_ns is not None else None
    if ranks < 2:
        spread = [None] * 5
    return name, calls, total_ns, share, mean_ns, min_ns, max_ns, size, ranks, *spread


# ---------------------------------------------------------------------------------------------------------------------
# Which CUDA calls take the time of the hosts, and do the ranks agree?
def cuda_api(tables: Tables, selection: Selection = ALL) -> Table:
    """CUDA runtime and driver calls over the selected ranks, and how their time is spread over them."""
    return activities(tables, selection, "cuda_api", "CUDA API calls")


# ---------------------------------------------------------------- which activities take the GPUs' time?
KERNELS_COLUMNS = (
    Column("kind", Unit.NAME, "Kind", "compute, communication, copy or set"),
    Column("name", Unit.NAME, "Kernel", "kernel, copy or set"),
    *STATISTICS,
)
# squared deviations add up, and so does what the means of the ranks differ by from the mean of all; always in the same
# order, so that the same sums give the same last digits
BY_NAME_SQL = """
    WITH sums AS (
        SELECT process, name, calls, total_ns, min_ns, max_ns, deviations_ns2,
            (sum(total_ns) OVER (PARTITION BY name))::DOUBLE / sum(calls) OVER (PARTITION BY name) AS mean_ns
        FROM activity_sums JOIN ranks USING (process) WHERE {condition})
    SELECT name, sum(calls)::BIGINT, sum(total_ns)::BIGINT, min(min_ns), max(max_ns),
        sum(deviations_ns2 + calls * (total_ns / calls - mean_ns) ** 2 ORDER BY process)
    FROM sums GROUP BY name ORDER BY name"""


def kernels(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of every kernel, copy and memset, over the selected ranks."""
    by_kernel = statistics(by_name(tables, selection))
    rows: list[tuple[Cell, ...]] = [(kind_of(name), name, *cells) for name, cells in by_kernel]
    table = Table("kernels", "GPU kernels, copies and memsets", KERNELS_COLUMNS, rows)
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


def by_name(tables: Tables, selection: Selection) -> dict[str, Lengths]:
    """The lengths of the GPU activities of each name, over the selected ranks."""
    tables.derive(trace_tables)
    return {name: Lengths(*sums) for name, *sums in tables.query(BY_NAME_SQL.format(condition=selection.condition))}


# ---------------------------------------------------------------------------------------------------------------------
# How much of the GPUs' work is computing, communicating, copying?
GPU_KINDS_COLUMNS = (Column("kind", Unit.NAME, "Kind", "compute, communication, copy or set"), *STATISTICS)


def gpu_kinds(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of computing, communicating, copies and memsets, over the selected ranks."""
    by_kind_of_kernel = statistics(by_kind(by_name(tables, selection)))
    rows: list[tuple[Cell, ...]] = [(kind, *cells) for kind, cells in by_kind_of_kernel]
    table = Table("gpu_kinds", "GPU work by kind", GPU_KINDS_COLUMNS, rows)
    if rows:
        text = "Time: the lengths added up. What runs side by side counts twice; in the table GPU time it does not."
        table.notes.append(text)
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


def by_kind(names: Mapping[str, Lengths]) -> dict[str, Lengths]:
    """The lengths by what the activities do."""
    return join({}, ((kind_of(name), lengths) for name, lengths in names.items()))


# ---------------------------------------------------------------------------------------------------------------------
# How much of each rank's GPU time is computing, communicating, copying?
GPU_RANKS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column(
        "gpu_ns",
        Unit.NS,
        "GPU time",
        "sum of all durations on the device; with rows missing, the whole that the source implies",
    ),
    Column("compute_ns", Unit.NS, "Computing", "sum of the durations of kernels other than collectives"),
    Column(
        "communication_ns",
        Unit.NS,
        "Communicating",
        "sum of the durations of kernels of collectives (NCCL, RCCL and the like, by name): they run while they "
        "wait, so wait is in it",
    ),
    Column("communication_share", Unit.SHARE, "% of GPU time", "`communication_ns` ÷ `gpu_ns`"),
    Column("copy_ns", Unit.NS, "Copies, memsets", "sum of the durations of copies and memsets"),
    Column(
        "unlisted_ns", Unit.NS, "Not listed", "`gpu_ns` − the sum of the listed rows, where more than 0.5 % is missing"
    ),
    Column(
        "api_ns",
        Unit.NS,
        "Runtime calls",
        "time inside calls of CUDA, HIP, Level Zero or OpenCL on the host, all threads",
    ),
)
BY_RANK = f"""
    WITH wholes AS ({WHOLES}),
    sums AS (
        SELECT process, coalesce(sum(total_ns) FILTER (layer = 'gpu'), 0) AS gpu_ns,
            coalesce(sum(total_ns) FILTER (layer = 'gpu' AND {COMMUNICATES}), 0) AS communication_ns,
            coalesce(sum(total_ns) FILTER (layer = 'gpu' AND {COPIES_SQL}), 0) AS copy_ns,
            sum(total_ns) FILTER (layer IN {sql_list(API_LAYERS)}) AS api_ns
        FROM tallies WHERE layer IN {sql_list([Layer.GPU, *API_LAYERS])} AND kind = 'call' GROUP BY process)
    SELECT rank, host, gpu_ns, communication_ns, copy_ns, api_ns, coalesce(whole_ns, 0)
    FROM sums JOIN ranks USING (process) LEFT JOIN wholes USING (process) WHERE {{condition}} ORDER BY rank"""


def gpu_ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """The GPU time of each rank: computing, communicating (waiting included), copying."""
    table = Table("gpu_ranks", "GPU time by rank", GPU_RANKS_COLUMNS, [])
    for row in tables.query(BY_RANK.format(condition=selection.condition), ("gpu",)):
        rank, host, listed_ns, communication_ns, copy_ns, api_ns, whole_ns = row
        gpu_ns = max(listed_ns, whole_ns)
        unlisted_ns = gpu_ns - listed_ns if gpu_ns > 1.005 * listed_ns else None
        share = communication_ns / gpu_ns if gpu_ns else None
        compute_ns = listed_ns - communication_ns - copy_ns
        table.rows.append((rank, host, gpu_ns, compute_ns, communication_ns, share, copy_ns, unlisted_ns, api_ns))
    if any(row[4] for row in table.rows):
        table.notes.append("Communicating: kernels of collectives; they spin while they wait, so waiting is in it.")
    table.notes += windows_note(tables)
    return arranged(table, selection)


# ---------------------------------------------------------------------------------------------------------------------
# How many bytes are copied and set on the GPUs, in which direction, how fast?
GPU_COPIES_COLUMNS = (
    Column("name", Unit.NAME, "Direction", "direction of a copy, or set"),
    Column("calls", Unit.COUNT, "Calls", "number of copies or sets"),
    Column("bytes", Unit.BYTES, "Bytes", "bytes copied or set"),
    Column("mean_bytes", Unit.BYTES, "Mean size", "`bytes` ÷ `calls`"),
    Column("total_ns", Unit.NS, "Time", "sum of their durations on the device"),
    Column("rate", Unit.RATE, "Bandwidth", "`bytes` ÷ `total_ns`: bandwidth while a copy runs, not of the whole run"),
    *spread_columns(Unit.RATE),
)
GPU_COPIES_SQL = f"""
    SELECT name, rank, sum(calls)::BIGINT, sum(bytes)::BIGINT, sum(total_ns)
    FROM tallies JOIN ranks USING (process)
    WHERE layer = 'gpu' AND bytes > 0 AND {COPIES_SQL} AND kind = 'call' AND {{condition}} GROUP BY name, rank"""


def gpu_copies(tables: Tables, selection: Selection = ALL) -> Table:
    """Copies and memsets by direction with their bandwidth while they run, and its spread over the ranks."""
    by_direction: dict[str, list[tuple[int, int, int, float]]] = {}
    for name, *row in tables.query(GPU_COPIES_SQL.format(condition=selection.condition)):
        by_direction.setdefault(name, []).append(tuple(row))
    table = Table("gpu_copies", "GPU copies and memsets", GPU_COPIES_COLUMNS, [])
    for name, rows in by_direction.items():
        calls, size, total_ns = (sum(row[at] or 0 for row in rows) for at in (1, 2, 3))
        extremes = spread([(1e9 * row[2] / row[3], row[0]) for row in rows if row[3]])
        rate = 1e9 * size / total_ns if total_ns else None
        table.rows.append((name, calls, size, size / calls if calls else None, total_ns, rate, *extremes))
    table.rows.sort(key=lambda row: -float(row[4] or 0))
    table.notes += windows_note(tables)
    return arranged(table, selection)
