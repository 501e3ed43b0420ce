"""Path operations as text, one a line: what `rankscope imports replay --export` writes, or you by hand."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.formats.source import Source
from rankscope.model import PathOperation

HEADER = "# rankscope path operations 1"
COLUMNS = "# operation\tresult\ttimes\tbytes\tpath"
KINDS = ("stat", "open", "access", "readlink", "list", "exec")
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
LARGEST = 2**53


def is_path_operations(head: bytes) -> bool:
    return head.startswith(HEADER.encode())


def to_text(operations: Iterable[PathOperation]) -> str:
    rows = (f"{one.operation}\t{one.result}\t{one.times}\t{one.bytes}\t{escaped(one.path)}\n" for one in operations)
    return "".join([f"{HEADER}\n{COLUMNS}\n", *rows])


def read(source: Source) -> list[PathOperation]:
    """The operations in their order."""
    return [_operation(source, text, line) for line, text in source.lines() if text and not text.startswith("#")]


def _operation(source: Source, text: str, line: int) -> PathOperation:
    parts = text.split("\t")
    if len(parts) != 5 or parts[0] not in KINDS:
        raise source.bad(f"not an operation, result, times, bytes and path: {text[:80]!r}", line)
    times, size = (int(part) if part.isdecimal() and len(part) < 17 else LARGEST for part in parts[2:4])
    if not 1 <= times <= 10**6 or size >= LARGEST:
        raise source.bad(f"times or bytes are no sensible number: {text[:80]!r}", line)
    return PathOperation(parts[0], unescaped(parts[4]), parts[1], times, size)


def escaped(path: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in path)


def unescaped(text: str) -> str:
    plain = {written[1]: letter for letter, written in ESCAPES.items()}
    parts = text.split("\\\\")
    for letter in ("n", "t", "r"):
        parts = [part.replace(f"\\{letter}", plain[letter]) for part in parts]
    return "\\".join(parts)
