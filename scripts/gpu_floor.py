"""What CUPTI itself costs a launch, kind by kind: one process that switches kinds on and off in turn, nothing of ours.

    python scripts/gpu_floor.py [seconds]

Buffers are handed out and taken back unread. `attached`: callbacks are registered and no kind is on; `before`: CUPTI is
not loaded yet, measured once at the start.
"""

from __future__ import annotations

import ctypes
import glob
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator

import torch

LAUNCHES, WARM = 2_000, 200
MEMCPY, MEMSET, CONCURRENT_KERNEL, MARKER, MEMCPY2, MEMORY2, POOL = 1, 2, 10, 12, 22, 49, 50
SETS = {
    "attached": (),
    "kernels": (CONCURRENT_KERNEL,),
    "kernels copies sets": (CONCURRENT_KERNEL, MEMCPY, MEMSET),
    "all but kernels": (MEMCPY, MEMCPY2, MEMSET, MEMORY2, MARKER, POOL),
    "memory": (MEMORY2, POOL),
    "markers": (MARKER,),
    "all": (CONCURRENT_KERNEL, MEMCPY, MEMCPY2, MEMSET, MEMORY2, MARKER, POOL),
}
BUFFER_BYTES, BUFFERS = 8 << 20, 32
REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
kept = [ctypes.create_string_buffer(BUFFER_BYTES) for _ in range(BUFFERS)]
free_buffers = [ctypes.addressof(one) for one in kept]


@REQUESTED
def give(buffer, size, most):  # type: ignore[no-untyped-def]
    buffer[0], size[0], most[0] = free_buffers.pop() if free_buffers else None, BUFFER_BYTES, 0


@COMPLETED
def take(_context, _stream, buffer, _size, _valid):  # type: ignore[no-untyped-def]
    free_buffers.append(buffer)


def libraries() -> Iterator[str]:
    for folder in [*sys.path, "/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"]:
        yield from glob.glob(os.path.join(folder, "nvidia/*/lib/libcupti.so.*"))
        yield from glob.glob(os.path.join(folder, "libcupti.so.*"))


def launch_us(x: torch.Tensor) -> float:
    """Of one launch, host time, in a loop that the GPU keeps up with."""
    for _ in range(WARM):
        x.add_(1)
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(LAUNCHES):
        x.add_(1)
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - begin) / LAUNCHES / 1e3


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    x = torch.zeros(16, device="cuda")
    launch_us(x)
    before = [launch_us(x) for _ in range(60)]
    path = next(libraries())
    cupti = ctypes.CDLL(path)
    assert cupti.cuptiActivityRegisterCallbacks(give, take) == 0
    times: dict[str, list[float]] = {name: [] for name in SETS}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name in random.sample(list(SETS), len(SETS)):
            for kind in SETS[name]:
                assert cupti.cuptiActivityEnable(kind) == 0, (name, kind)
            times[name].append(launch_us(x))
            for kind in SETS[name]:
                cupti.cuptiActivityDisable(kind)
            cupti.cuptiActivityFlushAll(1)
    cupti.cuptiFinalize()
    after = [launch_us(x) for _ in range(60)]
    base = statistics.median(before)
    print(path, f"{len(times['attached'])} rounds")
    for name, found in {"before": before, **times, "after cuptiFinalize": after}.items():
        print(
            f"{name:22} best {min(found):6.3f} median {statistics.median(found):6.3f} us, "
            f"{statistics.median(found) / base:.3f} x before, best {min(found) / min(before):.3f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
