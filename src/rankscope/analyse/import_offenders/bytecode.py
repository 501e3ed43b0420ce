"""Source is compiled at import because there is no bytecode of it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender, some
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection

FEWEST = 10
REFUSED = ("EACCES", "EROFS", "EPERM", "ENOTDIR")
CACHED = re.compile(r"\.[\w-]+(\.opt-\w+)?\.pyc(\.\d+)?$")
SQL = """
    SELECT path, operation, result, sum(times)::BIGINT, max(bytes) FROM paths JOIN ranks USING (process)
    WHERE {condition} AND cause IN ('code', 'search') AND path LIKE '%.py%' GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class Compiled:
    """Sources that were read because their bytecode was not there."""

    sources: dict[str, int] = field(default_factory=dict)  # path: bytes
    calls: int = 0
    refused: int = 0  # bytecode that could not be written
    written: int = 0


def compiled(tables: Tables, selection: Selection = ALL) -> Compiled:
    """What had to be compiled: its source was opened, and of its bytecode nothing could be."""
    rows = tables.query(SQL.format(condition=chosen(selection)))
    opened = {path: size for path, operation, result, _, size in rows if operation == "open" and result == "ok"}
    cached = {_source(path) for path in opened if path.endswith(".pyc")}
    made = Compiled()
    made.sources = {path: size for path, size in opened.items() if path.endswith(".py") and path not in cached}
    # a .pyc that has just been written was opened under a temporary name, not under its own
    for path, operation, result, times, _ in rows:
        source = path if path.endswith(".py") else _source(path)
        if source not in made.sources:
            continue
        made.calls += times if operation == "open" else 0
        if re.search(r"\.pyc\.\d+$", path) and operation == "open":
            made.refused += times if result in REFUSED else 0
            made.written += times if result == "ok" else 0
    return made


def _source(path: str) -> str:
    """The source of a file in __pycache__."""
    folder, name = os.path.split(CACHED.sub("", path))
    return os.path.join(os.path.dirname(folder), name + ".py") if os.path.basename(folder) == "__pycache__" else ""


def missing_bytecode(tables: Tables) -> list[Offender]:
    """Many modules are compiled anew."""
    found = compiled(tables)
    if len(found.sources) < FEWEST:
        return []
    size = sum(found.sources.values())
    folders = sorted({os.path.dirname(path) for path in found.sources}, key=len)
    if found.written >= len(found.sources) // 2:
        action = "nothing: their bytecode was written now, the next start is faster"
    elif found.refused:
        action = (
            "__pycache__ cannot be written: let its owner run python -m compileall on it once, or set "
            "PYTHONPYCACHEPREFIX to a folder that can be written"
        )
    else:
        action = "run python -m compileall on them once, or set PYTHONPYCACHEPREFIX; unset PYTHONDONTWRITEBYTECODE"
    return [
        Offender(
            "missing_bytecode",
            f"{len(found.sources)} modules ({size / 1024:.0f} KiB of source) are compiled because bytecode is missing",
            action,
            found.calls,
            [f"import_paths: sources opened in {some(folders)}; {found.refused} attempts to write bytecode refused"],
            "bytecode",
        )
    ]
