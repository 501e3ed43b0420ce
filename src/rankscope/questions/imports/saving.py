"""What is saved when a cause is switched off, beside what is attributed to it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.offenders.modules import compiled
from rankscope.questions.imports.search import loader_directories, resolving, search_entries
from rankscope.questions.imports.trees import OPENS, STATS, Counts, import_trees, one_of


# ---------------------------------------------------------------------------------------------------------------------
# How many calls, and how much time, is one cause of the imports' cost blamed for?
@dataclass(frozen=True, slots=True)
class Blame:
    """What would go away at most."""

    calls: int = 0
    time_ns: float | None = None


def blame_realpath(tables: Tables) -> Blame:
    calls = sum(module.calls for module in resolving(tables))
    return Blame(calls, calls * _mean_ns(tables, "module", (*STATS, "readlink", "readlinkat")))


def blame_library_path(tables: Tables) -> Blame:
    """What LD_LIBRARY_PATH made the loader ask in vain."""
    calls = sum(
        loader_directory.missing
        for loader_directory in loader_directories(tables)
        if loader_directory.told_by == "LD_LIBRARY_PATH"
    )
    return Blame(calls, calls * _mean_ns(tables, "loader", OPENS))


def blame_search(tables: Tables) -> Blame:
    calls = sum(entry.operations for entry in search_entries(tables) if entry.never_hit)
    return Blame(calls, calls * _mean_ns(tables, "search", STATS))


def blame_bytecode(tables: Tables) -> Blame:
    """The files around sources that are compiled; compiling itself is no system call."""
    calls = compiled(tables).calls
    return Blame(calls, calls * _mean_ns(tables, "code", OPENS))


def blame_module(tables: Tables, name: str) -> Blame:
    """A module with all below it, wherever it is imported first: calls, and wall time rather than time in calls."""
    calls, wall_ns = 0, 0
    for tree in import_trees(tables):
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            if node.name == name and not node.is_process:
                calls, wall_ns = calls + node.whole.calls, wall_ns + node.wall_ns
            else:
                waiting += node.children
    return Blame(calls, wall_ns)


def _mean_ns(tables: Tables, cause: str, calls: tuple[str, ...]) -> float:
    """How long one such call took here."""
    sql = f"SELECT sum(total_ns) / nullif(sum(calls), 0) FROM system_calls WHERE cause = ? AND {one_of(calls)}"
    return float(tables.query(sql, [cause])[0][0] or 0.0)


# ---------------------------------------------------------------- saving
COLUMNS = (
    Column("without", Unit.NAME, "Without"),
    Column("calls_before", Unit.COUNT, "Calls with", "system calls with everything on"),
    Column(
        "calls_blamed",
        Unit.COUNT,
        "Attributed",
        "calls that `import_offenders` attributes to the cause; of a module: its inclusive calls",
    ),
    Column("calls_saved", Unit.COUNT, "Calls saved", "calls with − calls without the cause, counted once each"),
    Column("stats_saved", Unit.COUNT, "Stats saved", "stats with − stats without the cause"),
    Column("opens_saved", Unit.COUNT, "Opens saved", "opens with − opens without the cause"),
    Column(
        "time_blamed_ns",
        Unit.NS,
        "Time attributed",
        "`calls_blamed` × mean time of such a call; of a module: its inclusive wall time",
    ),
    Column(
        "wall_saved_ns",
        Unit.NS,
        "Wall saved",
        "median over the rounds of (wall with − wall without), runs of the same round, from the start of "
        "`rankscope run` to the end of the command, recorded with times only",
    ),
    Column(
        "wall_noise_ns",
        Unit.NS,
        "Noise",
        "the largest difference of two equal runs of one round or, where larger, the median absolute deviation"
        " of these differences: smaller savings are noise",
    ),
    Column(
        "cpu_saved_ns",
        Unit.NS,
        "CPU saved",
        "median over the rounds of (CPU with − CPU without), user and system time, children included",
    ),
    Column("wall_before_ns", Unit.NS, "Wall with", "median wall time of the runs with everything on"),
    Column("turns", Unit.COUNT, "Turns", "number of pairs of runs"),
)


@dataclass(slots=True)
class Trial:
    """The same command with and without one cause: calls counted once, times taken in turns."""

    without: str
    blame: Blame
    before: Counts
    after: Counts
    before_wall_ns: list[int] = field(default_factory=list)
    after_wall_ns: list[int] = field(default_factory=list)
    before_cpu_ns: list[int] = field(default_factory=list)
    after_cpu_ns: list[int] = field(default_factory=list)
    exit_code: int = 0  # of the run without the cause
    exit_code_before: int = 0
    note: str = ""


def import_saving(trials: Sequence[Trial]) -> Table:
    """Medians of the differences within each round. The first trial switches nothing off: it shows the noise."""
    table = Table("import_saving", "Measured savings", COLUMNS, [])
    control = _differences(trials[0].before_wall_ns, trials[0].after_wall_ns)
    for trial in trials:
        table.rows.append(_row(trial, control))
        if trial.note:
            table.notes.append(f"{trial.without}: {trial.note}")
        if trial is not trials[0] and _is_noise(table.rows[-1]):
            table.notes.append(f"{trial.without}: the difference in wall time is within the noise")
        if trial.exit_code != trial.exit_code_before:
            text = f"{trial.without}: without it the command ends with exit code {trial.exit_code}"
            table.warnings.append(f"{text} instead of {trial.exit_code_before}: its saving cannot be compared")
    table.notes.append("Attributed: calls and time assigned to the cause. Saved: measured by running without it.")
    return table


def _is_noise(row: tuple[Cell, ...]) -> bool:
    cells = dict(zip((column.name for column in COLUMNS), row, strict=True))
    saved, noise = cells["wall_saved_ns"], cells["wall_noise_ns"]
    return isinstance(saved, int | float) and isinstance(noise, int | float) and abs(saved) <= noise


def _row(trial: Trial, control: Sequence[int]) -> tuple[Cell, ...]:
    walls = _differences(trial.before_wall_ns, trial.after_wall_ns)
    cpus = _differences(trial.before_cpu_ns, trial.after_cpu_ns)
    return (
        *(trial.without, trial.before.calls, trial.blame.calls, trial.before.calls - trial.after.calls),
        *(trial.before.stats - trial.after.stats, trial.before.opens - trial.after.opens),
        *(trial.blame.time_ns, median(walls) if walls else None, _noise(walls, control) if walls else None),
        *(median(cpus) if cpus else None, median(trial.before_wall_ns) if trial.before_wall_ns else None, len(walls)),
    )


def _noise(walls: Sequence[int], control: Sequence[int]) -> float:
    """The largest difference that two equal runs of a turn had, or the spread of these: whatever is larger."""
    spread = median(abs(wall - median(walls)) for wall in walls)
    return max(spread, *(abs(wall) for wall in control)) if control else spread


def _differences(before: Sequence[int], after: Sequence[int]) -> list[int]:
    return [left - right for left, right in zip(before, after, strict=True)]
