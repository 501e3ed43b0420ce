"""Do ranks and hosts share the work evenly?"""

from __future__ import annotations

from statistics import median

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.pictures import Chart, Section
from rankscope.questions.condense import condensed
from rankscope.questions.gpu.memory import gpu_allocator, gpu_memory
from rankscope.questions.page.section import PageOptions, column, hosts_of, mean, number
from rankscope.questions.page.tables import bars, cut, marked
from rankscope.questions.ranks.ranks import balance, hosts, ranks
from rankscope.questions.wording import seconds, size

# ---------------------------------------------------------------- how much memory does each rank hold at most?
COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("max_rss_bytes", Unit.BYTES, "Process, peak", "largest resident set of the process"),
    Column(
        "gpu_peak_bytes",
        Unit.BYTES,
        "GPUs, peak",
        "sum of `peak_bytes` over the GPUs of the rank, which need not be reached at the same time",
    ),
    Column(
        "pinned_peak_bytes", Unit.BYTES, "Pinned on host, peak", "the most page-locked host memory the process held"
    ),
)


def memory_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The peak of each process, and of what it allocated on GPUs."""
    devices = gpu_memory(tables, wanted.selection)
    table = _table(tables, wanted, devices)
    if not any(number(cell) for row in table.rows for cell in row[2:]):
        return None
    few = condensed(table, hosts_of(tables), "max_rss_bytes", marked(tables, wanted))
    charts: list[Chart] = []
    for name, what in (("max_rss_bytes", "process"), ("gpu_peak_bytes", "GPU memory of a rank")):
        if any(number(cell) for cell in column(table, name)):
            charts += bars(few, _title(table, name, what), (name,), "peak", "host", name)[: 1 + (name == few.key)]
    others = (devices, gpu_allocator(tables, wanted.selection))
    shown = [*few.tables, *(cut(other) for other in others if other.rows)]
    return Section("memory", "How much memory does each rank hold?", shown, charts)


def _table(tables: Tables, wanted: PageOptions, devices: Table) -> Table:
    on_gpus: dict[object, float] = {}
    pinned: dict[object, float] = {}
    for rank, peak, host_peak in zip(
        *(column(devices, name) for name in ("rank", "peak_bytes", "pinned_peak_bytes")), strict=True
    ):
        on_gpus[rank] = on_gpus.get(rank, 0) + number(peak)
        pinned[rank] = pinned.get(rank, 0) + number(host_peak)
    sql = f"SELECT rank, host, max_rss_bytes FROM ranks WHERE {wanted.selection.condition} ORDER BY rank"
    rows = [(*row, on_gpus.get(row[0]), pinned.get(row[0])) for row in tables.query(sql)]
    return Table("memory", "Memory by rank", COLUMNS, rows)


def _title(table: Table, name: str, what: str) -> str:
    peaks = [number(cell) for cell in column(table, name)]
    most = max(peaks)
    text = f"The largest {what} peaks at {size(most)} (rank {column(table, 'rank')[peaks.index(most)]})"
    return f"{text}, the median at {size(median(peaks))}" if len(peaks) > 1 else text


# ---------------------------------------------------------------- ranks
MPI_PARTS, CPU_PARTS = ("outside_ns", "comm_ns"), ("user_ns", "system_ns")


def balance_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """Time outside and inside MPI by rank; CPU time where there is no MPI."""
    shared, everyone = balance(tables, wanted.selection), ranks(tables, wanted.selection)
    table, parts = (shared, MPI_PARTS) if shared.rows else (everyone, CPU_PARTS)
    if not any(number(cell) for name in parts for cell in column(table, name)):
        return None
    table.rows.sort(key=lambda row: number(row[0]))
    title = _ranks_title(table, parts)
    axis = "from MPI_Init to MPI_Finalize" if shared.rows else "CPU time"
    few = condensed(table, hosts_of(tables), parts[0], marked(tables, wanted))
    charts = bars(few, title, parts, axis, "host", *parts)
    shown = few.tables
    by_host = hosts(tables, wanted.selection)
    if len(by_host.rows) > 1:
        shown = [*shown, cut(by_host)]
    alone = "Time inside and outside MPI" if shared.rows else "CPU time"
    question = "Do ranks and hosts share the work evenly?" if len(table.rows) > 1 else alone
    return Section("balance", question, shown, charts)


def _ranks_title(table: Table, parts: tuple[str, ...]) -> str:
    values = [number(cell) for cell in column(table, parts[0])]
    average, most = mean(table, parts[0]), max(values)
    who = column(table, "rank")[values.index(most)]
    what = "time outside MPI" if parts is MPI_PARTS else "CPU time in user mode"
    if not average:
        return f"No rank spends {what}"
    if len(values) == 1:
        return f"Rank {who} spends {seconds(most)} {'outside MPI' if parts is MPI_PARTS else f'of {what}'}"
    return f"Rank {who} spends the most {what}: {seconds(most)}, {most / average:.2f} times the mean"
