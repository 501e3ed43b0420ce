"""How a cell ended, by what its attempt has left: done only where every rank was seen and has left its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rankscope.api.run import NoRun, Run, Wrong
from rankscope.studies.files import read_json
from rankscope.studies.ledger import Ledger, results_in
from rankscope.studies.outcome import Outcome, State
from rankscope.studies.plan import Cell

ENDED = "ended.json"  # left by guard.py, last of all
TAIL_BYTES = 4000
TIME_UP = 124
RANKS = "SELECT count(DISTINCT rank) FROM ranks WHERE role = 'rank'"
WORLD = """
    SELECT min(size) FROM groups JOIN ranks USING (process)
    WHERE role = 'rank' AND kind = 'communicator' AND name = 'MPI_COMM_WORLD'"""
MISFIT = "the launcher does not fit it; choose another --launcher, or tell srun which (--launcher-args=--mpi=pmi2)"


def adopted(ledger: Ledger, cell: Cell, known: Outcome) -> Outcome:
    """The outcome of the latest attempt that has ended, kept in the ledger where it was not known yet."""
    for attempt in reversed(ledger.attempts(cell)):
        if str(attempt) == known.folder:
            break
        ended = read_json(attempt / ENDED)
        if ended is not None:
            outcome = outcome_of(attempt, cell, ended)
            ledger.keep(outcome)
            return outcome
    return known


def outcome_of(attempt: Path, cell: Cell, ended: dict[str, Any]) -> Outcome:
    state, reason = judged(attempt, cell, ended)
    command = tuple(map(str, ended.get("command", ())))
    return Outcome(cell, state, reason, ended.get("seconds"), str(attempt), command, results_in(attempt))


def judged(attempt: Path, cell: Cell, ended: dict[str, Any]) -> tuple[State, str]:
    code = ended.get("exit_code")
    if ended.get("timed_out") or code is None:
        return "timed out", f"stopped after {ended.get('timeout_s', 0):g} s{last_words(attempt)}"
    if code == TIME_UP:  # by the command `timeout`, which counts from when the batch system has begun the job
        return "timed out", f"its time was up{last_words(attempt)}"
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return "failed", f"{how}{last_words(attempt)}"
    seen, world = ranks_seen(attempt)
    if seen < cell.ranks:
        return "incomplete", f"{seen} of {cell.ranks} ranks were seen{last_words(attempt)}"
    if world is not None and world < cell.ranks:
        return "failed", f"MPI had {world} of {cell.ranks} ranks: {MISFIT}"
    if ended.get("results", True):
        results = results_in(attempt)
        if len(results) < cell.ranks:
            return "incomplete", f"{len(results)} of {cell.ranks} ranks left a result{last_words(attempt)}"
        wrong = [one["wrong"] for one in results if one.get("wrong")]
        if wrong:
            return "failed", f"wrong result: {wrong[0]}"
    return "done", ""


def ranks_seen(attempt: Path) -> tuple[int, int | None]:
    """Ranks in the recorded run, and in MPI's smallest world: without its own launcher each rank of it is alone."""
    try:
        run = Run(attempt / "run")
        (found,) = run.query(RANKS).rows[0]
        (world,) = run.query(WORLD).rows[0]
    except (NoRun, Wrong, OSError):
        return 0, None
    return int(str(found)), None if world is None else int(str(world))


def last_words(attempt: Path) -> str:
    """The last line that the job printed and that says something."""
    for path in (attempt / "output.txt", attempt / "job.txt"):
        told = [line for line in last_lines(path) if any(letter.isalnum() for letter in line)]
        errors = [line for line in told if "rror" in line or "rankscope" in line]
        if told:
            return f": {(errors or told)[-1][:300]}"
    return ""


def last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return []
