"""Runs a whole study: every cell that has not ended yet, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from rankscope.studies.environment import environment, joined
from rankscope.studies.errors import BadStudy
from rankscope.studies.judging import adopted
from rankscope.studies.ledger import Ledger
from rankscope.studies.outcome import Outcome
from rankscope.studies.pace import Pace
from rankscope.studies.plan import Cell
from rankscope.studies.request import Asked, differing
from rankscope.studies.running import run_cell

NOT_RUN = "it has not been run yet"


class Teller(Protocol):
    """Who is told how the study goes on; places are from 1."""

    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None: ...

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None: ...


class Silent:
    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None: ...

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None: ...


def run_study(asked: Asked, ledger: Ledger, teller: Teller) -> list[Outcome]:
    """Every cell's outcome, those of earlier starts included."""
    planned, now = asked.cells(), environment(asked.pythons)
    with ledger.held():
        before = same_study(asked, ledger)
        ledger.describe({**asked.described(), "environment": joined(before.get("environment"), now)})
        outcomes = [adopted(ledger, cell, ledger.outcome(cell)) for cell in planned]
        run_waiting(asked, ledger, teller, outcomes)
    return outcomes


def run_waiting(asked: Asked, ledger: Ledger, teller: Teller, outcomes: list[Outcome]) -> None:
    """Runs those that have not ended; each is kept before the next begins."""
    pace = Pace(outcomes)
    to_run = [place for place, one in enumerate(outcomes) if waits(one, asked.retry)]
    for done, place in enumerate(to_run):
        cell = outcomes[place].cell
        waiting = [outcomes[later].cell for later in to_run[done + 1 :]]
        teller.begins(cell, place + 1, len(outcomes), pace.left_s([cell, *waiting]))
        job_of = partial(asked.study.job, cell, asked.settings, asked.pythons)
        outcomes[place] = run_cell(ledger, cell, job_of, asked.wanted, asked.timeout_s)
        pace.took(outcomes[place])
        teller.ended(outcomes[place], place + 1, len(outcomes), pace.left_s(waiting))


def waits(outcome: Outcome, retry: bool) -> bool:
    return not outcome.done and (retry or outcome.state == "waiting")


def same_study(asked: Asked, ledger: Ledger) -> dict[str, Any]:
    """What the folder holds already, which must be of the same kind."""
    before = ledger.description()
    if before and before.get("identity") != asked.identity():
        other = differing(before.get("identity", {}), asked.identity())
        raise BadStudy(
            f"{ledger.folder}: the study there differs in {', '.join(other) or 'what it is'}: its cells do not belong "
            "together with these; give another --out"
        )
    return before


def collect_study(asked: Asked, ledger: Ledger) -> list[Outcome]:
    """The outcome of every cell by what is in the folder, which a script may have left; nothing is run."""
    with ledger.held():
        before = same_study(asked, ledger)
        outcomes = [adopted(ledger, cell, ledger.outcome(cell)) for cell in asked.cells()]
        return [named(one, before.get("missing", {}), ledger) for one in outcomes]


def named(outcome: Outcome, absent: dict[str, str], ledger: Ledger) -> Outcome:
    """With the reason why there is none yet."""
    if outcome.state != "waiting":
        return outcome
    name = outcome.cell.name
    if name in absent:
        outcome = Outcome(outcome.cell, "not here", absent[name])
        ledger.keep(outcome)
        return outcome
    return Outcome(outcome.cell, reason=NOT_RUN)


def all_done(outcomes: Sequence[Outcome]) -> bool:
    return all(one.done for one in outcomes)
