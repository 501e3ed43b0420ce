"""The second opinion on steps of a GPU, on a trace whose parts are known."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.gpu_profiler_parts import parts_of

WORK = (
    (100, 200, "gemm", "kernel"),
    (250, 150, "ncclDevKernel_AllReduce", "kernel"),
    (600, 50, "Memcpy", "gpu_memcpy"),
)
STEP_US, BEHIND_US = 1000.0, 1500.0  # the device is a step and a half behind the host


def a_trace(steps: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for number in range(steps):
        at = number * STEP_US
        events.append({"name": "Optimizer.step#AdamW.step", "cat": "user_annotation", "ts": at, "dur": 1})
        for place, (begins, lasts, name, kind) in enumerate((*WORK, (700, 100, "adam", "kernel"))):
            told = {"correlation": number * 10 + place + 1}
            events.append(
                {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": at + 10 + place, "dur": 1, "args": told}
            )
            events.append({"name": name, "cat": kind, "ts": at + begins + BEHIND_US, "dur": lasts, "args": told})
    return events


def test_a_step_of_known_parts() -> None:
    found = parts_of(a_trace(8))
    assert found == pytest.approx({"step": 1000, "compute": 300, "exposed": 100, "copy": 50, "idle": 550})
