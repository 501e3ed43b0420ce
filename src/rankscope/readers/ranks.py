"""Which rank a file speaks of, where it does not say so itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankscope.formats.source import Source
from rankscope.model import Note, RankFacts, Severity

IN_NAME = re.compile(r"(?<![a-z])rank[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)


def settle_ranks(source: Source, processes: Sequence[RankFacts]) -> list[Note]:
    """Give a file's only process the rank that the user said or, as the last resort, the file's name."""
    ranks = [facts for facts in processes if facts.role == "rank"]
    if source.hints.rank is not None:
        return _as_told(source, ranks, source.hints.rank)
    named = IN_NAME.findall(source.path.name)
    if len(ranks) != 1 or ranks[0].rank is not None or not named:
        return []
    ranks[0].rank, ranks[0].rank_source = int(named[-1]), "file name"
    return [Note(f"rank {ranks[0].rank} is taken from the file's name: the file does not say it", where=str(source))]


def _as_told(source: Source, ranks: Sequence[RankFacts], told: int) -> list[Note]:
    own = [facts.rank for facts in ranks if facts.rank is not None]
    if len(ranks) == 1 and not own:
        ranks[0].rank, ranks[0].rank_source = told, "--rank"
    elif own and own != [told]:
        text = f"--rank {told} was not used: the file itself says rank {own[0]}"
        return [Note(text, Severity.WARNING, str(source))]
    elif len(ranks) > 1:
        text = f"--rank {told} was not used: the file speaks of {len(ranks)} processes"
        return [Note(text, Severity.WARNING, str(source))]
    return []
