"""Where does the dynamic loader look for libraries, and how often in vain?"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

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
SYSTEM = ("/lib", "/usr/lib")
CACHES = ("/etc/ld.so.cache", "/etc/ld.so.preload")
SQL = """
    SELECT path, operation, result, coalesce(modules.name, '(interpreter)'), sum(times)::BIGINT
    FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module)
    WHERE {condition} AND cause = 'loader' AND operation IN ('open', 'stat', 'access') GROUP BY ALL ORDER BY ALL"""

Origins = Mapping[str, str]  # directory: who tells the loader to look there


@dataclass(slots=True)
class Directory:
    """A directory in which the loader looked."""

    path: str
    told_by: str
    operations: int = 0
    missing: int = 0
    found: set[str] = field(default_factory=set)  # libraries
    sought: set[str] = field(default_factory=set)
    in_vain: Counter[str] = field(default_factory=Counter)  # by library; "": the directory itself is not there
    by_module: Counter[str] = field(default_factory=Counter)


def loaded_objects(tables: Tables) -> list[str]:
    """The libraries and extensions that were opened: each may tell the loader where to look for others."""
    sql = "SELECT DISTINCT path FROM paths WHERE operation = 'open' AND result = 'ok' AND path LIKE '/%.so%' ORDER BY 1"
    return [row[0] for row in tables.query(sql) if LIBRARY.search(os.path.basename(row[0])) and row[0] not in CACHES]


def loader_directories(tables: Tables, selection: Selection = ALL, told: Origins | None = None) -> list[Directory]:
    """Every directory that was asked for a library, the most in vain first; `told`: who named it, if known."""
    told_by = dict(told or {}) | dict.fromkeys(_library_path(tables), "LD_LIBRARY_PATH")
    directories: dict[str, Directory] = {}
    for path, operation, result, module, times in tables.query(SQL.format(condition=chosen(selection))):
        folder, name = os.path.split(path)
        if path in CACHES or (operation == "open" and not LIBRARY.search(name)):
            continue
        # a stat is that of a directory, which the loader asks for where it found nothing in it
        place = os.path.normpath(FEATURES.sub("", path if not LIBRARY.search(name) else folder))
        one = directories.setdefault(place, Directory(place, told_by.get(place, _system(place))))
        _count(one, name if LIBRARY.search(name) else "", result, module, times)
    return sorted(directories.values(), key=lambda one: (-one.missing, -one.operations, one.path))


def _library_path(tables: Tables) -> list[str]:
    text = tables.query("SELECT library_path FROM run")[0][0] or ""
    return [os.path.normpath(part or ".") for part in text.split(":")] if text else []


def _system(place: str) -> str:
    return "system" if place.startswith(SYSTEM) else ""


def _count(one: Directory, name: str, result: str, module: str, times: int) -> None:
    one.operations += times
    one.by_module[module] += times
    if name:
        one.sought.add(name)
    if result == "ENOENT":
        one.missing += times
        one.in_vain[name] += times
    elif result == "ok" and name:
        one.found.add(name)


def import_loader(tables: Tables, selection: Selection = ALL, told: Origins | None = None) -> Table:
    """One line for each directory and who told the loader to look there, as far as that is known."""
    table = Table("import_loader", "The dynamic loader's search", COLUMNS, [])
    for one in loader_directories(tables, selection, told):
        most = one.by_module.most_common(1)[0][0]
        row = (one.path, one.told_by, one.operations, one.missing, len(one.found), len(one.sought), most)
        table.rows.append(row)
    if any(not one[1] for one in table.rows):
        table.notes.append("Where nobody is named: RPATH or RUNPATH of an object, which `rankscope imports` reads.")
    return arranged(table, selection)
