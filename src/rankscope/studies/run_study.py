"""Runs a whole study: every cell that has not ended yet, one after the other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rankscope.api.run import NoRun, Run
from rankscope.model.tables import Wrong
from rankscope.studies.environment import environment, joined
from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json
from rankscope.studies.launchers import JobStart, LaunchOptions, allowed_s, launched
from rankscope.studies.ledger import Ledger, results_in
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, State
from rankscope.studies.programs import beside
from rankscope.studies.request import StudyRequest, differing


# ---------------------------------------------------------------------------------------------------------------------
# How long is it until the study is done, by the cells that have ended?
class CellPace:
    """How long cells take, by what they have in common with those that have ended."""

    def __init__(self, outcomes: Sequence[Outcome] = ()) -> None:
        self.seconds: dict[tuple[object, ...], list[float]] = {}
        for outcome in outcomes:
            self.took(outcome)

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
    return [("cell", cell.values, cell.ranks), ("values", cell.values), ("ranks", cell.ranks), ()]


# ---------------------------------------------------------------------------------------------------------------------
# How a cell ended, by what its attempt has left: done only where every rank was seen and has left its result.
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
        return "timed out", f"it ran out of time{last_words(attempt)}"
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return "failed", f"{how}{last_words(attempt)}"
    seen, world = ranks_seen(attempt)
    if seen < cell.ranks:
        return "incomplete", f"{seen} of {cell.ranks} ranks were recorded{last_words(attempt)}"
    if world is not None and world < cell.ranks:
        return "failed", f"MPI had {world} of {cell.ranks} ranks: {MISFIT}"
    if ended.get("results", True):
        results = results_in(attempt)
        if len(results) < cell.ranks:
            return "incomplete", f"{len(results)} of {cell.ranks} ranks left a result{last_words(attempt)}"
        wrong = [result["wrong"] for result in results if result.get("wrong")]
        if wrong:
            return "failed", f"wrong result: {wrong[0]}"
    return "done", ""


def ranks_seen(attempt: Path) -> tuple[int, int | None]:
    """Ranks in the recorded run, and in MPI's smallest world: without its own launcher each rank of it is alone."""
    try:
        run = Run(attempt / "run")
        (ranks,) = run.query(RANKS).rows[0]
        (world,) = run.query(WORLD).rows[0]
    except (NoRun, Wrong, OSError):
        return 0, None
    return int(str(ranks)), None if world is None else int(str(world))


def last_words(attempt: Path) -> str:
    """The last line that the job printed and that says something."""
    for path in (attempt / "output.txt", attempt / "job.txt"):
        lines = [line for line in last_lines(path) if any(letter.isalnum() for letter in line)]
        errors = [line for line in lines if "rror" in line or "rankscope" in line]
        if lines:
            return f": {(errors or lines)[-1][:300]}"
    return ""


def last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return []


# ---------------------------------------------------------------------------------------------------------------------
# Runs one cell: starts its job under the recorder, waits, and says how it ended.
PATIENCE_S = 40.0  # the guard itself gives up after less
JobOf = Callable[[str], CellJob | Missing]  # by the folder of the attempt


def run_cell(ledger: Ledger, cell: Cell, job_of: JobOf, wanted: LaunchOptions, timeout_s: float) -> Outcome:
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


def run_job(attempt: Path, cell: Cell, job: CellJob, wanted: LaunchOptions, timeout_s: float) -> Outcome:
    if problem := prepared(job, attempt, timeout_s):
        return Outcome(cell, "failed", problem, None, str(attempt))
    start = JobStart(recorded(rankscope(), job, str(attempt)), cell.ranks, wanted, job, str(attempt), timeout_s)
    command, variables = launched(start)
    guard = guarded(str(attempt), allowed_s(start), job.results)
    return outcome_of(attempt, cell, ended(guard, command, attempt, {**job.environment, **variables}))


def ended(guard: Sequence[str], command: Sequence[str], place: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """How the command ended under its guard."""
    words = [sys.executable, *guard, "--parent", str(os.getpid()), "--", *command]
    said = finished(words, {**os.environ, **variables})
    ending = read_json(place / ENDED)
    if ending is None:
        raise BadStudy(f"{said or f'{place}: the cell was stopped from outside'}; continue with --resume")
    return ending


def recorded(rankscope: Sequence[str], job: CellJob, attempt: str) -> tuple[str, ...]:
    """The command of one rank."""
    return (*job.around, *rankscope, "run", "--quiet", "--out", f"{attempt}/run", *job.record, "--", *job.command)


def guarded(place: str, timeout_s: float, results: bool) -> list[str]:
    """The guard and its options."""
    return [beside("guard"), "--into", place, "--timeout", f"{timeout_s:g}", *([] if results else ["--no-results"])]


def prepared(job: CellJob, attempt: Path, timeout_s: float) -> str:
    """Does what the job needs done before; why it could not be done, or nothing."""
    if not job.before or os.path.exists(job.makes):
        return ""
    place = attempt / "before"
    place.mkdir()
    os.makedirs(os.path.dirname(job.makes), exist_ok=True)
    ending = ended(guarded(str(place), timeout_s, False), job.before, place, job.environment)
    if ending["exit_code"] == 0 and os.path.exists(job.makes):
        return ""
    return f"preparation of the job: exit code {ending['exit_code']}{last_words(place)}"


def rankscope() -> tuple[str, ...]:
    """This rankscope, as a command that ranks can run."""
    script = os.path.join(os.path.dirname(sys.executable), "rankscope")
    return (script,) if os.access(script, os.X_OK) else (sys.executable, "-m", "rankscope")


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


# ---------------------------------------------------------------- run study
NOT_RUN = "it has not been run yet"


class Teller(Protocol):
    """Who is told how the study goes on; places are from 1."""

    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None: ...

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None: ...


class Silent:
    def begins(self, cell: Cell, place: int, count: int, left_s: float | None) -> None: ...

    def ended(self, outcome: Outcome, place: int, count: int, left_s: float | None) -> None: ...


def run_study(request: StudyRequest, ledger: Ledger, teller: Teller) -> list[Outcome]:
    """Every cell's outcome, those of earlier starts included."""
    planned, now = request.cells(), environment(request.pythons)
    with ledger.held():
        before = same_study(request, ledger)
        ledger.describe({**request.described(), "environment": joined(before.get("environment"), now)})
        outcomes = [adopted(ledger, cell, ledger.outcome(cell)) for cell in planned]
        run_waiting(request, ledger, teller, outcomes)
    return outcomes


def run_waiting(request: StudyRequest, ledger: Ledger, teller: Teller, outcomes: list[Outcome]) -> None:
    """Runs those that have not ended; each is kept before the next begins."""
    pace = CellPace(outcomes)
    to_run = [place for place, outcome in enumerate(outcomes) if waits(outcome, request.retry)]
    for done, place in enumerate(to_run):
        cell = outcomes[place].cell
        waiting = [outcomes[later].cell for later in to_run[done + 1 :]]
        teller.begins(cell, place + 1, len(outcomes), pace.left_s([cell, *waiting]))
        job_of = partial(request.study.job, cell, request.settings, request.pythons)
        outcomes[place] = run_cell(ledger, cell, job_of, request.wanted, request.timeout_s)
        pace.took(outcomes[place])
        teller.ended(outcomes[place], place + 1, len(outcomes), pace.left_s(waiting))


def waits(outcome: Outcome, retry: bool) -> bool:
    return not outcome.done and (retry or outcome.state == "waiting")


def same_study(request: StudyRequest, ledger: Ledger) -> dict[str, Any]:
    """What the folder holds already, which must be of the same kind."""
    before = ledger.description()
    if before and before.get("identity") != request.identity():
        other = differing(before.get("identity", {}), request.identity())
        raise BadStudy(
            f"{ledger.folder}: the study there differs in {', '.join(other) or 'what it is'}: its cells do not belong "
            "together with these; give another --out"
        )
    return before


def collect_study(request: StudyRequest, ledger: Ledger) -> list[Outcome]:
    """The outcome of every cell by what is in the folder, which a script may have left; nothing is run."""
    with ledger.held():
        before = same_study(request, ledger)
        outcomes = [adopted(ledger, cell, ledger.outcome(cell)) for cell in request.cells()]
        return [named(outcome, before.get("missing", {}), ledger) for outcome in outcomes]


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
    return all(outcome.done for outcome in outcomes)
