"""Which ways of asking CUPTI for single calls work in a process that has run for a while; nothing of ours is in it.

gpu_late_calls.py            all ways at once, a process each: records of calls, kernels and waits before and after
gpu_late_calls.py --way WAY  one of them
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from gpu_floor import BUFFER_BYTES, COMPLETED, REQUESTED, cupti_library

MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, SYNCHRONIZATION = 1, 2, 4, 5, 10, 38
NAMES = {
    MEMCPY: "copies",
    MEMSET: "sets",
    DRIVER: "driver",
    RUNTIME: "runtime",
    KERNEL: "kernels",
    SYNCHRONIZATION: "waits",
}
DRIVER_API, RUNTIME_API, CALLBACK_IDS = 1, 2, 1024
WANTED = ("cudaLaunch", "cuLaunch", "cudaStreamSynchronize", "cuStreamSynchronize", "cudaMemcpy", "cuMemcpy")
WAYS = (
    "early", "late", "late-then-waits-off", "late-without-waits", "late-kinds", "late-kinds-then-fewer",
    "late-kinds-and-single", "attached-anew",
)  # fmt: skip
seen: Counter[str] = Counter()
kept: dict[int, Any] = {}
cupti: Any = None


@REQUESTED
def give(buffer, size, most):  # type: ignore[no-untyped-def]
    memory = ctypes.create_string_buffer(BUFFER_BYTES)
    kept[ctypes.addressof(memory)] = memory
    buffer[0], size[0], most[0] = ctypes.addressof(memory), BUFFER_BYTES, 0


@COMPLETED
def take(_context, _stream, buffer, _size, valid):  # type: ignore[no-untyped-def]
    record = ctypes.c_void_p()
    while cupti.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)) == 0:
        kind = ctypes.cast(record, ctypes.POINTER(ctypes.c_uint32))[0]
        seen[NAMES.get(kind, str(kind))] += 1


def select(enable: int, chosen: bool) -> int:
    """Calls whose names are among WANTED, or (chosen: False) those whose are not."""
    done = 0
    for domain, choose in (
        (RUNTIME_API, cupti.cuptiActivityEnableRuntimeApi),
        (DRIVER_API, cupti.cuptiActivityEnableDriverApi),
    ):
        for number in range(1, CALLBACK_IDS):
            name = ctypes.c_char_p()
            if cupti.cuptiGetCallbackName(domain, number, ctypes.byref(name)) == 0 and name.value:
                if name.value.decode().startswith(WANTED) == chosen:
                    done += choose(number, enable) == 0
    return done


def attach(with_waits: bool) -> None:
    assert cupti.cuptiActivityRegisterCallbacks(give, take) == 0
    for kind in (KERNEL, MEMCPY, MEMSET, *((SYNCHRONIZATION,) if with_waits else ())):
        assert cupti.cuptiActivityEnable(kind) == 0, kind


def change(way: str) -> str:
    said = ""
    if way == "attached-anew":
        said = f"finalize {cupti.cuptiFinalize()} "
        attach(with_waits=False)
    if "kinds" in way:
        said += f"kinds {cupti.cuptiActivityEnable(RUNTIME)} {cupti.cuptiActivityEnable(DRIVER)} "
    if way == "late-kinds-then-fewer":
        said += f"fewer {select(0, chosen=False)} "
    elif way not in ("early", "late-kinds"):
        said += f"selected {select(1, chosen=True)} "
    if way == "late-then-waits-off":
        said += f"waits off {cupti.cuptiActivityDisable(SYNCHRONIZATION)} "
    return said


def work(way: str) -> None:
    global cupti
    import torch

    cupti = cupti_library()
    if way == "early":
        attach(with_waits=True)
        select(1, chosen=True)
    x = torch.ones(1000, device="cuda")

    def loop() -> str:
        seen.clear()
        for _ in range(200):
            x.add_(1)
            x.sum().item()
        torch.cuda.synchronize()
        cupti.cuptiActivityFlushAll(1)
        return " ".join(f"{name} {count}" for name, count in sorted(seen.items()))

    if way != "early":
        loop()
        attach(with_waits=way not in ("late-without-waits", "attached-anew"))
    before = loop()
    said = change(way)
    print(f"{way:24} before: {before}; {said}; after: {loop()}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        work(sys.argv[2])
    workers = [subprocess.Popen([sys.executable, __file__, "--way", way]) for way in WAYS]
    for way, worker in zip(WAYS, workers, strict=True):
        if worker.wait(timeout=60):
            print(f"{way}: exit {worker.returncode}")
