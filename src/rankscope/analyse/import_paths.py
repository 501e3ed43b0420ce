"""Which paths do the imports ask for, and how often the same again?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("path", Unit.NAME, "Path"),
    Column("times", Unit.COUNT, "Times"),
    Column("missing", Unit.COUNT, "Missing"),
    Column("stats", Unit.COUNT, "Stats"),
    Column("opens", Unit.COUNT, "Opens"),
    Column("others", Unit.COUNT, "Others"),
    Column("modules", Unit.COUNT, "Modules"),
    Column("most_by", Unit.NAME, "Most by"),
    Column("most_cause", Unit.NAME, "Because of"),
)
SQL = """
    WITH mine AS (
        SELECT path, operation, result, times, cause, coalesce(modules.name, '(interpreter)') AS name
        FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module) WHERE {condition}),
    by_module AS (SELECT path, name, cause, sum(times) AS times FROM mine GROUP BY ALL)
    SELECT path, sum(times)::BIGINT, sum(CASE WHEN result = 'ENOENT' THEN times ELSE 0 END)::BIGINT,
        sum(CASE WHEN operation = 'stat' THEN times ELSE 0 END)::BIGINT,
        sum(CASE WHEN operation = 'open' THEN times ELSE 0 END)::BIGINT,
        sum(CASE WHEN operation NOT IN ('stat', 'open') THEN times ELSE 0 END)::BIGINT,
        count(DISTINCT name),
        (SELECT arg_max(name, times) FROM by_module WHERE by_module.path = mine.path),
        (SELECT arg_max(cause, times) FROM by_module WHERE by_module.path = mine.path)
    FROM mine GROUP BY path ORDER BY 2 DESC, path"""


def import_paths(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each distinct path, the most asked for first."""
    found = tables.query(SQL.format(condition=chosen(selection)))
    table = Table("import_paths", "Paths", COLUMNS, found)
    total = sum(row[1] for row in found)
    if found:
        table.notes.append(f"{total:,} operations on {len(found):,} distinct paths.")
    return arranged(table, selection)
