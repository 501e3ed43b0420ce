"""What a study is: a workload, axes, how each cell is launched, and which tables it ends in."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from rankscope.api.run import Run
from rankscope.model.tables import Table
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons

if TYPE_CHECKING:
    from rankscope.questions.scaling.growth import Series

LONGEST_NAME = 200  # of a cell's folder: file systems take 255
Settings = Mapping[str, str]  # parameter to what the user chose


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something of a built-in study that its user may choose; becomes an option of the command."""

    default: str
    help: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One job of a study: where it stands on each axis, on how many ranks, and which repeat it is."""

    values: tuple[tuple[str, str], ...]
    ranks: int
    repeat: int  # from 1

    def __getitem__(self, axis: str) -> str:
        return dict(self.values)[axis]

    @property
    def name(self) -> str:
        """The same for the same cell of every start of the study, and the name of its folder."""
        words = [*(f"{axis}={value}" for axis, value in self.values), f"ranks={self.ranks}", f"repeat={self.repeat}"]
        text = ",".join(words)
        plain = re.sub(r"[^A-Za-z0-9_.=,+-]", "_", text)[:LONGEST_NAME]
        return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def label(self) -> str:
        """For people."""
        values = [value for _, value in self.values]
        return ", ".join([*values, f"{self.ranks} rank{'s' * (self.ranks != 1)}", f"repeat {self.repeat}"])


@dataclass(frozen=True, slots=True)
class CellJob:
    """How one cell is run: `command` is started once for every rank."""

    command: tuple[str, ...]
    launcher: str = "local"  # where the user has chosen none: studies/launchers.py
    python: str = ""  # beside which a launcher of its own may lie
    environment: Mapping[str, str] = field(default_factory=dict)
    record: tuple[str, ...] = ()  # options of `rankscope run`
    results: bool = True  # every rank leaves a result (workloads/result.py); without one the cell is incomplete
    around: tuple[str, ...] = ()  # words before the recorder, in every rank: what the rank is to run inside
    before: tuple[str, ...] = ()  # run once before the job, here and unrecorded …
    makes: str = ""  # … unless this is there already


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a cell cannot be run here, with the next action."""

    reason: str


@dataclass(frozen=True, slots=True)
class Study:
    """One study, built in or read from a file."""

    name: str
    title: str
    about: str
    axes: Callable[[Settings], Mapping[str, Sequence[str]]]
    job: Callable[[Cell, Settings, Pythons, str], CellJob | Missing]  # the last: folder for what the cell leaves
    tables: Callable[[Sequence[Outcome], Settings], list[Table]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    scales: tuple[int, ...] = (1, 2, 4)
    repeats: int = 1
    timeout_s: float = 600.0
    definition: str = ""  # of one read from a file: what its cells run, whatever the cells
    series: Callable[[Sequence[Outcome], Settings], list[Series]] | None = None  # for growth; None: those of its tables
    has: Callable[[Cell, Sequence[int], Settings], bool] = lambda cell, scales, settings: True  # no full matrix: some
    sensible: Callable[[Cell, Settings], bool] = lambda cell, settings: True  # others of the matrix are not run
    settled: Callable[[Settings, Pythons], Settings] = lambda settings, pythons: settings  # by what is here


def cells(
    study: Study, settings: Settings, scales: Sequence[int], repeats: int, only: Mapping[str, Sequence[str]]
) -> list[Cell]:
    """All cells in the order in which they are run: every repeat goes once through the whole matrix."""
    axes = {axis: list(values) for axis, values in study.axes(settings).items()}
    for axis, wanted in only.items():
        if axis not in axes:
            raise BadStudy(
                f"--only {axis}=…: the study {study.name} has no such axis; it has {', '.join(axes) or 'none'}"
            )
        absent = [value for value in wanted if value not in axes[axis]]
        if absent:
            raise BadStudy(
                f"--only {axis}={','.join(wanted)}: there is no {absent[0]}; choose of {', '.join(axes[axis])}"
            )
        axes[axis] = [value for value in axes[axis] if value in wanted]
    places = [tuple(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    planned = [Cell(place, ranks, repeat + 1) for repeat in range(repeats) for place in places for ranks in scales]
    planned = [cell for cell in planned if study.has(cell, scales, settings) and study.sensible(cell, settings)]
    if not planned:
        raise BadStudy(f"the study {study.name} has no cell: an axis, --scale or --repeat is empty")
    return planned


# ---------------------------------------------------------------- what became of one cell
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


# ---------------------------------------------------------------------------------------------------------------------
# Outcomes in the order of tables: done ones by their place on the axes, repeats together.
def by_place(outcomes: Sequence[Outcome], *axes: str) -> dict[tuple[str | int, ...], list[Outcome]]:
    """(values of the axes…, ranks) to the repeats that are done."""
    by_key: dict[tuple[str | int, ...], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.done:
            by_key.setdefault((*(outcome.cell[axis] for axis in axes), outcome.cell.ranks), []).append(outcome)
    return by_key
