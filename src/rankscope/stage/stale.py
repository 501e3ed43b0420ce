"""Whether the original is still what was packed."""

import os

from rankscope.stage.bundle import Manifest

CHECKS = ("quick", "full", "none")


def changed(manifest: Manifest, check: str) -> str:
    """The first folder (quick) or file (full) that has changed, "" if none.

    Installing, upgrading or removing a package, and editors that write beside and rename, change the time of a folder.
    """
    if check == "none":
        return ""
    for folder, mtime_ns in manifest.watched:
        if time_of(folder) != mtime_ns:
            return folder
    return changed_file(manifest) if check == "full" else ""


def changed_file(manifest: Manifest) -> str:
    originals = {root.name: root.real for root in manifest.roots}
    for file in manifest.files:
        name, _, within = file.path.partition("/")
        path = f"{originals.get(name, '')}/{within}"
        try:
            status = os.lstat(path)
        except OSError:
            return path
        if (status.st_mtime_ns, status.st_size) != (file.mtime_ns, file.size):
            return path
    return ""


def time_of(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None
