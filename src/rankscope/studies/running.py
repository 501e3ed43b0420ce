"""Runs one cell: starts its job under the recorder, waits, and says how it ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json
from rankscope.studies.judging import ENDED, last_words, outcome_of
from rankscope.studies.launchers import Start, Wanted, launched
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
    start = Start(recorded(rankscope(), job, str(attempt)), cell.ranks, wanted, job, str(attempt))
    command, variables = launched(start)
    guard = [sys.executable, *guarded(job, str(attempt), timeout_s), "--parent", str(os.getpid()), "--", *command]
    said = finished(guard, {**os.environ, **job.environment, **variables})
    ended = read_json(attempt / ENDED)
    if ended is None:
        raise BadStudy(f"{said or f'{attempt}: the cell was stopped from outside'}; go on with --resume")
    return outcome_of(attempt, cell, ended)


def recorded(rankscope: Sequence[str], job: Job, attempt: str) -> tuple[str, ...]:
    """The command of one rank."""
    return (*job.around, *rankscope, "run", "--quiet", "--out", f"{attempt}/run", *job.record, "--", *job.command)


def guarded(job: Job, attempt: str, timeout_s: float) -> list[str]:
    """The guard and its options."""
    results = [] if job.results else ["--no-results"]
    return [beside("guard"), "--into", attempt, "--timeout", f"{timeout_s:g}", *results]


def prepared(job: Job, attempt: Path, timeout_s: float) -> str:
    """Does what the job needs done before; why it could not be done, or nothing."""
    if not job.before or os.path.exists(job.makes):
        return ""
    place = attempt / "before"
    place.mkdir()
    os.makedirs(os.path.dirname(job.makes), exist_ok=True)
    guard = [sys.executable, beside("guard"), "--into", str(place), "--timeout", f"{timeout_s:g}", "--no-results"]
    said = finished([*guard, "--parent", str(os.getpid()), "--", *job.before], {**os.environ, **job.environment})
    ended = read_json(place / ENDED)
    if ended is None:
        raise BadStudy(f"{said or f'{attempt}: the cell was stopped from outside'}; go on with --resume")
    if ended["exit_code"] == 0 and os.path.exists(job.makes):
        return ""
    return f"what comes before the job: exit code {ended['exit_code']}{last_words(place)}"


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
