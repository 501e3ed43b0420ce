"""What was counted in the layers that have no table of their own?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

# layers with tables of their own, which leave out what is within a range
ELSEWHERE = ("mpi", "gpu", "cuda_api", "nccl_algo")
COLUMNS = (
    Column("layer", Unit.NAME, "Layer"),
    Column("group", Unit.NAME, "Group"),
    Column("within", Unit.NAME, "Within"),
    Column("name", Unit.NAME, "Name"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("share", Unit.SHARE, "Of layer"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("errors", Unit.COUNT, "Errors"),
    Column("ranks", Unit.COUNT, "Ranks"),
)
# What is attributed to a range is counted once more there: it is no part of the layer's sum.
SQL = """
    WITH summed AS (
        SELECT layer, "group", replace(coalesce(within, ''), chr(31), ' > ') AS within, name,
            sum(calls)::BIGINT AS calls, fsum(total_ns) AS total_ns, min(min_ns) AS min_ns,
            max(max_ns) AS max_ns, sum(bytes)::BIGINT AS bytes, sum(errors)::BIGINT AS errors,
            count(DISTINCT process) AS ranks
        FROM tallies JOIN ranks USING (process)
        WHERE (layer NOT IN ({elsewhere}) OR within <> '') AND (layer <> 'nvtx' OR coalesce(within, '') = '')
            AND kind = 'call' AND {condition} GROUP BY ALL),
    layers AS (SELECT layer, fsum(total_ns) AS layer_ns FROM summed WHERE within = '' GROUP BY layer)
    SELECT layer, "group", within, name, calls, total_ns,
        CASE WHEN within = '' THEN total_ns / nullif(layer_ns, 0) END, total_ns / nullif(calls, 0), min_ns, max_ns,
        bytes, errors, ranks
    FROM summed LEFT JOIN layers USING (layer)
    ORDER BY layer, within, total_ns DESC, calls DESC, name, "group\""""


def tallies(tables: Tables, selection: Selection = ALL) -> Table:
    """Calls, time and bytes of everything counted, layer by layer, the costliest first."""
    elsewhere = ", ".join(f"'{layer}'" for layer in ELSEWHERE)
    rows = tables.query(SQL.format(elsewhere=elsewhere, condition=selection.condition))
    table = Table("tallies", "Counted in other layers", COLUMNS, rows)
    if any(row[2] for row in rows):
        table.notes.append("Within: attributed to that range, and counted in the lines without a range as well.")
    return arranged(table, selection)
