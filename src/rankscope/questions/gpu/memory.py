"""How much memory of each GPU does each rank allocate, hold, and hold at most?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.gpu.windows import windows_note
from rankscope.questions.selection import ALL, Selection, arranged

ALWAYS = (
    Column("allocations", Unit.COUNT, "Allocations", "number of allocations"),
    Column("allocated_bytes", Unit.BYTES, "Allocated", "sum of the bytes of `allocations`"),
    Column("releases", Unit.COUNT, "Releases", "number of releases"),
    Column("released_bytes", Unit.BYTES, "Released", "sum of the bytes of `releases`"),
    Column("current_bytes", Unit.BYTES, "In use at the end", "`allocated_bytes` − `released_bytes` at the end"),
    Column("peak_bytes", Unit.BYTES, "Peak", "largest value that `current_bytes` ever had"),
)
WHERE_ANY = (  # told where there is anything to tell
    Column(
        "pool_bytes",
        Unit.BYTES,
        "Pools",
        "memory that pools (cudaMallocAsync; in a Kineto trace torch's caching allocator) hold at the end",
    ),
    Column("pool_peak_bytes", Unit.BYTES, "Pools, peak", "largest value that `pool_bytes` ever had"),
    Column("pool_allocations", Unit.COUNT, "Out of pools", "number of allocations out of pools"),
    Column("pool_used_bytes", Unit.BYTES, "in use", "memory in use out of pools at the end"),
    Column("pool_used_peak_bytes", Unit.BYTES, "peak", "largest value that `pool_used_bytes` ever had"),
    Column("migrated_in_bytes", Unit.BYTES, "Unified to GPU", "unified memory moved to the device"),
    Column("migrated_out_bytes", Unit.BYTES, "Unified to host", "unified memory moved to the host"),
)
COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU", "the GPU's number in that process"),
    *ALWAYS,
    *WHERE_ANY,
    Column(
        "pinned_peak_bytes",
        Unit.BYTES,
        "Pinned on host, peak",
        "the most page-locked host memory the process held, told with its first GPU",
    ),
)
# What is pinned belongs to the process: it stands with the first of its devices.
SQL = f"""
    SELECT rank, device::VARCHAR, {", ".join(column.name for column in ALWAYS)},
        {", ".join(f"nullif({column.name}, 0)" for column in WHERE_ANY)},
        CASE WHEN row_number() OVER (PARTITION BY rank ORDER BY device) = 1 THEN nullif(pinned_peak_bytes, 0) END
    FROM devices JOIN ranks USING (process)
    WHERE greatest({", ".join(column.name for column in (*ALWAYS, *WHERE_ANY))}) > 0 AND {{condition}}
    ORDER BY rank, device"""


def gpu_memory(tables: Tables, selection: Selection = ALL) -> Table:
    """Allocation calls, their bytes, and memory in use of each GPU of each rank."""
    table = Table("gpu_memory", "GPU memory", COLUMNS, tables.query(SQL.format(condition=selection.condition)))
    if table.rows:
        table.notes.append("Allocated by the process from CUDA; a framework's own cache hands it out once more.")
        if windows_note(tables):
            table.notes.append("Of the time before the first pause in recording.")
    return arranged(table, selection)
