"""What lies in a folder of sys.path, as Python's own finder would see it."""

from __future__ import annotations

import importlib.machinery as machinery
import os
import stat
from collections.abc import Iterator
from typing import Any

from .store import ASK, EXTENSION, NAMESPACE, PACKAGE, SOURCE, identity

SUFFIXES = [*machinery.EXTENSION_SUFFIXES, *machinery.SOURCE_SUFFIXES, *machinery.BYTECODE_SUFFIXES]
LEFT_OUT = ("__pycache__", "site-packages", "dist-packages")


class Scanned:
    """One folder: what identifies it, its modules by name, its plain files, the folders to look into next."""

    def __init__(self, relative: str, status: os.stat_result) -> None:
        self.relative = relative
        self.status = status
        self.modules: dict[str, tuple[int, Any]] = {}
        self.files: frozenset[str] = frozenset()
        self.inside: list[str] = []


def scan(root: str) -> Iterator[Scanned]:
    """Every folder of the tree in which a module can be found, the root first."""
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        try:
            scanned = scan_folder(root, relative)
        except OSError:  # unreadable, or gone meanwhile: Python itself will say so
            continue
        prefix = relative + "/" if relative else ""
        waiting += [prefix + name for name in sorted(scanned.inside, reverse=True)]
        if scanned.modules:
            yield scanned


def scan_folder(root: str, relative: str) -> Scanned:
    path = f"{root}/{relative}" if relative else root
    scanned = Scanned(relative, os.stat(path))
    with os.scandir(path) as listing:
        entries = {entry.name: entry for entry in listing}
    scanned.files = frozenset(name for name, entry in entries.items() if entry.is_file(follow_symlinks=False))
    scanned.inside = [name for name, entry in entries.items() if is_inner(name, entry)]
    for stem in stems(entries):
        module = resolve(path, stem, entries, scanned.files)
        if module is not None:
            scanned.modules[stem] = module
    if identity(os.stat(path)) != identity(scanned.status):
        raise OSError("changed while being read")
    return scanned


def is_inner(name: str, entry: os.DirEntry[str]) -> bool:
    return "." not in name and name not in LEFT_OUT and entry.is_dir(follow_symlinks=False)


def stems(entries: dict[str, Any]) -> set[str]:
    """Names that an import statement could ask this folder for."""
    candidates = {name for name in entries if "." not in name and name != "__pycache__"}
    for name in entries:
        candidates.update(name[: -len(suffix)] for suffix in SUFFIXES if name.endswith(suffix))
    return {name for name in candidates if name and "." not in name}


def resolve(path: str, stem: str, entries: dict[str, Any], files: frozenset[str]) -> tuple[int, Any] | None:
    """What Python would find under this name: a package, then a file by the order of suffixes, then a namespace."""
    folder = entries.get(stem)
    if stem == "__init__":
        return ASK, None  # the package itself under a second name
    if folder is not None and not (stem in files or folder.is_dir(follow_symlinks=False)):
        return ASK, None  # a symbolic link or something special
    if folder is not None and stem not in files:
        package = package_in(f"{path}/{stem}")
        if package is not None:
            return package
    for suffix in SUFFIXES:
        name = stem + suffix
        if name in entries:
            return file_module(suffix, name in files)
    return (NAMESPACE, None) if folder is not None and stem not in files else None


def file_module(suffix: str, is_plain: bool) -> tuple[int, Any]:
    if not is_plain or suffix in machinery.BYTECODE_SUFFIXES:
        return ASK, None
    return (SOURCE, None) if suffix == ".py" else (EXTENSION, suffix)


def package_in(path: str) -> tuple[int, Any] | None:
    """Whether the folder is a package; one that does not begin with a plain `__init__.py` is left to Python."""
    for suffix in SUFFIXES:
        try:
            mode = os.lstat(f"{path}/__init__{suffix}").st_mode
        except OSError:
            continue
        return (PACKAGE, None) if suffix == ".py" and stat.S_ISREG(mode) else (ASK, None)
    return None
