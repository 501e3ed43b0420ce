"""What a command touched: lists of paths, from a plain list or from strace's log."""

import os
import re
from collections.abc import Iterable

OPENED, LOOKED_AT = "opened", "looked at"
CALL = re.compile(
    r'^(?:\[pid +\d+\] |\d+ +)?(?:[\d:.]+ +)?(\w+)\((?:(?:AT_FDCWD|\d+)(?:<([^>]*)>)?, )?"((?:[^"\\]|\\.)*)"'
)
FAILED = re.compile(r"\) += -1 E")
OPENING = ("open", "openat", "openat2", "execve", "execveat")
LOOKING = """stat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat stat64 lstat64 fstatat64
    getxattr lgetxattr chdir""".split()
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", '"': '"', "\\": "\\"}
ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|[0-7]{1,3}|.)")
SNIFFED_LINES = 50

Touched = dict[str, str]  # absolute path → OPENED or LOOKED_AT


def add(touched: Touched, path: str, how: str) -> None:
    """One more sign of this path; an opened file stays one that was opened."""
    if path.startswith("/") and touched.get(path) != OPENED:
        touched[path] = how


def read_list(name: str) -> Touched:
    """The paths in a file: one in a line, or a log of strace."""
    with open(name, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().split("\n")
    if any(CALL.match(line) for line in lines[:SNIFFED_LINES]):
        return from_strace(lines, os.getcwd())
    touched: Touched = {}
    for line in lines:
        if line and not line.startswith("#"):
            add(touched, os.path.abspath(line), OPENED)
    return touched


def from_strace(lines: Iterable[str], folder: str) -> Touched:
    """The paths of calls that did not fail; a call whose end is on another line counts as one that did not."""
    touched: Touched = {}
    for line in lines:
        found = CALL.match(line)
        if not found or FAILED.search(line):
            continue
        call, at, text = found.groups()
        if call in OPENING or call in LOOKING:
            path = os.path.normpath(os.path.join(at or folder, unescaped(text))) if text else at or ""
            add(touched, path, OPENED if call in OPENING else LOOKED_AT)
    return touched


def unescaped(text: str) -> str:
    """A string as strace prints it, without its escapes."""
    if "\\" not in text:
        return text
    raw = ESCAPED.sub(lambda found: character(found.group(1)), text)
    return os.fsdecode(raw.encode("latin-1", "replace")) if raw.isascii() or max(raw) <= "\xff" else raw


def character(code: str) -> str:
    if code[0] == "x":
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return ESCAPES.get(code, code)
