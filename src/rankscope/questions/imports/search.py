"""Where does Python look for modules, and where does it never find one?"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

# ---------------------------------------------------------------------------------------------------------------------
# How many stats resolve paths link by link, as os.path.realpath does?
REALPATH_SQL = """
    SELECT coalesce(modules.name, '(interpreter)'), path,
        coalesce(sum(CASE WHEN operation = 'stat' THEN times END), 0)::BIGINT,
        coalesce(sum(CASE WHEN operation = 'readlink' THEN times END), 0)::BIGINT
    FROM paths JOIN ranks USING (process) LEFT JOIN modules USING (process, module)
    WHERE {condition} AND cause IN ('module', 'interpreter') AND operation IN ('stat', 'readlink') AND path LIKE '/%'
    GROUP BY 1, 2 ORDER BY 1, 2"""


@dataclass(slots=True)
class Resolving:
    """What one module resolved."""

    module: str
    calls: int = 0
    distinct: set[str] = field(default_factory=set)


def resolving(tables: Tables, selection: Selection = ALL) -> list[Resolving]:
    """By module, the most calls first."""
    by_module: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for module, path, stats, readlinks in tables.query(REALPATH_SQL.format(condition=chosen(selection))):
        by_module[module][path] = stats, readlinks
    resolved = [_resolved(module, counts) for module, counts in by_module.items()]
    return sorted((resolution for resolution in resolved if resolution.calls), key=lambda resolution: -resolution.calls)


def _resolved(module: str, counts: Mapping[str, tuple[int, int]]) -> Resolving:
    resolution = Resolving(module)
    # Python asks for the status of each link of the chain and reads those that are links; libc reads them at once
    for path, times in passes({path: max(both) for path, both in counts.items()}).items():
        if times:
            resolution.calls += times + min(times, *counts[path])
            resolution.distinct.add(path)
    return resolution


def passes(counts: Mapping[str, int]) -> dict[str, int]:
    """How often each path was asked as a link of a chain from the root: asking /a, /a/b and /a/b/c is one chain.

    No more than its parent was: what is asked more often was also asked by itself.
    """
    below: dict[str, list[str]] = defaultdict(list)
    for path in counts:
        if path != "/":
            below[path.rpartition("/")[0]].append(path)
    walked: dict[str, int] = {}
    for path in sorted(below[""]):
        walked[path] = min(counts[path], sum(counts[child] for child in below.get(path, ())))
    waiting = list(walked)
    while waiting:
        parent = waiting.pop()
        children = below.get(parent, ())
        total = sum(counts[child] for child in children)
        for child in children:
            walked[child] = counts[child] * min(total, walked[parent]) // total if total else 0
        waiting += children
    return walked


# ---------------------------------------------------------------------------------------------------------------------
# Where does the dynamic loader look for libraries, and how often in vain?
IMPORT_LOADER_COLUMNS = (
    Column(
        "directory",
        Unit.NAME,
        "Directory",
        "in which the dynamic loader looked; subdirectories for processor features (`glibc-hwcaps/…`) count for "
        "their parent",
    ),
    Column(
        "from",
        Unit.NAME,
        "Set by",
        "LD_LIBRARY_PATH of the run; the RPATH or RUNPATH of an object that was opened and can still be read here "
        "(`rankscope imports` only); system: /lib and /usr/lib",
    ),
    Column("operations", Unit.COUNT, "Asked", "number of operations on it"),
    Column("missing", Unit.COUNT, "Not found", "of `operations`: answered with ENOENT"),
    Column("found", Unit.COUNT, "Found", "number of different libraries that it held"),
    Column("libraries", Unit.COUNT, "Libraries", "number of different libraries looked up in it"),
    Column("most_by", Unit.NAME, "Mostly for", "the module for which it was asked most"),
)
# below each directory the loader also tries versions for the processor's features
FEATURES = re.compile(r"(/glibc-hwcaps/[^/]+|/tls|/x86_64|/haswell|/avx512_1|/aarch64|/atomics)+$")
LIBRARY = re.compile(r"\.so(\.|$)")
SYSTEM = ("/lib", "/usr/lib")
CACHES = ("/etc/ld.so.cache", "/etc/ld.so.preload")
IMPORT_LOADER_SQL = """
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
    present: set[str] = field(default_factory=set)  # libraries
    sought: set[str] = field(default_factory=set)
    in_vain: Counter[str] = field(default_factory=Counter)  # by library; "": the directory itself is not there
    by_module: Counter[str] = field(default_factory=Counter)


def loaded_objects(tables: Tables) -> list[str]:
    """The libraries and extensions that were opened: each may tell the loader where to look for others."""
    sql = "SELECT DISTINCT path FROM paths WHERE operation = 'open' AND result = 'ok' AND path LIKE '/%.so%' ORDER BY 1"
    return [row[0] for row in tables.query(sql) if LIBRARY.search(os.path.basename(row[0])) and row[0] not in CACHES]


def loader_directories(tables: Tables, selection: Selection = ALL, origins: Origins | None = None) -> list[Directory]:
    """Every directory that was asked for a library, the most in vain first; `told`: who named it, if known."""
    told_by = dict(origins or {}) | dict.fromkeys(_library_path(tables), "LD_LIBRARY_PATH")
    directories: dict[str, Directory] = {}
    for path, operation, result, module, times in tables.query(IMPORT_LOADER_SQL.format(condition=chosen(selection))):
        folder, name = os.path.split(path)
        if path in CACHES or (operation == "open" and not LIBRARY.search(name)):
            continue
        # a stat is that of a directory, which the loader asks for where it found nothing in it
        place = os.path.normpath(FEATURES.sub("", path if not LIBRARY.search(name) else folder))
        directory = directories.setdefault(place, Directory(place, told_by.get(place, _system(place))))
        _count(directory, name if LIBRARY.search(name) else "", result, module, times)
    return sorted(
        directories.values(), key=lambda directory: (-directory.missing, -directory.operations, directory.path)
    )


def _library_path(tables: Tables) -> list[str]:
    text = tables.query("SELECT library_path FROM run")[0][0] or ""
    return [os.path.normpath(part or ".") for part in text.split(":")] if text else []


def _system(place: str) -> str:
    return "system" if place.startswith(SYSTEM) else ""


def _count(directory: Directory, name: str, result: str, module: str, times: int) -> None:
    directory.operations += times
    directory.by_module[module] += times
    if name:
        directory.sought.add(name)
    if result == "ENOENT":
        directory.missing += times
        directory.in_vain[name] += times
    elif result == "ok" and name:
        directory.present.add(name)


def import_loader(tables: Tables, selection: Selection = ALL, origins: Origins | None = None) -> Table:
    """One line for each directory and who told the loader to look there, as far as that is known."""
    table = Table("import_loader", "The dynamic loader's search", IMPORT_LOADER_COLUMNS, [])
    for directory in loader_directories(tables, selection, origins):
        most = directory.by_module.most_common(1)[0][0]
        row = (
            directory.path,
            directory.told_by,
            directory.operations,
            directory.missing,
            len(directory.present),
            len(directory.sought),
            most,
        )
        table.rows.append(row)
    if any(not row[1] for row in table.rows):
        table.notes.append("Where no name is given: RPATH or RUNPATH of an object, which `rankscope imports` reads.")
    return arranged(table, selection)


# ---------------------------------------------------------------- search
SEARCH_COLUMNS = (
    Column("directory", Unit.NAME, "Directory", "a folder that Python listed while it searched"),
    Column(
        "operations",
        Unit.COUNT,
        "Asked",
        "number of operations on it and what would be directly in it, while searching",
    ),
    Column("listings", Unit.COUNT, "Listed", "of `operations`: listings"),
    Column("missing", Unit.COUNT, "Missing", "of `operations`: answered with ENOENT"),
    Column("found", Unit.COUNT, "Files found", "number of different files and packages found in it"),
    Column(
        "kind",
        Unit.NAME,
        "What it is",
        "package; or *never found anything*: no lookup of anything in it succeeded, and it is no package",
    ),
)
SEARCH_SQL = """
    SELECT path, operation, result, cause, sum(times)::BIGINT FROM paths JOIN ranks USING (process)
    WHERE {condition} AND cause IN ('search', 'code', 'interpreter') GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class SearchedDirectory:
    """A directory that was searched."""

    path: str
    operations: int = 0  # on itself and on what lies directly in it, while searching
    listings: int = 0
    missing: int = 0
    is_package: bool = False
    present: set[str] = field(default_factory=set)

    @property
    def never_hit(self) -> bool:
        return not self.present and not self.is_package

    @property
    def kind(self) -> str:
        return "package" if self.is_package else "never found anything" if self.never_hit else ""


def search_entries(tables: Tables, selection: Selection = ALL) -> list[SearchedDirectory]:
    """The directories that were listed while searching: the entries of sys.path, and packages.

    What Python imports for itself, before anybody can watch, counts as found and listed too.
    """
    rows = tables.query(SEARCH_SQL.format(condition=chosen(selection)))
    entries = {row[0]: SearchedDirectory(row[0]) for row in rows if row[1] == "list" and row[3] != "code"}
    for path, operation, result, cause, times in rows:
        _take(entries, path, operation, result, cause, times)
    searched = [entry for entry in entries.values() if entry.operations]
    return sorted(searched, key=lambda entry: (-entry.operations, entry.path))


def _take(
    entries: dict[str, SearchedDirectory], path: str, operation: str, result: str, cause: str, times: int
) -> None:
    folder, name = os.path.split(path)
    entry = entries.get(path) or entries.get(folder)
    if entry is not None and cause == "search":
        entry.operations += times
        entry.listings += times if operation == "list" else 0
        entry.missing += times if result == "ENOENT" else 0
    if result != "ok" or (path in entries and operation == "list"):
        return
    if os.path.basename(folder) == "__pycache__":
        folder = os.path.dirname(folder)
    if folder in entries:
        # anything that is there counts as found: rather too little is called useless than too much
        entries[folder].present.add(path)
    if name.startswith("__init__."):
        if folder in entries:
            entries[folder].is_package = True
        above = os.path.dirname(folder)
        if above in entries:
            entries[above].present.add(folder)


def import_search(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each directory of Python's search, the most asked first."""
    table = Table("import_search", "Python's search", SEARCH_COLUMNS, [])
    for entry in search_entries(tables, selection):
        counts = (entry.operations, entry.listings, entry.missing, len(entry.present))
        table.rows.append((entry.path, *counts, entry.kind))
    return arranged(table, selection)
