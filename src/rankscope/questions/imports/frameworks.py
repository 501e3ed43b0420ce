"""How do frameworks, places and scales compare? Tables in the layout people make by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.imports.break_even import staging_break_even, staging_verdict
from rankscope.questions.imports.imports import imports
from rankscope.questions.imports.trees import sums

FRAMEWORK_COLUMNS = (
    Column("total_of", Unit.NAME, "Total"),
    Column("total_calls", Unit.COUNT, "Calls", "number of system calls of one process"),
    Column("openat_of", Unit.NAME, "openat"),
    Column("openat_calls", Unit.COUNT, "Calls", "calls of open, openat, openat2, creat of one process"),
    Column("stats_of", Unit.NAME, "stats"),
    Column("stats_calls", Unit.COUNT, "Calls", "calls of stat, lstat, fstat, newfstatat, statx of one process"),
)
SQL = f"SELECT {sums()} FROM system_calls"


@dataclass(frozen=True, slots=True)
class ImportTime:
    """How long one rank's import took, at one place and scale; None where that was not measured."""

    place: str
    framework: str
    nodes: int
    wall_ns: float | None


@dataclass(frozen=True, slots=True)
class StagedImport:
    """The same from storage on the node, after a transfer to it."""

    framework: str
    nodes: int
    transfer_ns: float
    wall_ns: float

    @property
    def total_ns(self) -> float:
        return self.transfer_ns + self.wall_ns


def calls_per_framework(runs: Sequence[tuple[str, Tables]]) -> Table:
    """System calls of each framework's import: total, opens, stats."""
    table = Table("import_frameworks", "System calls to import, one process", FRAMEWORK_COLUMNS, [])
    for name, tables in runs:
        counts = tables.query(SQL)[0]
        labels = (f"Total {name}", f"openat {name}", f"stats {name}")
        table.rows.append(tuple(cell for pair in zip(labels, counts[:3], strict=True) for cell in pair))
    table.notes.append("openat: all calls that open a file; stats: the whole family. Roughly constant per rank.")
    return table


def frameworks_compared(runs: Sequence[tuple[str, Tables]]) -> Table:
    """The sums of several imports, one line each."""
    columns: Sequence[Column] = ()
    rows: list[tuple[Cell, ...]] = []
    notes: dict[str, None] = {}
    for name, tables in runs:
        table = imports(tables)
        columns = (Column("framework", Unit.NAME, "Import"), *table.columns)
        rows += [(name, *row) for row in table.rows]
        notes.update(dict.fromkeys(f"{name}: {text}" for text in table.notes))
    return Table("import_compared", "Imports compared", columns, rows, list(notes))


def time_per_place(measured: Sequence[ImportTime], staged: Sequence[StagedImport] = ()) -> Table:
    """Import time by nodes, a column for each place and framework; a note for each says where staging breaks even."""
    series = list(dict.fromkeys((import_time.place, import_time.framework) for import_time in measured))
    names = [f"{place}-{framework}" for place, framework in series]
    columns = (
        Column("nodes", Unit.COUNT, "Nodes", "number of nodes"),
        *(Column(f"{name}_ns", Unit.NS, name, "import time from that place") for name in names),
    )
    at = {
        (import_time.place, import_time.framework, import_time.nodes): import_time.wall_ns for import_time in measured
    }
    table = Table("import_times", "Import time per place and scale", columns, [])
    for nodes in sorted({import_time.nodes for import_time in measured}):
        table.rows.append((nodes, *(at.get((place, framework, nodes)) for place, framework in series)))
    for (place, framework), name in zip(series, names, strict=True):
        if any(staged_import.framework == framework for staged_import in staged):
            table.notes.append(f"{name}: {_break_even_words(measured, staged, place, framework)}")
    return table


def staged_times(staged: Sequence[StagedImport], place: str = "tmp") -> Table:
    """The TMP method: transfer, import and total by nodes."""
    frameworks = list(dict.fromkeys(staged_import.framework for staged_import in staged))
    columns = [Column("nodes", Unit.COUNT, "Nodes", "number of nodes")]
    for name in frameworks:
        columns += [
            Column(f"{name}_transfer_ns", Unit.NS, f"{place} transfer", "time of the copy to the nodes, once per job"),
            Column(f"{name}_import_ns", Unit.NS, f"{place}-{name}", "import time from the node's storage"),
            Column(f"{name}_total_ns", Unit.NS, f"Total {place}-{name}", "transfer + import"),
        ]
    at = {(staged_import.framework, staged_import.nodes): staged_import for staged_import in staged}
    table = Table("import_staged", "TMP method: copy to the node, then import from there", columns, [])
    for nodes in sorted({staged_import.nodes for staged_import in staged}):
        cells = [_cells(at.get((name, nodes))) for name in frameworks]
        table.rows.append((nodes, *(cell for part in cells for cell in part)))
    return table


def _cells(staged_import: StagedImport | None) -> tuple[Cell, Cell, Cell]:
    return (
        (staged_import.transfer_ns, staged_import.wall_ns, staged_import.total_ns)
        if staged_import
        else (None, None, None)
    )


def _break_even_words(
    measured: Sequence[ImportTime], staged: Sequence[StagedImport], place: str, framework: str
) -> str:
    here = {
        import_time.nodes: import_time.wall_ns
        for import_time in measured
        if (import_time.place, import_time.framework) == (place, framework) and import_time.wall_ns is not None
    }
    there = {
        staged_import.nodes: staged_import.total_ns for staged_import in staged if staged_import.framework == framework
    }
    return staging_verdict(staging_break_even(here, there)) if here and there else "not measured"
