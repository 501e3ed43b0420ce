"""Which ranges of the program take the time, and how much of it is their own?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.model.records import INSIDE, Layer
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.activities import say_what_is_lost
from rankscope.questions.selection import ALL, Selection, arranged

# ---------------------------------------------------------------------------------------------------------------------
# What was launched in which NVTX range, and how long did it take on the host and on the GPUs?
NVTX_RANGES_COLUMNS = (
    Column("range", Unit.NAME, "Range", "its name, indented by its depth"),
    Column("domain", Unit.NAME, "Domain"),
    Column("calls", Unit.COUNT, "Calls", "number of ranges that ended"),
    Column("host_ns", Unit.NS, "Host", "Σ(end − start)"),
    Column(
        "own_host_ns",
        Unit.NS,
        "own",
        "`host_ns` − that of the ranges directly inside it, at least 0: ranges that overlap without one lying "
        "inside the other are subtracted in full",
    ),
    Column("activities", Unit.COUNT, "On GPU", "number of kernels, copies and memsets launched inside"),
    Column(
        "own_activities", Unit.COUNT, "own", "kernels, copies and memsets launched in it and in no range further inside"
    ),
    Column("gpu_ns", Unit.NS, "GPU time", "sum of the durations of `activities` on the device"),
    Column("own_gpu_ns", Unit.NS, "own", "sum of the durations of `own_activities` on the device"),
    Column("api_calls", Unit.COUNT, "CUDA calls", "number of CUDA API calls that began inside"),
    Column("api_ns", Unit.NS, "In CUDA calls", "time inside `api_calls`"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that have it"),
)
# Only of recorded runs: what nvprof printed does not say which range lies inside which.
NVTX_RANGES_SQL = f"""
    WITH rows AS (SELECT * FROM range_tallies JOIN ranks USING (process) WHERE kind = 'call'
                  AND layer IN {sql_list([Layer.NVTX, Layer.GPU, Layer.CUDA_API])} AND {{condition}})
    SELECT within, layer, sum(calls)::BIGINT, sum(total_ns), list(DISTINCT process),
        min("group") FILTER (layer = 'nvtx'), min(name) FILTER (layer = 'nvtx')
    FROM rows WHERE process IN (SELECT process FROM rows WHERE layer = 'nvtx') GROUP BY within, layer ORDER BY within"""


@dataclass(slots=True)
class Work:
    """Calls and time of one layer."""

    calls: int = 0
    total_ns: float = 0.0

    def add(self, other: Work) -> None:
        self.calls += other.calls
        self.total_ns += other.total_ns


@dataclass(slots=True)
class Range:
    """One range inside those around it: its own work by layer, and the ranges directly inside it."""

    step: str = "/"  # domain/name
    domain: str | None = None
    name: str | None = None
    own: dict[str, Work] = field(default_factory=dict)
    inside: dict[str, Range] = field(default_factory=dict)
    processes: set[int] = field(default_factory=set)

    def work(self, layer: str) -> Work:
        """What was launched here and in all ranges inside."""
        total = Work()
        total.add(self.own.get(layer, Work()))
        for below in self.inside.values():
            total.add(below.work(layer))
        return total


def nvtx_ranges(tables: Tables, selection: Selection = ALL) -> Table:
    """Every range under those around it, with what was launched inside it."""
    root = Range()
    for within, layer, calls, total_ns, processes, domain, name in tables.query(
        NVTX_RANGES_SQL.format(condition=selection.condition)
    ):
        node = _place(root, within)
        node.own[layer] = Work(calls, total_ns)
        node.processes |= set(processes)
        if layer == "nvtx":
            node.domain, node.name = domain, name
    rows = [row for below in _longest_first(root) for row in _rows(below, 0)]
    return arranged(Table("nvtx_ranges", "NVTX ranges", NVTX_RANGES_COLUMNS, rows), selection)


def _place(root: Range, within: str) -> Range:
    for step in within.split(INSIDE):
        root = root.inside.setdefault(step, Range(step))
    return root


def _longest_first(around: Range) -> list[Range]:
    return sorted(around.inside.values(), key=lambda node: (-node.own.get("nvtx", Work()).total_ns, node.step))


def _rows(node: Range, depth: int) -> Iterator[tuple[Cell, ...]]:
    domain, _, name = node.step.partition("/")
    host, own_gpu = node.own.get("nvtx", Work()), node.own.get("gpu", Work())
    gpu, api = node.work("gpu"), node.work("cuda_api")
    inside_ns = sum(below.own.get("nvtx", Work()).total_ns for below in node.inside.values())
    yield (
        *("  " * depth + (node.name or name), domain if node.domain is None else node.domain),
        *(host.calls, host.total_ns, max(0.0, host.total_ns - inside_ns)),
        *(gpu.calls, own_gpu.calls, gpu.total_ns, own_gpu.total_ns, api.calls, api.total_ns),
        len(_processes(node)),
    )
    for below in _longest_first(node):
        yield from _rows(below, depth + 1)


def _processes(node: Range) -> set[int]:
    return node.processes.union(*(_processes(below) for below in node.inside.values()))


# ---------------------------------------------------------------- ranges
RANGES_COLUMNS = (
    Column("name", Unit.NAME, "Range"),
    Column("layer", Unit.NAME, "Layer", "who names the range"),
    Column("domain", Unit.NAME, "Domain", "domain of NVTX; empty for the others"),
    Column("calls", Unit.COUNT, "Calls", "number of ranges that ended"),
    Column("total_ns", Unit.NS, "Time", "Σ (end − start); a range inside one of the same name counts in both"),
    Column(
        "own_ns",
        Unit.NS,
        "own",
        "each moment of a thread (or stream) counts for the open range that began last; over all names of a thread "
        "that is the time it spends in any range",
    ),
    Column("own_share", Unit.SHARE, "Own share", "`own_ns` ÷ `own_ns` of all rows"),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column("min_ns", Unit.NS, "Min", "shortest of them"),
    Column("max_ns", Unit.NS, "Max", "longest of them"),
    Column(
        "activities",
        Unit.COUNT,
        "On GPU",
        "kernels, copies and memsets whose launching call began on the range's thread while it was open; empty "
        "where a trace does not say which call launched what, as in rank files (nvtx_ranges has what the recorder "
        "counted)",
    ),
    Column("own_activities", Unit.COUNT, "own", "of `activities`, those launched while it was the one begun last"),
    Column("gpu_ns", Unit.NS, "GPU time", "Σ of the lengths of `activities` on the GPU"),
    Column("own_gpu_ns", Unit.NS, "own", "Σ of the lengths of `own_activities` on the GPU"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that have it"),
)
RANGES_SQL = """
    WITH found AS (
        SELECT layer, domain, name, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns,
            sum(own_ns)::BIGINT AS own_ns, min(min_ns) AS min_ns, max(max_ns) AS max_ns,
            sum(activities)::BIGINT AS activities, sum(own_activities)::BIGINT AS own_activities,
            sum(gpu_ns)::BIGINT AS gpu_ns, sum(own_gpu_ns)::BIGINT AS own_gpu_ns, count(DISTINCT process) AS ranks
        FROM range_sums JOIN ranks USING (process) WHERE {condition} GROUP BY ALL)
    SELECT name, layer, domain, calls, total_ns, own_ns, own_ns / nullif(sum(own_ns) OVER (), 0), total_ns / calls,
        min_ns, max_ns, activities, own_activities, gpu_ns, own_gpu_ns, ranks
    FROM found ORDER BY own_ns DESC, layer, domain, name"""


def ranges(tables: Tables, selection: Selection = ALL) -> Table:
    """Ranges of traces by name: their time, what of it is not in ranges inside, and what they launched."""
    tables.derive(trace_tables)
    rows = tables.query(RANGES_SQL.format(condition=selection.condition))
    table = Table("ranges", "Ranges of the traces", RANGES_COLUMNS, list(rows))
    say_what_is_lost(tables, selection, table)
    if table.rows and all(row[10] is None for row in table.rows):
        table.notes.append(
            "Which call launched what is not in these traces; the table nvtx_ranges has GPU time by range."
        )
    return arranged(table, selection)
