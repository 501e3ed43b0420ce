"""A program that knows what it does on the GPU, call by call; prints as json what a recorder must have seen of it.

Kernels of its own names by stream and thread, copies, sets, allocations (pools too), failed calls, graph replays,
managed memory, NVTX ranges in three domains and two threads with launches inside, and long kernels timed by CUDA
events. No torch: nothing else happens on the GPU. A part that cannot run is named under `skipped` with the reason.
`gpu_model.py base` allocates nothing: the recorder's sums of it are what CUDA allocates by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from gpu_driver import ATTACH_GLOBAL, EMPTY, PINNED, SPIN, TOUCH, CudaError, Driver
from gpu_nvtx import Nvtx, compile_nvtx

COPY_BYTES, SMALL_BYTES, SET_BYTES, MIB = 3_000_000, 5_000, 1 << 19, 1 << 20
SPIN_MS, SPINS = 20, 10
SETTLE_S = 2.5  # a recorder may listen to driver calls only after it has seen, in a flush, that they launch kernels
EMPTY_KERNELS = "alpha beta graph_a graph_b in_outer in_inner in_step in_load in_epoch".split()


class Model:
    """The program's state and what it says it did."""

    def __init__(self) -> None:
        self.driver = Driver()
        names = [f"model_{name}" for name in EMPTY_KERNELS]
        text = "".join(EMPTY.format(name=name) for name in names)
        text += SPIN.format(name="model_spin") + TOUCH.format(name="model_touch")
        found = self.driver.kernels(text, [*names, "model_spin", "model_touch"])
        self.kernel = dict(zip([*EMPTY_KERNELS, "spin", "touch"], found, strict=True))
        self.streams = [self.driver.made("cuStreamCreate", 1) for _ in range(3)]
        self.kernels: dict[str, dict[int, int]] = {}  # kernel -> stream -> launches
        self.told: dict[str, Any] = {"kernels": self.kernels, "copies": {}, "skipped": {}}
        self.memory = {"allocations": 0, "allocated_bytes": 0, "current_bytes": 0, "peak_bytes": 0}
        self.lock = threading.Lock()

    def launch(self, name: str, stream: int, times: int = 1) -> None:
        for _ in range(times):
            self.driver.launch(self.kernel[name], self.streams[stream])
        self.count(name, stream, times)

    def count(self, name: str, stream: int, times: int) -> None:
        with self.lock:
            by_stream = self.kernels.setdefault(f"model_{name}", {})
            by_stream[stream] = by_stream.get(stream, 0) + times

    def copied(self, direction: str, times: int, size: int) -> None:
        told = self.told["copies"].setdefault(direction, [0, 0])  # copies, bytes
        told[0] += times
        told[1] += times * size

    def allocated(self, size: int) -> None:
        memory = self.memory
        memory["current_bytes"] += size
        if size > 0:
            memory["allocations"] += 1
            memory["allocated_bytes"] += size
            memory["peak_bytes"] = max(memory["peak_bytes"], memory["current_bytes"])

    def buffer(self, size: int) -> c_void_p:
        self.allocated(size)
        return self.driver.made("cuMemAlloc_v2", size)


def launches(model: Model) -> None:
    """Different counts on each stream, and by two more threads."""
    model.launch("alpha", 0, 300)
    model.launch("alpha", 1, 200)

    def work(stream: int, times: int) -> None:
        model.driver.use()
        model.launch("beta", stream, times)

    threads = [threading.Thread(target=work, args=pair, name=f"beta {pair}") for pair in ((0, 110), (2, 90))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.driver.synchronize()


def copies(model: Model) -> None:
    driver, stream = model.driver, model.streams[0]
    host = driver.made("cuMemHostAlloc", COPY_BYTES, PINNED)
    left, right = model.buffer(4 * MIB), model.buffer(4 * MIB)
    for _ in range(40):
        driver("cuMemcpyHtoD_v2", left, host, COPY_BYTES)
    for _ in range(30):
        driver("cuMemcpyHtoDAsync_v2", left, host, SMALL_BYTES, stream)
    for _ in range(25):
        driver("cuMemcpyDtoHAsync_v2", host, right, COPY_BYTES, stream)
    for _ in range(20):
        driver("cuMemcpyDtoDAsync_v2", right, left, COPY_BYTES, stream)
    for _ in range(35):
        driver("cuMemsetD8Async", left, 7, SET_BYTES, model.streams[1])
    for _ in range(15):
        driver("cuMemsetD32Async", left, 7, 1000, model.streams[1])
    driver.synchronize()
    model.copied("[CUDA memcpy HtoD]", 40, COPY_BYTES)
    model.copied("[CUDA memcpy HtoD]", 30, SMALL_BYTES)
    model.copied("[CUDA memcpy DtoH]", 25, COPY_BYTES)
    model.copied("[CUDA memcpy DtoD]", 20, COPY_BYTES)
    model.copied("[CUDA memset]", 35, SET_BYTES)
    model.copied("[CUDA memset]", 15, 4000)
    model.told["pinned_peak_bytes"] = COPY_BYTES


def runtime_calls(model: Model) -> None:
    """The same by the runtime library, as most programs do it."""
    cuda = model.driver.runtime
    if cuda is None:
        raise CudaError("no libcudart found")
    pointers = [c_void_p() for _ in range(7)]
    for pointer in pointers:
        if cuda.cudaMalloc(byref(pointer), c_size_t(10 * MIB)) != 0:
            raise CudaError("cudaMalloc failed")
        model.allocated(10 * MIB)
    for _ in range(13):
        cuda.cudaMemcpy(pointers[0], pointers[1], c_size_t(COPY_BYTES), 3)
    for _ in range(11):
        cuda.cudaMemset(pointers[0], 0, c_size_t(MIB))
    for _ in range(4):
        cuda.cudaDeviceSynchronize()
    for pointer in pointers:
        cuda.cudaFree(pointer)
        model.allocated(-10 * MIB)
    model.told["runtime_calls"] = {
        "cudaMalloc": 7, "cudaFree": 7, "cudaMemcpy": 13, "cudaMemset": 11, "cudaDeviceSynchronize": 4,
    }  # fmt: skip
    model.copied("[CUDA memcpy DtoD]", 13, COPY_BYTES)
    model.copied("[CUDA memset]", 11, MIB)


def pool_allocations(model: Model) -> None:
    for _ in range(6):
        pair = [model.driver.made("cuMemAllocAsync", 6 * MIB, model.streams[0]) for _ in range(2)]
        for size in (6 * MIB, 6 * MIB, -6 * MIB, -6 * MIB):
            model.allocated(size)
        for pointer in pair:
            model.driver("cuMemFreeAsync", pointer, model.streams[0])
    model.driver.synchronize()


def failures(model: Model) -> None:
    for _ in range(3):
        try:
            model.driver.made("cuMemAlloc_v2", 1 << 60)
        except CudaError:
            continue
        raise CudaError("2^60 bytes were given")
    model.told["failed_calls"] = {"cuMemAlloc_v2": 3}


def graph(model: Model) -> None:
    kernels = [model.kernel[name] for name in ("graph_a", "graph_b", "graph_a")]
    whole = model.driver.graph_of(model.streams[1], kernels)
    for _ in range(25):
        model.driver("cuGraphLaunch", whole, model.streams[1])
    model.driver.synchronize()
    model.count("graph_a", 1, 50)
    model.count("graph_b", 1, 25)


def managed(model: Model) -> None:
    """Written by the host, changed by the device, read by the host: twice its bytes move, or pages are shared."""
    size = 4 * MIB
    memory = model.driver.made("cuMemAllocManaged", size, ATTACH_GLOBAL)
    model.allocated(size)
    ctypes.memset(memory.value or 0, 1, size)
    arguments = (c_uint64(memory.value or 0), c_uint(size // 4))
    model.driver.launch(model.kernel["touch"], model.streams[0], *arguments, blocks=size // 4 // 256, threads=256)
    model.count("touch", 0, 1)
    model.driver.synchronize()
    last = ctypes.c_uint32.from_address((memory.value or 0) + size - 4).value
    if last != 0x01010102:
        raise CudaError(f"the kernel left {last:#x}")
    model.told["managed_bytes"] = size


def ranges(model: Model) -> None:
    """Launches inside nested ranges of the default domain in one thread, of two other domains in a second one."""
    nvtx, reason = compile_nvtx()
    if nvtx is None:
        raise CudaError(reason)
    time.sleep(SETTLE_S)
    mine, data = nvtx.domain("model"), nvtx.domain("data")
    threads = [
        threading.Thread(target=nested, args=(model, nvtx), name="nested"),
        threading.Thread(target=in_domains, args=(model, nvtx, mine, data), name="in domains"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.driver.synchronize()
    model.told["ranges"] = {  # domain -> range -> times
        "": {"outer": 40, "inner": 80},
        "model": {"step": 30, "epoch": 5},
        "data": {"load": 60},
    }
    model.told["range_threads"] = 2
    model.told["within"] = {  # range -> kernel -> launches inside; inclusive of what is nested
        "outer": {"model_in_outer": 80, "model_in_inner": 240},
        "inner": {"model_in_inner": 240},
        "step": {"model_in_step": 90},
        "load": {"model_in_load": 60},
    }
    model.told["directly_within"] = {"outer": {"model_in_outer": 80}, "inner": {"model_in_inner": 240}}


def nested(model: Model, nvtx: Nvtx) -> None:
    model.driver.use()
    for _ in range(40):
        nvtx.push(None, "outer")
        model.launch("in_outer", 0)
        for _ in range(2):
            nvtx.push(None, "inner")
            model.launch("in_inner", 0, 3)
            nvtx.pop(None)
        model.launch("in_outer", 0)
        nvtx.pop(None)


def in_domains(model: Model, nvtx: Nvtx, mine: Any, data: Any) -> None:
    """`epoch` is a start/end range, which may cross threads: launches in it belong to no range of a stack."""
    model.driver.use()
    for number in range(30):
        for _ in range(2):
            nvtx.push(data, "load")
            model.launch("in_load", 2)
            nvtx.pop(data)
        nvtx.push(mine, "step")
        model.launch("in_step", 2, 3)
        nvtx.pop(mine)
        if number % 6 == 0:
            epoch = nvtx.start(mine, "epoch")
            model.launch("in_epoch", 2)
            nvtx.end(mine, epoch)


def spins(model: Model) -> None:
    """Kernels so long that the events around them cost next to nothing."""
    driver, stream = model.driver, model.streams[0]
    clocks = c_uint64(SPIN_MS * driver.clock_khz)
    driver.launch(model.kernel["spin"], stream, c_uint64(1000))
    driver.synchronize()
    pairs = [(driver.made("cuEventCreate", 0), driver.made("cuEventCreate", 0)) for _ in range(SPINS)]
    for start, end in pairs:
        driver("cuEventRecord", start, stream)
        driver.launch(model.kernel["spin"], stream, clocks)
        driver("cuEventRecord", end, stream)
    driver.synchronize()
    model.count("spin", 0, SPINS + 1)
    milliseconds = c_float()
    told = []
    for start, end in pairs:
        driver("cuEventElapsedTime", byref(milliseconds), start, end)
        told.append(milliseconds.value * 1e6)
    model.told["spin_ns"] = told


PARTS: tuple[Callable[[Model], None], ...] = (
    launches, copies, runtime_calls, pool_allocations, failures, graph, managed, ranges, spins,
)  # fmt: skip


def no_allocation(model: Model) -> None:
    """What CUDA does by itself: start, load, make streams, a graph, run a kernel."""
    if model.driver.runtime is not None:
        model.driver.runtime.cudaFree(None)
    model.launch("alpha", 0)
    model.driver.graph_of(model.streams[1], [model.kernel["graph_a"]])
    model.driver.synchronize()


def main() -> int:
    model = Model()
    for part in PARTS if sys.argv[1:] != ["base"] else (no_allocation,):
        try:
            part(model)
        except (CudaError, OSError, AttributeError) as error:
            model.told["skipped"][part.__name__] = f"{type(error).__name__}: {error}"
    model.driver.synchronize()
    model.told["memory"] = model.memory
    model.told.update(pid=os.getpid(), pool_allocations=model.driver.calls["MainThread", "cuMemAllocAsync"])
    calls: dict[str, list[int]] = {}
    for (_, name), times in sorted(model.driver.calls.items()):
        calls.setdefault(name, []).append(times)
    model.told["calls"] = {name: sorted(times) for name, times in calls.items()}  # name -> calls of each thread
    print(json.dumps(model.told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
