"""Runs a whole study: every cell that has not ended yet, one after the other, and the document at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rankscope.studies.environment import environment
from rankscope.studies.errors import BadStudy
from rankscope.studies.launchers import Wanted
from rankscope.studies.ledger import Ledger
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell, Settings, Study, cells
from rankscope.studies.pythons import Pythons
from rankscope.studies.running import run_cell


@dataclass
class Asked:
    """What the user asked for."""

    study: Study
    settings: Settings
    pythons: Pythons
    scales: Sequence[int]
    repeats: int
    wanted: Wanted = field(default_factory=Wanted)
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    timeout_s: float = 600.0
    retry: bool = False

    def cells(self) -> list[Cell]:
        return cells(self.study, self.settings, self.scales, self.repeats, self.only)

    def identity(self) -> dict[str, object]:
        """What must be the same for cells of two starts to belong together."""
        return {"study": self.study.name, "settings": dict(self.settings), "launcher": self.wanted.launcher}


Told = Callable[[Outcome, int, int, float | None], None]  # outcome, its place, of how many, seconds left


def run_study(asked: Asked, ledger: Ledger, told: Told) -> list[Outcome]:
    """Every cell's outcome, those of earlier starts included; each is kept before the next begins."""
    ledger.hold()
    before = ledger.description()
    if before and before.get("identity") != asked.identity():
        raise BadStudy(
            f"{ledger.folder}: it holds a study with other settings ({before.get('identity')}); give another --out"
        )
    planned = asked.cells()
    ledger.describe(
        {
            "identity": asked.identity(),
            "title": asked.study.title,
            "scales": list(asked.scales),
            "repeats": asked.repeats,
            "cells": [cell.name for cell in planned],
            "environment": before.get("environment") or environment(asked.pythons),
        }
    )
    outcomes = [ledger.outcome(cell) for cell in planned]
    pace = Pace()
    for place, outcome in enumerate(outcomes):
        if outcome.done or (outcome.state != "waiting" and not asked.retry):
            continue
        job_of = partial(asked.study.job, outcome.cell, asked.settings, asked.pythons)
        outcomes[place] = run_cell(ledger, outcome.cell, job_of, asked.wanted, asked.timeout_s)
        pace.took(outcomes[place])
        waiting = [
            one.cell for one in outcomes[place + 1 :] if one.state == "waiting" or (asked.retry and not one.done)
        ]
        told(outcomes[place], place + 1, len(planned), pace.left_s(waiting))
    return outcomes


class Pace:
    """How long cells take, by what they have in common with those that are done."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds: dict[tuple[object, ...], list[float]] = {}

    def took(self, outcome: Outcome) -> None:
        if outcome.seconds is not None:
            for key in keys(outcome.cell):
                self.seconds.setdefault(key, []).append(outcome.seconds)

    def left_s(self, waiting: Sequence[Cell]) -> float | None:
        """None while nothing is known yet."""
        if not self.seconds:
            return None
        return sum(self.expected_s(cell) for cell in waiting)

    def expected_s(self, cell: Cell) -> float:
        known = next((self.seconds[key] for key in keys(cell) if key in self.seconds), [])
        return sum(known) / len(known) if known else 0.0


def keys(cell: Cell) -> list[tuple[object, ...]]:
    """From what is most alike to what all have in common."""
    return [(cell.values, cell.ranks), cell.values[:1], (cell.ranks,), ()]
