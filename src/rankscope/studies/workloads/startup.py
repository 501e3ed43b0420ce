"""From nothing to the first training step: import, init, first and second all-reduce, first and second step."""

from __future__ import annotations

import argparse
import time

ORIGIN = time.perf_counter()

import place  # noqa: E402
import result  # noqa: E402
import talking  # noqa: E402

IMPORTS = {
    "mpi4py": ("mpi4py.MPI", "numpy"),
    "gloo": ("torch", "torch.distributed"),
    "nccl": ("torch", "torch.distributed"),
}
ELEMENTS = 1024 * 1024  # as the documents have it: a tensor of 1024 × 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--into", required=True)
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    options = parser.parse_args()
    seconds = {}

    def timed(name: str, begin: float) -> None:
        seconds[name] = time.perf_counter() - begin

    for module in IMPORTS.get(options.backend, ()):
        __import__(module)
    timed("import", ORIGIN)
    begin = time.perf_counter()
    backend = talking.connected(options.backend, options.into)
    timed("init", begin)
    wrong = ""
    for name in ("first_collective", "second_collective"):
        buffer = backend.buffer(options.elements, 1.0)
        begin = time.perf_counter()
        backend.allreduce(buffer)
        timed(name, begin)
        if backend.first(buffer) != backend.world:
            wrong = f"{name}: the sum is {backend.first(buffer)}, not {backend.world}"
    for name in ("first_step", "second_step"):
        begin = time.perf_counter()
        for _ in range(4):  # gradients of four layers
            backend.allreduce(backend.buffer(options.elements // 16, 1.0))
        timed(name, begin)
    timed("total", ORIGIN)
    result.leave(options.into, place.rank(), seconds=seconds, wrong=wrong)
    backend.close()


if __name__ == "__main__":
    main()
