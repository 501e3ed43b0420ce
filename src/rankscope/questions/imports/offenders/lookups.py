"""Python looks for modules in directories that hold none."""

from __future__ import annotations

from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender, some
from rankscope.questions.imports.search import search_entries

FEWEST = 30  # questions to one directory


def useless_search(tables: Tables) -> list[Offender]:
    """Entries of sys.path that were asked often and never held what was looked for."""
    useless = [entry for entry in search_entries(tables) if entry.never_hit and entry.operations >= FEWEST]
    if not useless:
        return []
    calls = sum(entry.operations for entry in useless)
    named = some(entry.path for entry in useless)
    held = "entry of sys.path holds" if len(useless) == 1 else "entries of sys.path hold"
    return [
        Offender(
            "useless_search",
            f"{len(useless)} {held} no module that was looked for: {named}",
            _action(tables, [entry.path for entry in useless]),
            calls,
            [f"import_search: {entry.path}: asked {entry.operations} times" for entry in useless[:3]],
            "search",
        )
    ]


def _action(tables: Tables, folders: list[str]) -> str:
    """Python puts the folder in which it was started first by itself, with -c and -m."""
    here = {row[0] for row in tables.query("SELECT cwd FROM run")}
    said = "python -P or PYTHONSAFEPATH=1 (3.11 on) leaves the current folder out"
    if set(folders) <= here:
        return said
    others = "take them out of PYTHONPATH, or put them behind the others: every import asks them first"
    return f"{others}; {said}" if here & set(folders) else others
