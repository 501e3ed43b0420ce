"""JSON and text of a study's folder. Standard library only: it also runs where scripts of cells run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rankscope.whole_file import write_whole


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, what: dict[str, Any]) -> None:
    """Beside it, then in its place, on the disk before it counts."""
    write_text(path, json.dumps(what, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    write_whole(path, [text.encode()], is_synced=True)
