"""What does a run go through from its start to its end, how long does each phase take, and what happens in it?"""

from __future__ import annotations

from collections import Counter
from statistics import median

from rankscope.analyse.selection import ALL, Selection, arranged
from rankscope.analyse.waterfall import SEGMENTS, Waterfall, waterfalls
from rankscope.model import PHASES, Cell, Column, Table, Tables, Unit

COLUMNS = (
    Column("phase", Unit.NAME, "Phase"),
    Column("what", Unit.NAME, "What"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("share", Unit.SHARE, "Of elapsed"),
    Column("min_ns", Unit.NS, "Min"),
    Column("median_ns", Unit.NS, "Median"),
    Column("max_ns", Unit.NS, "Max"),
    Column("longest_rank", Unit.NAME, "Longest on"),
    Column("longest_host", Unit.NAME, "Host"),
)
RANK_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("elapsed_ns", Unit.NS, "Elapsed"),
    *(Column(f"{name.replace(' ', '_')}_ns", Unit.NS, name.capitalize()) for name in SEGMENTS),
)
CALL_COLUMNS = (
    Column("phase", Unit.NAME, "Phase"),
    Column("layer", Unit.NAME, "Layer"),
    Column("name", Unit.NAME, "Name"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("total_ns", Unit.NS, "Time"),
    Column("phase_share", Unit.SHARE, "Of its phase"),
    Column("mean_ns", Unit.NS, "Mean"),
    Column("max_ns", Unit.NS, "Max"),
    Column("bytes", Unit.BYTES, "Bytes"),
    Column("ranks", Unit.COUNT, "Ranks"),
)


def phases(tables: Tables, selection: Selection = ALL) -> Table:
    """The waterfall as a spread over the ranks, in the order of time."""
    chosen = _chosen(tables, selection)
    elapsed = sum(one.elapsed_ns for one in chosen)
    table = Table("phases", "Phases", COLUMNS, [])
    for name in SEGMENTS:
        having = [(one.segments[name], one) for one in chosen if one.segments.get(name)]
        if having:
            table.rows.append(_row(name, having, elapsed))
    return arranged(table, selection)


def _row(name: str, having: list[tuple[int, Waterfall]], elapsed: int) -> tuple[Cell, ...]:
    lengths = [length for length, _ in having]
    longest = max(having, key=lambda pair: pair[0])[1]
    told = Counter(one.names.get(name, "") for _, one in having).most_common(1)[0][0]
    share = sum(lengths) / elapsed if elapsed else None
    return (
        *(name, told, len(having), share),
        *(min(lengths), median(lengths), max(lengths)),
        *(longest.rank, longest.host),
    )


def phase_ranks(tables: Tables, selection: Selection = ALL) -> Table:
    """The waterfall rank by rank: the phases add up to the elapsed time."""
    table = Table("phase_ranks", "Phases by rank", RANK_COLUMNS, [])
    for one in _chosen(tables, selection):
        table.rows.append((one.rank, one.elapsed_ns, *(one.segments.get(name) for name in SEGMENTS)))
    return arranged(table, selection)


def _chosen(tables: Tables, selection: Selection) -> list[Waterfall]:
    return [one for one in waterfalls(tables) if selection.ranks is None or one.rank in selection.ranks]


def phase_calls(tables: Tables, selection: Selection = ALL) -> Table:
    """What each phase spent in which call, most time first within a phase."""
    sql = f"""
        SELECT phase, layer, name, sum(calls)::BIGINT, sum(total_ns), sum(total_ns) / sum(sum(total_ns)) OVER
            (PARTITION BY phase, layer), sum(total_ns) / nullif(sum(calls), 0), max(max_ns), sum(bytes)::BIGINT,
            count(DISTINCT process)
        FROM tallies JOIN ranks USING (process)
        WHERE {selection.condition} AND tallies.phase <> '' AND kind = 'call' AND within = ''
            AND layer IN ('mpi', 'gloo', 'nccl', 'torch', 'cuda_api') AND ranks.tool = ''
        GROUP BY phase, layer, name"""
    order = {name: at for at, name in enumerate(PHASES)}
    found = sorted(
        tables.query(sql.replace("phase,", "tallies.phase,")), key=lambda row: (order.get(row[0], 99), -row[4])
    )
    return arranged(Table("phase_calls", "Calls by phase", CALL_COLUMNS, found), selection)
