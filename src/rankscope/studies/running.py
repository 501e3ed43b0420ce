"""Runs one cell: starts its job under the recorder, waits, and says how it ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json
from rankscope.studies.judging import ENDED, last_words, outcome_of
from rankscope.studies.launchers import Start, Wanted, allowed_s, launched
from rankscope.studies.ledger import Ledger
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell, Job, Missing
from rankscope.studies.programs import beside

PATIENCE_S = 40.0  # the guard itself gives up after less
JobOf = Callable[[str], Job | Missing]  # by the folder of the attempt


def run_cell(ledger: Ledger, cell: Cell, job_of: JobOf, wanted: Wanted, timeout_s: float) -> Outcome:
    """The cell's outcome, kept in the ledger before it is told."""
    attempt = ledger.new_attempt(cell)
    job = job_of(str(attempt))
    if isinstance(job, Missing):
        shutil.rmtree(attempt)
        outcome = Outcome(cell, "not here", job.reason)
    else:
        outcome = run_job(attempt, cell, job, wanted, timeout_s)
    ledger.keep(outcome)
    return outcome


def run_job(attempt: Path, cell: Cell, job: Job, wanted: Wanted, timeout_s: float) -> Outcome:
    if problem := prepared(job, attempt, timeout_s):
        return Outcome(cell, "failed", problem, None, str(attempt))
    start = Start(recorded(rankscope(), job, str(attempt)), cell.ranks, wanted, job, str(attempt), timeout_s)
    command, variables = launched(start)
    guard = guarded(str(attempt), allowed_s(start), job.results)
    return outcome_of(attempt, cell, ended(guard, command, attempt, {**job.environment, **variables}))


def ended(guard: Sequence[str], command: Sequence[str], place: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """How the command ended under its guard."""
    words = [sys.executable, *guard, "--parent", str(os.getpid()), "--", *command]
    said = finished(words, {**os.environ, **variables})
    told = read_json(place / ENDED)
    if told is None:
        raise BadStudy(f"{said or f'{place}: the cell was stopped from outside'}; go on with --resume")
    return told


def recorded(rankscope: Sequence[str], job: Job, attempt: str) -> tuple[str, ...]:
    """The command of one rank."""
    return (*job.around, *rankscope, "run", "--quiet", "--out", f"{attempt}/run", *job.record, "--", *job.command)


def guarded(place: str, timeout_s: float, results: bool) -> list[str]:
    """The guard and its options."""
    return [beside("guard"), "--into", place, "--timeout", f"{timeout_s:g}", *([] if results else ["--no-results"])]


def prepared(job: Job, attempt: Path, timeout_s: float) -> str:
    """Does what the job needs done before; why it could not be done, or nothing."""
    if not job.before or os.path.exists(job.makes):
        return ""
    place = attempt / "before"
    place.mkdir()
    os.makedirs(os.path.dirname(job.makes), exist_ok=True)
    told = ended(guarded(str(place), timeout_s, False), job.before, place, job.environment)
    if told["exit_code"] == 0 and os.path.exists(job.makes):
        return ""
    return f"what comes before the job: exit code {told['exit_code']}{last_words(place)}"


def rankscope() -> tuple[str, ...]:
    """This rankscope, as a command that ranks can run."""
    own = os.path.join(os.path.dirname(sys.executable), "rankscope")
    return (own,) if os.access(own, os.X_OK) else (sys.executable, "-m", "rankscope")


def finished(guard: list[str], environment: dict[str, str]) -> str:
    """What the guard itself had to say, when all has ended; it ends with us, however we end."""
    started = subprocess.Popen(
        guard,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # a Ctrl-C is for us: we stop it in our own time
        text=True,
    )
    try:
        return started.communicate()[1].strip()
    finally:
        stop(started)


def stop(guard: subprocess.Popen[str]) -> None:
    if guard.poll() is None:
        guard.send_signal(signal.SIGTERM)
        try:
            guard.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
