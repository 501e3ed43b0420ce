"""On which file systems are the files of the imports?"""

from __future__ import annotations

from rankscope.analyse.call_kinds import sums
from rankscope.analyse.import_causes import COUNT_COLUMNS
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("mount", Unit.NAME, "Mount point"),
    Column("type", Unit.NAME, "Type"),
    Column("share", Unit.SHARE, "Of calls"),
    *COUNT_COLUMNS,
    Column("mean_ns", Unit.NS, "Per call"),
)
SQL = f"""
    WITH kinds AS (SELECT process, mount, any_value(fs_type) AS fs_type FROM mounts GROUP BY process, mount)
    SELECT coalesce(mount, ''), coalesce(fs_type, ''), {sums()}
    FROM system_calls JOIN ranks USING (process) LEFT JOIN kinds USING (process, mount)
    WHERE {{condition}} GROUP BY 1, 2 ORDER BY calls DESC, 1"""


def import_mounts(tables: Tables, selection: Selection = ALL) -> Table:
    """By mount point and type; calls that name no file (memory, signals, sockets) are one line without either."""
    found = tables.query(SQL.format(condition=chosen(selection)))
    total = sum(row[2] for row in found)
    table = Table("import_mounts", "File systems", COLUMNS, [])
    for mount, kind, *counts in found:
        calls, call_ns = counts[0], counts[-1]
        share = calls / total if total else None
        table.rows.append((mount or "(no file)", kind, share, *counts, call_ns / calls if calls else None))
    return arranged(table, selection)
