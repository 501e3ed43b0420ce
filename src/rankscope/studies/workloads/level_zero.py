"""Buffers on a Level Zero device, copied to the host for a library that works there and back again."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

LOADER = "libze_loader.so.1"
CONTEXT, QUEUE, DEVICE_MEMORY = 0xD, 0xE, 0x15  # ze_structure_type_t
SYNCHRONOUS = 1  # ze_command_queue_mode_t
HANDLE, NUMBER = ctypes.c_void_p, ctypes.c_uint32


class Description(ctypes.Structure):
    """The head of every description, and as many numbers as any of those here has."""

    _fields_ = (("type", NUMBER), ("next", HANDLE), ("numbers", NUMBER * 6))


class LevelZero:
    """The first device of the first driver, with a list of commands that waits for each."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LOADER)
        except OSError as problem:
            sys.exit(f"rankscope study: --set device=ze: no Level Zero loader ({problem}): install libze1")
        self.device, self.context, self.list = HANDLE(), HANDLE(), HANDLE()
        driver, count = HANDLE(), NUMBER(1)
        self.call("zeInit", NUMBER(0))
        self.call("zeDriverGet", ctypes.byref(count), ctypes.byref(driver))
        self.call("zeDeviceGet", driver, ctypes.byref(count), ctypes.byref(self.device))
        described = Description(CONTEXT)
        self.call("zeContextCreate", driver, ctypes.byref(described), ctypes.byref(self.context))
        described = Description(QUEUE, None, (NUMBER * 6)(0, 0, 0, SYNCHRONOUS))
        self.call(
            "zeCommandListCreateImmediate",
            self.context,
            self.device,
            ctypes.byref(described),
            ctypes.byref(self.list),
        )

    def call(self, name: str, *arguments: Any) -> None:
        failed = getattr(self.library, name)(*arguments)
        if failed:
            sys.exit(f"rankscope study: {name} failed with {failed & 0xFFFFFFFF:#x}")

    def allocated(self, size_bytes: int) -> Any:
        memory, described = HANDLE(), Description(DEVICE_MEMORY)
        size = ctypes.c_size_t(max(1, size_bytes))
        self.call(
            "zeMemAllocDevice",
            self.context,
            ctypes.byref(described),
            size,
            ctypes.c_size_t(64),
            self.device,
            ctypes.byref(memory),
        )
        return memory

    def copy(self, to: Any, source: Any, size_bytes: int) -> None:
        size = ctypes.c_size_t(size_bytes)
        self.call("zeCommandListAppendMemoryCopy", self.list, to, source, size, None, NUMBER(0), None)


class Staged:
    """What a rank gives and gets lies on the device: both are copied around each call of the library."""

    def __init__(self, device: LevelZero, exchange: Any) -> None:
        self.device, self.exchange = device, exchange
        self.given = device.allocated(size_of(exchange.send))
        self.gotten = device.allocated(size_of(exchange.receive))

    def reset(self) -> None:
        self.exchange.reset()
        self.moved(self.given, self.exchange.send, to_device=True)

    def go(self) -> None:
        self.moved(self.given, self.exchange.send, to_device=False)
        self.exchange.go()
        self.moved(self.gotten, self.exchange.receive, to_device=True)

    def moved(self, there: Any, buffer: Any, to_device: bool) -> None:
        here = HANDLE(address_of(buffer))
        to, source = (there, here) if to_device else (here, there)
        if size_of(buffer):
            self.device.copy(to, source, size_of(buffer))

    def wrong(self) -> str:
        return str(self.exchange.wrong())


def address_of(buffer: Any) -> int:
    return int(buffer.ctypes.data if hasattr(buffer, "ctypes") else buffer.data_ptr())


def size_of(buffer: Any) -> int:
    return int(buffer.nbytes)
