"""What do the GPUs do, and how much of the time do they do nothing?"""

from __future__ import annotations

from dataclasses import replace

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.pictures import Chart, Section
from rankscope.questions.condense import condensed
from rankscope.questions.gpu.activities import ANY_WORK
from rankscope.questions.gpu.device_time import gpu_gaps, gpu_time
from rankscope.questions.gpu.kernel_names import renamed
from rankscope.questions.gpu.kernels import gpu, gpu_copies, kernels
from rankscope.questions.gpu.steps import gpu_steps
from rankscope.questions.page.section import (
    PageOptions,
    column,
    hosts_of,
    largest_parts,
    mean,
    number,
    part_words,
    visible_parts,
)
from rankscope.questions.page.step_times import device_groups
from rankscope.questions.page.tables import bars, cut, marked
from rankscope.questions.wording import percent, seconds

WHERE = Column("gpu", Unit.NAME, "Rank/GPU")
MOST_NAMES = 1000
ADDED = (
    Column("compute_alone_ns", Unit.NS, "Compute only", "`compute_ns` − `hidden_ns`"),
    Column("overlap_ns", Unit.NS, "Compute and communication", "`hidden_ns`: overlapped communication"),
    Column("comm_exposed_ns", Unit.NS, "Communication only", "`exposed_ns`: exposed communication"),
    Column(
        "copy_alone_ns",
        Unit.NS,
        "Copies only",
        "`busy_ns` − `compute_ns` − `exposed_ns`; this, the three before it and `idle_ns` add up to `span_ns`",
    ),
)


def gpu_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The list of kernels, copies and memsets, the longest first."""
    table = renamed(gpu(tables, wanted.selection), wanted.called)
    if not table.rows and tables.query(ANY_WORK):  # of loaded traces there are single events only
        table = renamed(kernels(tables, wanted.selection), wanted.called)
    if not table.rows:
        return None
    chart = Chart("top", table.name, _kernel_title(table), "name", ("total_ns",), "time on the GPUs")
    copies = renamed(gpu_copies(tables, wanted.selection), wanted.called)
    shown = [cut(table, MOST_NAMES), *([copies] if copies.rows else [])]
    return Section("gpu", "Which GPU activities take the time?", shown, [chart])


def _kernel_title(table: Table) -> str:
    name, calls, total = (column(table, name)[0] for name in ("name", "calls", "total_ns"))
    share = column(table, "share")[0]
    text = f"{name} takes {percent(number(share))} of the GPU time" if share is not None else f"{name} comes first"
    return f"{text}: {seconds(number(total))} in {number(calls):,.0f} calls"


def gpu_time_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """Each device's time from its first activity to its last: computing, communicating, copying, idle."""
    table = gpu_time(tables, wanted.selection) if tables.query(ANY_WORK) else None
    if table is None or not table.rows:
        return None
    _add_parts(table)
    parts = (*(each.name for each in ADDED), "idle_ns")
    drawn = tuple(name for name in parts if any(number(cell) for cell in column(table, name)))
    few, axis = condensed(table, hosts_of(tables), "idle_ns", marked(tables, wanted)), "GPU active window"
    charts = bars(few, _time_title(table), drawn, axis, "idle_ns", "comm_exposed_ns")
    if few.drawn is table:
        orders = (WHERE.name, "idle_ns", "comm_exposed_ns")
        charts[0] = replace(charts[0], label=WHERE.name, row_axis="rank/GPU", orders=orders)
    charts[1:] = [replace(chart, label=WHERE.name, row_axis="rank/GPU") for chart in charts[1:]]
    gaps = gpu_gaps(tables, wanted.selection)
    question = "Are the GPUs busy?"
    question = question if len(table.rows) > 1 else question.replace("Are the GPUs", "Is the GPU")
    return Section("gpu_time", question, [*few.tables, *([gaps] if gaps.rows else [])], charts)


STEP_PARTS = (
    *("compute_ns", "exposed_ns", "copy_ns", "launch_ns", "data_ns", "sync_ns", "preempted_ns", "python_ns", "gc_ns"),
    *("compile_ns", "blocked_ns", "checkpoint_ns", "device_ns", "unknown_ns"),
)


def gpu_steps_section(tables: Tables, wanted: PageOptions) -> Section | None:
    """The mean step of each GPU as one stacked bar."""
    table = gpu_steps(tables, wanted.selection)
    if not table.rows:
        return None
    table.columns = (WHERE, *table.columns)
    table.rows = [(f"{row[0]}/{row[1]}", *row) for row in table.rows]
    parts = visible_parts(table, STEP_PARTS, "step_ns")
    several = len(table.rows) > 1
    few = condensed(table, hosts_of(tables), "idle_ns", marked(tables, wanted))
    charts = bars(
        few,
        _step_title(table, parts, "the GPUs" if several else "the GPU"),
        parts,
        "mean step on the GPU",
        "idle_ns",
        "exposed_ns",
    )
    if few.drawn is table:
        orders = (WHERE.name, "idle_ns", "exposed_ns")
        charts[0] = replace(charts[0], label=WHERE.name, row_axis="rank/GPU", orders=orders)
    charts[1:] = [replace(chart, label=WHERE.name, row_axis="rank/GPU") for chart in charts[1:]]
    groups = device_groups(tables, table) if few.drawn is table else None
    charts[:1] = [replace(charts[0], groups=groups.name)] if groups else charts[:1]
    step_groups, question = [groups] if groups else [], "Where does a step go on the GPUs?"
    return Section(
        "gpu_steps", question if several else question.replace("GPUs", "GPU"), few.tables, charts, groups=step_groups
    )


def _step_title(table: Table, parts: tuple[str, ...], where: str) -> str:
    step, titles = mean(table, "step_ns"), part_words(table)
    parts_text = largest_parts({titles[name]: mean(table, name) for name in parts}, step)
    return f"A step takes {seconds(step)} on {where}{': ' + parts_text if parts_text else ''}"


def _add_parts(table: Table) -> None:
    names = [each.name for each in table.columns]
    wanted = ("rank", "device", "compute_ns", "hidden_ns", "exposed_ns", "busy_ns")
    for at, row in enumerate(table.rows):
        rank, device, compute, hidden, exposed, busy = (row[names.index(name)] for name in wanted)
        copies = max(0.0, number(busy) - number(compute) - number(exposed))
        parts = (number(compute) - number(hidden), number(hidden), number(exposed), copies)
        table.rows[at] = (f"{rank}/{device}", *row, *parts)
    table.columns = (WHERE, *table.columns, *ADDED)


def _time_title(table: Table) -> str:
    span = mean(table, "span_ns")
    if not span:
        return "The GPUs were idle"
    gpus, communicate = ("The GPUs are", "communicate") if len(table.rows) > 1 else ("The GPU is", "communicates")
    text = f"{gpus} idle {percent(mean(table, 'idle_ns') / span)} of the time"
    exposed = mean(table, "exposed_ns") / span
    if not exposed:
        return text
    return f"{text}, and only {communicate} for {percent(exposed)}"
