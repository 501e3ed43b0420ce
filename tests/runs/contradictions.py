"""What in the answers about one run cannot be true together: each rule adds up, or compares, what two tables tell.

`python tests/runs/contradictions.py FOLDER...` looks at every run below these folders.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rankscope.api.pages import page_text
from rankscope.api.run import QUESTIONS, Run, Selection
from rankscope.model.tables import Column, Table, Unit
from rankscope.output.forms import FORMS
from rankscope.output.screen import to_screen
from rankscope.output.text import to_text
from rankscope.pictures import Bars, Page
from rankscope.questions.findings.savings import MORE
from rankscope.questions.findings.table import findings_of
from rankscope.questions.gpu.kernel_names import renamed
from rankscope.questions.imports.modules import import_icicle
from rankscope.questions.mpi.calls import OUTSIDE
from rankscope.questions.page import PageOptions, page_of
from rankscope.questions.run.screen import BUBBLE
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.steps import OWN
from rankscope.questions.wording import percent, seconds

Row = dict[str, Any]
NOT_LOOKED_FOR = "Not checked"
WIDTH = 120
MOST_TOLD = 3  # of one rule about one run
EXACT = 1e-9  # relative: sums of the same numbers in another order
NS = 2.0  # what whole nanoseconds may be off by
ABOVE_1, BELOW_0 = "above 1", "negative"  # what the formula of such a column has to say


class Answers(Mapping[str, list[Row]]):
    """The rows of every table of one run, each worked out once."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder, keep=False)
        self.run.prepare(events=True)
        self.tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        if name not in self.tables:
            self.tables[name] = self.run.answers([name], Selection())[0]
        return self.tables[name]

    def __getitem__(self, name: str) -> list[Row]:
        return rows_of(self.table(name))

    def __iter__(self) -> Iterator[str]:
        return iter(QUESTIONS)

    def __len__(self) -> int:
        return len(QUESTIONS)


def rows_of(table: Table) -> list[Row]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def total(rows: Iterable[Row], *names: str) -> float:
    return math.fsum(row[name] or 0 for row in rows for name in names)


def same(one: float, other: float, share: float = EXACT, ns: float = NS) -> bool:
    return abs(one - other) <= share * max(abs(one), abs(other)) + ns


RULES: list[Callable[[Answers], Iterator[str]]] = []


def rule(told: Callable[[Answers], Iterator[str]]) -> Callable[[Answers], Iterator[str]]:
    RULES.append(told)
    return told


# ---------------------------------------------------------------- every cell of every table
@rule
def cells(run: Answers) -> Iterator[str]:
    for name in run:
        for row in run.table(name).rows:
            for column, cell in zip(run.table(name).columns, row, strict=True):
                wrong = impossible(column, cell)
                if wrong:
                    yield f"{name}.{column.name} is {cell}: {wrong}; {row[:3]}"


def impossible(column: Column, cell: Any) -> str:
    if column.unit in (Unit.NAME, Unit.NUMBER) or cell is None:
        return ""
    if not math.isfinite(cell):
        return "not a number"
    if cell < 0 and BELOW_0 not in column.formula:
        return "less than 0"
    return "a share above 1" if column.unit is Unit.SHARE and cell > 1 + 1e-6 and ABOVE_1 not in column.formula else ""


@rule
def statistics(run: Answers) -> Iterator[str]:
    """Where a table has them: least ≤ mean ≤ most, and mean × calls = total; what files have wrong is in checks."""
    if any(row["severity"] == "warning" for row in run["checks"]):
        return
    for name in run:
        known = {column.name for column in run.table(name).columns}
        for row in run[name]:
            least, mean, most = (row.get(key) for key in ("min_ns", "mean_ns", "max_ns"))
            if least is not None and mean is not None and least > mean + NS + EXACT * mean:
                yield f"{name}: min {least} above mean {mean}; {list(row.values())[:3]}"
            if most is not None and mean is not None and mean > most + NS + EXACT * most:
                yield f"{name}: mean {mean} above max {most}; {list(row.values())[:3]}"
            if {"calls", "total_ns", "mean_ns"} <= known and mean is not None and "calls" in row and row["calls"]:
                formula = next(one.formula for one in run.table(name).columns if one.name == "mean_ns")
                if formula == "`total_ns` ÷ `calls`" and not same(mean * row["calls"], row["total_ns"] or 0, ns=1e-3):
                    yield f"{name}: mean × calls is not total; {list(row.values())[:3]}"


# ---------------------------------------------------------------- MPI
@rule
def mpi_time(run: Answers) -> Iterator[str]:
    """MPI time is one number: of the routines, the ranks, the communicators, the overview."""
    routines = [row for row in run["routines"] if row["name"] not in OUTSIDE]
    spent = total(routines, "total_ns")
    told = run["overview"][0]["comm_ns"]
    ways = {name: total(run[name], column) for name, column in MPI_TIMES.items() if run[name]}
    for name, value in ways.items():
        if told is not None and not same(value, told, ns=1e3):
            yield f"{name}: MPI time {value}, overview {told}"
    if told is not None and not same(spent, told, ns=1e3):
        yield f"routines: {spent}, overview {told}"


MPI_TIMES = {"balance": "comm_ns", "ranks": "comm_ns", "communicators": "total_ns"}


@rule
def message_sizes(run: Answers) -> Iterator[str]:
    """The classes of a routine are the routine."""
    routines = {row["name"]: row for row in run["routines"]}
    for name in {row["name"] for row in run["sizes"]}:
        rows = [row for row in run["sizes"] if row["name"] == name]
        whole = routines[name]["total_ns" if rows[0]["kind"] == "call" else "progress_ns"] or 0
        if total(rows, "total_ns") > whole * (1 + EXACT) + NS:
            yield f"sizes: {name} {total(rows, 'total_ns')} ns, routines {whole}"


# ---------------------------------------------------------------- collectives
STAY = ("wait_ns", "transfer_ns", "leaving_ns")


@rule
def stays(run: Answers) -> Iterator[str]:
    """Wait, transfer and exit skew are the stay, and what is matched is no more than what was called."""
    routines = {row["name"]: row for row in run["routines"]}
    for kind, column in (("call", "total_ns"), ("progress", "progress_ns")):
        for name in {row["name"] for row in run["collectives"]} & routines.keys():
            inside = total((r for r in run["collectives"] if r["name"] == name and r["kind"] == kind), *STAY)
            if inside > (routines[name][column] or 0) * (1 + 1e-3) + 1e3:
                yield f"collectives: {name} ({kind}) {inside}, routines {routines[name][column]}"
    for name in ("collectives", "waiting_parts"):
        for row in run[name]:
            if row["wait_share"] is not None and not same(
                row["wait_share"], row["wait_ns"] / total([row], *STAY), 1e-9, 1e-9
            ):
                yield f"{name}: wait share {row['wait_share']} of {row}"


@rule
def one_waiting(run: Answers) -> Iterator[str]:
    """By operation, by rank, by group, by pair: the same sums."""
    blocking = [row for row in run["collectives"] if row["kind"] == "call"]
    progress = [row for row in run["collectives"] if row["kind"] == "progress"]
    for name in STAY:
        if not same(total(blocking, name), total(run["waiting"], name), 1e-9, 1e3):
            yield f"{name}: collectives {total(blocking, name)}, waiting {total(run['waiting'], name)}"
    if not same(total(progress, "wait_ns"), total(run["waiting"], "progress_wait_ns"), 1e-9, 1e3):
        yield "waiting: progress_wait_ns is not that of collectives"
    groups = [row for row in run["waiting_parts"] if row["by"] == "group"]
    for name in STAY:
        if not same(total(run["collectives"], name), total(groups, name), 1e-9, 1e3):
            yield f"{name}: collectives {total(run['collectives'], name)}, waiting_parts {total(groups, name)}"
    caused, waits = total(run["waiting"], "caused_ns"), total(run["collectives"], "wait_ns")
    matrix = math.fsum(cell for row in run.table("wait_matrix").rows for cell in row[1:] if isinstance(cell, int))
    messages = total(run["messages"], "wait_ns", "send_wait_ns")
    if not same(caused, waits, 1e-9, 1e3) or not same(caused + messages, matrix, 1e-6, 1e5):
        yield f"caused {caused}, waits {waits}, in messages {messages}, matrix {matrix}"
    shares = total(run["waiting"], "caused_share")
    if caused and not same(shares, 1, 0, 1e-6):
        yield f"waiting: shares of wait caused add up to {shares}"


@rule
def no_longer_than_the_job(run: Answers) -> Iterator[str]:
    """One rank cannot wait longer in blocking calls of one thread than its process lives."""
    lives = {row["rank"]: row["elapsed_ns"] for row in run["ranks"]}
    longest = max((value for value in lives.values() if value), default=None)
    if not run["overview"][0]["tools"]:
        for row in run["waiting"]:
            if lives.get(row["rank"]) and total([row], *STAY) > lives[row["rank"]] * 1.01:
                yield f"waiting: rank {row['rank']} stays {total([row], *STAY)}, lives {lives[row['rank']]}"
    for row in run["findings"]:
        if longest and row["saved_ns"] is not None and row["saved_ns"] > longest * (1 + 1e-6):
            yield f"findings: saves {row['saved_ns']} of {longest}: {row['finding']}"


# ---------------------------------------------------------------- steps
@rule
def parts_of_steps(run: Answers) -> Iterator[str]:
    parts = [f"{name}_ns" for name in OWN]
    for row in run["step_parts"]:
        if not same(total([row], *parts, "exposed_ns"), row["step_ns"], 1e-3, 10):
            yield f"step_parts: rank {row['rank']}: {total([row], *parts, 'exposed_ns')} of {row['step_ns']}"
        split = row["exposed_wait_ns"]
        exposed = total([row], "exposed_wait_ns", "exposed_transfer_ns", "exposed_unmatched_ns")
        if split is not None and not same(exposed, row["exposed_ns"]):
            yield f"step_parts: rank {row['rank']}: exposed is not wait + transfer"
        if split is not None and (split > row["wait_ns"] + NS or exposed > row["step_ns"] + NS):
            yield f"step_parts: rank {row['rank']}: more exposed than there is"
    lengths = {row["rank"]: row["mean_ns"] for row in run["steps"] if row["name"] == "step"}
    for row in run["step_parts"]:
        told = lengths.get(str(row["rank"]), lengths.get("all") if len(run["step_parts"]) == 1 else None)
        if told is not None and not same(told, row["step_ns"]):
            yield f"steps: {told}, step_parts {row['step_ns']} of rank {row['rank']}"


@rule
def parts_of_bubbles(run: Answers) -> Iterator[str]:
    parts = ("compute_ns", "collective_ns", "warmup_ns", "drain_ns", "transfer_ns", "imbalance_ns")
    for row in run["bubbles"]:
        if not same(total([row], *parts), row["window_ns"], 1e-6, 10):
            yield f"bubbles: stage {row['stage']}: {total([row], *parts)} of {row['window_ns']}"


@rule
def numbers_of_steps(run: Answers) -> Iterator[str]:
    """What is step 7 on one rank is step 7 on the others: together they have hardly more than one of them."""
    found = steps_of(run.run.store())
    together = {int(number) for one in found.ranks for number in one.number}
    most = max((len(one.number) for one in found.ranks), default=0)
    if len(together) > 1.5 * most:
        yield f"steps: {len(together)} numbers, no rank has more than {most}"


@rule
def phases(run: Answers) -> Iterator[str]:
    """The phases of a process are its life, and its steps lie in those of the steps."""
    inside_steps = {row["rank"]: row["steps"] * row["step_ns"] for row in run["step_parts"]}
    for row in run["phase_ranks"]:
        stepping = total([row], "first_collective_ns", "first_step_ns", "steps_ns")
        if inside_steps.get(row["rank"], 0) > stepping * 1.01 + 1e7:
            yield f"phase_ranks: rank {row['rank']}: {stepping} in steps, step_parts {inside_steps[row['rank']]}"
    columns = [one.name for one in run.table("phase_ranks").columns if one.name.endswith("_ns")]
    inside = [name for name in columns if name != "elapsed_ns"]
    lives = {row["rank"]: row["elapsed_ns"] for row in run["ranks"]}
    for row in run["phase_ranks"]:
        if "elapsed_ns" in row and not same(total([row], *inside), row["elapsed_ns"], 1e-6, 100):
            yield f"phase_ranks: rank {row['rank']}: {total([row], *inside)} of {row['elapsed_ns']}"
        if lives.get(row["rank"]) and not same(total([row], *inside), lives[row["rank"]], 1e-3, 2e7):
            yield f"phase_ranks: rank {row['rank']}: {total([row], *inside)}, ranks {lives[row['rank']]}"


# ---------------------------------------------------------------- GPUs
@rule
def device_time(run: Answers) -> Iterator[str]:
    """Compute, exposed communication, copies alone and idle are the window; overlaps lie in both."""
    for row in run["gpu_time"]:
        who = f"gpu_time: rank {row['rank']} GPU {row['device']}"
        if not same(row["busy_ns"] + row["idle_ns"], row["span_ns"]):
            yield f"{who}: busy + idle is not the window"
        if not same(row["hidden_ns"] + row["exposed_ns"], row["comm_ns"]):
            yield f"{who}: overlapped + exposed is not communication"
        least, most = row["compute_ns"] + row["exposed_ns"], total([row], "compute_ns", "exposed_ns", "copy_ns")
        if not least - NS <= row["busy_ns"] <= most + NS:
            yield f"{who}: busy {row['busy_ns']} is not between {least} and {most}"
        if row["hidden_ns"] > min(row["compute_ns"], row["comm_ns"]) + NS:
            yield f"{who}: more overlapped than there is"
    spans = {row["what"]: row["total_ns"] for row in run["gpu_spread"]}
    for what, name in (("busy", "busy_ns"), ("idle", "idle_ns"), ("compute", "compute_ns")):
        if what in spans and not same(spans[what], total(run["gpu_time"], name)):
            yield f"gpu_spread: {what} {spans[what]}, gpu_time {total(run['gpu_time'], name)}"
    if run["gpu_gaps"] and not same(total(run["gpu_gaps"], "idle_ns"), total(run["gpu_time"], "idle_ns"), 1e-6, 1e4):
        yield f"gpu_gaps: {total(run['gpu_gaps'], 'idle_ns')}, gpu_time idle {total(run['gpu_time'], 'idle_ns')}"


@rule
def device_sums(run: Answers) -> Iterator[str]:
    """Durations added up are no less than their union, and the same in every table."""
    listed = total(run["gpu"], "total_ns")
    if run["gpu"] and not same(
        listed, total(run["gpu_ranks"], "gpu_ns") - total(run["gpu_ranks"], "unlisted_ns"), 0.006
    ):
        yield f"gpu: {listed}, gpu_ranks {total(run['gpu_ranks'], 'gpu_ns')}"
    summed = {row["rank"]: row for row in run["gpu_ranks"]}
    for rank in {row["rank"] for row in run["gpu_time"]} & summed.keys():
        rows = [row for row in run["gpu_time"] if row["rank"] == rank]
        for union, sums in (("compute_ns", "compute_ns"), ("comm_ns", "communication_ns"), ("copy_ns", "copy_ns")):
            if total(rows, union) > summed[rank][sums] * (1 + 1e-3) + 1e3:
                yield f"gpu_time: rank {rank} {union} {total(rows, union)}, gpu_ranks {summed[rank][sums]}"
    copies = total(run["gpu_copies"], "total_ns")
    if copies > total(run["gpu_ranks"], "copy_ns") * (1 + EXACT) + NS:
        yield f"gpu_copies: {copies}, gpu_ranks {total(run['gpu_ranks'], 'copy_ns')}"
    if run["kernels"] and not same(total(run["kernels"], "total_ns"), total(run["gpu_kinds"], "total_ns")):
        yield "kernels and gpu_kinds differ"


IDLE = ("launch", "data", "sync", "preempted", "python", "gc", "compile", "blocked", "checkpoint", "device", "unknown")


@rule
def device_steps(run: Answers) -> Iterator[str]:
    times = {(row["rank"], str(row["device"])): row for row in run["gpu_time"]}
    for row in run["gpu_steps"]:
        who = f"gpu_steps: rank {row['rank']} GPU {row['device']}"
        if not same(total([row], "compute_ns", "exposed_ns", "copy_ns", "idle_ns"), row["step_ns"], 1e-4):
            yield f"{who}: parts are not the step"
        if not same(total([row], *(f"{cause}_ns" for cause in IDLE)), row["idle_ns"], 1e-6):
            yield f"{who}: causes are not the idle time"
        if row["overlapped_ns"] > row["compute_ns"] + NS or (row["wait_ns"] or 0) > row["exposed_ns"] + NS:
            yield f"{who}: a part is larger than its whole"
        whole = times.get((row["rank"], str(row["device"])))
        busy = {**row, "busy_ns": row["step_ns"] - row["idle_ns"]}  # the first step may begin before any activity does
        for part in ("busy_ns", "compute_ns", "exposed_ns"):
            if whole is not None and busy[part] * row["steps"] > whole[part] * 1.001 + 1e5:
                yield f"{who}: {part} × steps {busy[part] * row['steps']}, gpu_time {whole[part]}"


# ---------------------------------------------------------------- what is said
@rule
def findings(run: Answers) -> Iterator[str]:
    """No all-clear where a rule had no data, and none beside a table that convicts a rank."""
    table = run.table("findings")
    told = " ".join(table.notes)
    gpu_work = bool(run["gpu"] or run["kernels"])
    missing = {
        "no rank": not run["ranks"],
        "no steps": run.run.query("SELECT count(*) FROM steps").rows[0][0] == 0,
        "no collective": len(run["ranks"]) > 1 and not run["collectives"] and not run["steps"],
        "no device steps": gpu_work and not run["gpu_steps"],
        "no phases": not run["phase_ranks"],
    }
    if not table.rows and any(missing.values()) and NOT_LOOKED_FOR not in told:
        yield f"findings: nothing found, and nothing said of {[what for what, is_so in missing.items() if is_so]}"
    for row in run["findings"]:
        for share in re.findall(r"(\d+) ?% of the run", row["finding"]):
            if row["share"] is not None and abs(int(share) - 100 * row["share"]) > 0.51:
                yield f"findings: {row['finding']} beside a share of {row['share']}"
    if not table.rows and not any("Empty: " in note for note in table.notes):
        yield "findings: empty, and no word about it"


SAID = re.compile(r"\((\d+) %\)|(\d+) % of the steps")
WOULD_SAVE = re.compile(r"it would save ([\d.,]+) (s|ms|µs|ns) per step: ([^;]+)")
STEP = re.compile(r"of each ([\d.,]+) (s|ms|µs|ns) (?:unrecorded )?step")


@rule
def savings(run: Answers) -> Iterator[str]:
    """What a title says that a step loses is what could be saved of it, or the title says how much, and why."""
    fixed = {finding.rule for finding in findings_of(run.run.store(events=True)) if finding.fix is not None}
    for row in run["findings"]:
        if row["rule"] in fixed and row["steps_share"] is not None:
            wrong = unexplained(row["finding"], 100 * row["steps_share"])
            if wrong:
                yield f"findings: {wrong}, saves {100 * row['steps_share']:.1f} % of the steps: {row['finding']}"


def unexplained(title: str, saved: float) -> str:
    """Why the title of a finding and its saving, in % of the steps, do not go together."""
    said, would, step = SAID.search(title), WOULD_SAVE.search(title), STEP.search(title)
    if would and step and not near(100 * in_ns(*would.group(1, 2)) / in_ns(*step.groups()), saved):
        return "would save another share"
    share = float(said.group(1) or said.group(2)) if said else None
    if share is None or near(share, saved):
        return ""
    if would is None:
        return "another share, and no word why"
    is_why_more = would.group(3) in MORE.values()
    return "the reason given is for the other direction" if (saved > share) != is_why_more else ""


def near(share: float, other: float) -> bool:
    """In %, of figures in two digits: one may be of all steps of the slowest rank, the other of the steady steps."""
    return abs(share - other) <= 1 + 0.08 * share


@rule
def page(run: Answers) -> Iterator[str]:
    """The page shows the tables' own numbers, and its headlines are worked out from them."""
    store = run.run.store()
    called, boxes = run.run.kernel_names("short"), import_icicle(store)
    shown = page_of(store, "run", PageOptions(called=called, imports=boxes))
    for table in (shown.overview, shown.coverage):
        if table.rows != run.table(table.name).rows:
            yield f"page: its {table.name} is another one"
    yield from first_screen(run, shown)
    for section in shown.sections:
        for table in section.tables:
            if table.name in QUESTIONS:
                yield from differing(table, renamed(run.table(table.name), called))
        for chart in section.charts:
            if chart.title.startswith("Ranks that differ"):
                continue
            told = HEADLINES.get((section.name, chart.table), lambda run: [])(run)
            for number in told:
                if number not in chart.title:
                    yield f"page: {number} is not in {chart.title!r}"
        if section.name == "imports":
            yield from nested(rows_of(section.tables[0]))


def first_screen(run: Answers, shown: Page) -> Iterator[str]:
    """Findings, key figures and the curve of steps: each as its table has it."""
    found = {(row["rule"], row["saved_ns"]) for row in run["findings"]}
    for one in shown.screen.advice:
        if (one.rule, one.saved_ns) not in found:
            yield f"page: a finding that findings has not: {one.title}"
    yield from bars_in_bars(shown.screen.bars)
    figures = {one.label: one.value for one in shown.figures}
    rows = run["gpu_steps"] or run["step_parts"]
    if rows:
        step, exposed = (sum(row[name] or 0 for row in rows) / len(rows) for name in ("step_ns", "exposed_ns"))
        if not figures["Step"].startswith(seconds(step)):
            yield f"page: a step of {figures['Step']}, in the table {seconds(step)}"
        told = figures["Exposed communication"]
        stages = run["bubbles"] if not run["gpu_steps"] else []  # their idle time is none of it
        exposed -= min(exposed, sum(total(stages, name) for name in BUBBLE) / len(stages)) if stages else 0.0
        if told[0].isdigit() and told != f"{100 * exposed / step:.0f} %":
            yield f"page: exposed communication {told}, in the table {exposed / step:.3f}"
    tables = [table for section in shown.sections for table in section.tables if table.name == "step_times"]
    curve = [row for table in tables for row in rows_of(table)]
    spread = [row for row in run["steps"] if (row["rank"], row["name"]) == ("all", "step")]
    for row in spread if curve else []:
        ends = min(one["min_ns"] for one in curve), max(one["max_ns"] for one in curve)
        if (sum(one["values"] for one in curve), *ends) != (row["steps"], row["min_ns"], row["max_ns"]):
            yield f"page: step times of {ends}, in steps {row['min_ns']} to {row['max_ns']}"


def bars_in_bars(bars: Bars | None) -> Iterator[str]:
    """The bars below another are parts of it."""
    whole, parts = None, 0.0
    for bar in bars.bars if bars is not None else ():
        if bar.depth == 0:
            whole, parts = bar, 0.0
        elif whole is not None:
            parts += bar.share
            if parts > whole.share + 1e-6:
                yield f"page: {whole.label} is {whole.share:.3f} of {bars.title!r}, its parts {parts:.3f}"


def differing_stretches(shown: list[Row], told: list[Row]) -> Iterator[str]:
    """Of the same steps, with the same mean but for the median over ranks."""
    ends, means = [], []
    for rows in (shown, told):
        steps = [row["last"] - row["first"] + 1 for row in rows]
        ends.append((rows[0]["first"], rows[-1]["last"], sum(steps)))
        means.append(sum(row["mean_ns"] * count for row, count in zip(rows, steps, strict=True)) / sum(steps))
    if ends[0] != ends[1] or not same(*means, share=0.02):
        yield f"page: step_history of {ends[0]}, {means[0]} ns, in the table {ends[1]}, {means[1]} ns"


def differing(shown: Table, told: Table) -> Iterator[str]:
    """Rows of the page that the table has not, by the columns that both have."""
    if shown.name == "step_history" and len(shown.rows) > len(told.rows):  # in more and shorter stretches
        yield from differing_stretches(rows_of(shown), rows_of(told))
        return
    common = [one.name for one in told.columns if one.name in {column.name for column in shown.columns}]
    known = {tuple(row[name] for name in common) for row in rows_of(told)}
    for row in rows_of(shown):
        if tuple(row[name] for name in common) not in known:
            yield f"page: a row of {shown.name} that the table has not: {list(row.values())[:6]}"


def nested(boxes: list[Row]) -> Iterator[str]:
    """No box is longer than the one around it."""
    by_id = {row["id"]: row for row in boxes}
    for row in boxes:
        around = by_id.get(row["parent"])
        if around is not None and row["wall_ns"] > around["wall_ns"] * 1.001 + 1e6:
            yield f"page: {row['name']} {row['wall_ns']} inside {around['name']} {around['wall_ns']}"


def steps_headline(run: Answers) -> list[str]:
    return [seconds(total(run["step_parts"], "step_ns") / len(run["step_parts"]))]


def waiting_headline(run: Answers) -> list[str]:
    worst = max(run["waiting"], key=lambda row: row["caused_ns"] or 0)
    return [f"rank {worst['rank']}: {seconds(worst['caused_ns'])} summed", percent(worst["caused_share"])]


def collectives_headline(run: Answers) -> list[str]:
    """Beside that of the messages: how much of the blocking collectives is wait."""
    if not run["sizes"]:
        return []
    kinds = {row["kind"] for row in run["collectives"]}
    rows = [row for row in run["collectives"] if row["kind"] == ("call" if "call" in kinds else "progress")]
    stay = total(rows, *STAY)
    return [f"{percent(total(rows, 'wait_ns') / stay)} of the {seconds(stay)}"] if stay else []


def sizes_headline(run: Answers) -> list[str]:
    return [seconds(max(row["total_ns"] or 0 for row in run["sizes"]))]


def gpu_time_headline(run: Answers) -> list[str]:
    span = total(run["gpu_time"], "span_ns")
    return [f"idle {percent(total(run['gpu_time'], 'idle_ns') / span)}"] if span else []


def gpu_steps_headline(run: Answers) -> list[str]:
    return [seconds(total(run["gpu_steps"], "step_ns") / len(run["gpu_steps"]))]


HEADLINES: dict[tuple[str, str], Callable[[Answers], list[str]]] = {
    ("steps", "step_parts"): steps_headline,
    ("waiting", "wait_matrix"): waiting_headline,
    ("communication", "collectives"): collectives_headline,
    ("communication", "sizes"): sizes_headline,
    ("gpu_time", "gpu_time"): gpu_time_headline,
    ("gpu_steps", "gpu_steps"): gpu_steps_headline,
}
TIMES = re.compile(r"([\d.,]+) (s|ms|µs|ns) of (?:the|each) ([\d.,]+) (s|ms|µs|ns)")
IN_NS = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}


@rule
def sentences(run: Answers) -> Iterator[str]:
    """Every form can be made, and nowhere is "12.1 s of the 7.56 s"."""
    tables = run.run.answers(run.run.default_tables(), Selection())
    texts = [to_text(tables, WIDTH), *(made(tables) for made in FORMS.values()), page_text(run.run)]
    texts.append(to_screen(run.run.screen(), WIDTH))
    for text in texts:
        for part, part_unit, whole, whole_unit in TIMES.findall(text):
            if in_ns(part, part_unit) > in_ns(whole, whole_unit) * 1.01:
                yield f"{part} {part_unit} of {whole} {whole_unit}"
    for row in run["findings"]:
        for share in re.findall(r"(\d+) ?%", f"{row['finding']} {row['evidence']}"):
            if int(share) > 100:
                yield f"findings: {share} % in {row['finding']}"


def in_ns(number: str, unit: str) -> float:
    return float(number.replace(",", "").rstrip(".")) * IN_NS[unit]


def contradictions(folder: Path) -> list[str]:
    """All that contradicts itself in the answers about one run."""
    run = Answers(folder)
    if not run.run.query("SELECT count(*) FROM ranks").rows[0][0]:
        return []
    made = []
    for one in RULES:
        told = [f"{one.__name__}: {text}" for text in one(run)]
        made += told[:MOST_TOLD] + ([f"{one.__name__}: {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else [])
    return made


def main(folders: list[str]) -> int:
    found = 0
    for path in sorted(path.parent for folder in folders for path in Path(folder).rglob("run.json")):
        try:
            told = contradictions(path)
        except Exception as problem:
            told = [f"{type(problem).__name__}: {problem}"]
        found += len(told)
        for text in told:
            print(f"{path}: {text}", flush=True)
    print(f"{found} contradictions")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
