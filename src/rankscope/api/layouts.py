"""A run in the layouts that other tools print."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.api.run import Layout
from rankscope.model.tables import Tables, Wrong
from rankscope.output.layouts.iprof import to_iprof
from rankscope.output.layouts.mpitrace import to_mpitrace
from rankscope.output.layouts.nvprof import to_nvprof, to_nvprof_csv
from rankscope.questions.gpu.kernel_names import kernel_names, renamed
from rankscope.questions.layouts.iprof import iprof_parts
from rankscope.questions.layouts.mpitrace import (
    is_new_layout,
    other_jobs,
    summary_tasks,
    task_routines,
    task_sizes,
    tasks,
    told_extremes,
)
from rankscope.questions.layouts.nvprof import nvprof_processes, nvprof_rows, nvprof_warnings
from rankscope.questions.selection import Selection

WHAT_IT_HOLDS = "rankscope report shows what it holds"


def laid_out(opened: Tables, selection: Selection, shown: Sequence[int], layout: Layout) -> str:
    """The run as that tool would have printed it."""
    if layout.name.startswith("mpitrace"):
        return as_mpitrace(opened, selection, shown, new=layout.name == "mpitrace-new")
    # in another tool's layout its own files come out as they went in
    called = kernel_names(opened, layout.names, loaded=False)
    if layout.name == "iprof":
        parts = [renamed(part, called) for part in iprof_parts(opened, selection)]
        if not any(part.rows for part in parts):
            raise Wrong("--layout iprof: this run has no calls, device work or memory traffic; " + WHAT_IT_HOLDS)
        return to_iprof(parts)
    of_whom = (opened, selection, layout.merged)
    rows = renamed(nvprof_rows(*of_whom), called)
    form = to_nvprof_csv if layout.csv else to_nvprof
    return form(nvprof_processes(*of_whom), rows, nvprof_warnings(*of_whom))


def as_mpitrace(opened: Tables, selection: Selection, shown: Sequence[int], new: bool) -> str:
    """The profiles of the ranks that have one, of every job that was loaded."""
    parts = [mpitrace_job(opened, selection, shown, new, "")] if tasks(opened, "").rows else []
    for job in other_jobs(opened):
        present = [int(str(row[0])) for row in tasks(opened, job).rows]
        wanted = [rank for rank in present if selection.ranks is None or rank in selection.ranks]
        parts.append(mpitrace_job(opened, selection, wanted, new, job))
    if not parts:
        raise Wrong("--layout mpitrace: this run has no ranks; " + WHAT_IT_HOLDS)
    return "".join(parts)


def mpitrace_job(opened: Tables, selection: Selection, shown: Sequence[int], new: bool, job: str) -> str:
    routines, sizes = task_routines(opened, selection, job), task_sizes(opened, selection, job)
    summary, extremes = summary_tasks(opened, job), told_extremes(opened, job)
    return to_mpitrace(tasks(opened, job), routines, sizes, shown, summary, extremes, new or is_new_layout(opened, job))
