"""Functions of others, with something of ours before and after them."""

from __future__ import annotations

from functools import wraps
from typing import Any

from . import native


def ranged(recorder: Any, owner: Any, name: str, shown: bytes) -> bool:
    """Make a range of every call; false where there is no such function."""
    original = getattr(owner, name, None)
    if original is None:
        return False
    begin, end = recorder.rankscope_range_begin, recorder.rankscope_range_end

    @wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        since = begin(shown)
        try:
            return original(*arguments, **named)
        finally:
            end(shown, since)

    setattr(owner, name, wrapper)
    return True


def timed_by_marks(recorder: Any, owner: Any, name: str, shown: bytes) -> None:
    """Mark when the first call begins and ends: initialisation."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        recorder.rankscope_mark(native.INIT_BEGIN, shown, 0)
        try:
            return original(*arguments, **named)
        finally:
            recorder.rankscope_mark(native.INIT_END, shown, 0)

    setattr(owner, name, wrapper)
