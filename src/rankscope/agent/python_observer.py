"""Torch's ranges seen from Python: slower than the compiled observer, with the same names."""

from __future__ import annotations

from functools import wraps
from typing import Any


def start(recorder: Any, torch: Any) -> None:
    """Watch the class by which torch and its users make ranges."""
    record_function = torch.autograd.profiler.record_function
    enter, leave = record_function.__enter__, record_function.__exit__
    begin, end = recorder.rankscope_range_begin, recorder.rankscope_range_end

    @wraps(enter)
    def entered(self: Any) -> Any:
        shown = self.name.encode("utf-8", "replace")
        self._rankscope = (shown, begin(shown))
        return enter(self)

    @wraps(leave)
    def left(self: Any, *raised: Any) -> Any:
        try:
            return leave(self, *raised)
        finally:
            shown, since = self.__dict__.pop("_rankscope", (b"", 0))
            end(shown, since)

    record_function.__enter__, record_function.__exit__ = entered, left
