"""Modules found and loaded by the index in place of the file system, with Python's own finders and loaders."""

from __future__ import annotations

import _frozen_importlib_external
import _imp as imp
import os
import sys
from _frozen_importlib import ModuleSpec

from .folders import changed, counts, index
from .store import ASK, EXTENSION, NAMESPACE, PACKAGE, Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

external: Any = _frozen_importlib_external
_imp: Any = imp
loaders: list[Any] = []  # suffix and loader, as Python's own finders have them
find_in_folder = external.FileFinder.find_spec
compile_or_read = external.SourceLoader.get_code
forget = external.FileFinder.invalidate_caches
original_parts = (
    external.SourceLoader.source_to_code,
    external.FileLoader.get_data,
    external.SourceFileLoader.path_stats,
    external.SourceFileLoader._cache_bytecode,
)


def hook(path: str) -> Any:
    """The finder of a folder that is in the index; Python's other hooks know the rest."""
    if type(path) is not str or index.folder(path) is None:
        raise ImportError("not in the index", path=path)
    finder = external.FileFinder(path)
    finder._loaders = loaders  # the list itself: by it our finders are known
    return finder


def find_spec(self: Any, fullname: str, target: Any = None) -> Any:
    """Try to find a spec for the specified module."""
    if self._loaders is not loaders:
        return find_in_folder(self, fullname, target)
    folder = index.folder(self.path)
    if folder is None:
        return find_in_folder(self, fullname, target)
    name = fullname.rpartition(".")[2]
    module = folder.modules.get(name)
    if module is None:
        return None
    kind, code = module
    if kind == ASK:
        return find_in_folder(self, fullname, target)
    counts["found"] += 1
    path = self.path + "/" + name
    if kind == NAMESPACE:
        spec = ModuleSpec(fullname, None)
        spec.submodule_search_locations = [path]
        return spec
    if kind == EXTENSION:
        return self._get_spec(external.ExtensionFileLoader, fullname, path + code, None, target)
    inside = None
    if kind == PACKAGE:
        inside, path = [path], path + "/__init__.py"
    else:
        path += ".py"
    if code is not None:
        index.code[path] = code
    return self._get_spec(external.SourceFileLoader, fullname, path, inside, target)


def get_code(self: Any, fullname: str) -> Any:
    """Concrete implementation of InspectLoader.get_code."""
    place = index.code.get(self.path) if type(self) is external.SourceFileLoader else None
    if place is None or fullname != self.name or not index.uses_code or not is_unpatched():
        return compile_or_read(self, fullname)
    if index.checks_files and has_changed(self.path, place):
        return compile_or_read(self, fullname)
    try:
        code = index.store.load(place[0], place[1])
    except (Gone, OSError, ValueError, EOFError, TypeError):
        index.uses_code = False
        counts["refused"] += 1
        return compile_or_read(self, fullname)
    _imp._fix_co_filename(code, self.path)
    counts["code"] += 1
    return code


def is_unpatched() -> bool:
    """Whether nobody has changed how sources are read or compiled, as import hooks of type checkers do."""
    return original_parts == (
        external.SourceLoader.source_to_code,
        external.FileLoader.get_data,
        external.SourceFileLoader.path_stats,
        external.SourceFileLoader._cache_bytecode,
    )


def has_changed(path: str, place: Any) -> bool:
    try:
        status = os.stat(path)
        same = (status.st_mtime_ns, status.st_size) == place[2:]
    except OSError:
        same = False
    if not same:
        counts["changed_files"] += 1
        changed.append(path)
    return not same


def invalidate_caches(self: Any) -> None:
    """Invalidate the directory mtime."""
    if self._loaders is loaders:
        index.folders.pop(self.path, None)
    forget(self)


class LastLook:
    """Stands behind Python's own finder: what was not found may have been written since the folders were verified."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> Any:
        entries = sys.path if path is None else path
        outdated = [entry for entry in entries if is_outdated(entry)]
        if not outdated:
            return None
        return external.PathFinder.find_spec(fullname, path, target)


def is_outdated(path: Any) -> bool:
    """Whether a verified folder has changed meanwhile; it is then left to Python."""
    folder = index.folders.get(path) if type(path) is str else None
    if folder is None:
        return False
    del index.folders[path]
    return index.folder(path) is None
