"""What CUPTI itself costs a launch, with nothing of ours in the process: a program for gpu_turns.py.

    python scripts/gpu_turns.py --worker scripts/gpu_floor.py --modes bare bare-again none early-kernels late-kinds \
        late-nothing --seconds 45 --runs RUNS --out floor.jsonl

`early-…` attaches to CUPTI before CUDA starts, `late-…` after its first kernel; what is switched on then: `nothing`,
`kernels`, or `kinds`, all that the recorder switches on. Buffers are handed out and taken back unread. `none`: the
recorder without calls of the API.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from typing import Any

from gpu_loop import launching
from gpu_worker import serve

MEMCPY, MEMSET, CONCURRENT_KERNEL, MARKER, MEMCPY2, MEMORY2, POOL = 1, 2, 10, 12, 22, 49, 50
KINDS = {
    "nothing": (),
    "kernels": (CONCURRENT_KERNEL,),
    "kinds": (CONCURRENT_KERNEL, MEMCPY, MEMCPY2, MEMSET, MEMORY2, MARKER, POOL),
}
BUFFER_BYTES, BUFFERS = 8 << 20, 32
REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
kept: list[Any] = []
free_buffers: list[int] = []


@REQUESTED
def give(buffer, size, most):  # type: ignore[no-untyped-def]
    buffer[0], size[0], most[0] = free_buffers.pop() if free_buffers else None, BUFFER_BYTES, 0


@COMPLETED
def take(_context, _stream, buffer, _size, _valid):  # type: ignore[no-untyped-def]
    free_buffers.append(buffer)


def cupti_library() -> Any:
    folders = [*sys.path, "/usr/local/cuda/extras/CUPTI/lib64"]
    found = [path for folder in folders for path in glob.glob(os.path.join(folder, "nvidia/*/lib/libcupti.so.*"))]
    found += [path for folder in folders for path in glob.glob(os.path.join(folder, "libcupti.so.*"))]
    return ctypes.CDLL(found[0])


def attach(what: str) -> Any:
    cupti = cupti_library()
    kept.extend(ctypes.create_string_buffer(BUFFER_BYTES) for _ in range(BUFFERS))
    free_buffers.extend(ctypes.addressof(memory) for memory in kept)
    assert cupti.cuptiActivityRegisterCallbacks(give, take) == 0
    for kind in KINDS[what]:
        assert cupti.cuptiActivityEnable(kind) == 0, kind
    return cupti


def main() -> int:
    mode = sys.argv[1]
    when, _, what = mode.partition("-")
    if when == "early":
        attach(what)
    turn = launching()
    if when == "late":
        attach(what)
    serve(mode, turn)
    sys.stdout.flush()
    os._exit(0)  # Python must not be called back by CUPTI when it is gone


if __name__ == "__main__":
    sys.exit(main())
