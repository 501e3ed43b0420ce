"""A running job, until it becomes slow, hangs or ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankscope.api.live import Diagnosis, diagnose_hang
from rankscope.api.run import Run
from rankscope.questions.live.hang import OVER
from rankscope.questions.steps.slowdowns import FEWEST, Slowdown, row_of, slowdown_sentence, slowdowns_of

BETWEEN_LOOKS_S = 1.0  # the two readings that tell a hang


@dataclass(frozen=True, slots=True)
class Trouble:
    """What has happened to the job: a command is told it by these words."""

    kind: str  # slow, fast (as before again), hang, ended
    text: str
    step: int | None = None
    who: str = ""
    part: str = ""


@dataclass(slots=True)
class _Told:
    """What was said already: nothing is said twice."""

    slow: Slowdown | None = None
    hang: tuple[str, str, int | None] | None = None
    said: list[Trouble] = field(default_factory=list)


def troubles(path: Path | None, every_s: float, patience_s: float) -> Iterator[Trouble]:
    """Each once, as it is noticed, until the job has ended."""
    said = _Told()
    while True:
        diagnosis = diagnose_hang(path, BETWEEN_LOOKS_S, patience_s)
        yield from _hanging(diagnosis, said)
        yield from _slow(Run(path, keep=False), said)
        if diagnosis.verdict.kind in OVER:
            yield Trouble("ended", "the job has ended")
            return
        time.sleep(max(0.0, every_s - BETWEEN_LOOKS_S))


def _hanging(diagnosis: Diagnosis, said: _Told) -> Iterator[Trouble]:
    verdict = diagnosis.verdict
    hang = (verdict.kind, verdict.group, verdict.sequence) if diagnosis.is_hang else None
    if hang is not None and hang != said.hang:
        who = ", ".join(f"rank {rank}" for rank in verdict.guilty)
        yield Trouble(
            "hang",
            str(diagnosis.tables({}, collapse=True)[0].title).removeprefix("Hang: "),
            None,
            who,
            verdict.operation,
        )
    said.hang = hang


def _slow(run: Run, said: _Told) -> Iterator[Trouble]:
    going_on = [slowdown for slowdown in slowdowns_of(run.store()) if slowdown.goes_on]
    now = going_on[-1] if going_on else None
    if now is None and said.slow is not None:
        yield Trouble("fast", f"steps are as fast again as before step {said.slow.first}", said.slow.last)
    elif now is not None and (said.slow is None or abs(now.first - said.slow.first) >= FEWEST):
        yield Trouble("slow", slowdown_sentence(now), now.first, str(row_of(now)[7]), now.part)
    said.slow = now
