"""What a page is to show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankscope.model import Table
from rankscope.questions.selection import ALL, Selection


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which ranks, what kernels are called, and which tables besides those that belong to a question."""

    selection: Selection = ALL
    called: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Callable[[], Table]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    imports: Mapping[str, Any] | None = None  # nested: name, wall_ns, self_wall_ns, calls, self_calls, children
