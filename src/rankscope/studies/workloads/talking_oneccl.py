"""oneCCL on the host, by a small C++ library that is compiled on first use (oneccl_building.py)."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import oneccl_building
import place
from talking import awaited, lacks

NUMBERS = {
    "allreduce": 0,
    "broadcast": 1,
    "reduce": 2,
    "allgather": 3,
    "reduce_scatter": 4,
    "alltoall": 5,
    "barrier": 6,
}


class OneCcl:
    IN_PLACE: tuple[str, ...] = ("broadcast",)

    def __init__(self, folder: str) -> None:
        from arrays import NumpyArrays

        self.arrays = NumpyArrays()
        self.rank, self.world = place.rank(), place.world()
        self.library = loaded()
        self.meet(os.path.join(folder, "oneccl-address"))

    def meet(self, path: str) -> None:
        """The first rank opens the meeting and leaves its address for the others."""
        address = ctypes.create_string_buffer(self.library.rankscope_oneccl_address_bytes())
        if self.rank == 0:
            self.checked(self.library.rankscope_oneccl_open(address))
            with open(f"{path}.new", "wb") as file:
                file.write(address.raw)
            os.replace(f"{path}.new", path)
        else:
            address.raw = awaited(path)
        self.checked(self.library.rankscope_oneccl_connect(self.world, self.rank, None if self.rank == 0 else address))

    def checked(self, failed: int) -> None:
        if failed:
            sys.exit(f"oneCCL error: {self.library.rankscope_oneccl_problem().decode(errors='replace')}")

    def buffer(self, elements: int, value: float) -> Any:
        return self.arrays.numpy.full(elements, value, dtype=self.arrays.numpy.float32)

    def allreduce(self, buffer: Any) -> None:
        self.ask("allreduce", buffer, buffer, len(buffer))

    def carry_out(self, operation: str, send: Any, receive: Any) -> Any:
        if operation not in NUMBERS:
            lacks("oneCCL", operation)
        parts = {"allgather": len(send), "reduce_scatter": len(receive), "alltoall": len(send) // self.world}
        self.ask(operation, send, receive, parts.get(operation, len(send)))
        return receive

    def ask(self, operation: str, send: Any, receive: Any, count: int) -> None:
        self.checked(self.library.rankscope_oneccl_do(NUMBERS[operation], send.ctypes.data, receive.ctypes.data, count))

    def first(self, buffer: Any) -> float:
        return float(buffer[0])

    def barrier(self) -> None:
        self.checked(self.library.rankscope_oneccl_do(NUMBERS["barrier"], None, None, 0))

    def wait(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        by = os.environ.get("CCL_ATL_TRANSPORT", "")
        return {"oneCCL": f"{self.library.rankscope_oneccl_version().decode(errors='replace')} by {by}"}

    def close(self) -> None:
        self.checked(self.library.rankscope_oneccl_close())


def loaded() -> ctypes.CDLL:
    """The library with oneCCL behind it, told how to reach the others before it is loaded."""
    for name, value in settings().items():
        os.environ.setdefault(name, value)
    library = ctypes.CDLL(oneccl_building.built())
    for name in ("problem", "version"):
        getattr(library, f"rankscope_oneccl_{name}").restype = ctypes.c_char_p
    library.rankscope_oneccl_address_bytes.restype = ctypes.c_size_t
    library.rankscope_oneccl_do.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return library


def settings() -> dict[str, str]:
    """libfabric's TCP, which works everywhere and needs no MPI; who wants another transport sets these himself."""
    variables = {
        "CCL_ATL_TRANSPORT": "ofi",
        "FI_PROVIDER": "tcp",
        "CCL_PROCESS_LAUNCHER": "none",
        "CCL_ZE_ENABLE": "0",  # buffers are on the host: an old loader of Level Zero must not stop it
        "CCL_LOCAL_RANK": str(place.local_rank()),
        "CCL_LOCAL_SIZE": str(place.local_world()),
    }
    if 2 * place.local_world() >= len(os.sched_getaffinity(0)):  # its threads spin: here they would hold up each other
        variables |= {"CCL_WORKER_OFFLOAD": "0", "CCL_YIELD": "sched_yield"}
    return variables
