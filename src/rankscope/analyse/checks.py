"""What is wrong with the input, by the readers' own arithmetic?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ranges

COLUMNS = (
    Column("severity", Unit.NAME, "Severity"),
    Column("where", Unit.NAME, "Where"),
    Column("text", Unit.NAME, "What"),
    Column("count", Unit.COUNT, "Times"),
    Column("ranks", Unit.NAME, "Ranks"),
)
# Notes of recorded ranks are about the recording and stand in the coverage table.
SQL = """
    SELECT severity, min_by("where", place), text, count(*), list(DISTINCT rank) FILTER (rank IS NOT NULL)
    FROM (SELECT *, row_number() OVER () AS place FROM notes) AS told LEFT JOIN ranks USING (process)
    WHERE told.tool <> '' GROUP BY severity, text ORDER BY severity DESC, min(place)"""


def checks(tables: Tables, selection: Selection = ALL) -> Table:
    """What readers found in the files, equal ones told once with the first place; warnings before notes."""
    rows = [(*found, ranges(ranks or ())) for *found, ranks in tables.query(SQL)]
    wrong = any(row[0] == "warning" for row in rows)
    title = "What is wrong with the input" if wrong else "Notes on the input"
    return arranged(Table("checks", title, COLUMNS, rows), selection)
