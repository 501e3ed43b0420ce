"""How long Python collects garbage."""

from __future__ import annotations

import gc
from typing import Any


def watch_garbage(recorder: Any) -> None:
    """Tell the recorder when a collection begins and ends; once in a process, whoever asks."""
    if any(getattr(known, "by_rankscope", False) for known in gc.callbacks):
        return
    tell = recorder.rankscope_gc

    def collecting(phase: str, info: dict[str, int]) -> None:
        tell(phase == "start")

    collecting.by_rankscope = True  # type: ignore[attr-defined]
    gc.callbacks.append(collecting)
