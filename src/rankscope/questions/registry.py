"""Every question about a run: where its answer is worked out, what it needs to be read, and when it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankscope.model import COLLECTIVE_LAYERS, Table, Tables, sql_list
from rankscope.questions.selection import MANY_RANKS, Selection

if TYPE_CHECKING:
    from collections.abc import Callable


class Needs(Enum):
    """What has to be read before a question can be answered."""

    SUMS = "sums"  # what every rank file holds in little space
    LOG = "log"  # the log of collectives: read unasked in runs of a few ranks only
    EVENTS = "events"  # single events: read only where one of these is asked for


class Shown(Enum):
    """When a report shows the answer unasked."""

    ALWAYS = "always"
    MANY_RANKS = "many ranks"  # from MANY_RANKS on
    SUMMED = "summed"  # needs no events where the recorder kept sums
    ASKED = "asked"  # only where it is asked for: wide, long or seldom of interest


@dataclass(frozen=True, slots=True)
class Question:
    """One question; its module is imported when it is asked."""

    name: str
    module: str  # below rankscope.questions
    needs: Needs = Needs.SUMS
    shown: Shown = Shown.ALWAYS
    is_wide: bool = False  # its columns depend on the run: one for each step, or rank
    alias: str | None = None  # a layer's name for its main table

    @property
    def function(self) -> Callable[[Tables, Selection], Table]:
        """What works out the answer: a function of the question's name."""
        found: Any = getattr(import_module(f"rankscope.questions.{self.module}"), self.name)
        return found  # type: ignore[no-any-return]

    @property
    def about(self) -> str:
        """What the answer tells, in one line."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def answer(self, tables: Tables, selection: Selection) -> Table:
        """The answer by what these tables hold."""
        return self.function(tables, selection)

    @property
    def reads_more_than_sums(self) -> bool:
        """Whether the answer needs single events or the log of collectives."""
        return self.needs is not Needs.SUMS


LOG, EVENTS = Needs.LOG, Needs.EVENTS
# In the order in which a report shows them.
ALL_QUESTIONS = (
    Question("findings", "findings.table", LOG),
    Question("overview", "run.overview"),
    Question("coverage", "run.coverage"),
    Question("checks", "run.overview"),
    Question("routines", "mpi.routines", alias="mpi"),
    Question("sizes", "mpi.messages"),
    Question("communicators", "mpi.routines"),
    Question("communication", "mpi.routines"),
    Question("balance", "ranks.ranks"),
    Question("outliers", "ranks.outliers", shown=Shown.MANY_RANKS),
    Question("alike", "ranks.behaviour", shown=Shown.MANY_RANKS),
    Question("places", "ranks.outliers", shown=Shown.MANY_RANKS),
    Question("causes", "stragglers.causes", LOG),
    Question("steps", "steps.steps", LOG),
    Question("step_parts", "steps.steps", LOG),
    Question("phases", "steps.phases", LOG),
    Question("phase_ranks", "steps.phases", LOG),
    Question("collectives", "collectives.collectives", LOG),
    Question("waiting", "collectives.waiting", LOG),
    Question("waiting_parts", "collectives.wait_map", LOG),
    Question("clocks", "collectives.clocks", LOG),
    Question("wait_map", "collectives.wait_map", LOG, Shown.ASKED, is_wide=True),
    Question("wait_matrix", "collectives.waiting", LOG, Shown.ASKED, is_wide=True),
    Question("phase_calls", "steps.phases"),
    Question("hosts", "ranks.ranks", shown=Shown.ASKED),
    Question("ranks", "ranks.ranks"),
    Question("second_hand", "mpi.routines"),
    Question("matrix", "mpi.messages"),
    Question("nccl", "collectives.collectives"),
    Question("gpu", "gpu.kernels"),
    Question("gpu_ranks", "gpu.kernels"),
    Question("gpu_gaps", "gpu.device_time"),
    Question("gpu_copies", "gpu.kernels"),
    Question("gpu_memory", "gpu.memory"),
    Question("gpu_clocks", "collectives.clocks"),
    Question("cuda_api", "gpu.kernels", alias="cuda"),
    Question("gpu_checks", "gpu.checks"),
    Question("nvtx_ranges", "events.ranges", alias="nvtx"),
    Question("tallies", "run.overview"),
    Question("figures", "run.overview"),
    Question("imports", "imports.imports"),
    Question("import_offenders", "imports.offenders.table", shown=Shown.ASKED),
    Question("import_tree", "imports.modules", shown=Shown.ASKED),
    Question("import_modules", "imports.modules", shown=Shown.ASKED),
    Question("import_causes", "imports.calls", shown=Shown.ASKED),
    Question("import_mounts", "imports.calls", shown=Shown.ASKED),
    Question("import_module_mounts", "imports.calls", shown=Shown.ASKED),
    Question("import_calls", "imports.calls", shown=Shown.ASKED),
    Question("import_paths", "imports.calls", shown=Shown.ASKED),
    Question("import_search", "imports.search", shown=Shown.ASKED),
    Question("import_loader", "imports.search", shown=Shown.ASKED),
    Question("trace", "events.events"),
    Question("overhead", "run.coverage"),
    Question("gpu_time", "gpu.device_time", EVENTS, Shown.SUMMED),
    Question("gpu_spread", "gpu.device_time", EVENTS, Shown.SUMMED),
    Question("gpu_kinds", "gpu.kernels", EVENTS),
    Question("kernels", "gpu.kernels", EVENTS),
    Question("gpu_idle", "gpu.device_time", EVENTS),
    Question("ranges", "events.ranges", EVENTS),
    Question("events", "events.events", EVENTS, Shown.ASKED),
)
QUESTIONS = {question.name: question for question in ALL_QUESTIONS}
ALIASES = {question.alias: question.name for question in ALL_QUESTIONS if question.alias}
IMPORT_QUESTIONS = tuple(name for name in QUESTIONS if name == "imports" or name.startswith("import_"))


def default_tables(opened: Tables) -> list[str]:
    """All but those that need events or sums of GPUs where there are none."""
    has_events = has_activities(opened)
    has_sums = bool(opened.query(GPU_SUMS))
    is_large = opened.query("SELECT count(*) FROM ranks WHERE role = 'rank'")[0][0] >= MANY_RANKS

    def is_shown(question: Question) -> bool:
        if question.shown is Shown.ASKED or (question.shown is Shown.MANY_RANKS and not is_large):
            return False
        return question.needs is not EVENTS or has_events or (question.shown is Shown.SUMMED and has_sums)

    return [question.name for question in ALL_QUESTIONS if is_shown(question)]


GPU_SUMS = "SELECT 1 FROM devices WHERE span_ns IS NOT NULL LIMIT 1"
ACTIVITIES = f"""
    SELECT 1 FROM untraced_events WHERE layer NOT IN {sql_list(COLLECTIVE_LAYERS)} UNION ALL
    SELECT 1 FROM figures WHERE starts_with(series, 'trace ') AND name = 'events kept' AND value > 0
        AND series NOT IN {sql_list(f"trace {layer}" for layer in COLLECTIVE_LAYERS)} LIMIT 1"""


def has_activities(opened: Tables) -> bool:
    """Whether there are single events other than the log of collectives."""
    return bool(opened.query(ACTIVITIES))
