"""How many names does a client look up that walks paths folder by folder, with each kind of cache?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.model import PathOperation


def lookups(operations: Sequence[PathOperation], folder: str, cache: str) -> int:
    """Names asked for below the folder, which is where the client is mounted.

    Without a cache every operation asks for every folder on its way; what a link leads to is not followed.
    """
    existing = existing_paths(operations, folder)
    known: set[str] = set()
    asked = 0
    for one in operations:
        walked = list(walk(one.path, folder, existing))
        for _ in range(one.times):
            fresh = [path for path in walked if path not in known]
            asked += len(fresh)
            if cache == "none":
                continue
            known.update(path for path in fresh if path in existing or cache == "negative")
            if not fresh or all(path in known for path in fresh):
                break  # the same again asks nothing more
    return asked


def existing_paths(operations: Sequence[PathOperation], folder: str) -> set[str]:
    """What must be there, because an operation on it or below it went well."""
    good = {one.path for one in operations if one.result in ("ok", "")}
    return {prefix for path in good for prefix in prefixes(path, folder)}


def walk(path: str, folder: str, existing: set[str]) -> Iterator[str]:
    """The names on the way, up to the first that is not there."""
    for prefix in prefixes(path, folder):
        yield prefix
        if prefix not in existing:
            return


def is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def prefixes(path: str, folder: str) -> Iterator[str]:
    top = folder.rstrip("/")
    if not is_below(path, folder):
        return
    made = top
    for name in path[len(top) + 1 :].split("/"):
        if name and name != ".":
            made = f"{made}/{name}"
            yield made
