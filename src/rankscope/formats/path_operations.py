"""Path operations as text, one a line: what `rankscope imports replay --export` writes, or you by hand."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from rankscope.formats.source import Source
from rankscope.formats.strace_line import Resumed, SystemCall, parsed
from rankscope.model.imports import PathOperation

# ---------------------------------------------------------------- the path operations in a strace log, in their order
# Which call asks what; a folder that is opened to be listed is told from a file by its flag.
STRACE_KINDS = {
    "stat": "stat", "lstat": "stat", "newfstatat": "stat", "fstatat64": "stat", "statx": "stat", "stat64": "stat",
    "lstat64": "stat", "open": "open", "openat": "open", "openat2": "open", "access": "access", "faccessat": "access",
    "faccessat2": "access", "readlink": "readlink", "readlinkat": "readlink", "execve": "exec", "execveat": "exec",
}  # fmt: skip
# The folder it starts from (with -y its path in brackets), then the path as a C string.
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)(?:<(?P<base>[^>]*)>)?, )?"(?P<path>(?:[^"\\]|\\.)*)"(?P<cut>\.\.\.)?')


def read_strace(source: Source) -> tuple[list[PathOperation], int]:
    """The operations on absolute paths, and how many paths could not be made absolute."""
    results = [_strace_operation(call) for call in _calls(source) if call.name in STRACE_KINDS]
    operations = [operation for operation in results if isinstance(operation, PathOperation)]
    return operations, results.count("relative")


def _calls(source: Source) -> Iterator[SystemCall]:
    """Whole calls: those that another thread's line interrupted are put together."""
    pending: dict[int, SystemCall] = {}
    for _, text in source.lines():
        line = parsed(text)
        if isinstance(line.what, SystemCall) and line.what.unfinished:
            pending[line.task] = line.what
        elif isinstance(line.what, SystemCall):
            yield line.what
        elif isinstance(line.what, Resumed) and (begun := pending.pop(line.task, None)):
            call = parsed(f"{begun.name}({begun.arguments}{line.what.rest}").what
            if isinstance(call, SystemCall):
                yield call


def _strace_operation(call: SystemCall) -> PathOperation | str:
    """The operation, or why there is none: `relative` to an unknown folder, or `none` at all (fstat)."""
    match = PATH.match(call.arguments)
    if match is None or match["cut"] or not match["path"] or not call.result:
        return "none"
    path = _unquoted(match["path"])
    if not path.startswith("/"):
        if not match["base"] or not match["base"].startswith("/"):
            return "relative"
        path = os.path.join(match["base"], path)
    kind = "list" if STRACE_KINDS[call.name] == "open" and "O_DIRECTORY" in call.arguments else STRACE_KINDS[call.name]
    return PathOperation(kind, path, call.error or "ok")


def _unquoted(text: str) -> str:
    """As C writes strings: \\n, \\303; bytes that are no UTF-8 stay what they were."""
    if "\\" not in text:
        return text
    plain = text.encode("ascii", "backslashreplace").decode("unicode_escape", "replace")
    return os.fsdecode(plain.encode("latin-1", "replace"))


# ---------------------------------------------------------------- path operations
HEADER = "# rankscope path operations 1"
COLUMNS = "# operation\tresult\ttimes\tbytes\tpath"
KINDS = ("stat", "open", "access", "readlink", "list", "exec")
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
LARGEST = 2**53


def is_path_operations(head: bytes) -> bool:
    return head.startswith(HEADER.encode())


def to_text(operations: Iterable[PathOperation]) -> str:
    rows = (
        f"{operation.operation}\t{operation.result}\t{operation.times}\t{operation.bytes}\t{escaped(operation.path)}\n"
        for operation in operations
    )
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
        raise source.bad(f"times or bytes are not sensible numbers: {text[:80]!r}", line)
    return PathOperation(parts[0], unescaped(parts[4]), parts[1], times, size)


def escaped(path: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in path)


def unescaped(text: str) -> str:
    plain = {written[1]: letter for letter, written in ESCAPES.items()}
    parts = text.split("\\\\")
    for letter in ("n", "t", "r"):
        parts = [part.replace(f"\\{letter}", plain[letter]) for part in parts]
    return "\\".join(parts)
