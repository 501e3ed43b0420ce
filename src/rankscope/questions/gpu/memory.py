"""How much memory of each GPU does each rank allocate, hold, and hold at most, from CUDA and by torch's allocator?"""

from __future__ import annotations

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.gpu.windows import windows_note
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import steps_of
from rankscope.questions.wording import counted

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
        "the most page-locked host memory the process held; in the row of its first GPU",
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
        table.notes.append("Allocated from the device's runtime; a framework's own cache sub-allocates it.")
        if windows_note(tables):
            table.notes.append("Covers the time before the first pause in recording.")
    return arranged(table, selection)


# ---------------------------------------------------------------- torch's allocator
ALLOCATOR_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU", "the GPU's number in that process"),
    Column("samples", Unit.COUNT, "Samples", "step ends at which it was read: about one per second"),
    Column("allocated_peak_bytes", Unit.BYTES, "Allocated, peak", "the most that tensors held at once"),
    Column("reserved_peak_bytes", Unit.BYTES, "Reserved, peak", "the most that the allocator had taken from CUDA"),
    Column(
        "fragmentation",
        Unit.SHARE,
        "Fragmentation",
        "1 − `allocated_peak_bytes` ÷ `reserved_peak_bytes`: cached in blocks that could not be used at the peak",
    ),
    Column("device_bytes", Unit.BYTES, "GPU memory", "memory of the GPU, as its driver gives it"),
    Column("reserved_share", Unit.SHARE, "Reserved share", "`reserved_peak_bytes` ÷ `device_bytes`"),
    Column("allocated_bytes", Unit.BYTES, "Allocated, last", "in tensors at the end of the last step looked at"),
    Column("reserved_bytes", Unit.BYTES, "Reserved, last", "taken from CUDA at that moment"),
    Column(
        "growth_bytes",
        Unit.BYTES,
        "Growth",
        "`allocated_bytes` − the same at the first look in a steady step: what steps leave behind; negative where they "
        "held more then",
    ),
    Column("retries", Unit.COUNT, "Retries", "times that cudaMalloc failed, and the cache was emptied to try again"),
    Column("ooms", Unit.COUNT, "Out of memory", "times that it failed again"),
)
ALLOCATOR = """
    SELECT rank, a.device, count(*), max(allocated_peak_bytes), max(reserved_peak_bytes), any_value(g.memory_bytes),
        arg_max(allocated_bytes, at_ns), arg_max(reserved_bytes, at_ns),
        arg_min(allocated_bytes, at_ns) FILTER (number >= ?), max(retries), max(ooms)
    FROM allocator a JOIN ranks USING (process) LEFT JOIN gpus g ON g.process = a.process AND g.device = a.device
    WHERE role = 'rank' AND {condition} GROUP BY rank, a.device ORDER BY rank, a.device"""


def gpu_allocator(tables: Tables, selection: Selection = ALL) -> Table:
    """Torch's caching allocator on each GPU of each rank: what tensors held, what it had reserved, and what failed."""
    table = Table("gpu_allocator", "Torch's allocator", ALLOCATOR_COLUMNS, [])
    sql = ALLOCATOR.format(condition=selection.condition)
    for rank, device, samples, allocated, reserved, memory, *rest in tables.query(
        sql, (steps_of(tables).first_steady,)
    ):
        last, last_reserved, first, retries, ooms = rest
        if retries:
            table.warnings.append(
                f"Rank {rank}, GPU {device}: cudaMalloc failed {counted(retries, 'time')}, and all streams waited till "
                "the cache was emptied; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or smaller batches help"
            )
        table.rows.append(
            (
                *(
                    rank,
                    str(device),
                    samples,
                    allocated,
                    reserved,
                    1 - allocated / reserved if reserved else None,
                    memory,
                ),
                *(reserved / memory if memory else None, last, last_reserved),
                *(last - first if first is not None else None, retries, ooms),
            )
        )
    return arranged(table, selection)
