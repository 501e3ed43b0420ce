"""Whether the original is still what was packed."""

import os

from rankscope.stage.bundle import File, Manifest

CACHE = "__pycache__"  # made whenever a module is compiled, which changes nothing


def changed(manifest: Manifest, check: str) -> str:
    """The first folder (quick) or file (full) that has changed, "" if none.

    Installing, upgrading or removing a package, and editors that write beside and rename, change the time of a folder.
    Only then is looked at what is in it.
    """
    if check == "none":
        return ""
    suspects = [folder for folder, mtime_ns in manifest.watched if time_of(folder) != mtime_ns]
    if suspects:
        held = Held(manifest)
        for folder in suspects:
            if not held.is_same(folder):
                return folder
    return changed_file(manifest) if check == "full" else ""


class Held:
    """What the manifest says is in a folder of the original."""

    def __init__(self, manifest: Manifest) -> None:
        self.roots = {root.name: root.real for root in manifest.roots}
        self.names: dict[str, set[str]] = {}
        self.files: dict[str, list[File]] = {}
        paths = [path for path, _ in manifest.folders] + [path for path, _, _ in manifest.links]
        for path in [*paths, *(file.path for file in manifest.files)]:
            folder, _, name = self.original(path).rpartition("/")
            self.names.setdefault(folder, set()).add(name)
        for file in manifest.files:
            self.files.setdefault(os.path.dirname(self.original(file.path)), []).append(file)

    def original(self, path: str) -> str:
        name, slash, within = path.partition("/")
        return f"{self.roots.get(name, '')}{slash}{within}"

    def is_same(self, folder: str) -> bool:
        """The same names, and packed files with the same size and time; others are links and lead to what is there."""
        try:
            names = set(os.listdir(folder))
        except OSError:
            return False
        if names - {CACHE} != self.names.get(folder, set()) - {CACHE}:
            return False
        return all(is_same_file(self.original(file.path), file) for file in self.files.get(folder, []))


def is_same_file(path: str, file: File) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_mtime_ns, status.st_size) == (file.mtime_ns, file.size)


def changed_file(manifest: Manifest) -> str:
    held = Held(manifest)
    for file in manifest.files:
        path = held.original(file.path)
        if path.startswith("/") and not is_same_file(path, file):
            return path
    return ""


def time_of(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None
