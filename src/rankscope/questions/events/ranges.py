"""Which ranges of the program take the time, and how much of it is their own?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.activities import say_what_is_lost
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("name", Unit.NAME, "Range"),
    Column("layer", Unit.NAME, "Layer"),
    Column("domain", Unit.NAME, "Domain"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("own_ns", Unit.NS, "own"),
    Column("own_share", Unit.SHARE, "Own share"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("activities", Unit.COUNT, "On GPU"),
    Column("own_activities", Unit.COUNT, "own"),
    Column("gpu_ns", Unit.NS, "GPU time"),
    Column("own_gpu_ns", Unit.NS, "own"),
    Column("ranks", Unit.COUNT, "Ranks"),
)
SQL = """
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
    found = tables.query(SQL.format(condition=selection.condition))
    table = Table("ranges", "Ranges of the traces", COLUMNS, list(found))
    say_what_is_lost(tables, selection, table)
    if table.rows and all(row[10] is None for row in table.rows):
        table.notes.append(
            "Which call launched what is not in these traces; the table nvtx_ranges has GPU time by range."
        )
    return arranged(table, selection)
