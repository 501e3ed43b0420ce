"""Paths are resolved link by link, again and again."""

from __future__ import annotations

from rankscope.analyse.import_realpath import resolving
from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender

FEWEST = 300


def realpath_storm(tables: Tables) -> list[Offender]:
    """Hundreds of lstats of the folders on the way to files, as os.path.realpath makes them."""
    found = resolving(tables)
    calls = sum(one.calls for one in found)
    if calls < FEWEST:
        return []
    distinct = len(set[str]().union(*(one.distinct for one in found)))
    names = [f"import_paths: {one.module}: {one.calls} calls, {len(one.distinct)} paths" for one in found[:3]]
    return [
        Offender(
            "realpath_storm",
            f"Paths are resolved link by link: {calls} calls ask for {distinct} distinct paths",
            "os.path.realpath asks for every folder on the way, and inspect.getmodule calls it for all loaded modules: "
            "install at a shorter path, or spare inspect.stack and inspect.getmodule at import",
            calls,
            names,
            "realpath",
        )
    ]
