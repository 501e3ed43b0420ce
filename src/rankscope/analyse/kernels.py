"""Which kernels, copies and sets take the GPUs' time?"""

from __future__ import annotations

from rankscope.analyse.gpu_lengths import STATISTICS, Lengths, statistics
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.activities import kind_of, say_what_is_lost
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (Column("kind", Unit.NAME, "Kind"), Column("name", Unit.NAME, "Kernel"), *STATISTICS)
# squared deviations add up, and so does what the means of the ranks differ by from the mean of all; always in the same
# order, so that the same sums give the same last digits
SQL = """
    WITH sums AS (
        SELECT process, name, calls, total_ns, min_ns, max_ns, deviations_ns2,
            (sum(total_ns) OVER (PARTITION BY name))::DOUBLE / sum(calls) OVER (PARTITION BY name) AS mean_ns
        FROM activity_sums JOIN ranks USING (process) WHERE {condition})
    SELECT name, sum(calls)::BIGINT, sum(total_ns)::BIGINT, min(min_ns), max(max_ns),
        sum(deviations_ns2 + calls * (total_ns / calls - mean_ns) ** 2 ORDER BY process)
    FROM sums GROUP BY name ORDER BY name"""


def kernels(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls and time of every kernel, copy and set, over the selected ranks."""
    found = statistics(by_name(tables, selection))
    rows: list[tuple[Cell, ...]] = [(kind_of(name), name, *cells) for name, cells in found]
    table = Table("kernels", "GPU kernels, copies and sets", COLUMNS, rows)
    say_what_is_lost(tables, selection, table)
    return arranged(table, selection)


def by_name(tables: Tables, selection: Selection) -> dict[str, Lengths]:
    """The lengths of the GPU activities of each name, over the selected ranks."""
    tables.derive(trace_tables)
    return {name: Lengths(*sums) for name, *sums in tables.query(SQL.format(condition=selection.condition))}
