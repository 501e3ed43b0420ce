"""Python looks for modules in directories that hold none."""

from __future__ import annotations

from collections import Counter

from rankscope.model.tables import Tables
from rankscope.questions.imports.offenders.offender import Offender, some
from rankscope.questions.imports.search import Directory, Origins, loader_directories, resolving, search_entries

# ---------------------------------------------------------------- paths are resolved link by link, again and again
REALPATH_FEWEST = 300


def realpath_storm(tables: Tables) -> list[Offender]:
    """Hundreds of lstats of the folders on the way to files, as os.path.realpath makes them."""
    modules = resolving(tables)
    calls = sum(module.calls for module in modules)
    if calls < REALPATH_FEWEST:
        return []
    distinct = len(set[str]().union(*(module.distinct for module in modules)))
    names = [
        f"import_paths: {module.module}: {module.calls} calls, {len(module.distinct)} paths" for module in modules[:3]
    ]
    return [
        Offender(
            "realpath_storm",
            f"Paths are resolved link by link: {calls} calls ask for {distinct} distinct paths",
            "os.path.realpath checks every folder on the path, and inspect.getmodule calls it for all loaded "
            "modules: install at a shorter path, or avoid inspect.stack and inspect.getmodule at import",
            calls,
            names,
            "realpath",
        )
    ]


# ---------------------------------------------------------------- A module lists directories again and again
LISTING_FEWEST = 50
SQL = """
    SELECT modules.name, sum(times)::BIGINT, count(DISTINCT path), arg_max(path, (times, path))
    FROM paths JOIN modules USING (process, module)
    WHERE cause = 'module' AND operation = 'list' AND module > 0
    GROUP BY modules.name HAVING sum(times) >= ? ORDER BY 2 DESC, 1 LIMIT 3"""


def listing_storm(tables: Tables) -> list[Offender]:
    """os.listdir, os.walk or glob in a module's own code, many times."""
    return [
        Offender(
            "listing_storm",
            f"{name} lists directories {times} times while it is imported, {distinct} distinct ones",
            f"look for glob, os.walk or os.listdir at the top level of {name}: let it ask when it needs the answer",
            times,
            [f"import_paths: most of all {path}"],
            f"module={name}",
        )
        for name, times, distinct, path in tables.query(SQL, [LISTING_FEWEST])
    ]


# ---------------------------------------------------------------------------------------------------------------------
# The dynamic loader looks for libraries in directories that do not hold them, or for libraries that are nowhere.
LOADER_FEWEST = 100
FEWEST_ABSENT = 5  # libraries


def loader_search(tables: Tables, origins: Origins | None = None) -> list[Offender]:
    """More than half of what the loader asks for is not there: because it looks elsewhere first, or for nothing."""
    directories = [
        loader_directory for loader_directory in loader_directories(tables, origins=origins) if loader_directory.sought
    ]
    missing = sum(directory.missing for directory in directories)
    operations = sum(directory.operations for directory in directories)
    if missing < LOADER_FEWEST or 2 * missing < operations:
        return []
    held = {name for directory in directories for name in directory.present}
    nowhere = Counter[str]()
    for directory in directories:
        nowhere.update({name: times for name, times in directory.in_vain.items() if name and name not in held})
    absent = _absent(directories, nowhere) if len(nowhere) >= FEWEST_ABSENT else []
    left = missing - sum(nowhere.values())
    return absent + (_elsewhere(directories, left) if left >= LOADER_FEWEST else [])


def _elsewhere(directories: list[Directory], missing: int) -> list[Offender]:
    held = {name for directory in directories for name in directory.present}
    listed = [directory for directory in directories if directory.told_by == "LD_LIBRARY_PATH"]
    empty = [directory for directory in directories if directory.missing and not directory.present]
    worst = [f"{directory.path} ({directory.missing})" for directory in directories if directory.missing]
    evidence = [
        f"import_loader: most in vain in {some(worst)}; {len(empty)} directories hold none of the libraries",
        f"import_loader: mostly for {_for_whom(directories)}",
    ]
    title = f"The dynamic loader searches {len(directories)} directories for {len(held)} libraries: {missing} lookups"
    title += " are in vain"
    if 2 * sum(directory.missing for directory in listed) >= missing:
        return [Offender("loader_search", title, _shorter(listed), missing, evidence, "ld-library-path")]
    return [Offender("loader_search", title, _first(directories), missing, evidence)]


def _absent(directories: list[Directory], nowhere: Counter[str]) -> list[Offender]:
    places = [directory for directory in directories if any(name in nowhere for name in directory.in_vain)]
    calls = sum(nowhere.values())
    return [
        Offender(
            "absent_libraries",
            f"{len(nowhere)} libraries are looked for in {len(places)} directories and are nowhere: {calls} lookups",
            f"they are optional parts or plugins: check whether {_for_whom(places)} can be configured to try fewer",
            calls,
            [f"import_loader: {some(name for name, _ in nowhere.most_common())}"],
        )
    ]


def _for_whom(directories: list[Directory]) -> str:
    importers = Counter[str]()
    for directory in directories:
        importers.update(directory.by_module)
    named = [name for name, _ in importers.most_common(3) if name != "(interpreter)"]
    return some(named[:2]) or "the program"


def _shorter(listed: list[Directory]) -> str:
    """LD_LIBRARY_PATH with what is of use in it."""
    useful = [directory.path for directory in listed if directory.present]
    if not useful:
        return "unset LD_LIBRARY_PATH: none of its directories holds a library that was looked for"
    return f"shorten LD_LIBRARY_PATH to the directories that hold something: {some(useful)}"


def _first(directories: list[Directory]) -> str:
    """The libraries' own search path is long: name what is found first, where that helps."""
    by = Counter[str]()
    for directory in directories:
        if directory.told_by.startswith(("RPATH", "RUNPATH")):
            by[directory.told_by] += directory.missing
    named = ":".join(directory.path for directory in _useful(directories)[:2])
    whose = by.most_common(1)[0][0] if by else ""
    shorten = f"shorten {f'the {whose}' if whose else 'RPATH or RUNPATH of the libraries'} with patchelf --set-rpath"
    if whose.startswith("RPATH") or not named:
        return f"{shorten}: RPATH goes before LD_LIBRARY_PATH, which therefore does not help"
    return f"set LD_LIBRARY_PATH={named} for this job (it goes before RUNPATH, not before RPATH), or {shorten}"


def _useful(directories: list[Directory]) -> list[Directory]:
    """Those that held libraries, the most first; extension modules are opened where they are, without a search."""
    held = {directory.path: sum(name.startswith("lib") for name in directory.present) for directory in directories}
    useful = [directory for directory in directories if held[directory.path] and directory.told_by != "system"]
    return sorted(useful, key=lambda directory: -held[directory.path])


# ---------------------------------------------------------------- lookups
LOOKUPS_FEWEST = 30  # questions to one directory


def useless_search(tables: Tables) -> list[Offender]:
    """Entries of sys.path that were asked often and never held what was looked for."""
    useless = [entry for entry in search_entries(tables) if entry.never_hit and entry.operations >= LOOKUPS_FEWEST]
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
            [f"import_search: {entry.path}: searched {entry.operations} times" for entry in useless[:3]],
            "search",
        )
    ]


def _action(tables: Tables, folders: list[str]) -> str:
    """Python puts the folder in which it was started first by itself, with -c and -m."""
    here = {row[0] for row in tables.query("SELECT cwd FROM run")}
    text = "python -P or PYTHONSAFEPATH=1 (3.11 on) leaves out the current folder"
    if set(folders) <= here:
        return text
    others = "remove them from PYTHONPATH, or move them to its end: every import searches them first"
    return f"{others}; {text}" if here & set(folders) else others
