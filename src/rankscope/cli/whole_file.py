"""Writes a file as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def save(text: str, path: Path) -> None:
    """Beside it first, then in its place, so that nobody sees half of it; straight to a pipe and the like."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    place, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(place, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(beside, 0o666 & ~_mask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
