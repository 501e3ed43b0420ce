"""Questions about files that are known from verified folders, answered without a look at the file system: which path a
file really has (one call for each of its parts otherwise), and whether it is there."""

from __future__ import annotations

import genericpath
import posixpath

from .folders import counts, index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

find_realpath = posixpath.realpath
find_exists = genericpath.exists


def known(path: Any) -> Any:
    """The folder of this file, if that is as recorded and holds the file."""
    if type(path) is not str:
        return None
    head, _, tail = path.rpartition("/")
    folder = index.folder(head)
    return folder if folder is not None and tail in folder.files else None


def hide_our_frame(error: BaseException) -> None:
    """The program's traceback is then the one it has without us."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next


def realpath(filename: Any, **named: Any) -> Any:
    """Return the canonical path of the specified filename, eliminating any
    symbolic links encountered in the path."""
    folder = known(filename)
    if folder is None:
        try:
            return find_realpath(filename, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
    root = folder.root
    if root.real is None:
        root.real = find_realpath(root.path)
    counts["paths"] += 1
    return root.real + filename[len(root.path) :]


def exists(path: Any) -> bool:
    """Test whether a path exists.  Returns False for broken symbolic links"""
    if known(path) is None:
        try:
            return find_exists(path)
        except BaseException as error:
            hide_our_frame(error)
            raise
    counts["paths"] += 1
    return True


def answer() -> None:
    """Put them in place of Python's own, which they look like."""
    for ours, theirs in ((realpath, find_realpath), (exists, find_exists)):
        ours.__module__ = theirs.__module__
        vars(ours)["__wrapped__"] = theirs  # whose signature is shown
    posixpath.realpath = realpath
    posixpath.exists = genericpath.exists = exists
