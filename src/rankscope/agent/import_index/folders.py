"""Which folders of the environment are known, and which of them were found unchanged in this process."""

from __future__ import annotations

import os

from .store import Gone, Store, identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

counts = {"found": 0, "code": 0, "paths": 0, "changed_folders": 0, "changed_files": 0, "refused": 0}
changed: list[str] = []


class Folder:
    """A folder that is as it was recorded: its modules, its files."""

    __slots__ = ("files", "modules", "path", "root")

    def __init__(self, path: str, root: Root, record: Any) -> None:
        self.path, self.root = path, root
        self.modules, self.files = record[3], record[4]


class Root:
    """A folder of sys.path. Its packages are read from the index when they are asked for."""

    __slots__ = ("folders", "packages", "path", "prefix", "real", "record", "store")

    def __init__(self, path: str, record: Any, packages: Any, store: Store) -> None:
        self.path, self.record, self.packages, self.store = path, record, packages, store
        self.prefix = path + "/"
        self.folders: dict[str, Any] = {}
        self.real: str | None = None

    def find(self, relative: str) -> Any:
        """The record of a folder in it."""
        if not relative:
            return self.record
        top = relative.partition("/")[0]
        folders = self.folders.get(top)
        if folders is None:
            place = self.packages.get(top)
            folders = self.folders[top] = self.store.load(*place) if place else {}
        return folders.get(relative)


class Index:
    """What is known of this environment, and which of it has been verified in this process."""

    store: Store

    def __init__(self) -> None:
        self.checks_files = False
        self.roots: list[Root] = []
        self.folders: dict[str, Folder | None] = {}
        self.code: dict[str, Any] = {}
        self.uses_code = True

    def folder(self, path: str) -> Folder | None:
        """The folder, if it is recorded and has not changed since; looked at once."""
        try:
            return self.folders[path]
        except KeyError:
            pass
        for root in self.roots:
            if path.startswith(root.prefix) or path == root.path:
                verified = self.folders[path] = self.verified(path, root)
                return verified
        return None

    def verified(self, path: str, root: Root) -> Folder | None:
        try:
            record = root.find(path[len(root.path) + 1 :])
        except (Gone, OSError, ValueError, EOFError, TypeError):
            counts["refused"] += 1
            return None
        if record is None:
            return None
        try:
            same = identity(os.stat(path)) == record[:3]
        except (OSError, ValueError):
            same = False
        if same:
            return Folder(path, root, record)
        counts["changed_folders"] += 1
        changed.append(path)
        return None


index = Index()  # that of this process; empty until it is started
