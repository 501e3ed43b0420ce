"""Runs one cell: starts its job under the recorder, waits, and says how it ended."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rankscope.api.run import NoRun, Wrong
from rankscope.studies.launchers import Start, Wanted, launched
from rankscope.studies.ledger import Ledger, results_in
from rankscope.studies.outcome import Outcome, State
from rankscope.studies.plan import Cell, Job, Missing

GRACE_S = 10.0
TAIL_BYTES = 4000
PR_SET_PDEATHSIG = 1
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
    recorded = (*job.around, *rankscope(), "run", "--quiet", "--out", f"{attempt}/run", *job.record, "--", *job.command)
    command, variables = launched(Start(recorded, cell.ranks, wanted, job, str(attempt)))
    began = time.monotonic()
    code = finished(command, {**os.environ, **job.environment, **variables}, attempt / "output.txt", timeout_s)
    seconds = time.monotonic() - began
    state, reason = judged(attempt, cell, job, code, timeout_s)
    return Outcome(cell, state, reason, seconds, str(attempt), tuple(command), results_in(attempt))


def prepared(job: Job, attempt: Path, timeout_s: float) -> str:
    """Does what the job needs done before; why it could not be done, or nothing."""
    if not job.before or os.path.exists(job.makes):
        return ""
    os.makedirs(os.path.dirname(job.makes), exist_ok=True)
    environment = {**os.environ, **job.environment}
    code = finished(list(job.before), environment, attempt / "output.txt", timeout_s)
    if code is None:
        return f"what comes before the job was stopped after {timeout_s:g} s"
    return f"before the job: exit code {code}{last_words(attempt)}" if code else ""


def rankscope() -> tuple[str, ...]:
    """This rankscope, as a command that ranks can run."""
    beside = os.path.join(os.path.dirname(sys.executable), "rankscope")
    return (beside,) if os.access(beside, os.X_OK) else (sys.executable, "-m", "rankscope")


def finished(command: list[str], environment: dict[str, str], output: Path, timeout_s: float) -> int | None:
    """Its exit code; None where it had to be stopped. It ends with us, however we end."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def follow() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    with output.open("wb") as file:
        try:
            job = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=follow,
            )
        except OSError as problem:
            file.write(f"{command[0]}: {problem.strerror}\n".encode())
            return 127
    try:
        return job.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if job.poll() is None:
            stop(job)


def stop(job: subprocess.Popen[bytes]) -> None:
    """The whole session: politely first, so that launchers can end ranks elsewhere."""
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(job.pid, number)
            job.wait(patience_s)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            continue
    try:
        os.killpg(job.pid, signal.SIGKILL)  # those that outlived their launcher
    except ProcessLookupError:
        pass


def judged(attempt: Path, cell: Cell, job: Job, code: int | None, timeout_s: float) -> tuple[State, str]:
    """How the cell ended: done only where every rank was seen and has left its result."""
    if code is None:
        return "timed out", f"stopped after {timeout_s:g} s{last_words(attempt)}"
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return "failed", f"{how}{last_words(attempt)}"
    seen = ranks_seen(attempt)
    if seen < cell.ranks:
        return "incomplete", f"{seen} of {cell.ranks} ranks were seen{last_words(attempt)}"
    if job.results:
        results = results_in(attempt)
        if len(results) < cell.ranks:
            return "incomplete", f"{len(results)} of {cell.ranks} ranks left a result{last_words(attempt)}"
        wrong = [one["wrong"] for one in results if one.get("wrong")]
        if wrong:
            return "failed", f"wrong result: {wrong[0]}"
    return "done", ""


def ranks_seen(attempt: Path) -> int:
    """Ranks in the recorded run."""
    from rankscope.api.run import Run

    try:
        found = Run(attempt / "run").query("SELECT count(DISTINCT rank) FROM ranks WHERE role = 'rank'")
    except (NoRun, Wrong, OSError):
        return 0
    return int(str(found.rows[0][0]))


def last_words(attempt: Path) -> str:
    """The last line that the job printed and that says something."""
    texts = [path for path in (attempt / "output.txt", attempt / "job.txt") if path.is_file()]
    for path in texts:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
        told = [line for line in lines if any(letter.isalnum() for letter in line)]
        errors = [line for line in told if "rror" in line or "rankscope" in line]
        if told:
            return f": {(errors or told)[-1][:300]}"
    return ""
