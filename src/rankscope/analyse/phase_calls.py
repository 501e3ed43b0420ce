"""What did each phase spend in which call?"""

from __future__ import annotations

from rankscope.model import PHASES, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("phase", Unit.NAME, "Phase"),
    Column("layer", Unit.NAME, "Layer"),
    Column("name", Unit.NAME, "Name"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("phase_share", Unit.SHARE, "Of its phase"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("max_ns", Unit.NS, "Max"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("ranks", Unit.COUNT, "Ranks"),
)


def phase_calls(tables: Tables, selection: Selection = ALL) -> Table:
    """What each phase spent in which call, most time first within a phase."""
    sql = f"""
        SELECT tallies.phase, layer, name, sum(calls)::BIGINT, sum(total_ns), sum(total_ns) / sum(sum(total_ns)) OVER
            (PARTITION BY tallies.phase, layer), sum(total_ns) / nullif(sum(calls), 0), max(max_ns), sum(bytes)::BIGINT,
            count(DISTINCT process)
        FROM tallies JOIN ranks USING (process)
        WHERE {selection.condition} AND tallies.phase <> '' AND (kind = 'call' OR layer = 'gloo') AND within = ''
            AND layer IN ('mpi', 'gloo', 'nccl', 'torch', 'cuda_api') AND ranks.tool = ''
        GROUP BY tallies.phase, layer, name"""
    order = {name: at for at, name in enumerate(PHASES)}
    found = sorted(tables.query(sql), key=lambda row: (order.get(row[0], len(order)), -row[4]))
    return arranged(Table("phase_calls", "Calls by phase", COLUMNS, found), selection)
