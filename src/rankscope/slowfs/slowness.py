"""How slow the file system shall be, and how that is said to the native part."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

CACHES = ("none", "positive", "negative")
NS_OF = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
BYTES_OF = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True)
class Slowness:
    """What a client of the file system meets."""

    latency_ns: int = 0  # of a metadata operation
    read_latency_ns: int = 0
    bytes_per_second: int = 0  # 0: unlimited
    operations_per_second: int = 0  # metadata, shared over all that name the same server; 0: unlimited
    cache: str = "none"
    cache_ns: int = 3600 * 10**9
    page_cache: bool | None = None  # None: as the cache of names
    server: Path | None = None  # the file by which mounts share rates and counters

    def flags(self) -> list[str]:
        """The options of the native program."""
        numbers = {
            "latency-ns": self.latency_ns,
            "read-latency-ns": self.read_latency_ns,
            "bytes-per-second": self.bytes_per_second,
            "ops-per-second": self.operations_per_second,
            "cache-ns": self.cache_ns,
        }
        made = [f"--cache={self.cache}", *(f"--{name}={value}" for name, value in numbers.items())]
        if self.page_cache is not None:
            made.append(f"--page-cache={'on' if self.page_cache else 'off'}")
        return [*made, f"--server={self.server}"] if self.server is not None else made

    def sharing(self, server: Path) -> Slowness:
        return replace(self, server=server)


def duration_ns(text: str) -> int:
    """Nanoseconds of `1ms`, `250us`, `2 s`; a bare number is not a time."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zµ]+)", text.strip())
    if found is None or found[2] not in NS_OF:
        raise ValueError(f"{text}: give a time with its unit, as in 250us, 1ms or 2s")
    return round(float(found[1]) * NS_OF[found[2]])


def bytes_per_second(text: str) -> int:
    """Bytes a second of `1G`, `200M`, `64Mi`, also with B or B/s behind."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(|k|M|G|Ki|Mi|Gi)(?:B(?:/s)?)?", text.strip())
    if found is None:
        raise ValueError(f"{text}: give bytes a second, as in 200M or 1G")
    return round(float(found[1]) * BYTES_OF[found[2]])
