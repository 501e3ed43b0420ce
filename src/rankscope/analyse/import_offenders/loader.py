"""The dynamic loader looks for libraries in directories that do not hold them."""

from __future__ import annotations

from collections import Counter

from rankscope.analyse.import_loader import Directory, Origins, loader_directories
from rankscope.analyse.import_offenders.offender import Offender, some
from rankscope.model import Tables

FEWEST = 50


def loader_search(tables: Tables, origins: Origins | None = None) -> list[Offender]:
    """More than half of what the loader asks for is not there."""
    directories = [one for one in loader_directories(tables, told=origins) if one.sought]
    missing = sum(one.missing for one in directories)
    asked = sum(one.operations for one in directories)
    if missing < FEWEST or 2 * missing < asked:
        return []
    told = [one for one in directories if one.told_by == "LD_LIBRARY_PATH"]
    told_missing = sum(one.missing for one in told)
    sought = {name for one in directories for name in one.sought}
    for_whom = Counter[str]()
    for one in directories:
        for_whom.update(one.by_module)
    empty = [one for one in directories if one.missing and not one.found]
    worst = [f"{one.path} ({one.missing})" for one in directories if one.missing]
    evidence = [
        f"import_loader: most in vain in {some(worst)}; {len(empty)} directories hold none of the libraries",
        f"import_loader: mostly for {some(name for name, _ in for_whom.most_common(3))}",
    ]
    title = f"The dynamic loader searches {len(directories)} directories for {len(sought)} libraries: {missing} of "
    title += f"{asked} questions are in vain"
    if 2 * told_missing >= missing:
        return [Offender("loader_search", title, _shorter(told), missing, evidence, "ld-library-path")]
    return [Offender("loader_search", title, _first(directories), missing, evidence)]


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
    useful = sorted((one for one in directories if one.found), key=lambda one: -len(one.found))
    named = ":".join(one.path for one in useful[:2])
    whose = by.most_common(1)[0][0] if by else ""
    shorten = f"shorten {f'the {whose}' if whose else 'RPATH or RUNPATH of the libraries'} with patchelf --set-rpath"
    if whose.startswith("RPATH"):
        return f"{shorten}: it goes before LD_LIBRARY_PATH, which therefore does not help"
    return f"set LD_LIBRARY_PATH={named} for this job (it goes before RUNPATH, not before RPATH), or {shorten}"
