"""Does what one rank was told of the others agree with their own files?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.mpi.calls import COMM_SQL
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ranges

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("what", Unit.NAME, "What"),
    Column("own", Unit.NUMBER, "Own file"),
    Column("told", Unit.NUMBER, "Summary"),
    Column("unit", Unit.NAME, "Unit"),
)
# Tables of all ranks are printed with two decimals, the ranks' own lines with three.
SECONDS, MIB = 1e9, 2.0**20
SLACK = 0.0056
SQL = f"""
    WITH comm AS ({COMM_SQL}),
    facts AS (SELECT *, coalesce(comm_ns, 0) AS comm FROM ranks LEFT JOIN comm USING (process))
    SELECT own.rank, own.comm, told.comm, own.mpi_elapsed_ns, told.mpi_elapsed_ns, own.user_ns, told.user_ns,
        own.system_ns, told.system_ns, own.max_rss_bytes, told.max_rss_bytes
    FROM facts own JOIN facts told USING (rank)
    WHERE own.role = 'rank' AND told.role = 'summary' ORDER BY own.rank"""
WHAT = (("MPI time", "s"), ("elapsed", "s"), ("user", "s"), ("system", "s"), ("memory", "MiB"))


def second_hand(tables: Tables, selection: Selection = ALL) -> Table:
    """Every number that differs by more than rounding; no rows where all agree."""
    table = Table("second_hand", "Summary against the ranks' own files", COLUMNS, [])
    found = tables.query(SQL)
    for rank, *numbers in found:
        for (what, unit), own, told in zip(WHAT, numbers[::2], numbers[1::2], strict=True):
            scale = SECONDS if unit == "s" else MIB
            if own is not None and told is not None and abs(own - told) > SLACK * scale:
                table.rows.append((rank, what, own / scale, told / scale, unit))
    if table.rows:
        ranks = sorted({int(row[0] or 0) for row in table.rows})
        text = f"{len(ranks)} of {len(found)} ranks have other numbers in their own file than in the summary of all"
        table.warnings.append(f"{text} ({ranges(ranks)}): files of different runs?")
    return arranged(table, selection)
