"""What does a run go through from its start to its end, and how long does each phase take?"""

from __future__ import annotations

from collections import Counter
from statistics import median

from rankscope.analyse.waterfall import SEGMENTS, Waterfall, waterfalls
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

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


def phases(tables: Tables, selection: Selection = ALL) -> Table:
    """The waterfall as a spread over the ranks, in the order of time."""
    chosen = chosen_of(tables, selection)
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


def chosen_of(tables: Tables, selection: Selection) -> list[Waterfall]:
    """The waterfalls of the selected ranks."""
    return [one for one in waterfalls(tables) if selection.ranks is None or one.rank in selection.ranks]
