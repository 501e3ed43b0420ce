"""Protocol buffers by hand: single fields, and columns of numbers written into fixed places of many records."""

from __future__ import annotations

from typing import Any

import numpy as np

VARINT, FIXED64, LENGTH = 0, 1, 2


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def message(field: int, body: bytes) -> bytes:
    return tag(field, LENGTH) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "backslashreplace"))


def put_varints(records: Any, at: int, values: Any, width: int) -> None:
    """Write one number into each record, always in so many bytes: a varint may have leading zeros."""
    left = np.asarray(values).astype(np.uint64)
    for place in range(width):
        more = 0x80 if place < width - 1 else 0
        records[:, at + place] = (left & np.uint64(0x7F)).astype(np.uint8) | np.uint8(more)
        left >>= np.uint64(7)


def put_fixed64(records: Any, at: int, values: Any) -> None:
    records[:, at : at + 8] = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)
