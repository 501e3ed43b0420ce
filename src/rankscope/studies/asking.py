"""Questions to another Python or program, asked once."""

from __future__ import annotations

import subprocess
from functools import cache

from rankscope.studies.interpreters import Python

ASK_S = 120


@cache
def said(*command: str) -> str:
    """What it prints; "" where it fails or is not there."""
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout


def is_elsewhere(python: Python) -> bool:
    """On another machine: it cannot be asked, and is taken at its user's word."""
    return bool(getattr(python, "elsewhere", False))


def is_true(python: str, module: str, expression: str) -> bool:
    """Whether the expression is true there, after the import."""
    return said(python, "-c", f"import {module}; print(bool({expression}))").strip().endswith("True")
