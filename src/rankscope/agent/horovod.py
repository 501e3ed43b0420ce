"""When Horovod is initialised."""

from __future__ import annotations

from typing import Any

from .wrapping import timed_by_marks


def install(recorder: Any, module: Any) -> None:
    timed_by_marks(recorder, module.HorovodBasics, "init", b"hvd.init")
