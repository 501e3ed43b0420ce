"""CUDA's driver API for the GPU programs here, by ctypes: kernels from PTX text, so that names and counts are ours.

Standard library only: a program without torch starts in a second and does nothing on the GPU that it does not know of.
"""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from pathlib import Path
from typing import Any

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
EMPTY = ".visible .entry {name}() {{ ret; }}\n"
SPIN = """.visible .entry {name}(.param .u64 clocks) {{
  .reg .u64 %rd<5>; .reg .pred %p1;
  ld.param.u64 %rd1, [clocks];
  mov.u64 %rd2, %clock64;
again:
  mov.u64 %rd3, %clock64;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ret;
}}
"""
TOUCH = """.visible .entry {name}(.param .u64 base, .param .u32 count) {{
  .reg .u64 %rd<4>; .reg .u32 %r<7>; .reg .pred %p1;
  ld.param.u64 %rd1, [base];
  ld.param.u32 %r1, [count];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd2, %r5, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r6, [%rd3];
  add.u32 %r6, %r6, 1;
  st.global.u32 [%rd3], %r6;
done:
  ret;
}}
"""
PINNED = 1  # CU_MEMHOSTALLOC_PORTABLE
ATTACH_GLOBAL = 1
CLOCK_RATE_KHZ = 13  # CU_DEVICE_ATTRIBUTE_CLOCK_RATE

ARGUMENTS: dict[str, Sequence[Any]] = {
    "cuInit": (c_uint,),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p),
    "cuStreamCreate": (POINTER(c_void_p), c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_void_p), c_size_t),
    "cuMemFree_v2": (c_void_p,),
    "cuMemAllocManaged": (POINTER(c_void_p), c_size_t, c_uint),
    "cuMemAllocAsync": (POINTER(c_void_p), c_size_t, c_void_p),
    "cuMemFreeAsync": (c_void_p, c_void_p),
    "cuMemcpyHtoD_v2": (c_void_p, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_void_p, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_void_p, c_ubyte, c_size_t, c_void_p),
    "cuMemsetD32Async": (c_void_p, c_uint, c_size_t, c_void_p),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cuGraphInstantiateWithFlags": (POINTER(c_void_p), c_void_p, ctypes.c_ulonglong),
    "cuGraphLaunch": (c_void_p, c_void_p),
}


class CudaError(Exception):
    """A call of the driver that did not succeed."""


def library_folders() -> Iterator[Path]:
    """Where CUDA's libraries lie: beside torch, in the toolkit."""
    for package in ("nvidia", "torch"):
        spec = importlib.util.find_spec(package)
        if spec is not None:
            yield from map(Path, spec.submodule_search_locations or ())
    yield from sorted(Path("/usr/local").glob("cuda*"))


def find_file(pattern: str) -> Path | None:
    return next((path for folder in library_folders() for path in sorted(folder.rglob(pattern))), None)


class Driver:
    """Each call by its name, checked; the first GPU's primary context is current in the calling thread."""

    def __init__(self) -> None:
        runtime = find_file("libcudart.so.1[0-9]")
        self.runtime: Any = ctypes.CDLL(str(runtime)) if runtime else None
        self._library = ctypes.CDLL("libcuda.so.1")
        self.calls: Counter[tuple[str, str]] = Counter()  # thread and name: what was called, as the caller knows it
        self("cuInit", 0)
        device = c_int()
        self("cuDeviceGet", byref(device), 0)
        self.context = self.made("cuDevicePrimaryCtxRetain", device)
        clock_khz = c_int()
        self("cuDeviceGetAttribute", byref(clock_khz), CLOCK_RATE_KHZ, device)
        self.clock_khz = clock_khz.value or 1_800_000
        self.use()

    def use(self) -> None:
        """In every thread that wants to call."""
        self("cuCtxSetCurrent", self.context)

    def call(self, name: str) -> Any:
        found = getattr(self._library, name)
        found.argtypes = ARGUMENTS[name]
        return found

    def __call__(self, name: str, *arguments: Any) -> None:
        self.calls[threading.current_thread().name, name] += 1
        result = self.call(name)(*arguments)
        if result != 0:
            raise CudaError(f"{name}: error {result}")

    def made(self, name: str, *arguments: Any) -> c_void_p:
        """What a call that creates something gives back through its first argument."""
        handle = c_void_p()
        self(name, byref(handle), *arguments)
        return handle

    def kernels(self, text: str, names: Sequence[str]) -> list[c_void_p]:
        module = self.made("cuModuleLoadData", (HEAD + text).encode())
        return [self.made("cuModuleGetFunction", module, name.encode()) for name in names]

    def launch(self, kernel: c_void_p, stream: Any = None, *arguments: Any, blocks: int = 1, threads: int = 1) -> None:
        words = (c_void_p * max(1, len(arguments)))(*(ctypes.addressof(argument) for argument in arguments))
        self("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, stream, words if arguments else None, None)

    def graph_of(self, stream: c_void_p, kernels: Sequence[c_void_p]) -> c_void_p:
        """A graph that runs these kernels one after the other."""
        self("cuStreamBeginCapture_v2", stream, 0)
        for kernel in kernels:
            self.launch(kernel, stream)
        graph = c_void_p()
        self("cuStreamEndCapture", stream, byref(graph))
        return self.made("cuGraphInstantiateWithFlags", graph, 0)

    def synchronize(self) -> None:
        self("cuCtxSynchronize")
