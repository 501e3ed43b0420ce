"""What makes the imports expensive, and what to do about it?"""

from __future__ import annotations

from collections.abc import Callable

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.imports.offenders.lookups import listing_storm, loader_search, realpath_storm, useless_search
from rankscope.questions.imports.offenders.modules import (
    dominant_module,
    metadata_scan,
    missing_bytecode,
    started_programs,
)
from rankscope.questions.imports.offenders.offender import Offender
from rankscope.questions.imports.search import Origins
from rankscope.questions.selection import ALL, Selection

RULES: tuple[Callable[[Tables], list[Offender]], ...] = (
    realpath_storm,
    useless_search,
    missing_bytecode,
    listing_storm,
    started_programs,
    metadata_scan,
    dominant_module,
)
NOTICEABLE = 0.01  # of all calls
TAKES_TIME = ("missing_bytecode", "started_programs", "dominant_module")  # rather than calls
COLUMNS = (
    Column("number", Unit.NAME, "#", "place, by `calls`"),
    Column("offender", Unit.NAME, "What costs"),
    Column("calls", Unit.COUNT, "Calls attributed", "calls attributed to this cause; causes overlap"),
    Column("share", Unit.SHARE, "% of all", "`calls` ÷ all calls"),
    Column("action", Unit.NAME, "What to do", "what to do next"),
    Column("without", Unit.NAME, "Measure: --without", "the `--without` that measures the saving"),
    Column("evidence", Unit.NAME, "Evidence", "the tables that prove it"),
    Column("rule", Unit.NAME, "Rule", "which rule said so"),
)


def offenders_of(tables: Tables, origins: Origins | None = None) -> list[Offender]:
    """What the rules say, the most calls first; what cures nothing is left out."""
    total = all_calls(tables)
    offenders = loader_search(tables, origins) + [offender for rule in RULES for offender in rule(tables)]
    worth = [offender for offender in offenders if offender.calls >= NOTICEABLE * total or offender.rule in TAKES_TIME]
    return sorted(worth, key=lambda offender: -offender.calls)


def all_calls(tables: Tables) -> int:
    return int(tables.query("SELECT coalesce(sum(calls), 0)::BIGINT FROM system_calls")[0][0])


def import_offenders(tables: Tables, selection: Selection = ALL, origins: Origins | None = None) -> Table:
    """Attributed, not saved: without one cause another may make the same calls; --without measures the saving."""
    total = all_calls(tables)
    table = Table("import_offenders", "What makes the imports expensive", COLUMNS, [], vertical=True)
    for number, offender in enumerate(offenders_of(tables, origins), 1):
        share = offender.calls / total if total else None
        table.rows.append(
            (
                number,
                offender.title,
                offender.calls or None,
                share,
                offender.action,
                offender.without,
                "; ".join(offender.evidence),
                offender.rule,
            )
        )
    if table.rows:
        table.notes.append(
            "Attributed is not saved: another module may make the same calls. --without measures the saving."
        )
    return table
