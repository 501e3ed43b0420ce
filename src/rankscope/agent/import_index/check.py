"""What of an index is no longer as recorded: every folder and every source is looked at."""

from __future__ import annotations

import marshal
import os
import sys
from typing import Any

from . import layout
from .build import roots
from .store import PACKAGE, SOURCE, identity


def problems(path: str) -> list[str]:
    """One line for each package (or for the whole index) that is not, or not all, answered by it."""
    try:
        facts = layout.read_facts(path)
    except FileNotFoundError:
        return ["there is no index: build it with rankscope index"]
    except (OSError, layout.BadIndex) as error:
        return [f"the index is not used: {error}"]
    import importlib.util

    if facts["python"] != (sys.hexversion, sys.implementation.cache_tag, importlib.util.MAGIC_NUMBER):
        return ["the index is not used: it was built by another version of Python"]
    here = {path: identity(os.stat(path)) for path in roots()}
    lines = []
    for path_then, then, place in facts["roots"]:
        now_at = (
            path_then if path_then in here else next((path_now for path_now in here if here[path_now] == then), None)
        )
        if now_at is None:
            lines.append(f"{path_then}: no longer on sys.path; ignored")
        else:
            lines += root_problems(path, now_at, place)
    known = {path_then for path_then, _, _ in facts["roots"]} | {identities for _, identities, _ in facts["roots"]}
    return lines + [
        f"{path_now}: not in the index" for path_now in here if path_now not in known and here[path_now] not in known
    ]


def root_problems(index: str, root: str, place: tuple[int, int]) -> list[str]:
    record, packages = read(index, place)
    problems_here = []
    if not same_folder(root, record):
        problems_here.append(f"{root}: something was installed or removed; its top level is searched without the index")
    problems_here += changed_sources(root, "", record)
    for top, package_place in packages.items():
        lines = []
        for relative, folder in read(index, package_place).items():
            if same_folder(f"{root}/{relative}", folder):
                lines += changed_sources(root, relative, folder)
            else:
                lines.append(f"{root}/{relative}: has changed; read from the file system")
        problems_here += lines if len(lines) < 4 else [*lines[:2], f"{root}/{top}: {len(lines) - 2} more like these"]
    return problems_here


def read(index: str, place: tuple[int, int]) -> Any:
    with open(index, "rb") as file:
        file.seek(place[0])
        return marshal.loads(file.read(place[1]))


def same_folder(path: str, record: Any) -> bool:
    try:
        return identity(os.stat(path)) == tuple(record[:3])
    except OSError:
        return False


def changed_sources(root: str, relative: str, record: Any) -> list[str]:
    """Sources that were overwritten in place, which no folder shows."""
    changed = []
    for name, (kind, code) in record[3].items():
        if kind in (SOURCE, PACKAGE) and code is not None:
            where = f"{root}/{relative}/{name}" if relative else f"{root}/{name}"
            path = where + ("/__init__.py" if kind == PACKAGE else ".py")
            try:
                status = os.stat(path)
                same = (status.st_mtime_ns, status.st_size) == tuple(code[2:])
            except OSError:
                same = False
            if not same:
                changed.append(
                    f"{path}: was edited in place, which a job does not notice unless RANKSCOPE_INDEX_CHECK=files; "
                    "rebuild the index"
                )
    return changed
