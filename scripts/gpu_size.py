"""gpu_size.py SECONDS: 2,000 kernels of long names on four streams in four NVTX ranges, over and over.

Every five seconds a line of json: how much was launched, and how many bytes of this process's rank file are in use.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

from gpu_driver import EMPTY, Driver
from gpu_nvtx import compile_nvtx

KERNELS, STREAMS, PHASES = 2000, 4, 4
NAME = "size_kernel_{:04d}_void_at_native_vectorized_elementwise_kernel_of_a_length_usual_for_templates_in_training"
SAY_S, USED_BYTES_AT = 5.0, 32


def used_bytes() -> int | None:
    """As the header of the rank file says; None where nothing is recorded."""
    folder = os.environ.get("RANKSCOPE_DIR")
    path = Path(folder or "", "ranks", socket.gethostname(), f"{os.getpid()}.rank")
    if not folder or not path.exists():
        return None
    with path.open("rb") as file:
        return int(struct.unpack_from("=Q", file.read(64), USED_BYTES_AT)[0])


def main() -> int:
    seconds = float(sys.argv[1])
    driver = Driver()
    nvtx, reason = compile_nvtx()
    names = [NAME.format(number) for number in range(KERNELS)]
    kernels = driver.kernels("".join(EMPTY.format(name=name) for name in names), names)
    streams = [driver.made("cuStreamCreate", 1) for _ in range(STREAMS)]
    launch = driver.call("cuLaunchKernel")
    began, said, rounds = time.monotonic(), 0.0, 0

    def say(is_last: bool = False) -> None:
        told = {"s": round(time.monotonic() - began, 2), "launches": rounds * KERNELS, "used_bytes": used_bytes()}
        print(json.dumps({**told, "pid": os.getpid(), "no_ranges": reason, "last": is_last}), flush=True)

    while time.monotonic() - began < seconds:
        if nvtx:
            nvtx.push(None, f"phase {rounds // STREAMS % PHASES}")
        for number, kernel in enumerate(kernels):
            if launch(kernel, 1, 1, 1, 1, 1, 1, 0, streams[(number + rounds) % STREAMS], None, None) != 0:
                raise SystemExit("a launch failed")
        if nvtx:
            nvtx.pop(None)
        rounds += 1
        if time.monotonic() - said > SAY_S:
            said = time.monotonic()
            say()
    driver.synchronize()
    say(is_last=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
