"""What matters most in this run, and what to do about it?"""

from __future__ import annotations

from collections.abc import Callable

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.findings.communication import (
    data_parallel,
    exposed_communication,
    pickled_objects,
    tiny_collectives,
)
from rankscope.questions.findings.finding import Finding
from rankscope.questions.findings.startup import first_collective, incomplete_coverage, slow_start, wrong_launcher
from rankscope.questions.findings.stragglers import host_imbalance, oversubscribed, straggler
from rankscope.questions.selection import ALL, Selection

MOST = 7
RULES: tuple[Callable[[Tables], list[Finding]], ...] = (
    wrong_launcher,
    incomplete_coverage,
    straggler,
    host_imbalance,
    exposed_communication,
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
        "elapsed time of the job that could be saved at most if only this were cured; savings of several findings "
        "overlap",
    ),
    Column("share", Unit.SHARE, "Of the run", "`saved_ns` ÷ the longest `elapsed_ns` of a rank, at most 1"),
    Column("action", Unit.NAME, "What to do", "what to do next"),
    Column("evidence", Unit.NAME, "Evidence", "the tables that say so, and what their rows say"),
    Column("rule", Unit.NAME, "Rule"),
)


def findings_of(tables: Tables) -> list[Finding]:
    """All that the rules say: doubts about the numbers first, then by the time that could be saved."""
    found = [one for rule in RULES for one in rule(tables)]
    return sorted(found, key=lambda one: (one.saved_ns is not None, -(one.saved_ns or 0.0)))


def findings(tables: Tables, selection: Selection = ALL) -> Table:
    """At most seven; --rank, --top and --sort do not change what is found."""
    elapsed = tables.query("SELECT max(elapsed_ns) FROM ranks WHERE role = 'rank'")[0][0]
    found = findings_of(tables)
    table = Table("findings", "Findings", COLUMNS, [], vertical=True)
    for number, one in enumerate(found[:MOST], 1):
        share = min(1.0, one.saved_ns / elapsed) if one.saved_ns is not None and elapsed else None
        table.rows.append((number, one.title, one.saved_ns, share, one.action, "; ".join(one.evidence), one.rule))
    if len(found) > MOST:
        table.notes.append(f"{len(found) - MOST} smaller ones are left out.")
    return table
