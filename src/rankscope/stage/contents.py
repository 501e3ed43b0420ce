"""Which files go into a bundle: what was touched, what makes a Python environment work, and what was asked for."""

import fnmatch
import os
import stat
from collections.abc import Iterator

from rankscope.stage.roots import Root, root_holding
from rankscope.stage.touched import OPENED, Touched

MOST_LINKS = 40  # as the kernel's
LARGEST_LOOKED_AT_BYTES = 1024**2  # a larger file that was never opened stays where it is
LARGEST_SCRIPT_BYTES = 64 * 1024
METADATA = ("METADATA", "entry_points.txt", "top_level.txt", "WHEEL")


class Choice:
    """The real paths of files to pack."""

    def __init__(self, roots: list[Root]) -> None:
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


def choose(roots: list[Root], touched: Touched, include: list[str], everything: bool) -> Choice:
    """Everything that goes into the bundle."""
    choice = Choice(roots)
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


def twins(path: str, choice: Choice) -> Iterator[str]:
    """A module's source belongs to its bytecode, and the other way round: Python looks at both."""
    folder, _, name = path.rpartition("/")
    if name.endswith(".pyc") and folder.endswith("/__pycache__"):
        yield f"{os.path.dirname(folder)}/{name.split('.')[0]}.py"
    elif name.endswith(".py"):
        for found in choice.listed(f"{folder}/__pycache__"):
            if found.startswith(name[:-2]) and found.endswith(".pyc"):
                yield f"{folder}/__pycache__/{found}"


def essentials(root: Root, choice: Choice) -> Iterator[str]:
    """What an environment needs although a rehearsal may not have opened it."""
    yield f"{root.real}/pyvenv.cfg"
    for name in choice.listed(f"{root.real}/bin"):
        if name.startswith("python") or is_script(f"{root.real}/bin/{name}"):
            yield f"{root.real}/bin/{name}"
    for version in choice.listed(f"{root.real}/lib"):
        if version.startswith("python3"):
            yield f"{root.real}/lib/{version}/os.py"  # by which Python knows its home
            yield from essentials_of_packages(f"{root.real}/lib/{version}/site-packages", choice)


def essentials_of_packages(folder: str, choice: Choice) -> Iterator[str]:
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


def walk(choice: Choice, include: list[str], everything: bool) -> None:
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
