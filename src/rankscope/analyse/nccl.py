"""Which NCCL operations ran, by which algorithm and protocol, and how long did they take on the device?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("name", Unit.NAME, "Operation"),
    Column("algorithm", Unit.NAME, "Algorithm"),
    Column("group", Unit.NAME, "Communicator"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("device_ns", Unit.NS, "On device"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("rate", Unit.RATE, "Rate"),
    Column("ranks", Unit.COUNT, "Ranks"),
)
UNTOLD = "{} of {} operations: when they ran on the device was not told (an NCCL before 2.26, or RANKSCOPE_NCCL=calls)."
SQL = """
    WITH summed AS (
        SELECT split_part(name, ' ', 1) AS operation, name, "group", sum(calls)::BIGINT AS calls,
            sum(bytes)::BIGINT AS bytes, sum(total_ns) FILTER (kind = 'progress') AS device_ns,
            sum(calls) FILTER (kind = 'progress') AS timed, sum(bytes) FILTER (kind = 'progress') AS timed_bytes,
            min(min_ns) FILTER (kind = 'progress') AS min_ns, max(max_ns) FILTER (kind = 'progress') AS max_ns,
            count(DISTINCT process) AS ranks
        FROM tallies JOIN ranks USING (process) WHERE layer = 'nccl_algo' AND {condition} GROUP BY ALL)
    SELECT operation, trim(substr(name, length(operation) + 1)), "group", calls, bytes, device_ns, device_ns / timed,
        min_ns, max_ns, timed_bytes / nullif(device_ns, 0) * 1e9, ranks, coalesce(timed, 0)
    FROM summed ORDER BY device_ns DESC NULLS LAST, calls DESC, name, "group\""""


def nccl(tables: Tables, selection: Selection = ALL) -> Table:
    """Operations by algorithm, protocol and communicator, the longest on the device first."""
    found = tables.query(SQL.format(condition=selection.condition))
    table = Table("nccl", "NCCL operations", COLUMNS, [tuple(row[:-1]) for row in found])
    calls, timed = sum(row[3] for row in found), sum(int(row[-1]) for row in found)
    if calls > timed:
        table.notes.append(UNTOLD.format(calls - timed, calls))
    return arranged(table, selection)
