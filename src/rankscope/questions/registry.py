"""Every question about a run: where its answer is worked out, what it needs to be read, and when it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankscope.model.records import COLLECTIVE_LAYERS
from rankscope.model.tables import Table, Tables, sql_list
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
    empty: str = ""  # why the answer may have no rows

    @property
    def function(self) -> Callable[[Tables, Selection], Table]:
        """What works out the answer: a function of the question's name."""
        question: Any = getattr(import_module(f"rankscope.questions.{self.module}"), self.name)
        return question  # type: ignore[no-any-return]

    @property
    def about(self) -> str:
        """What the answer tells, in one line."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def answer(self, tables: Tables, selection: Selection) -> Table:
        """The answer by what these tables hold; one without rows says why."""
        table = self.function(tables, selection)
        if not table.rows and self.empty:
            whose = "" if selection.ranks is None else "of the chosen ranks "
            table.notes.insert(0, f"Empty: {whose}{self.empty}.")
        return table

    @property
    def reads_more_than_sums(self) -> bool:
        """Whether the answer needs single events or the log of collectives."""
        return self.needs is not Needs.SUMS


LOG, EVENTS = Needs.LOG, Needs.EVENTS
# why an answer may be empty, and which option records what it needs
NO_MPI = "no such call of MPI was recorded: the program made none, or its MPI library was not intercepted"
NO_STEPS = (
    "there are no steps: no torch training loop, compiled JAX step or rankscope.step() was seen, and no pattern of "
    "collectives or, in a loaded trace, of ranges or kernels"
)
NO_BLOCKS = "no rank has completed 34 steps, or all were recorded by a rankscope without blocks of steps"
NO_GPU_STEPS = "no step has work on a GPU: recorded trainings and loaded traces with steps have such steps"
NO_LOG = "no collective is in the logs of all its members: the program made none, or it was recorded with --log 0"
NO_MESSAGES = (
    "no point-to-point message is in the logs of both its ranks: the program sent none, or was recorded with --log 0 "
    "or by an earlier rankscope"
)
NO_PARALLELISM = (
    "unknown: no messages, reductions or all-to-alls between the ranks repeat in each step, or there are no steps; "
    "--groups adds what you know"
)
NO_PIPELINE = "no ranks pass messages on to each other and back in each step, as the stages of a pipeline do"
NO_RANKS = "no process was a rank"
NO_WORKERS = "no process called another by torch RPC or Ray"
NO_MARKS = "no rank left marks of its phases: recorded runs have them, loaded files do not"
NO_GPU = "no activity of a GPU was recorded: the program used none, or CUPTI could not be loaded"
NO_MEMORY = "no allocation on a GPU is known: recorded runs have them, and traces made with profile_memory"
NO_FLOPS = "no step was sampled: where torch has the compiled observer, the second is and some after it"
NO_ENERGY = "no GPU is described: recorded runs that used one have it"
NO_ALLOCATOR = "torch's allocator was not sampled: recorded trainings on GPUs have it, loaded files do not"
NO_CUPTI = "only recorded runs that used a GPU have it"
NO_ACTIVITIES = "there is no single activity of a GPU: record with --trace, or load a trace"
NO_IMPORTS = "no import was recorded: no process ran Python, or it was recorded with --imports off"
NO_CALLS = "no system call of an import was counted: `rankscope run --imports calls` counts them"
NO_PATHS = "the paths that imports look up were not recorded: `rankscope run --imports paths` records them"
# In the order in which a report shows them.
ALL_QUESTIONS = (
    Question(
        "findings",
        "findings.table",
        LOG,
        empty="no rule found anything to improve in the data it had",
    ),
    Question("overview", "run.overview"),
    Question("coverage", "run.coverage"),
    Question("attempts", "run.goodput", empty="the ranks were started once"),
    Question(
        "goodput",
        "run.goodput",
        LOG,
        shown=Shown.ASKED,
        empty="no rank was recorded: loaded files do not say when processes began",
    ),
    Question("checks", "run.overview", empty="there is nothing to say about the files that were read"),
    Question("routines", "mpi.routines", alias="mpi", empty=NO_MPI),
    Question("sizes", "mpi.messages", empty=NO_MPI),
    Question("communicators", "mpi.routines", empty=NO_MPI),
    Question("communication", "mpi.routines", empty=NO_MPI),
    Question("balance", "ranks.ranks", empty=NO_MPI),
    Question(
        "outliers",
        "ranks.outliers",
        shown=Shown.MANY_RANKS,
        empty="no rank is 3.5 spreads from the others in anything, or there are fewer than 4 ranks",
    ),
    Question("alike", "ranks.behaviour", shown=Shown.MANY_RANKS, empty="there are fewer than 4 ranks to compare"),
    Question(
        "places", "ranks.outliers", shown=Shown.MANY_RANKS, empty="there are fewer than 2 hosts or groups to compare"
    ),
    Question(
        "causes",
        "stragglers.causes",
        LOG,
        empty="no rank's own time in a step stands out, or there are too few steps to say",
    ),
    Question("steps", "steps.steps", LOG, empty=NO_STEPS),
    Question("step_parts", "steps.steps", LOG, empty=NO_STEPS),
    Question(
        "slowdowns",
        "steps.slowdowns",
        LOG,
        empty="no stretch of steps is slower than those before it, or there are fewer than 20 steady ones",
    ),
    Question("step_history", "steps.blocks", shown=Shown.ASKED, empty=NO_BLOCKS),
    Question("gpu_steps", "gpu.steps", LOG, empty=NO_GPU_STEPS),
    Question("utilisation", "gpu.utilisation", LOG, empty=NO_FLOPS),
    Question("gpu_energy", "gpu.utilisation", LOG, empty=NO_ENERGY),
    Question("phases", "steps.phases", LOG, empty=NO_MARKS),
    Question("startup", "steps.startup", LOG, empty=NO_MARKS),
    Question("phase_ranks", "steps.phases", LOG, empty=NO_MARKS),
    Question("collectives", "collectives.collectives", LOG, empty=NO_LOG),
    Question("waiting", "collectives.waiting", LOG, empty=NO_LOG),
    Question("waiting_parts", "collectives.wait_map", LOG, empty=NO_LOG),
    Question(
        "clocks", "collectives.clocks", LOG, empty="all ranks share one clock, or no collective connects their hosts"
    ),
    Question("messages", "messages.messages", LOG, empty=NO_MESSAGES),
    Question("parallelism", "parallelism.groups", LOG, empty=NO_PARALLELISM),
    Question("parallel_groups", "parallelism.groups", LOG, Shown.ASKED, empty=NO_PARALLELISM),
    Question("bubbles", "parallelism.bubbles", LOG, empty=NO_PIPELINE),
    Question("bubble_steps", "parallelism.bubbles", LOG, Shown.ASKED, empty=NO_PIPELINE),
    Question("message_coverage", "messages.messages", LOG, Shown.ASKED, empty=NO_MESSAGES),
    Question("wait_map", "collectives.wait_map", LOG, Shown.ASKED, is_wide=True, empty=NO_LOG),
    Question("wait_matrix", "collectives.waiting", LOG, Shown.ASKED, is_wide=True, empty=NO_LOG),
    Question(
        "phase_calls",
        "steps.phases",
        empty="no call was counted in a phase: recorded runs have calls of MPI, Gloo, NCCL, torch and CUDA",
    ),
    Question(
        "programs",
        "programs.programs",
        empty="neither JAX nor torch.compile has compiled a program, or none that could be observed",
    ),
    Question("hosts", "ranks.ranks", shown=Shown.ASKED, empty=NO_RANKS),
    Question("ranks", "ranks.ranks", empty=NO_RANKS),
    Question("roles", "ranks.roles", empty=NO_WORKERS),
    Question("role_waits", "ranks.roles", empty=NO_WORKERS),
    Question("second_hand", "mpi.routines", empty="no loaded summary of all ranks differs from the ranks' own files"),
    Question(
        "matrix", "mpi.messages", empty="no message was counted by its destination: `rankscope run --matrix` does"
    ),
    Question(
        "nccl",
        "collectives.collectives",
        empty="no operation of NCCL was recorded: the program made none, or RANKSCOPE_NCCL=none was set",
    ),
    Question("gpu", "gpu.kernels", empty=NO_GPU),
    Question("gpu_ranks", "gpu.kernels", empty=NO_GPU),
    Question("gpu_gaps", "gpu.device_time", empty=NO_GPU),
    Question("gpu_copies", "gpu.kernels", empty=NO_GPU),
    Question("gpu_memory", "gpu.memory", empty=NO_MEMORY),
    Question("gpu_allocator", "gpu.memory", LOG, empty=NO_ALLOCATOR),
    Question(
        "gpu_windows",
        "gpu.windows",
        empty="the GPUs were recorded all the time, or not at all",
    ),
    Question("gpu_clocks", "collectives.clocks", empty=NO_CUPTI),
    Question(
        "cuda_api",
        "gpu.kernels",
        alias="cuda",
        empty="no CUDA call was recorded: the program made none, or it was recorded with --cuda-api none",
    ),
    Question("gpu_checks", "gpu.checks", empty="no rule found anything in the figures of the GPUs, or there are none"),
    Question(
        "nvtx_ranges",
        "events.ranges",
        alias="nvtx",
        empty="no NVTX range was recorded with what was launched inside: the program names none",
    ),
    Question("tallies", "run.overview", empty="nothing was counted in layers that have no table of their own"),
    Question("figures", "run.overview", empty="no document with figures was loaded"),
    Question("imports", "imports.imports", empty=NO_IMPORTS),
    Question("import_offenders", "imports.offenders.table", shown=Shown.ASKED, empty=NO_CALLS),
    Question("import_tree", "imports.modules", shown=Shown.ASKED, empty=NO_IMPORTS),
    Question("import_modules", "imports.modules", shown=Shown.ASKED, empty=NO_IMPORTS),
    Question("import_causes", "imports.calls", shown=Shown.ASKED, empty=NO_CALLS),
    Question("import_mounts", "imports.calls", shown=Shown.ASKED, empty=NO_CALLS),
    Question("import_module_mounts", "imports.calls", shown=Shown.ASKED, empty=NO_CALLS),
    Question("import_calls", "imports.calls", shown=Shown.ASKED, empty=NO_CALLS),
    Question("import_paths", "imports.calls", shown=Shown.ASKED, empty=NO_PATHS),
    Question("import_search", "imports.search", shown=Shown.ASKED, empty=NO_PATHS),
    Question("import_loader", "imports.search", shown=Shown.ASKED, empty=NO_PATHS),
    Question("trace", "events.events", empty="no events were recorded: `rankscope run --trace` records them"),
    Question(
        "overhead",
        "run.coverage",
        empty="no rank was recorded by rankscope: loaded files do not contain what recording cost",
    ),
    Question("gpu_time", "gpu.device_time", EVENTS, Shown.SUMMED, empty=NO_GPU),
    Question("gpu_spread", "gpu.device_time", EVENTS, Shown.SUMMED, empty=NO_GPU),
    Question("gpu_kinds", "gpu.kernels", EVENTS, empty=NO_ACTIVITIES),
    Question("kernels", "gpu.kernels", EVENTS, empty=NO_ACTIVITIES),
    Question("gpu_idle", "gpu.device_time", EVENTS, empty=NO_ACTIVITIES),
    Question("ranges", "events.ranges", EVENTS, empty="no range is in a trace: record with --trace, or load one"),
    Question(
        "events",
        "events.events",
        EVENTS,
        Shown.ASKED,
        empty="no single events were recorded: the log of collectives is empty, and `rankscope run --trace` was "
        "not used",
    ),
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
