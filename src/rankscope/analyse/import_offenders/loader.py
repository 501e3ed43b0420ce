"""The dynamic loader looks for libraries in directories that do not hold them, or for libraries that are nowhere."""

from __future__ import annotations

from collections import Counter

from rankscope.analyse.import_loader import Directory, Origins, loader_directories
from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender, some

FEWEST = 100
FEWEST_ABSENT = 5  # libraries


def loader_search(tables: Tables, origins: Origins | None = None) -> list[Offender]:
    """More than half of what the loader asks for is not there: because it looks elsewhere first, or for nothing."""
    directories = [one for one in loader_directories(tables, told=origins) if one.sought]
    missing = sum(one.missing for one in directories)
    asked = sum(one.operations for one in directories)
    if missing < FEWEST or 2 * missing < asked:
        return []
    held = {name for one in directories for name in one.found}
    nowhere = Counter[str]()
    for one in directories:
        nowhere.update({name: times for name, times in one.in_vain.items() if name and name not in held})
    absent = _absent(directories, nowhere) if len(nowhere) >= FEWEST_ABSENT else []
    left = missing - sum(nowhere.values())
    return absent + (_elsewhere(directories, left) if left >= FEWEST else [])


def _elsewhere(directories: list[Directory], missing: int) -> list[Offender]:
    held = {name for one in directories for name in one.found}
    told = [one for one in directories if one.told_by == "LD_LIBRARY_PATH"]
    empty = [one for one in directories if one.missing and not one.found]
    worst = [f"{one.path} ({one.missing})" for one in directories if one.missing]
    evidence = [
        f"import_loader: most in vain in {some(worst)}; {len(empty)} directories hold none of the libraries",
        f"import_loader: mostly for {_for_whom(directories)}",
    ]
    title = f"The dynamic loader searches {len(directories)} directories for {len(held)} libraries: {missing} questions"
    title += " are in vain"
    if 2 * sum(one.missing for one in told) >= missing:
        return [Offender("loader_search", title, _shorter(told), missing, evidence, "ld-library-path")]
    return [Offender("loader_search", title, _first(directories), missing, evidence)]


def _absent(directories: list[Directory], nowhere: Counter[str]) -> list[Offender]:
    places = [one for one in directories if any(name in nowhere for name in one.in_vain)]
    calls = sum(nowhere.values())
    return [
        Offender(
            "absent_libraries",
            f"{len(nowhere)} libraries are looked for in {len(places)} directories and are nowhere: {calls} questions",
            f"they are optional parts or plugins: see whether {_for_whom(places)} can be told which of them to try",
            calls,
            [f"import_loader: {some(name for name, _ in nowhere.most_common())}"],
        )
    ]


def _for_whom(directories: list[Directory]) -> str:
    found = Counter[str]()
    for one in directories:
        found.update(one.by_module)
    named = [name for name, _ in found.most_common(3) if name != "(interpreter)"]
    return some(named[:2]) or "the program"


def _shorter(told: list[Directory]) -> str:
    """LD_LIBRARY_PATH with what is of use in it."""
    useful = [one.path for one in told if one.found]
    if not useful:
        return "unset LD_LIBRARY_PATH: none of its directories holds a library that was looked for"
    return f"shorten LD_LIBRARY_PATH to the directories that hold something: {some(useful)}"


def _first(directories: list[Directory]) -> str:
    """The libraries' own search path is long: name what is found first, where that helps."""
    by = Counter[str]()
    for one in directories:
        if one.told_by.startswith(("RPATH", "RUNPATH")):
            by[one.told_by] += one.missing
    named = ":".join(one.path for one in _useful(directories)[:2])
    whose = by.most_common(1)[0][0] if by else ""
    shorten = f"shorten {f'the {whose}' if whose else 'RPATH or RUNPATH of the libraries'} with patchelf --set-rpath"
    if whose.startswith("RPATH") or not named:
        return f"{shorten}: RPATH goes before LD_LIBRARY_PATH, which therefore does not help"
    return f"set LD_LIBRARY_PATH={named} for this job (it goes before RUNPATH, not before RPATH), or {shorten}"


def _useful(directories: list[Directory]) -> list[Directory]:
    """Those that held libraries, the most first; extension modules are opened where they are, without a search."""
    held = {one.path: sum(name.startswith("lib") for name in one.found) for one in directories}
    useful = [one for one in directories if held[one.path] and one.told_by != "system"]
    return sorted(useful, key=lambda one: -held[one.path])
