"""Which module asks which file system for how much?"""

from __future__ import annotations

from rankscope.analyse.call_kinds import sums
from rankscope.analyse.import_causes import COUNT_COLUMNS
from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("module", Unit.NAME, "Module"),
    Column("mount", Unit.NAME, "Mount point"),
    Column("type", Unit.NAME, "Type"),
    *COUNT_COLUMNS,
)
SQL = f"""
    WITH kinds AS (SELECT process, mount, any_value(fs_type) AS fs_type FROM mounts GROUP BY process, mount),
    names AS (SELECT process, module, name FROM modules)
    SELECT coalesce(name, '(interpreter)'), mount, coalesce(fs_type, ''), {sums()}
    FROM system_calls JOIN ranks USING (process) LEFT JOIN kinds USING (process, mount)
    LEFT JOIN names USING (process, module)
    WHERE {{condition}} AND mount <> '' GROUP BY 1, 2, 3 ORDER BY calls DESC, 1, 2"""


def import_module_mounts(tables: Tables, selection: Selection = ALL) -> Table:
    """Each module's own calls by mount point, without those that name no file."""
    found = tables.query(SQL.format(condition=chosen(selection)))
    return arranged(Table("import_module_mounts", "Modules by file system", COLUMNS, found), selection)
