"""What matters most in this run, and what to do about it?"""

from __future__ import annotations

from collections.abc import Callable

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.findings.communication import (
    data_parallel,
    exposed_communication,
    pickled_objects,
    tiny_collectives,
)
from rankscope.questions.findings.finding import Finding
from rankscope.questions.findings.gpu import (
    gpu_active_window,
    gpu_communication,
    gpu_copies_alone,
    gpu_idle_causes,
    gpu_sums,
)
from rankscope.questions.findings.pipelines import pipeline_bubble, slow_pipeline_part, uneven_micro_batches
from rankscope.questions.findings.savings import replayed_savings
from rankscope.questions.findings.startup import (
    failed_ranks,
    first_collective,
    incomplete_coverage,
    slow_start,
    wrong_launcher,
)
from rankscope.questions.findings.steps import checkpointing, compiling, data_bound, gc_bound, stalled
from rankscope.questions.findings.stragglers import has_run_delay, host_imbalance, oversubscribed, straggler
from rankscope.questions.gpu.activities import ANY_WORK
from rankscope.questions.gpu.steps import device_steps_of
from rankscope.questions.run.overview import run_elapsed_ns
from rankscope.questions.selection import ALL, Selection
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.phases import waterfalls

MOST = 7
LONG_NS = 3.6e12  # a trial of some minutes is to tell about a job of an hour or more: its start counts for that
RULES: tuple[Callable[[Tables], list[Finding]], ...] = (
    wrong_launcher,
    incomplete_coverage,
    failed_ranks,
    straggler,
    host_imbalance,
    slow_pipeline_part,
    pipeline_bubble,
    uneven_micro_batches,
    exposed_communication,
    gpu_communication,
    gpu_idle_causes,
    gpu_copies_alone,
    gpu_active_window,
    gpu_sums,
    data_bound,
    gc_bound,
    checkpointing,
    compiling,
    stalled,
    tiny_collectives,
    pickled_objects,
    slow_start,
    first_collective,
    data_parallel,
    oversubscribed,
)
COLUMNS = (
    Column("number", Unit.NAME, "#", "place: first what makes other numbers doubtful (no saving), then by `saved_ns`"),
    Column("finding", Unit.NAME, "Finding", "what was found, with ranks and numbers"),
    Column(
        "saved_ns",
        Unit.NS,
        "Could save",
        "elapsed time of the job that could be saved at most if only this were fixed; savings of several findings "
        "overlap. Where the run can be replayed: `saved_ns` of `rankscope whatif` × its steps, of the rules that "
        "[have a what-if](findings.md)",
    ),
    Column(
        "share",
        Unit.SHARE,
        "% of the run",
        "`saved_ns` ÷ elapsed time of the run, or of its longest process; at most 1",
    ),
    Column(
        "steps_share",
        Unit.SHARE,
        "% of the steps",
        "`saved_ns` ÷ (mean steady step × steps), of the rank whose steps take longest: what a longer job would save, "
        "too; at most 1, empty where nothing is saved in steps",
    ),
    Column("action", Unit.NAME, "What to do", "what to do next"),
    Column("evidence", Unit.NAME, "Evidence", "the tables that say so, and what their rows say"),
    Column("rule", Unit.NAME, "Rule"),
)


def findings_of(tables: Tables) -> list[Finding]:
    """All that the rules say: doubts about the numbers first, then by the share of a long run that could be saved."""
    elapsed = run_elapsed_ns(tables) or 1

    def share(finding: Finding) -> float:
        return (finding.saved_ns or 0.0) / (max(elapsed, LONG_NS) if finding.once else elapsed)

    all_findings = [finding for rule in RULES for finding in rule(tables)]
    replayed_savings(tables, all_findings)
    return sorted(all_findings, key=lambda finding: (finding.saved_ns is not None, -share(finding)))


RANKS = "SELECT count(*) FROM ranks WHERE role = 'rank'"


def not_looked_for(tables: Tables) -> list[str]:
    """What no rule could look for, and why: that nothing was found says nothing about it."""
    ranks, steps = tables.query(RANKS)[0][0], steps_of(tables)
    if not ranks:
        return ["Not checked: anything, because there are no ranks."]
    notes = []
    if steps.source == "traced":
        notes += _not_in_traces(tables)
    elif steps.source != "recorded":
        notes.append(
            "Not checked: slow data loading, garbage collection, checkpoints and compilation. No training loop "
            "reported its steps (torch, or rankscope.step(); of a loaded trace ProfilerStep#, ranges or kernels "
            "that repeat)."
        )
    if not has_run_delay(tables):
        notes.append("Not checked: ranks waiting for a CPU. The system did not report it.")
    if not steps.ranks:
        notes.append("Not checked: single steps that take much longer. There are no steps.")
    if ranks > 1 and not steps.ranks and not collectives_of(tables).splits:
        notes.append(
            "Not checked: late ranks, exposed communication, tiny collectives. No collective is in the logs of all "
            "its ranks, and there are no steps."
        )
    if tables.query(ANY_WORK) and not device_steps_of(tables):
        notes.append(
            "Not checked in each step: exposed communication, slow launching, synchronising and copies on the GPUs. "
            "No step is known on their clock (recorded training loops and traces with steps have them)."
        )
    if not waterfalls(tables):
        notes.append("Not checked: a slow start. No rank left marks of its phases.")
    return notes


PARTS_TOLD = """
    SELECT coalesce(sum(data_ns), 0), coalesce(sum(zero_grad_ns + forward_ns + backward_ns + optimizer_ns), 0)
    FROM steps JOIN ranks USING (process) WHERE role = 'rank' AND steps_from <> ''"""
ON_HOST = """SELECT 1 FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND steps_from <> '' AND layer = 'gloo' LIMIT 1"""


def _not_in_traces(tables: Tables) -> list[str]:
    notes = [
        "Not checked: garbage collection and checkpoints that no range names. A loaded trace does not contain them."
    ]
    data_ns, others_ns = tables.query(PARTS_TOLD)[0]
    if not data_ns and not others_ns:
        notes.append("Not checked: what the host does in a step. No range in the trace names its parts.")
    elif not data_ns:
        notes.append("Not checked: slow data loading. No range in the trace is a data loader's.")
    if tables.query(ON_HOST):
        notes.append(
            "Not checked: exposed communication of Gloo. The trace says how long a collective took, not how long "
            "the loop waited for it."
        )
    return notes


def _steps_ns(tables: Tables) -> float:
    """All steps of the rank whose steps take longest, as if each were a steady one."""
    steps = steps_of(tables)
    lengths = (rank.length_ns[steps.steady(rank)] for rank in steps.ranks)
    return max((float(steady.mean()) for steady in lengths if len(steady)), default=0.0) * steps.all_steps()


def findings(tables: Tables, selection: Selection = ALL) -> Table:
    """At most seven; --rank, --top and --sort do not change what is found."""
    elapsed, steps_ns = run_elapsed_ns(tables), _steps_ns(tables)
    all_findings = findings_of(tables)
    table = Table("findings", "Findings", COLUMNS, [], vertical=True)
    for number, finding in enumerate(all_findings[:MOST], 1):
        share = min(1.0, finding.saved_ns / elapsed) if finding.saved_ns is not None and elapsed else None
        of_steps = min(1.0, finding.saved_ns / steps_ns) if finding.saved_ns is not None and steps_ns else None
        of_steps = of_steps if finding.in_steps and not finding.once else None
        evidence = "; ".join(finding.evidence)
        table.rows.append(
            (number, finding.title, finding.saved_ns, share, of_steps, finding.action, evidence, finding.rule)
        )
    if len(all_findings) > MOST:
        table.notes.append(f"{len(all_findings) - MOST} smaller findings are left out.")
    table.notes += not_looked_for(tables)
    return table
