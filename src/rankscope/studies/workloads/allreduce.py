"""One collective at many sizes: the first call, warm-up, and timed calls; of each size the result is checked."""

from __future__ import annotations

import argparse
import time
from typing import Any

import place
import result
import talking
from exchanges import OPERATIONS, Exchange, Shape
from level_zero import LevelZero, Staged

FEWEST = 3  # timed calls of any size
WARM_UP = 5  # at most
VOLUME_BYTES = 64 << 20  # above this in all, there are fewer calls


def main() -> None:
    options = parsed()
    backend = talking.connected(options.backend, options.into)
    device = LevelZero() if options.device == "ze" else None
    sizes = []
    for number, size_bytes in enumerate(options.sizes):
        if number:  # before the first nothing may be sent: it is the job's first collective
            backend.barrier()
        sizes.append(measured(backend, options, size_bytes, device))
    wrong = next((size_result["wrong"] for size_result in sizes if size_result["wrong"]), "")
    result.leave(options.into, place.rank(), op=options.op, sizes=sizes, versions=backend.versions(), wrong=wrong)
    backend.close()


def measured(
    backend: talking.Backend, options: argparse.Namespace, size_bytes: int, device: LevelZero | None
) -> dict[str, Any]:
    shape = Shape(options.op, backend.rank, backend.world, size_bytes)
    exchange = Exchange(backend, shape) if device is None else Staged(device, Exchange(backend, shape))
    first_ns = timed(backend, exchange)
    wrong = exchange.wrong()
    count = calls(options.iterations, size_bytes)
    for _ in range(min(WARM_UP, max(1, count // 4))):
        timed(backend, exchange)
    times_ns = [timed(backend, exchange) for _ in range(count)]
    return {
        "asked_bytes": size_bytes,
        "size_bytes": shape.moved_bytes,
        "first_ns": first_ns,
        "times_ns": times_ns,
        "wrong": wrong or exchange.wrong(),
    }


def timed(backend: talking.Backend, exchange: Exchange | Staged) -> int:
    exchange.reset()
    backend.wait()
    begin = time.perf_counter_ns()
    exchange.go()
    return time.perf_counter_ns() - begin


def calls(iterations: int, size_bytes: int) -> int:
    """Timed calls at this size: the same on every rank and at every scale."""
    return max(FEWEST, min(iterations, VOLUME_BYTES // max(1, size_bytes)))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--into", required=True)
    parser.add_argument("--op", choices=OPERATIONS, default="allreduce")
    parser.add_argument("--sizes", required=True, type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--device", choices=("host", "ze"), default="host")
    return parser.parse_args()


if __name__ == "__main__":
    main()
