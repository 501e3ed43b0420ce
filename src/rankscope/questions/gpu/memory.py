"""How much memory of each GPU does each rank allocate, hold, and hold at most?"""

from __future__ import annotations

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

# the figures of a device, and the columns they come to
FIGURES = {
    "allocations": Column("allocations", Unit.COUNT, "Allocations", "number of allocations"),
    "allocated": Column("allocated_bytes", Unit.BYTES, "Allocated", "sum of the bytes of `allocations`"),
    "releases": Column("releases", Unit.COUNT, "Releases", "number of releases"),
    "released": Column("released_bytes", Unit.BYTES, "Released", "sum of the bytes of `releases`"),
    "memory in use": Column(
        "current_bytes", Unit.BYTES, "In use at the end", "`allocated_bytes` − `released_bytes` at the end"
    ),
    "memory in use, peak": Column("peak_bytes", Unit.BYTES, "Peak", "largest value that `current_bytes` ever had"),
    "memory pools": Column("pool_bytes", Unit.BYTES, "Pools", "memory that pools (cudaMallocAsync) hold at the end"),
    "memory pools, peak": Column(
        "pool_peak_bytes", Unit.BYTES, "Pools, peak", "largest value that `pool_bytes` ever had"
    ),
    "allocations out of pools": Column(
        "pool_allocations", Unit.COUNT, "Out of pools", "number of allocations out of pools"
    ),
    "out of pools": Column("pool_used_bytes", Unit.BYTES, "in use", "memory in use out of pools at the end"),
    "out of pools, peak": Column(
        "pool_used_peak_bytes", Unit.BYTES, "peak", "largest value that `pool_used_bytes` ever had"
    ),
    "unified memory to the device": Column(
        "migrated_in_bytes", Unit.BYTES, "Unified to GPU", "unified memory moved to the device"
    ),
    "unified memory to the host": Column(
        "migrated_out_bytes", Unit.BYTES, "Unified to host", "unified memory moved to the host"
    ),
}
ALWAYS = 6  # the others are told where there is anything to tell
COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU", "the GPU's number in that process"),
    *FIGURES.values(),
    Column(
        "pinned_peak_bytes",
        Unit.BYTES,
        "Pinned on host, peak",
        "the most page-locked host memory the process held, told with its first GPU",
    ),
)
PINNED = "pinned memory in use, peak"
SQL = f"""
    SELECT rank, CASE WHEN series LIKE 'GPU %' THEN substr(series, 5) ELSE '' END AS device, name, value::BIGINT
    FROM figures JOIN ranks USING (process)
    WHERE ((series LIKE 'GPU %' AND name IN {tuple(FIGURES)}) OR (series = 'host' AND name = '{PINNED}'))
    AND {{condition}} ORDER BY rank, length(device), device"""


def gpu_memory(tables: Tables, selection: Selection = ALL) -> Table:
    """Allocation calls, their bytes, and memory in use of each GPU of each rank."""
    devices: dict[tuple[int, str], dict[str, int]] = {}
    pinned: dict[int, int] = {}
    for rank, device, name, value in tables.query(SQL.format(condition=selection.condition)):
        if name == PINNED:
            pinned[rank] = value
        else:
            devices.setdefault((rank, device), {})[name] = value
    table = Table("gpu_memory", "GPU memory", COLUMNS, [])
    for (rank, device), told in devices.items():
        row: list[Cell] = [
            rank,
            device,
            *(told.get(name, 0 if at < ALWAYS else None) for at, name in enumerate(FIGURES)),
        ]
        table.rows.append((*row, pinned.pop(rank, None)))  # of the process: once
    if table.rows:
        table.notes.append("Allocated by the process from CUDA; a framework's own cache hands it out once more.")
    return arranged(table, selection)
