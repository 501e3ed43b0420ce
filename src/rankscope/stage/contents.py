"""Which files go into a bundle: what was touched, what makes a Python environment work, and what was asked for."""

import fnmatch
import os
import re
import stat
from collections.abc import Iterable, Iterator

from rankscope.stage.bundle import LINK_IN, LINK_OUT
from rankscope.stage.roots import StagedRoot, root_holding

# ---------------------------------------------------------------------------------------------------------------------
# What a command touched: lists of paths, from a plain list or from strace's log.
OPENED, LOOKED_AT = "opened", "looked at"
CALL = re.compile(
    r'^(?:\[pid +\d+\] |\d+ +)?(?:[\d:.]+ +)?(\w+)\((?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)"'
)
FAILED = re.compile(r"\) += -1 E")
OPENING = ("open", "openat", "openat2", "execve", "execveat")
LOOKING = """stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat stat64 lstat64 fstatat64
    getxattr lgetxattr chdir""".split()
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", '"': '"', "\\": "\\"}
ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|[0-7]{1,3}|.)")
SNIFFED_LINES = 50

Touched = dict[str, str]  # absolute path → OPENED or LOOKED_AT


def add(touched: Touched, path: str, how: str) -> None:
    """One more sign of this path; an opened file stays one that was opened."""
    if path.startswith("/") and touched.get(path) != OPENED:
        touched[path] = how


def read_list(name: str) -> Touched:
    """The paths in a file: one in a line, or a log of strace."""
    with open(name, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().split("\n")
    if any(CALL.match(line) for line in lines[:SNIFFED_LINES]):
        return from_strace(lines, os.getcwd())
    touched: Touched = {}
    for line in lines:
        if line and not line.startswith("#"):
            add(touched, os.path.abspath(line), OPENED)
    return touched


def from_strace(lines: Iterable[str], folder: str) -> Touched:
    """The paths of calls that did not fail; a call whose end is on another line counts as one that did not."""
    touched: Touched = {}
    for line in lines:
        match = CALL.match(line)
        if not match or FAILED.search(line):
            continue
        call, at, text = match.groups()
        if call in OPENING or call in LOOKING:
            path = os.path.normpath(os.path.join(at or folder, unescaped(text))) if text else at or ""
            add(touched, path, OPENED if call in OPENING else LOOKED_AT)
    return touched


def unescaped(text: str) -> str:
    """A string as strace prints it, without its escapes."""
    if "\\" not in text:
        return text
    raw = ESCAPED.sub(lambda match: character(match.group(1)), text)
    return os.fsdecode(raw.encode("latin-1", "replace")) if raw.isascii() or max(raw) <= "\xff" else raw


def character(code: str) -> str:
    if code[0] == "x":
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return ESCAPES.get(code, code)


# ---------------------------------------------------------------- contents
MOST_LINKS = 40  # as the kernel's
LARGEST_LOOKED_AT_BYTES = 1024**2  # a larger file that was never opened stays where it is
LARGEST_SCRIPT_BYTES = 64 * 1024
METADATA = ("METADATA", "entry_points.txt", "top_level.txt", "WHEEL")


class BundleContents:
    """The real paths of files to pack."""

    def __init__(self, roots: list[StagedRoot]) -> None:
        self.roots = roots
        self.files: set[str] = set()
        self.looked_into: set[str] = set()  # folders that were asked for themselves: links to them would be followed
        self.folders: dict[str, str] = {}  # folder → the same without links, to ask once
        self.listings: dict[str, list[str]] = {}
        self.seen_files = 0

    def listed(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        if folder not in self.listings:
            try:
                self.listings[folder] = sorted(os.listdir(folder))
            except OSError:
                self.listings[folder] = []
        return self.listings[folder]

    def add(self, path: str, largest_bytes: int | None = None) -> None:
        """Choose what this path leads to, if that is a file or a folder in a root."""
        real = self.real(path)
        if real and real not in self.files and root_holding(real, self.roots):
            try:
                status = os.lstat(real)
            except OSError:
                return
            if stat.S_ISDIR(status.st_mode):
                self.looked_into.add(real)
            elif stat.S_ISREG(status.st_mode) and (largest_bytes is None or status.st_size <= largest_bytes):
                self.files.add(real)

    def real(self, path: str) -> str:
        """Where the path leads in the end, "" if nowhere."""
        for _ in range(MOST_LINKS):
            folder, _, name = path.rpartition("/")
            if folder not in self.folders:
                self.folders[folder] = os.path.realpath(folder or "/")
            path = os.path.join(self.folders[folder], name)
            try:
                path = os.path.join(self.folders[folder], os.readlink(path))
            except OSError:
                return path if os.path.lexists(path) else ""
        return ""


def choose(roots: list[StagedRoot], touched: Touched, include: list[str], everything: bool) -> BundleContents:
    """Everything that goes into the bundle."""
    choice = BundleContents(roots)
    for path, how in touched.items():
        choice.add(path, None if how == OPENED else LARGEST_LOOKED_AT_BYTES)
    for path in list(choice.files):
        for twin in twins(path, choice):
            choice.add(twin)
    for root in roots:
        for path in essentials(root, choice):
            choice.add(path)
    walk(choice, include, everything)
    return choice


def twins(path: str, choice: BundleContents) -> Iterator[str]:
    """A module's source belongs to its bytecode, and the other way round: Python looks at both."""
    folder, _, name = path.rpartition("/")
    if name.endswith(".pyc") and folder.endswith("/__pycache__"):
        yield f"{os.path.dirname(folder)}/{name.split('.')[0]}.py"
    elif name.endswith(".py"):
        for name_there in choice.listed(f"{folder}/__pycache__"):
            if name_there.startswith(name[:-2]) and name_there.endswith(".pyc"):
                yield f"{folder}/__pycache__/{name_there}"


def essentials(root: StagedRoot, choice: BundleContents) -> Iterator[str]:
    """What an environment needs although a rehearsal may not have opened it."""
    yield f"{root.real}/pyvenv.cfg"
    for name in choice.listed(f"{root.real}/bin"):
        if name.startswith("python") or is_script(f"{root.real}/bin/{name}"):
            yield f"{root.real}/bin/{name}"
    for version in choice.listed(f"{root.real}/lib"):
        if version.startswith("python3"):
            yield f"{root.real}/lib/{version}/os.py"  # by which Python knows its home
            yield from essentials_of_packages(f"{root.real}/lib/{version}/site-packages", choice)


def essentials_of_packages(folder: str, choice: BundleContents) -> Iterator[str]:
    for name in choice.listed(folder):
        if name.endswith(".pth"):
            yield f"{folder}/{name}"
        elif name.endswith((".dist-info", ".egg-info")):
            for file in METADATA:
                yield f"{folder}/{name}/{file}"


def is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!" and os.fstat(file.fileno()).st_size <= LARGEST_SCRIPT_BYTES
    except OSError:
        return False


def walk(choice: BundleContents, include: list[str], everything: bool) -> None:
    """Count the environment's files, and choose those that were asked for by name."""
    for number, root in enumerate(choice.roots):
        if number and not everything and not include and not root.name.startswith("also"):
            continue
        wanted = everything and root.name != "base"
        for folder, _, names in os.walk(root.real):
            choice.seen_files += len(names) if not number else 0
            for name in names:
                path = f"{folder}/{name}"
                if wanted or any(matches(path[len(root.real) + 1 :], pattern) for pattern in include):
                    choice.add(path)


def matches(path: str, pattern: str) -> bool:
    """A pattern fits a path within the root, or any end of it: *.so and torch/lib/* both work."""
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"*/{pattern}")


# ---------------------------------------------------------------------------------------------------------------------
# The tree of a copy: packed files, and links to the original place for everything beside them.
# A link costs nothing until it is followed, so a file that is not in the bundle is found where it always was.
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


def lay_out(choice: BundleContents) -> Tree:
    """The tree of all roots."""
    tree = Tree()
    needed = needed_folders(choice)
    for root in choice.roots:
        lay_out_folder(tree, choice, needed, root, "")
    return tree


def needed_folders(choice: BundleContents) -> set[str]:
    """The real folders with something packed in or below them, and those that were looked into."""
    needed = {root.real for root in choice.roots}
    for folder in [*(os.path.dirname(path) for path in choice.files), *choice.looked_into]:
        while folder not in needed:
            needed.add(folder)
            folder = os.path.dirname(folder)
    return needed


def lay_out_folder(tree: Tree, choice: BundleContents, needed: set[str], root: StagedRoot, within: str) -> None:
    source = f"{root.real}/{within}" if within else root.real
    path = f"{root.name}/{within}" if within else root.name
    status = os.stat(source)
    tree.folders.append((path, stat.S_IMODE(status.st_mode) | 0o700))
    if not source.endswith("/__pycache__"):  # those change whenever a module is compiled
        tree.watched.append((source, status.st_mtime_ns))
    with os.scandir(source) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        below = f"{within}/{entry.name}" if within else entry.name
        if entry.is_symlink():
            tree.links.append((f"{root.name}/{below}", *link(choice.roots, root, below)))
        elif entry.is_dir() and entry.path in needed:
            lay_out_folder(tree, choice, needed, root, below)
        elif entry.path in choice.files:
            tree.files.append(packed(choice.roots, entry, f"{root.name}/{below}"))
        elif entry.is_dir() or entry.is_file():
            tree.links.append((f"{root.name}/{below}", f"{root.real}/{below}", LINK_OUT))


def link(roots: list[StagedRoot], root: StagedRoot, within: str) -> tuple[str, str]:
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


def packed(roots: list[StagedRoot], entry: os.DirEntry[str], path: str) -> Packed:
    status = entry.stat(follow_symlinks=False)
    return Packed(entry.path, path, status, names_a_root(roots, entry.path, status.st_size))


def names_a_root(roots: list[StagedRoot], path: str, size: int) -> bool:
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
