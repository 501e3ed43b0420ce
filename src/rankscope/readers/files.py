"""Which files were meant: those named, those of folders and of patterns."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Found:
    """The files in order, each once, and a line for every word that led to none."""

    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find_files(words: Sequence[str]) -> Found:
    """Files and folders by name, else by pattern; folders with all that is below them."""
    found = Found()
    for word in words:
        paths = [Path(word)] if os.path.lexists(word) else [Path(one) for one in _matches(word)]
        if not paths:
            found.problems.append(f"{word}: no such file or folder")
        for path in paths:
            _add(path, found)
    once: dict[str, Path] = {}
    for path in found.files:
        once.setdefault(os.path.realpath(path), path)
    found.files = list(once.values())
    return found


def _matches(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True), key=natural) if glob.has_magic(pattern) else []


def _add(path: Path, found: Found) -> None:
    if is_run(path):
        found.problems.append(f"{path}: is a run already: rankscope report {path} shows it")
    elif path.is_dir():
        below = list(_below(path))
        found.files += below
        if not below:
            found.problems.append(f"{path}: no files in it")
    elif path.is_file():
        found.files.append(path)
    else:
        found.problems.append(f"{path}: {'not a file' if path.exists() else 'leads nowhere'}")


def _below(folder: Path) -> Iterator[Path]:
    """Regular files, no hidden ones, and nothing of rankscope's own runs."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted((one for one in folders if one[0] != "." and not is_run(Path(at, one))), key=natural)
        paths = [Path(at, name) for name in sorted(names, key=natural) if name[0] != "."]
        yield from (path for path in paths if path.is_file())


def is_run(path: Path) -> bool:
    return (path / "run.json").exists() and ((path / "ranks").is_dir() or (path / "loaded").is_dir())


def natural(text: str) -> list[tuple[int, str]]:
    """Order in which 10 comes after 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,18})", text)]
