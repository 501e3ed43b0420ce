"""Which system calls do the imports make?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.imports.trees import chosen
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("call", Unit.NAME, "Call"),
    Column("share", Unit.SHARE, "Of the time"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("failed", Unit.COUNT, "Failed"),
    Column("missing", Unit.COUNT, "Missing"),
    Column("bytes", Unit.BYTES, "Returned"),
    Column("strace_calls", Unit.COUNT, "strace"),
)
SQL = """
    WITH seen AS (
        SELECT call, sum(calls)::BIGINT AS calls, sum(total_ns)::BIGINT AS total_ns, sum(failed)::BIGINT AS failed,
            sum(missing)::BIGINT AS missing, sum(bytes)::BIGINT AS bytes
        FROM system_calls JOIN ranks USING (process) WHERE {condition} GROUP BY call),
    told AS (
        SELECT name AS call, sum(calls)::BIGINT AS strace FROM tallies
        WHERE layer = 'calls' AND kind = 'call' GROUP BY name)
    SELECT coalesce(seen.call, told.call), calls, total_ns, failed, missing, bytes, strace
    FROM seen FULL JOIN told USING (call) ORDER BY coalesce(calls, strace) DESC, 1"""


def import_calls(tables: Tables, selection: Selection = ALL) -> Table:
    """One line for each system call; beside it what a loaded `strace -c` of the same command says."""
    found = tables.query(SQL.format(condition=chosen(selection)))
    total = sum(row[2] or 0 for row in found)
    table = Table("import_calls", "System calls", COLUMNS, [])
    for call, calls, total_ns, failed, missing, size, strace in found:
        share = total_ns / total if total and total_ns is not None else None
        mean = total_ns / calls if calls and total_ns is not None else None
        table.rows.append((call, share, calls, total_ns, mean, failed, missing, size, strace))
    strace_total = sum(row[6] or 0 for row in found)
    if strace_total and any(row[1] for row in found):
        seen = sum(row[1] or 0 for row in found)
        table.notes.append(f"{seen:,} calls here, {strace_total:,} in the loaded strace: {seen / strace_total:.1%}.")
    return arranged(table, selection)
