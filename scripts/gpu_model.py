"""A program with known GPU work; prints as json what a recorder must have seen of it.

Launches, copies, sets, graph replays, NVTX ranges in three domains and two threads; times of one kernel loop by CUDA
events. Only what happens between the marks of its own names is counted exactly: torch itself does more.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch

LAUNCHES, COPIES, SETS, REPLAYS, RANGES, ALLOCATIONS = 500, 40, 30, 25, 60, 5
COPY_BYTES, SET_BYTES, ALLOCATION_BYTES = 1 << 20, 1 << 19, 7 << 20


def runtime() -> Any:
    """The CUDA runtime that torch has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcudart" in line:
            return ctypes.CDLL(line.split()[-1])
    raise SystemExit("gpu_model: torch has loaded no libcudart")


def nvtx_domains() -> tuple[Any, list[Any]]:
    """The classic NVTX library if there is one: torch.cuda.nvtx knows the default domain only."""
    for folder in [Path(torch.__file__).parent.parent / "nvidia", Path("/usr/local/cuda/lib64")]:
        for path in sorted(folder.rglob("libnvToolsExt.so*")):
            library = ctypes.CDLL(str(path))
            library.nvtxDomainCreateA.restype = ctypes.c_void_p
            return library, [library.nvtxDomainCreateA(name) for name in (b"model", b"data")]
    return None, []


def known_kernels() -> float:
    """LAUNCHES multiplications of one shape; their time by CUDA events, in ns."""
    left = torch.randn(1024, 1024, device="cuda")
    right, out = torch.randn(1024, 1024, device="cuda"), torch.empty(1024, 1024, device="cuda")
    torch.matmul(left, right, out=out)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(LAUNCHES):
        torch.matmul(left, right, out=out)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e6


def known_copies(cuda: Any) -> None:
    host = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    source, target = ctypes.c_void_p(host.data_ptr()), ctypes.c_void_p(device.data_ptr())
    size = ctypes.c_size_t(COPY_BYTES)
    for _ in range(COPIES):
        cuda.cudaMemcpy(target, source, size, 1)
        cuda.cudaMemcpy(source, target, size, 2)
    for _ in range(SETS):
        cuda.cudaMemset(target, 0, ctypes.c_size_t(SET_BYTES))
    torch.cuda.synchronize()


def known_allocations(cuda: Any) -> None:
    pointers = [ctypes.c_void_p() for _ in range(ALLOCATIONS)]
    for pointer in pointers:
        cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(ALLOCATION_BYTES))
    for pointer in pointers:
        cuda.cudaFree(pointer)


def known_graph() -> None:
    """A graph of three kernels whose name nothing else here has: arctangents."""
    x = torch.randn(4096, device="cuda")
    torch.atan(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.atan(torch.atan(torch.atan(x)))
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    del y


def known_ranges(library: Any, domains: list[Any]) -> None:
    for _ in range(RANGES):
        torch.cuda.nvtx.range_push("outer")
        torch.cuda.nvtx.range_push("inner")
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()
    if library is None:
        return
    for domain in domains:
        for _ in range(RANGES):
            push_ascii(library, domain, b"in a domain")
            library.nvtxDomainRangePop(ctypes.c_void_p(domain))


def push_ascii(library: Any, domain: Any, text: bytes) -> None:
    class Attributes(ctypes.Structure):
        _fields_ = [
            ("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("category", ctypes.c_uint32),
            ("colorType", ctypes.c_int32), ("color", ctypes.c_uint32), ("payloadType", ctypes.c_int32),
            ("reserved0", ctypes.c_int32), ("payload", ctypes.c_uint64), ("messageType", ctypes.c_int32),
            ("message", ctypes.c_char_p),
        ]  # fmt: skip

    attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), messageType=1, message=text)
    library.nvtxDomainRangePushEx(ctypes.c_void_p(domain), ctypes.byref(attributes))


def main() -> int:
    torch.cuda.init()
    library, domains = nvtx_domains()
    cuda = runtime()
    kernel_ns = known_kernels()
    known_copies(cuda)
    known_allocations(cuda)
    known_graph()
    threads = [threading.Thread(target=known_ranges, args=(library, domains)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    expected = {
        "torch": torch.__version__, "device": torch.cuda.get_device_name(), "pid": os.getpid(),
        "matmuls": LAUNCHES + 1, "matmul_loop_ns": kernel_ns, "atan_kernels": 1 + 3 * REPLAYS,
        "graph_launches": REPLAYS, "copies_each_way": COPIES, "copy_bytes": COPIES * COPY_BYTES,
        "sets": SETS, "set_bytes": SETS * SET_BYTES, "mallocs": ALLOCATIONS,
        "malloc_bytes": ALLOCATIONS * ALLOCATION_BYTES, "ranges_of_each_name": 2 * RANGES,
        "domains": 3 if library else 1, "threads": 2,
    }  # fmt: skip
    print(json.dumps(expected))
    return 0


if __name__ == "__main__":
    sys.exit(main())
