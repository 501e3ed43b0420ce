"""Where does the dynamic loader look for libraries, and how often in vain?"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field

from rankscope.analyse.import_data import chosen
from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.model import Column, Table, Tables, Unit

COLUMNS = (
    Column("directory", Unit.NAME, "Directory"),
    Column("from", Unit.NAME, "Told by"),
    Column("operations", Unit.COUNT, "Asked"),
    Column("missing", Unit.COUNT, "In vain"),
    Column("found", Unit.COUNT, "Found"),
    Column("libraries", Unit.COUNT, "Libraries"),
    Column("most_by", Unit.NAME, "Most for"),
)
# below each directory the loader also tries versions for the processor's features
FEATURES = re.compile(r"(/glibc-hwcaps/[^/]+|/tls|/x86_64|/haswell|/avx512_1|/aarch64|/atomics)+$")
LIBRARY = re.compile(r"\.so(\.|$)")
CACHES = ("/etc/ld.so.cache", "/etc/ld.so.preload")
SQL = """
    SELECT path, operation, result, coalesce(modules.name, '(interpreter)'), sum(times)::BIGINT
    FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module)
    WHERE {condition} AND cause = 'loader' AND operation IN ('open', 'stat', 'access') GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class Directory:
    """A directory in which the loader looked."""

    path: str
    told_by: str
    operations: int = 0
    missing: int = 0
    found: set[str] = field(default_factory=set)  # libraries
    sought: set[str] = field(default_factory=set)
    by_module: Counter[str] = field(default_factory=Counter)


def loader_directories(tables: Tables, selection: Selection = ALL) -> list[Directory]:
    """Every directory that was asked for a library, the most in vain first."""
    told = tables.query("SELECT library_path FROM run")
    library_path = {os.path.normpath(part or ".") for part in (told[0][0] or "").split(":")} if told else set()
    directories: dict[str, Directory] = {}
    for path, operation, result, module, times in tables.query(SQL.format(condition=chosen(selection))):
        folder, name = os.path.split(path)
        if path in CACHES or (operation == "open" and not LIBRARY.search(name)):
            continue
        # a stat is that of a directory, which the loader asks for where it found nothing in it
        place = FEATURES.sub("", path if operation == "stat" and not LIBRARY.search(name) else folder)
        origin = "LD_LIBRARY_PATH" if os.path.normpath(place) in library_path else ""
        one = directories.setdefault(place, Directory(place, origin))
        _count(one, name if LIBRARY.search(name) else "", result, module, times)
    return sorted(directories.values(), key=lambda one: (-one.missing, -one.operations, one.path))


def _count(one: Directory, name: str, result: str, module: str, times: int) -> None:
    one.operations += times
    one.by_module[module] += times
    if name:
        one.sought.add(name)
    if result == "ENOENT":
        one.missing += times
    elif result == "ok" and name:
        one.found.add(name)


def import_loader(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each directory; who told the loader to look there is known of LD_LIBRARY_PATH."""
    table = Table("import_loader", "The dynamic loader's search", COLUMNS, [])
    for one in loader_directories(tables, selection):
        most = one.by_module.most_common(1)[0][0]
        row = (one.path, one.told_by, one.operations, one.missing, len(one.found), len(one.sought), most)
        table.rows.append(row)
    table.notes.append("Directories that LD_LIBRARY_PATH does not name come from RPATH, RUNPATH or the system.")
    return arranged(table, selection)
