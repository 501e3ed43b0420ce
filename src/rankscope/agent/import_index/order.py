"""In which order modules are likely to be imported, told from their code without running any of it: neighbours in the
index are then read at once. A mistake costs a read, nothing else."""

from __future__ import annotations

import marshal
import opcode
from collections.abc import Callable
from types import CodeType

IMPORT_NAME = opcode.opmap["IMPORT_NAME"]
EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]


def imported_names(code: CodeType, package: str) -> list[str]:
    """Absolute names that the module's own level imports, in order."""
    imported: list[str] = []
    octets = code.co_code
    at = octets.find(IMPORT_NAME)
    while at >= 0:
        if at % 2 == 0:
            name = code.co_names[argument(octets, at)] if argument(octets, at) < len(code.co_names) else ""
            level, names = level_and_names(code, octets, at)
            base = absolute(name, level, package)
            imported += [base, *(f"{base}.{name}" for name in names)] if base else []
        at = octets.find(IMPORT_NAME, at + 1)
    return imported


def argument(octets: bytes, at: int) -> int:
    high = octets[at - 1] << 8 if at >= 2 and octets[at - 2] == EXTENDED_ARG else 0
    return high | octets[at + 1]


def level_and_names(code: CodeType, octets: bytes, at: int) -> tuple[int, tuple[str, ...]]:
    """The two constants that are loaded before: how far up a relative import begins, what it wants."""
    back = at - 2 if at >= 2 and octets[at - 2] == EXTENDED_ARG else at
    loaded = [code.co_consts[octets[place + 1]] for place in (back - 4, back - 2) if is_constant(code, octets, place)]
    level = next((constant for constant in loaded if type(constant) is int), 0)
    names = next((constant for constant in loaded if type(constant) is tuple), ())
    return level, tuple(name for name in names if type(name) is str)


def is_constant(code: CodeType, octets: bytes, place: int) -> bool:
    return place >= 0 and octets[place + 1] < len(code.co_consts)


def absolute(name: str, level: int, package: str) -> str:
    if level == 0:
        return name
    parts = package.split(".")
    parts = parts[: len(parts) - (level - 1)]
    return ".".join([*parts, name] if name else parts)


def likely_order(packages: dict[str, str], read: Callable[[str], bytes | None]) -> list[str]:
    """The modules, each followed by those that it imports. `packages` says to which package a module's relative
    imports belong, and its order is that in which the modules are begun with."""
    done: dict[str, None] = {}
    for first in packages:
        waiting = [first]
        while waiting:
            name = waiting.pop()
            if name in done or name not in packages:
                continue
            parent = name.rpartition(".")[0]
            if parent and parent in packages and parent not in done:
                waiting += [name, parent]
                continue
            done[name] = None
            waiting += reversed(imports_of(read(name), packages[name]))
    return list(done)


def imports_of(data: bytes | None, package: str) -> list[str]:
    try:
        code = marshal.loads(data) if data else None
        return imported_names(code, package) if isinstance(code, CodeType) else []
    except (ValueError, EOFError, TypeError, IndexError):
        return []
