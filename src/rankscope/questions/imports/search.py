"""Where does Python look for modules, and where does it never find one?"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("directory", Unit.NAME, "Directory"),
    Column("operations", Unit.COUNT, "Asked"),
    Column("listings", Unit.COUNT, "Listed"),
    Column("missing", Unit.COUNT, "Missing"),
    Column("found", Unit.COUNT, "Files found"),
    Column("kind", Unit.NAME, "What it is"),
)
SQL = """
    SELECT path, operation, result, cause, sum(times)::BIGINT FROM paths JOIN ranks USING (process)
    WHERE {condition} AND cause IN ('search', 'code', 'interpreter') GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class Entry:
    """A directory that was searched."""

    path: str
    operations: int = 0  # on itself and on what lies directly in it, while searching
    listings: int = 0
    missing: int = 0
    is_package: bool = False
    found: set[str] = field(default_factory=set)

    @property
    def never_hit(self) -> bool:
        return not self.found and not self.is_package

    @property
    def kind(self) -> str:
        return "package" if self.is_package else "never found anything" if self.never_hit else ""


def search_entries(tables: Tables, selection: Selection = ALL) -> list[Entry]:
    """The directories that were listed while searching: the entries of sys.path, and packages.

    What Python imports for itself, before anybody can watch, counts as found and listed too.
    """
    rows = tables.query(SQL.format(condition=chosen(selection)))
    entries = {row[0]: Entry(row[0]) for row in rows if row[1] == "list" and row[3] != "code"}
    for path, operation, result, cause, times in rows:
        _take(entries, path, operation, result, cause, times)
    asked = [entry for entry in entries.values() if entry.operations]
    return sorted(asked, key=lambda entry: (-entry.operations, entry.path))


def _take(entries: dict[str, Entry], path: str, operation: str, result: str, cause: str, times: int) -> None:
    folder, name = os.path.split(path)
    asked = entries.get(path) or entries.get(folder)
    if asked is not None and cause == "search":
        asked.operations += times
        asked.listings += times if operation == "list" else 0
        asked.missing += times if result == "ENOENT" else 0
    if result != "ok" or (path in entries and operation == "list"):
        return
    if os.path.basename(folder) == "__pycache__":
        folder = os.path.dirname(folder)
    if folder in entries:
        # anything that is there counts as found: rather too little is called useless than too much
        entries[folder].found.add(path)
    if name.startswith("__init__."):
        if folder in entries:
            entries[folder].is_package = True
        above = os.path.dirname(folder)
        if above in entries:
            entries[above].found.add(folder)


def import_search(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each directory of Python's search, the most asked first."""
    table = Table("import_search", "Python's search", COLUMNS, [])
    for entry in search_entries(tables, selection):
        counts = (entry.operations, entry.listings, entry.missing, len(entry.found))
        table.rows.append((entry.path, *counts, entry.kind))
    return arranged(table, selection)
