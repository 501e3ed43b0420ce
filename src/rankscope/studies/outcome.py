"""What became of one cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rankscope.api.run import Run

if TYPE_CHECKING:
    from rankscope.studies.plan import Cell

State = Literal["done", "failed", "timed out", "incomplete", "not here", "waiting"]
FINAL: tuple[State, ...] = ("done", "failed", "timed out", "incomplete", "not here")


@dataclass
class Outcome:
    """One cell, how it ended and what it left."""

    cell: Cell
    state: State = "waiting"
    reason: str = ""
    seconds: float | None = None
    folder: str = ""  # of the attempt that counts
    command: tuple[str, ...] = ()
    results: list[dict[str, Any]] = field(default_factory=list)  # what the ranks left, by rank

    @property
    def done(self) -> bool:
        return self.state == "done"

    @cached_property
    def run(self) -> Run:
        """The recorded run."""
        return Run(f"{self.folder}/run")
