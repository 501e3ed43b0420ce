"""How large are the messages of each routine, and what does each size cost?"""

from __future__ import annotations

from typing import Any

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

# ---------------------------------------------------------------- who sends how much to whom?
MATRIX_COLUMNS = (
    Column("rank", Unit.NAME, "From", "sender"),
    Column("to_rank", Unit.NAME, "To", "destination, as rank in MPI_COMM_WORLD"),
    Column("calls", Unit.COUNT, "Messages", "number of point-to-point messages"),
    Column("bytes", Unit.BYTES, "Bytes", "sum of the bytes of these messages"),
    Column("mean_bytes", Unit.BYTES, "Bytes/message", "`bytes` ÷ `calls`"),
)
MATRIX_SQL = """
    SELECT rank, world_rank, sum(calls)::BIGINT, sum(bytes)::BIGINT, sum(bytes) / sum(calls)
    FROM peers JOIN ranks USING (process) WHERE {condition} GROUP BY rank, world_rank ORDER BY 4 DESC, 1, 2"""


def matrix(tables: Tables, selection: Selection = ALL) -> Table:
    """Point-to-point messages and bytes by sender and receiver; empty unless recorded with --matrix."""
    rows = tables.query(MATRIX_SQL.format(condition=selection.condition))
    return arranged(Table("matrix", "Sent to", MATRIX_COLUMNS, rows), selection)


# ---------------------------------------------------------------- messages
MESSAGES_COLUMNS = (
    Column("name", Unit.NAME, "Routine", "routine, if it carries bytes on any selected rank"),
    Column(
        "above_bytes",
        Unit.BYTES,
        "Size above",
        "lower edge of the size class, not in it; empty for the class of 0 bytes",
    ),
    Column("up_to_bytes", Unit.BYTES, "Size up to", "upper edge of the size class, in it"),
    Column("calls", Unit.COUNT, "Calls", "calls (or completions, for `kind` = progress) of that class"),
    Column("bytes", Unit.BYTES, "Bytes", "sum of the bytes of these calls"),
    Column("mean_bytes", Unit.BYTES, "Bytes/call", "`bytes` ÷ `calls`"),
    Column("total_ns", Unit.NS, "Time", "sum of the time of these calls, as `kind` says"),
    Column("mean_ns", Unit.NS, "Mean", "`total_ns` ÷ `calls`"),
    Column(
        "kind",
        Unit.NAME,
        "Timing",
        "call: time inside the call; progress: time until completion, for routines whose sizes are known only then",
    ),
)
SMALL_CLASS = 4  # up to 8 bytes
MATTERS = 0.1  # of the time of all sized calls
MOST = 0.5  # of the routine's time
# A routine's sizes are those of its calls; where these carry no bytes, those known at completion.
MESSAGES_SQL = """
    WITH sized AS (
        SELECT name, kind, size_class,
            sum(calls)::BIGINT AS calls, sum(bytes)::BIGINT AS bytes, sum(total_ns) AS total_ns
        FROM tallies JOIN ranks USING (process)
        WHERE layer = 'mpi' AND size_class IS NOT NULL AND {condition} GROUP BY name, kind, size_class),
    carrying AS (SELECT name, CASE WHEN bool_or(kind = 'call') THEN 'call' ELSE 'progress' END AS kind
                 FROM sized WHERE bytes > 0 GROUP BY name)
    SELECT name, size_class, calls, bytes, total_ns, kind FROM sized JOIN carrying USING (name, kind)
    ORDER BY sum(total_ns) OVER (PARTITION BY name) DESC, name, size_class"""


def sizes(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls, bytes and time of every routine that carries bytes, by size class; the costliest routine first."""
    queried = tables.query(MESSAGES_SQL.format(condition=selection.condition))
    rows = [_row(*row) for row in queried]
    table = Table("sizes", "Message sizes", MESSAGES_COLUMNS, rows)
    if any(row[8] == "progress" for row in rows):
        table.notes.append("progress: sizes of nonblocking receives are known at completion; their time is until then.")
    table.notes += _small_messages(queried)
    return arranged(table, selection)


def _small_messages(rows_queried: list[tuple[Any, ...]]) -> list[str]:
    """Routines whose time goes into messages too small to be data, where they matter."""
    all_ns = sum(row[4] for row in rows_queried) or 1.0
    notes = []
    for name in dict.fromkeys(row[0] for row in rows_queried):
        rows = [row for row in rows_queried if row[0] == name]
        total_ns, calls = sum(row[4] for row in rows), sum(row[2] for row in rows)
        small = [row for row in rows if 0 < row[1] <= SMALL_CLASS]
        small_ns, small_calls = sum(row[4] for row in small), sum(row[2] for row in small)
        if total_ns >= MATTERS * all_ns and small_ns >= MOST * total_ns:
            text = f"{name}: messages of at most 8 bytes are {100 * small_ns / total_ns:.0f} % of its time and"
            remark = ": its data, if any, move where MPI does not see them" if small_calls == calls else ""
            notes.append(f"{text} {100 * small_calls / calls:.0f} % of its calls (agreement, not data){remark}.")
    return notes


def _row(name: str, size_class: int, calls: int, size: int, total_ns: float, kind: str) -> tuple[Cell, ...]:
    above, up_to = edges(size_class)
    mean_bytes = size / calls if calls and size is not None else None
    mean_ns = total_ns / calls if calls and total_ns is not None else None
    return name, above, up_to, calls, size, mean_bytes, total_ns, mean_ns, kind


def edges(size_class: int) -> tuple[int | None, int]:
    """The sizes of a class: above the first (None for the class of no bytes), up to and with the second."""
    if size_class < 2:
        return (None, 0) if size_class == 0 else (0, 1)
    return 2 ** (size_class - 2), 2 ** (size_class - 1)
