"""The tree of a copy: packed files, and links to the original place for everything beside them.

A link costs nothing until it is followed, so a file that is not in the bundle is found where it always was.
"""

import os
import stat

from rankscope.stage.bundle import LINK_IN, LINK_OUT
from rankscope.stage.contents import Choice
from rankscope.stage.roots import Root, root_holding

HEAD_BYTES = 512
LARGEST_RELOCATED_BYTES = 1024**2


class Packed:
    """One file to pack: where it is, and what it is called in the copy."""

    def __init__(self, source: str, path: str, status: os.stat_result, relocated: bool) -> None:
        self.source = source
        self.path = path
        self.status = status
        self.relocated = relocated


class Tree:
    """Everything a copy consists of, parents before what is in them."""

    def __init__(self) -> None:
        self.folders: list[tuple[str, int]] = []
        self.files: list[Packed] = []
        self.links: list[tuple[str, str, str]] = []
        self.watched: list[tuple[str, int]] = []


def lay_out(choice: Choice) -> Tree:
    """The tree of all roots."""
    tree = Tree()
    needed = needed_folders(choice)
    for root in choice.roots:
        lay_out_folder(tree, choice, needed, root, "")
    return tree


def needed_folders(choice: Choice) -> set[str]:
    """The real folders with something packed in or below them, and those that were looked into."""
    needed = {root.real for root in choice.roots}
    for folder in [*(os.path.dirname(path) for path in choice.files), *choice.looked_into]:
        while folder not in needed:
            needed.add(folder)
            folder = os.path.dirname(folder)
    return needed


def lay_out_folder(tree: Tree, choice: Choice, needed: set[str], root: Root, within: str) -> None:
    source = f"{root.real}/{within}" if within else root.real
    path = f"{root.name}/{within}" if within else root.name
    status = os.stat(source)
    tree.folders.append((path, stat.S_IMODE(status.st_mode) | 0o700))
    if not source.endswith("/__pycache__"):  # those change whenever a module is compiled
        tree.watched.append((source, status.st_mtime_ns))
    with os.scandir(source) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        below = f"{within}/{entry.name}" if within else entry.name
        if entry.is_symlink():
            tree.links.append((f"{root.name}/{below}", *link(choice.roots, root, below)))
        elif entry.is_dir() and entry.path in needed:
            lay_out_folder(tree, choice, needed, root, below)
        elif entry.path in choice.files:
            tree.files.append(packed(choice.roots, entry, f"{root.name}/{below}"))
        elif entry.is_dir() or entry.is_file():
            tree.links.append((f"{root.name}/{below}", f"{root.real}/{below}", LINK_OUT))


def link(roots: list[Root], root: Root, within: str) -> tuple[str, str]:
    """Where a symbolic link of the original leads in the copy."""
    target = os.readlink(f"{root.real}/{within}")
    aim = os.path.normpath(os.path.join(os.path.dirname(f"{root.real}/{within}"), target))
    held = root_holding(aim, roots)
    if not held:
        return aim, LINK_IN
    if held[0] is root and not target.startswith("/"):
        return target, LINK_IN
    here = os.path.dirname(f"{root.name}/{within}")
    return os.path.relpath(f"{held[0].name}/{held[1]}", here), LINK_IN


def packed(roots: list[Root], entry: os.DirEntry[str], path: str) -> Packed:
    status = entry.stat(follow_symlinks=False)
    return Packed(entry.path, path, status, names_a_root(roots, entry.path, status.st_size))


def names_a_root(roots: list[Root], path: str, size: int) -> bool:
    """Whether this is a small text that says where the environment is: pyvenv.cfg, a script's first line, a .pth."""
    name = os.path.basename(path)
    if name == "pyvenv.cfg":
        return True
    in_bin = os.path.basename(os.path.dirname(path)) == "bin"
    if size > LARGEST_RELOCATED_BYTES or not (in_bin or name.endswith(".pth")):
        return False
    with open(path, "rb") as file:
        head = file.read() if name.endswith(".pth") else file.read(HEAD_BYTES)
    return (not in_bin or head.startswith(b"#!")) and any(
        os.fsencode(prefix) + b"/" in head for root in roots for prefix in (root.real, root.original)
    )
