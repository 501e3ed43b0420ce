"""Functions of others, with something of ours before and after them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .recorder import INIT_BEGIN, INIT_END


def hide_our_frame(error: BaseException) -> None:
    """To be called where a wrapper lets an error pass: the program's traceback is then the one it has without us."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next


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
        except BaseException as error:
            hide_our_frame(error)
            raise
        finally:
            end(shown, since)

    setattr(owner, name, wrapper)
    return True


def timed_by_marks(
    recorder: Any, owner: Any, name: str, shown: bytes, after: Callable[[], None] = lambda: None
) -> None:
    """Mark when the first call begins and ends, and do something after each that returned: initialisation."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        recorder.rankscope_mark(INIT_BEGIN, shown, 0)
        try:
            result = original(*arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        recorder.rankscope_mark(INIT_END, shown, 0)
        try:
            after()
        except Exception:
            pass
        return result

    setattr(owner, name, wrapper)
