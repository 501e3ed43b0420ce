"""NVTX ranges of a rank file: which lies inside which, and the threads they were on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rankscope.model import INSIDE, Group
from rankscope.rankfile import IN_RANGES, ChunkKind, GroupKind, Layer, Rows
from rankscope.readers.chunks import RankFile

DEEPEST = 256  # of a damaged file, in which a range may lie inside itself


def range_paths(rows: Sequence[Any], labels: Sequence[str], word: Callable[[int], str]) -> tuple[list[str], list[str]]:
    """By group id: the path of `domain/range` down to a range ("" for other groups), and the label of a tally.

    The label of a range is its domain, so that its rows look like those that are not counted by range.
    """
    paths, domains = [""], [""]
    for label, row in zip(labels[1:], rows, strict=True):
        is_range = int(row["kind"]) == GroupKind.RANGE
        paths.append(_path(row, rows, labels, word) if is_range else "")
        domains.append(_label(labels, int(row["remote_size"])) if is_range else label)
    return paths, domains


def _path(row: Any, rows: Sequence[Any], labels: Sequence[str], word: Callable[[int], str]) -> str:
    steps: list[str] = []
    while int(row["kind"]) == GroupKind.RANGE and len(steps) < DEEPEST:
        step = f"{_label(labels, int(row['remote_size']))}/{word(int(row['name']))}"
        steps.append(step.replace(INSIDE, " "))
        parent = int(row["parent"])
        if not 0 < parent <= len(rows):
            break
        row = rows[parent - 1]
    return INSIDE.join(reversed(steps))


def _label(labels: Sequence[str], number: int) -> str:
    return labels[number] if number < len(labels) else ""


def range_threads(file: RankFile, tallies: Rows, slots: Any) -> list[Group]:
    """The threads on which there were ranges, by the slot of their rows."""
    with_ranges = set(np.unique(slots[np.isin(tallies["layer"], (Layer.NVTX, *IN_RANGES))]).tolist())
    found = {int(row["slot"]): row for part in file.parts(ChunkKind.THREADS) for row in part.rows}
    return [
        Group(found[slot]["name"].decode("utf-8", "replace"), str(slot), "thread", my_rank=int(found[slot]["tid"]))
        for slot in sorted(with_ranges & found.keys())
    ]
