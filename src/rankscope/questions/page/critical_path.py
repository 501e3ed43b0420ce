"""Which rank, and what on it, does each step hang on: a line of the timeline, and the shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rankscope.model.tables import Table, Tables
from rankscope.pictures import Blocks, Line
from rankscope.questions.findings.savings import replayed_model
from rankscope.questions.whatif.whatif import OnPath, critical_path, path_in_time

LINE = Line("critical path", "path", "what the step depends on")
MOST_PIECES = 10_000  # of a timeline's blocks; of more only those of the chosen steps are drawn
SHOWN = 3  # in words

Array = Any  # of numpy


def path_table(tables: Tables) -> Table | None:
    """Which rank and part for which share of the path; None where the run cannot be replayed, or has one rank."""
    model = replayed_model(tables)
    if model is None or len(model.ranks) < 2:
        return None
    return critical_path(model)


def path_note(table: Table) -> str:
    """The largest shares in a sentence."""
    names = [column.name for column in table.columns]
    rank, part, share = (names.index(name) for name in ("rank", "part", "path_share"))
    shown = [f"rank {row[rank]} {row[part]} {100 * float(str(row[share])):.0f} %" for row in table.rows[:SHOWN]]
    return f"Critical path of the steps: {', '.join(shown)}. Only what is on this line can make a step shorter."


def path_blocks(
    tables: Tables, begin_ns: int, stretches: Sequence[tuple[int, int]], name_of: Callable[[str, str], int]
) -> Blocks | None:
    """The path as blocks of one line, each named after the rank and what it does there."""
    model = replayed_model(tables)
    pieces = path_in_time(model) if model is not None and len(model.ranks) > 1 else []
    pieces = [piece for piece in pieces if int(piece.end_ns - begin_ns) > int(piece.begin_ns - begin_ns)]
    if len(pieces) > MOST_PIECES:
        pieces = [piece for piece in pieces if _is_within(piece, begin_ns, stretches)]
    if not pieces:
        return None
    start = np.array([piece.begin_ns - begin_ns for piece in pieces]).astype(np.int64)
    end = np.array([piece.end_ns - begin_ns for piece in pieces]).astype(np.int64)
    kinds = ["communication" if piece.transfers else "" for piece in pieces]
    names = [name_of(f"rank {piece.rank}: {piece.what}", kind) for piece, kind in zip(pieces, kinds, strict=True)]
    ones = np.ones(len(pieces), np.int64)
    return Blocks(np.zeros(len(pieces), np.int64), start, end, np.array(names, np.int64), ones, end - start)


def _is_within(piece: OnPath, begin_ns: int, stretches: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= piece.begin_ns - begin_ns <= end for begin, end in stretches)
