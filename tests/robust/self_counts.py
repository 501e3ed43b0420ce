"""Reads the counts that programs/counts_itself.* keep in shared files, dead or alive."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

HEAD, COUNT = struct.Struct("QQQ"), struct.Struct("24sQQ")


@dataclass(frozen=True)
class SelfCounts:
    """How often one process had entered each function, and how often it had returned from it."""

    pid: int
    entered: dict[str, int]
    returned: dict[str, int]

    @property
    def calls(self) -> int:
        return sum(self.entered.values())


def read(path: Path) -> SelfCounts:
    data = path.read_bytes()
    pid, _, functions = HEAD.unpack_from(data)
    rows = [COUNT.unpack_from(data, HEAD.size + i * COUNT.size) for i in range(functions)]
    names = [name.rstrip(b"\0").decode() for name, _, _ in rows]
    return SelfCounts(
        pid,
        {name: row[1] for name, row in zip(names, rows, strict=True)},
        {name: row[2] for name, row in zip(names, rows, strict=True)},
    )


def read_all(folder: Path) -> list[SelfCounts]:
    return [read(path) for path in sorted(folder.glob("*.counts"))]
