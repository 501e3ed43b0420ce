"""Why were the system calls of the imports made?"""

from __future__ import annotations

from rankscope.analyse.call_kinds import CALL_COLUMNS, COUNTED, sums
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

COUNT_COLUMNS = (
    *CALL_COLUMNS,
    Column("missing", Unit.COUNT, "Missing"),
    Column("read_bytes", Unit.BYTES, "Read"),
    Column("call_ns", Unit.NS, "In calls"),
)
COLUMNS = (
    Column("cause", Unit.NAME, "Cause"),
    Column("what", Unit.NAME, "What that is"),
    Column("share", Unit.SHARE, "Of calls"),
    *COUNT_COLUMNS,
    Column("distinct_paths", Unit.COUNT, "Distinct paths"),
)
CAUSES = {
    "search": "Python looks for the module",
    "code": "bytecode and source are read",
    "loader": "the dynamic loader looks for and maps libraries",
    "module": "the module's own code",
    "interpreter": "before, after and beside the imports",
}
SQL = f"""
    SELECT cause, {sums()} FROM system_calls JOIN ranks USING (process)
    WHERE {{condition}} GROUP BY cause ORDER BY calls DESC, cause"""
PATHS_SQL = """
    SELECT cause, count(DISTINCT path) FROM paths JOIN ranks USING (process) WHERE {condition} GROUP BY cause"""


def import_causes(tables: Tables, selection: Selection = ALL) -> Table:
    """The causes add up to all calls of the run."""
    condition = chosen(selection)
    found = tables.query(SQL.format(condition=condition))
    distinct = dict(tables.query(PATHS_SQL.format(condition=condition)))
    total = sum(row[1] for row in found)
    table = Table("import_causes", "Causes of the system calls", COLUMNS, [])
    for cause, *counts in found:
        share = counts[COUNTED.index("calls")] / total if total else None
        table.rows.append((cause, CAUSES.get(cause, ""), share, *counts, distinct.get(cause)))
    return arranged(table, selection)
