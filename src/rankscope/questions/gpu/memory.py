"""How much memory of each GPU does each rank allocate, hold, and hold at most?"""

from __future__ import annotations

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

# the figures of a device, and the columns they come to
FIGURES = {
    "allocations": Column("allocations", Unit.COUNT, "Allocations"),
    "allocated": Column("allocated_bytes", Unit.BYTES, "Allocated"),
    "releases": Column("releases", Unit.COUNT, "Releases"),
    "released": Column("released_bytes", Unit.BYTES, "Released"),
    "memory in use": Column("current_bytes", Unit.BYTES, "In use at the end"),
    "memory in use, peak": Column("peak_bytes", Unit.BYTES, "Peak"),
    "memory pools": Column("pool_bytes", Unit.BYTES, "Pools"),
    "memory pools, peak": Column("pool_peak_bytes", Unit.BYTES, "Pools, peak"),
    "allocations out of pools": Column("pool_allocations", Unit.COUNT, "Out of pools"),
    "out of pools": Column("pool_used_bytes", Unit.BYTES, "in use"),
    "out of pools, peak": Column("pool_used_peak_bytes", Unit.BYTES, "peak"),
    "unified memory to the device": Column("migrated_in_bytes", Unit.BYTES, "Unified to GPU"),
    "unified memory to the host": Column("migrated_out_bytes", Unit.BYTES, "Unified to host"),
}
ALWAYS = 6  # the others are told where there is anything to tell
COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU"),
    *FIGURES.values(),
    Column("pinned_peak_bytes", Unit.BYTES, "Pinned on host, peak"),
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
