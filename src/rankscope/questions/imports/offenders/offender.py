"""What a rule says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Offender:
    """Something that makes imports expensive."""

    rule: str
    title: str
    action: str
    calls: int  # blamed: what would go away at most
    evidence: list[str] = field(default_factory=list)  # "table: what its rows say"
    without: str = ""  # what --without switches off, to measure the saving


def some(names: Iterable[str], most: int = 4) -> str:
    """The first few of many."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
