"""The path operations in a strace log, in their order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from rankscope.formats.source import Source
from rankscope.formats.strace_line import Call, Resumed, parsed
from rankscope.model import PathOperation

# Which call asks what; a folder that is opened to be listed is told from a file by its flag.
KINDS = {
    "stat": "stat", "lstat": "stat", "newfstatat": "stat", "fstatat64": "stat", "statx": "stat", "stat64": "stat",
    "lstat64": "stat", "open": "open", "openat": "open", "openat2": "open", "access": "access", "faccessat": "access",
    "faccessat2": "access", "readlink": "readlink", "readlinkat": "readlink", "execve": "exec", "execveat": "exec",
}  # fmt: skip
# The folder it starts from (with -y its path in brackets), then the path as a C string.
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)(?:<(?P<base>[^>]*)>)?, )?"(?P<path>(?:[^"\\]|\\.)*)"(?P<cut>\.\.\.)?')


def read(source: Source) -> tuple[list[PathOperation], int]:
    """The operations on absolute paths, and how many paths could not be made absolute."""
    found = [_operation(call) for call in _calls(source) if call.name in KINDS]
    kept = [one for one in found if isinstance(one, PathOperation)]
    return kept, found.count("relative")


def _calls(source: Source) -> Iterator[Call]:
    """Whole calls: those that another thread's line interrupted are put together."""
    pending: dict[int, Call] = {}
    for _, text in source.lines():
        line = parsed(text)
        if isinstance(line.what, Call) and line.what.unfinished:
            pending[line.task] = line.what
        elif isinstance(line.what, Call):
            yield line.what
        elif isinstance(line.what, Resumed) and (begun := pending.pop(line.task, None)):
            whole = parsed(f"{begun.name}({begun.arguments}{line.what.rest}").what
            if isinstance(whole, Call):
                yield whole


def _operation(call: Call) -> PathOperation | str:
    """The operation, or why there is none: `relative` to an unknown folder, or `none` at all (fstat)."""
    found = PATH.match(call.arguments)
    if found is None or found["cut"] or not found["path"] or not call.result:
        return "none"
    path = _unquoted(found["path"])
    if not path.startswith("/"):
        if not found["base"] or not found["base"].startswith("/"):
            return "relative"
        path = os.path.join(found["base"], path)
    kind = "list" if KINDS[call.name] == "open" and "O_DIRECTORY" in call.arguments else KINDS[call.name]
    return PathOperation(kind, path, call.error or "ok")


def _unquoted(text: str) -> str:
    """As C writes strings: \\n, \\303; bytes that are no UTF-8 stay what they were."""
    if "\\" not in text:
        return text
    plain = text.encode("ascii", "backslashreplace").decode("unicode_escape", "replace")
    return os.fsdecode(plain.encode("latin-1", "replace"))
