"""Files that are there as a whole or not at all. Standard library only: it also runs where scripts of cells run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, what: dict[str, Any]) -> None:
    """Beside it, then in its place, on the disk before it counts."""
    write_text(path, json.dumps(what, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")  # always the same: what a kill leaves is written over
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
