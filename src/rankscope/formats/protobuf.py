"""The wire format of Protocol Buffers: fields of a message, without a schema and without its library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Damaged(ValueError):
    """Bytes that are no message."""


def varint(data: Any, at: int) -> tuple[int, int]:
    """A number and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Damaged("a number is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Damaged("a number that does not end")


def fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message (bytes or a view of them): a whole number, or a part of the bytes."""
    if isinstance(data, int):
        raise Damaged("a number where a message should be")
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Damaged(f"a field of unknown kind {kind}")
        if at + size > end:
            raise Damaged(f"field {number} ends after its message")
        part = data[at : at + size]
        at += size
        yield number, part if kind == BYTES else int.from_bytes(part, "little")


def packed(data: Any) -> list[int]:
    """Numbers one behind the other."""
    values: list[int] = []
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def signed(value: int) -> int:
    """An int64: negative ones are written as their complement."""
    return value - 2**64 if 2**63 <= value < 2**64 else value


def text(value: Any, most: int = 100_000) -> str:
    return "" if isinstance(value, int) else bytes(value[:most]).decode("utf-8", "replace")
