"""How much of each rank's GPU time is computing, communicating, copying?"""

from __future__ import annotations

from rankscope.model import Column, Table, Tables, Unit
from rankscope.questions.gpu.kernels import COMMUNICATES, ONCE, WHOLES
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("gpu_ns", Unit.NS, "GPU time"),
    Column("compute_ns", Unit.NS, "Computing"),
    Column("communication_ns", Unit.NS, "Communicating"),
    Column("communication_share", Unit.SHARE, "Of GPU time"),
    Column("copy_ns", Unit.NS, "Copies, sets"),
    Column("unlisted_ns", Unit.NS, "Not listed"),
    Column("api_ns", Unit.NS, "CUDA calls"),
)
COPIES = "regexp_matches(name, '(?i)^\\[?(CUDA |HIP )?mem(cpy|set|ory)')"
BY_RANK = f"""
    WITH wholes AS ({WHOLES}),
    sums AS (
        SELECT process, coalesce(sum(total_ns) FILTER (layer = 'gpu'), 0) AS gpu_ns,
            coalesce(sum(total_ns) FILTER (layer = 'gpu' AND {COMMUNICATES}), 0) AS communication_ns,
            coalesce(sum(total_ns) FILTER (layer = 'gpu' AND {COPIES}), 0) AS copy_ns,
            sum(total_ns) FILTER (layer = 'cuda_api') AS api_ns
        FROM tallies WHERE layer IN ('gpu', 'cuda_api') AND {ONCE} GROUP BY process)
    SELECT rank, host, gpu_ns, communication_ns, copy_ns, api_ns, coalesce(whole_ns, 0)
    FROM sums JOIN ranks USING (process) LEFT JOIN wholes USING (process) WHERE {{condition}} ORDER BY rank"""


def gpu_ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """The GPU time of each rank: computing, communicating (waiting included), copying."""
    table = Table("gpu_ranks", "GPU time by rank", COLUMNS, [])
    for row in tables.query(BY_RANK.format(condition=selection.condition), ("gpu",)):
        rank, host, listed_ns, communication_ns, copy_ns, api_ns, whole_ns = row
        gpu_ns = max(listed_ns, whole_ns)
        unlisted_ns = gpu_ns - listed_ns if gpu_ns > 1.005 * listed_ns else None
        share = communication_ns / gpu_ns if gpu_ns else None
        compute_ns = listed_ns - communication_ns - copy_ns
        table.rows.append((rank, host, gpu_ns, compute_ns, communication_ns, share, copy_ns, unlisted_ns, api_ns))
    if any(row[4] for row in table.rows):
        table.notes.append("Communicating: kernels of collectives; they spin while they wait, so waiting is in it.")
    return arranged(table, selection)
