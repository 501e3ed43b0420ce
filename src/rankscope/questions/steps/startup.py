"""What does the way from process start to the end of the first step consist of: imports, CUDA, NCCL, compilation?"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.phases import Waterfall, chosen_of

COLUMNS = (
    Column("part", Unit.NAME, "Part"),
    Column("what", Unit.NAME, "What", "the function or module that takes most of it, on the rank with `max_ns`"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks of which it is known"),
    Column("share", Unit.SHARE, "% of start-up", "median of the part ÷ median time to the end of the first step"),
    Column("median_ns", Unit.NS, "Median", "median of these ranks"),
    Column("max_ns", Unit.NS, "Max", "longest of these ranks"),
    Column("longest_rank", Unit.NAME, "Longest on", "the rank with `max_ns`"),
)
# In the order in which a program usually comes to them.
PARTS = {
    "process start": "from process start until Python is up",
    "interpreter": "from when Python is up to the next mark",
    "import torch": "inside `import torch`",
    "later imports": "other modules that the first thread imports between torch's import and the first step",
    "init": "inside MPI_Init, init_process_group or hvd.init",
    "CUDA context": "from the first call of CUDA until the device has a context",
    "CUDA until first work": "from the first call of CUDA to the first work on a GPU: context, loading, first launch",
    "loading GPU code": "inside cuModuleLoad… and cuLibraryLoad…, whenever; mostly in the first steps",
    "NCCL init": "from when NCCL sets up its first communicator to its first operation",
    "compiling": "inside torch.compile before the steady steps; partly in the first step",
    "first collective": "inside the first collective, wait for others included",
    "first step": "inside the first step, without the first collective where that lies in it",
}
OF_PHASES = {
    "start": "process start",
    "interpreter": "interpreter",
    "imports": "import torch",
    "init": "init",
    "first collective": "first collective",
    "first step": "first step",
}
UNTIL = ("before init", "after init", "before steps")  # which only say when, not what
LEAST = 0.005  # of the way to the first step: less is no row
# Times of modules count from the start of their process.
LATE_IMPORTS = """
    WITH spans AS (
        SELECT process, any_value(rank) AS rank, any_value(ranks.started_ns) AS started_ns,
            max(at_ns) FILTER (marks.name = 'import_end') AS since_ns,
            min(at_ns) FILTER (marks.name = 'first_step_begin') AS until_ns
        FROM marks JOIN ranks USING (process) WHERE role = 'rank' GROUP BY process)
    SELECT rank, sum(wall_ns), arg_max(name, wall_ns) FROM modules JOIN spans USING (process)
    WHERE parent = 0 AND module > 0 AND thread = 0 AND started_ns + begin_ns BETWEEN since_ns AND until_ns
    GROUP BY rank"""
MARKED = """
    SELECT rank, min(at_ns) FILTER (marks.name = 'cuda_begin'), min(at_ns) FILTER (marks.name = 'cuda_context'),
        min(at_ns) FILTER (marks.name = 'gpu_begin'), min(at_ns) FILTER (marks.name = 'nccl_begin')
    FROM marks JOIN ranks USING (process) WHERE role = 'rank' GROUP BY rank"""
FIRST_OF_NCCL = """
    SELECT rank, min(start_ns) FROM untraced_events JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'nccl' AND ranks.tool = '' GROUP BY rank"""
CALLS = """
    SELECT rank, sum(total_ns), arg_max(name, total_ns) FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND ranks.tool = '' AND kind = 'call' AND {which} GROUP BY rank"""
LOADING = "layer = 'cuda_api' AND (name LIKE 'cuModuleLoad%' OR name LIKE 'cuLibraryLoad%')"
COMPILING = "layer = 'torch' AND name = 'torch.compile' AND tallies.phase NOT IN ('steady', 'finalize')"


@dataclass(slots=True)
class Part:
    """A part of the start, by rank: how long, and what takes most of it."""

    name: str
    lengths: dict[int, tuple[float, str]]

    @property
    def median_ns(self) -> float:
        return median(ns for ns, _ in self.lengths.values())

    @property
    def longest(self) -> tuple[int, float, str]:
        rank = max(self.lengths, key=lambda at: self.lengths[at][0])
        return (rank, *self.lengths[rank])


def startup_parts(tables: Tables, selection: Selection = ALL) -> list[Part]:
    """All that is known of the ranks, in the order of `PARTS`; they may overlap."""
    lengths_of: dict[str, dict[int, tuple[float, str]]] = {name: {} for name in PARTS}
    ranks = {rank.rank: rank for rank in chosen_of(tables, selection)}
    for rank, waterfall in ranks.items():
        for phase, part in OF_PHASES.items():
            if waterfall.segments.get(phase):
                lengths_of[part][rank] = (float(waterfall.segments[phase]), waterfall.names.get(phase, ""))
    for part, sql in (
        ("later imports", LATE_IMPORTS),
        ("loading GPU code", CALLS.format(which=LOADING)),
        ("compiling", CALLS.format(which=COMPILING)),
    ):
        lengths_of[part] |= {
            rank: (float(ns), what or "") for rank, ns, what in tables.query(sql) if rank in ranks and ns
        }
    _add_marked(tables, lengths_of, ranks)
    return [Part(name, lengths) for name, lengths in lengths_of.items() if lengths]


def _add_marked(
    tables: Tables, lengths_of: dict[str, dict[int, tuple[float, str]]], ranks: dict[int, Waterfall]
) -> None:
    """The start of CUDA and of NCCL, by their moments."""
    operations: dict[int, int] = dict(tables.query(FIRST_OF_NCCL))
    for rank, cuda, context, work, nccl in tables.query(MARKED):
        if rank not in ranks or (cuda is None and nccl is None):
            continue
        if cuda is not None and context is not None:
            lengths_of["CUDA context"][rank] = (float(max(0, context - cuda)), "")
        elif cuda is not None and work is not None:
            lengths_of["CUDA until first work"][rank] = (float(max(0, work - cuda)), "")
        if nccl is not None and operations.get(rank, 0) > nccl:
            lengths_of["NCCL init"][rank] = (float(operations[rank] - nccl), "")


def startup(tables: Tables, selection: Selection = ALL) -> Table:
    """What the time up to the end of the first step goes to, as far as it is known; parts may overlap."""
    table = Table("startup", "Start-up", COLUMNS, [])
    until = [_until(rank) for rank in chosen_of(tables, selection)]
    total_ns = median(until) if until else 0.0
    for part in startup_parts(tables, selection) if total_ns else ():
        if part.median_ns >= LEAST * total_ns:
            rank, longest_ns, what = part.longest
            times = (part.median_ns / total_ns, part.median_ns, longest_ns)
            table.rows.append((part.name, what, len(part.lengths), *times, rank))
    if table.rows:
        table.notes.append("Parts may overlap: `rankscope explain PART` says what is timed.")
    return arranged(table, selection)


def _until(rank: Waterfall) -> float:
    """The way to the end of the first step; without steps, of the first collective."""
    return float(sum(rank.segments.get(phase, 0) for phase in (*OF_PHASES, *UNTIL)))
