"""Puts the index to use in this process."""

from __future__ import annotations

import os
import sys

from . import finding, paths
from .finding import external
from .folders import Root, changed, counts, index
from .store import Store, identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def start(path: str, status: os.stat_result, facts: Any) -> bool:
    """Put the index to use; false where it is not for this Python or nothing of it is as recorded."""
    if facts["python"] != (sys.hexversion, sys.implementation.cache_tag, external.MAGIC_NUMBER):
        return False
    index.store = Store(path, status, facts["folders_from"])
    index.checks_files = os.environ.get("RANKSCOPE_INDEX_CHECK") == "files"
    index.uses_code = facts["optimize"] == sys.flags.optimize
    add_roots(facts)
    if not index.roots:
        return False
    details = external._get_supported_file_loaders()
    finding.loaders += [(suffix, loader) for loader, suffixes in details for suffix in suffixes]
    external.FileFinder.find_spec = finding.find_spec
    external.FileFinder.invalidate_caches = finding.invalidate_caches
    external.SourceLoader.get_code = finding.get_code
    for known in [entry for entry in sys.path_importer_cache if index.folder(entry)]:
        sys.path_importer_cache[known] = finding.hook(known)
    sys.path_hooks.insert(0, finding.hook)
    sys.meta_path.insert(sys.meta_path.index(external.PathFinder) + 1, finding.LastLook)
    paths.answer()
    if os.environ.get("RANKSCOPE_INDEX_LOG"):
        was_there = "atexit" in sys.modules
        import atexit

        atexit.register(log, os.environ["RANKSCOPE_INDEX_LOG"])
        if not was_there and sys.version_info >= (3, 10):  # before, what is registered goes with the module
            del sys.modules["atexit"]
    return True


def log(folder: str) -> None:
    """What was answered in this process, and what was found changed, for who asks for it."""
    lines = [f"{name} {count}" for name, count in counts.items()] + [f"changed {path}" for path in changed]
    path = f"{folder}/{os.uname().nodename}-{os.getpid()}.txt"
    try:
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n".join(lines) + "\n")
    except OSError:
        pass


def add_roots(facts: Any) -> None:
    """Which entries of sys.path are folders of the index: by their names, or else by what they are."""
    waiting = {root[0]: root for root in facts["roots"]}
    others = []
    for entry in sys.path:
        root = waiting.pop(entry, None)
        if root is not None:
            add_root(entry, root)
        else:
            others.append(entry)
    for entry in others if waiting else ():
        try:
            place_now = identity(os.stat(entry or "."))
        except OSError:
            continue
        for root in waiting.values():
            if root[1][:3] == place_now and os.path.isabs(entry):
                add_root(entry, root)
    index.roots.sort(key=lambda root: -len(root.path))


def add_root(entry: str, root: Any) -> None:
    record, packages = index.store.load(*root[2])
    index.roots.append(Root(entry, record, packages, index.store))
