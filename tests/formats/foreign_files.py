"""What the tests of foreign formats share: reading a text, and real files where they are at hand."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from rankscope.formats.source import Hints, Source
from rankscope.model.records import Reading
from runs.loaded import SHARED, warnings_of


def readings(format_name: str, content: str | bytes, rank: int | None = None) -> list[Reading]:
    """What the format's reader makes of a content it must recognise."""
    module = import_module(f"rankscope.formats.{format_name}")
    raw = content.encode() if isinstance(content, str) else content
    source = Source(Path("file.txt"), Hints(rank), raw)
    assert module.sniff(source.head()), f"{format_name} does not recognise its own file"
    return list(module.read(source))


def reading(format_name: str, content: str | bytes, rank: int | None = None) -> Reading:
    """The only reading of a content."""
    found = readings(format_name, content, rank)
    assert len(found) == 1
    return found[0]


def warnings(*found: Reading) -> list[str]:
    """What the readers found to be off, with its place."""
    return [f"{note.where}: {note.text}" for note in warnings_of(found)]


def shared(name: str) -> Path:
    """A real file from outside the project, or a skip."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} beside the project: real files are not part of it")
    return path


def shared_files() -> list[Path]:
    """All real files outside the project."""
    return sorted(path for part in ("samples", "seeds") for path in (SHARED / part).rglob("*") if path.is_file())
