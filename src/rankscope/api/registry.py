"""Which question is answered by which analysis, and what each of them needs to be read."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.analyse.alike import alike
from rankscope.analyse.balance import balance
from rankscope.analyse.checks import checks
from rankscope.analyse.communication import communication
from rankscope.analyse.communicators import communicators
from rankscope.analyse.cuda_api import cuda_api
from rankscope.analyse.figures import figures
from rankscope.analyse.findings import findings
from rankscope.analyse.gpu_clocks import gpu_clocks
from rankscope.analyse.gpu_copies import gpu_copies
from rankscope.analyse.gpu_gaps import gpu_gaps
from rankscope.analyse.gpu_idle import gpu_idle
from rankscope.analyse.gpu_kinds import gpu_kinds
from rankscope.analyse.gpu_ranks import gpu_ranks
from rankscope.analyse.gpu_spread import gpu_spread
from rankscope.analyse.hosts import hosts
from rankscope.analyse.kernels import kernels
from rankscope.analyse.matrix import matrix
from rankscope.analyse.nccl import nccl
from rankscope.analyse.nvtx_ranges import nvtx_ranges
from rankscope.analyse.overhead import overhead
from rankscope.analyse.phase_calls import phase_calls
from rankscope.analyse.phase_ranks import phase_ranks
from rankscope.analyse.places import places
from rankscope.analyse.second_hand import second_hand
from rankscope.analyse.step_parts import step_parts
from rankscope.analyse.tallies import tallies
from rankscope.analyse.trace import trace
from rankscope.analyse.wait_matrix import wait_matrix
from rankscope.analyse.waiting_parts import waiting_parts
from rankscope.api.import_questions import IMPORT_QUESTIONS, ONLY_WHERE_ASKED
from rankscope.model import Table, Tables
from rankscope.questions.collectives.clocks import clocks
from rankscope.questions.collectives.collectives import collectives
from rankscope.questions.collectives.wait_map import wait_map
from rankscope.questions.collectives.waiting import waiting
from rankscope.questions.events.events import events
from rankscope.questions.events.ranges import ranges
from rankscope.questions.gpu.checks import gpu_checks
from rankscope.questions.gpu.device_time import gpu_time
from rankscope.questions.gpu.kernels import gpu
from rankscope.questions.gpu.memory import gpu_memory
from rankscope.questions.mpi.messages import sizes
from rankscope.questions.mpi.routines import routines
from rankscope.questions.ranks.behaviour import MANY_RANKS
from rankscope.questions.ranks.outliers import outliers
from rankscope.questions.ranks.ranks import ranks
from rankscope.questions.run.coverage import coverage
from rankscope.questions.run.overview import overview
from rankscope.questions.selection import Selection
from rankscope.questions.steps.phases import phases
from rankscope.questions.steps.steps import steps
from rankscope.questions.stragglers.causes import causes

Question = Callable[[Tables, Selection], Table]

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
