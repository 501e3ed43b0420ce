"""From nothing to the first training step: import, init, first and second all-reduce, model, first and second step."""

from __future__ import annotations

import time

ORIGIN = time.perf_counter()

import argparse  # noqa: E402
from typing import Any  # noqa: E402

import place  # noqa: E402
import result  # noqa: E402
import stepping  # noqa: E402
import talking  # noqa: E402

ELEMENTS = 1024 * 1024  # as the documents have it: a tensor of 1024 × 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--into", required=True)
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    options = parser.parse_args()
    seconds: dict[str, float] = {}
    begin = time.perf_counter()
    prepared(options.backend)
    origin = ORIGIN + time.perf_counter() - begin  # compiling is done once on a machine and is no part of a start

    imported(options.backend)
    seconds["import"] = time.perf_counter() - origin
    begin = time.perf_counter()
    backend = talking.connected(options.backend, options.into)
    seconds["init"] = time.perf_counter() - begin
    wrong = ""
    for name in ("first_collective", "second_collective"):
        buffer = backend.buffer(options.elements, float(backend.rank + 1))
        begin = time.perf_counter()
        backend.allreduce(buffer)
        seconds[name] = time.perf_counter() - begin
        wrong = wrong or mistake(backend, buffer, name)
    begin = time.perf_counter()
    step = stepping.trainer(options.backend, backend)
    seconds["model"] = time.perf_counter() - begin
    for name in ("first_step", "second_step"):
        begin = time.perf_counter()
        step.step()
        backend.wait()
        seconds[name] = time.perf_counter() - begin
    seconds["total"] = time.perf_counter() - origin
    wrong = wrong or step.wrong()
    versions = backend.versions()
    result.leave(options.into, place.rank(), seconds=seconds, step=step.WHAT, versions=versions, wrong=wrong)
    backend.close()


def prepared(backend: str) -> None:
    if backend.startswith("oneccl"):
        import oneccl_building

        oneccl_building.built()


def imported(backend: str) -> None:
    """What the backend's programs import; MPI is not yet initialised by it."""
    if backend == "mpi4py":
        import mpi4py

        mpi4py.rc.initialize = False
        import mpi4py.MPI
        import numpy  # noqa: F401
    elif backend.startswith("oneccl"):
        import talking_oneccl

        talking_oneccl.loaded()
    else:
        import torch.distributed  # noqa: F401
    if backend.startswith("horovod"):
        import horovod.torch  # noqa: F401


def mistake(backend: Any, buffer: Any, name: str) -> str:
    """By the first and the last element; the study of all-reduces looks at all."""
    wanted = backend.world * (backend.world + 1) / 2
    for at in (0, len(buffer) - 1):
        got = backend.arrays.value(buffer, at)
        if got != wanted:
            return f"{name}: element {at} of the sum is {got:g}, not {wanted:g}"
    return ""


if __name__ == "__main__":
    main()
