"""Which programs have JAX and torch.compile compiled, how often and why, how often did they run, what was copied?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

# A tally of the layer `jax` begins with what was done: docs/reference/steps.md#jax.
RUN, TRACE, LOWER, COMPILE, COPY, WAIT = "run ", "trace ", "lower ", "compile ", "copy ", "block_until_ready"
GRAPH = "torch.compile "  # of the layer `torch`: then the function, as `compile ` has it
REASON = ": "  # between a program and why it was compiled again
BEFORE_NAMES = ("jit_", "pmap_")  # that XLA puts before the name of a function
SQL = """
    SELECT rank, name, tallies.phase, sum(calls)::BIGINT, sum(total_ns)::DOUBLE, coalesce(sum(bytes), 0)::BIGINT
    FROM tallies JOIN ranks USING (process) WHERE {which} AND {condition} GROUP BY ALL"""
OF_JAX, OF_TORCH = "layer = 'jax'", f"layer = 'torch' AND starts_with(name, '{GRAPH}')"

PROGRAM_COLUMNS = (
    Column(
        "program", Unit.NAME, "Program", "name of the function that was compiled, or what was done with its results"
    ),
    Column("runs", Unit.COUNT, "Runs", "how often it was started, on the rank with most; torch does not say"),
    Column(
        "start_ns",
        Unit.NS,
        "Starting it",
        "time inside the call that starts it, on the rank with most; it may run on afterwards",
    ),
    Column("compilations", Unit.COUNT, "Compilations", "how often it was compiled, on the rank with most"),
    Column("again", Unit.COUNT, "Recompiled", "compilations with a reason: the function was compiled before"),
    Column("compile_ns", Unit.NS, "Tracing and compiling", "tracing, lowering and compiling, on the rank with most"),
    Column("bytes", Unit.BYTES, "Copied", "bytes that were copied, on the rank with most"),
    Column("why", Unit.NAME, "Why again", "what differs from the compilation before, of the reason that took longest"),
)


@dataclass(slots=True)
class Program:
    """One function on one rank."""

    runs: int = 0
    start_ns: float = 0.0
    compilations: int = 0
    again: int = 0
    compile_ns: float = 0.0
    copied_bytes: int = 0
    later: int = 0  # compilations in the phase steady,
    later_ns: float = 0.0  # and how long they took
    reasons: dict[str, float] = field(default_factory=dict)  # how long compilations for it took


Programs = dict[int, dict[str, Program]]  # by rank and name


def programs_of(tables: Tables, selection: Selection = ALL) -> Programs:
    """What each rank says of every program of JAX."""
    return _told(tables, OF_JAX, selection)


def graphs_of(tables: Tables, selection: Selection = ALL) -> Programs:
    """The same of every function that torch.compile has compiled."""
    return _told(tables, OF_TORCH, selection)


def _told(tables: Tables, which: str, selection: Selection) -> Programs:
    by_rank: Programs = {}
    for rank, name, *rest in tables.query(SQL.format(which=which, condition=selection.condition)):
        _add(by_rank.setdefault(rank, {}), name.replace(GRAPH, COMPILE, 1) if which == OF_TORCH else name, *rest)
    return by_rank


def _add(programs: dict[str, Program], name: str, phase: str, calls: int, total_ns: float, size: int) -> None:
    what = next((prefix for prefix in (RUN, TRACE, LOWER, COMPILE) if name.startswith(prefix)), "")
    function, _, reason = _without_prefix(name[len(what) :]).partition(REASON if what == COMPILE else "\0")
    program = programs.setdefault(function, Program())
    if what in (RUN, ""):
        program.runs += calls
        program.start_ns += total_ns
        program.copied_bytes += size
        return
    program.compile_ns += total_ns
    program.later_ns += total_ns if phase == "steady" else 0.0
    if what != COMPILE:
        return
    program.compilations += calls
    program.later += calls if phase == "steady" else 0
    if reason:
        program.again += calls
        program.reasons[reason] = program.reasons.get(reason, 0.0) + total_ns


def _without_prefix(name: str) -> str:
    return next((name[len(before) :] for before in BEFORE_NAMES if name.startswith(before)), name)


def programs(tables: Tables, selection: Selection = ALL) -> Table:
    """Programs that JAX or torch.compile has compiled: how often each ran, how long it took, and why again."""
    table = Table("programs", "Compiled programs", PROGRAM_COLUMNS, [])
    known = graphs_of(tables, selection)
    for rank, of_rank in programs_of(tables, selection).items():
        known[rank] = {**known.get(rank, {}), **of_rank}
    names = dict.fromkeys(name for of_rank in known.values() for name in of_rank)
    rows = [_row(name, [of_rank[name] for of_rank in known.values() if name in of_rank]) for name in names]
    table.rows = sorted(rows, key=lambda row: -(float(row[2] or 0) + float(row[5] or 0)))
    return arranged(table, selection)


def _row(name: str, ranks: list[Program]) -> tuple[Cell, ...]:
    def most(values: Iterable[float]) -> float:
        return max(values)

    return (
        name,
        int(most(program.runs for program in ranks)) or None,
        most(program.start_ns for program in ranks) or None,
        int(most(program.compilations for program in ranks)),
        int(most(program.again for program in ranks)),
        most(program.compile_ns for program in ranks),
        int(most(program.copied_bytes for program in ranks)) or None,
        longest_reason(ranks),
    )


def longest_reason(ranks: list[Program]) -> str:
    """Why a program was compiled again, as the rank says that spent most on it."""
    reasons = [(ns, reason) for program in ranks for reason, ns in program.reasons.items()]
    return max(reasons)[1] if reasons else ""
