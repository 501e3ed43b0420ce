"""Which question is answered by which analysis, and what each of them needs to be read."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.model import Table, Tables
from rankscope.questions.collectives.clocks import clocks, gpu_clocks
from rankscope.questions.collectives.collectives import collectives, nccl
from rankscope.questions.collectives.wait_map import wait_map, waiting_parts
from rankscope.questions.collectives.waiting import wait_matrix, waiting
from rankscope.questions.events.events import events, trace
from rankscope.questions.events.ranges import nvtx_ranges, ranges
from rankscope.questions.findings import findings
from rankscope.questions.gpu.checks import gpu_checks
from rankscope.questions.gpu.device_time import gpu_gaps, gpu_idle, gpu_spread, gpu_time
from rankscope.questions.gpu.kernels import cuda_api, gpu, gpu_copies, gpu_kinds, gpu_ranks, kernels
from rankscope.questions.gpu.memory import gpu_memory
from rankscope.questions.imports.calls import (
    import_calls,
    import_causes,
    import_module_mounts,
    import_mounts,
    import_paths,
)
from rankscope.questions.imports.imports import imports
from rankscope.questions.imports.modules import import_modules, import_tree
from rankscope.questions.imports.offenders import import_offenders
from rankscope.questions.imports.search import import_loader, import_search
from rankscope.questions.mpi.messages import matrix, sizes
from rankscope.questions.mpi.routines import communication, communicators, routines, second_hand
from rankscope.questions.ranks.behaviour import MANY_RANKS, alike
from rankscope.questions.ranks.outliers import outliers, places
from rankscope.questions.ranks.ranks import balance, hosts, ranks
from rankscope.questions.run.coverage import coverage, overhead
from rankscope.questions.run.overview import checks, figures, overview, tallies
from rankscope.questions.selection import Selection
from rankscope.questions.steps.phases import phase_calls, phase_ranks, phases
from rankscope.questions.steps.steps import step_parts, steps
from rankscope.questions.stragglers.causes import causes

# ---------------------------------------------------------------------------------------------------------------------
# The questions about imports, by the name of their table.
Question = Callable[[Tables, Selection], Table]

IMPORT_QUESTIONS: dict[str, Question] = {
    "imports": imports,
    "import_offenders": import_offenders,
    "import_tree": import_tree,
    "import_modules": import_modules,
    "import_causes": import_causes,
    "import_mounts": import_mounts,
    "import_module_mounts": import_module_mounts,
    "import_calls": import_calls,
    "import_paths": import_paths,
    "import_search": import_search,
    "import_loader": import_loader,
}
# what `rankscope imports` shows unasked; the others are long
SHOWN = ("imports", "import_offenders", "import_tree", "import_causes", "import_mounts")
ONLY_WHERE_ASKED = frozenset(IMPORT_QUESTIONS) - {"imports"}  # in `rankscope report`


# ---------------------------------------------------------------- registry
# They need the single events, which are read only where one of these is asked for.
EVENT_QUESTIONS: dict[str, Question] = {
    "gpu_time": gpu_time,
    "gpu_spread": gpu_spread,
    "gpu_kinds": gpu_kinds,
    "kernels": kernels,
    "gpu_idle": gpu_idle,
    "ranges": ranges,
    "events": events,
}
# They need the log of collectives: read where one of these is asked for, and unasked in runs of a few ranks.
LOG_QUESTIONS: dict[str, Question] = {
    "findings": findings,
    "causes": causes,
    "steps": steps,
    "step_parts": step_parts,
    "phases": phases,
    "phase_ranks": phase_ranks,
    "collectives": collectives,
    "waiting": waiting,
    "waiting_parts": waiting_parts,
    "clocks": clocks,
    "wait_map": wait_map,
    "wait_matrix": wait_matrix,
}
QUESTIONS: dict[str, Question] = {
    "findings": findings,
    "overview": overview,
    "coverage": coverage,
    "checks": checks,
    "routines": routines,
    "sizes": sizes,
    "communicators": communicators,
    "communication": communication,
    "balance": balance,
    "outliers": outliers,
    "alike": alike,
    "places": places,
    **LOG_QUESTIONS,
    "phase_calls": phase_calls,
    "hosts": hosts,
    "ranks": ranks,
    "second_hand": second_hand,
    "matrix": matrix,
    "nccl": nccl,
    "gpu": gpu,
    "gpu_ranks": gpu_ranks,
    "gpu_gaps": gpu_gaps,
    "gpu_copies": gpu_copies,
    "gpu_memory": gpu_memory,
    "gpu_clocks": gpu_clocks,
    "cuda_api": cuda_api,
    "gpu_checks": gpu_checks,
    "nvtx_ranges": nvtx_ranges,
    "tallies": tallies,
    "figures": figures,
    **IMPORT_QUESTIONS,
    "trace": trace,
    "overhead": overhead,
    **EVENT_QUESTIONS,
}
# So wide, so long or so seldom of interest that they are shown only where they are asked for.
ASKED_FOR = ("events", "hosts", "wait_map", "wait_matrix", *ONLY_WHERE_ASKED)
# Shown unasked from MANY_RANKS on.
OF_MANY = ("outliers", "alike", "places")
# Their columns depend on the run: one for each step, or rank.
WIDE = ("wait_map", "wait_matrix")
# Of these a recorder keeps the sums, so that they need no events.
SUMMED = ("gpu_time", "gpu_spread")
ALIASES = {"mpi": "routines", "cuda": "cuda_api", "nvtx": "nvtx_ranges"}  # a layer's name for its main table


def default_tables(opened: Tables) -> list[str]:
    """All but those that need events or sums of GPUs where there are none."""
    shown = (set(QUESTIONS) if has_activities(opened) else set(QUESTIONS) - set(EVENT_QUESTIONS)) - set(ASKED_FOR)
    if opened.query("SELECT 1 FROM figures WHERE series LIKE 'GPU %' AND name = 'first to last' LIMIT 1"):
        shown.update(SUMMED)
    if opened.query("SELECT count(*) FROM ranks WHERE role = 'rank'")[0][0] < MANY_RANKS:
        shown -= set(OF_MANY)
    return [name for name in QUESTIONS if name in shown]


ACTIVITIES = """
    SELECT 1 FROM untraced_events WHERE layer NOT IN ('mpi', 'nccl', 'gloo') UNION ALL
    SELECT 1 FROM figures WHERE starts_with(series, 'trace ') AND name = 'events kept' AND value > 0
        AND series NOT IN ('trace mpi', 'trace nccl', 'trace gloo') LIMIT 1"""


def has_activities(opened: Tables) -> bool:
    """Whether there are single events other than the log of collectives."""
    return bool(opened.query(ACTIVITIES))


def needs_events(name: str) -> bool:
    """Whether the answer needs single events or the log of collectives."""
    return name in EVENT_QUESTIONS or name in LOG_QUESTIONS
