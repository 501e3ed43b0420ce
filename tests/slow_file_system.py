"""A slow folder for the length of a test, or a skip that says why there is none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.slowfs.mount import SlowMount, Slowness, Unavailable, mounted, reason_against_running


@contextmanager
def slow_file_system(
    source: Path,
    *,
    latency_us: int = 0,
    read_latency_us: int = 0,
    operations_per_second: int = 0,
    bytes_per_second: int = 0,
    cache: str = "none",
    server: Path | None = None,
    at: Path | None = None,
) -> Iterator[SlowMount]:
    """Mounts `source` (at a temporary folder unless `at` names one) for the block."""
    slowness = Slowness(
        latency_ns=latency_us * 1000,
        read_latency_ns=read_latency_us * 1000,
        operations_per_second=operations_per_second,
        bytes_per_second=bytes_per_second,
        cache=cache,
        server=server,
    )
    with tempfile.TemporaryDirectory(prefix="rankscope-slow-") as folder:
        mounting = mounted(source, at or Path(folder), slowness)
        try:
            mount = mounting.__enter__()
        except Unavailable as reason:
            pytest.skip(str(reason))
        try:
            yield mount
        finally:
            mounting.__exit__(None, None, None)


def skip_unless_runnable() -> None:
    """Skips where not even a namespace of one's own can be had."""
    if reason := reason_against_running():
        pytest.skip(reason)
