"""What is kept of a run for good: one row of the history of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run in one row; what is not known is None or empty, never guessed."""

    run: str  # its folder's name
    started_ns: int  # Unix time
    project: str = ""  # the folder in which the command was started
    command: str = ""  # what was started, or the tools whose files were loaded
    commit: str = ""  # of the program, by run.json
    labels: str = ""  # NAME=VALUE; NAME=VALUE, by `rankscope run --label`
    version: str = ""  # of rankscope
    libraries: str = ""  # name version; name version, of what ran
    launcher: str = ""
    ranks: int = 0
    is_complete: bool = True  # as many ranks as were expected, and every file could be read
    failed_ranks: int = 0
    steps: int = 0
    step_ns: float | None = None  # step_p50 of rankscope compare
    exposed_ns: float | None = None  # exposed communication of a step: part.communication
    startup_ns: float | None = None  # from the start of a process to the end of its first step, median of the ranks
    goodput: float | None = None  # useful steps ÷ wall time
    elapsed_ns: float | None = None  # the longest rank
    hosts: Sequence[str] = field(default_factory=tuple)
    host_own_ns: Sequence[float] = field(default_factory=tuple)  # of each host: own time of a step, median of its ranks
    problem: str = ""  # why there are no figures
    summarised_ns: int = 0  # Unix time
