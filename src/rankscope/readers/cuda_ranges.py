"""NVTX ranges of a rank file: which lies inside which, and the threads they were on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rankscope.model import INSIDE, Group
from rankscope.rank_file import IN_RANGES, ChunkKind, GroupKind, Layer, Rows
from rankscope.rank_files.chunks import RankFile

DEEPEST = 64  # as the recorder has it
LONGEST = 256  # letters of a name: a damaged file may have one of any length, and each path holds many


FORGETFUL = "NCCL"  # a domain that does not end all its ranges
Ended = set[tuple[int, int]]  # domain's group id, name's string id


def ended_ranges(tallies: Rows) -> Ended:
    """The ranges that ended at least once.

    One of NCCL's that never did is no range: NCCL 2.28 begins ncclCommInitRankConfig and forgets it, and everything
    that came after would lie inside.
    """
    ranges = tallies[tallies["layer"] == Layer.NVTX]
    return set(zip(ranges["group"].tolist(), ranges["name"].tolist(), strict=True))


def range_paths(
    rows: Sequence[Any], labels: Sequence[str], word: Callable[[int], str], ended: Ended
) -> tuple[list[str], list[str]]:
    """By group id: the path of `domain/range` down to a range ("" for other groups), and the label of a tally.

    The label of a range is its domain, so that its rows look like those that are not counted by range.
    """
    paths, domains = [""], [""]
    for number, (label, row) in enumerate(zip(labels[1:], rows, strict=True), 1):
        is_range = int(row["kind"]) == GroupKind.RANGE
        paths.append(_path(number, rows, labels, word, ended) if is_range else "")
        domains.append(_label(labels, int(row["remote_size"])) if is_range else label)
    return paths, domains


def _path(number: int, rows: Sequence[Any], labels: Sequence[str], word: Callable[[int], str], ended: Ended) -> str:
    steps: list[str] = []
    while int(rows[number - 1]["kind"]) == GroupKind.RANGE and len(steps) < DEEPEST:
        row = rows[number - 1]
        domain, name = _label(labels, int(row["remote_size"])), word(int(row["name"]))
        if domain != FORGETFUL or (int(row["remote_size"]), int(row["name"])) in ended:
            steps.append(f"{domain[:LONGEST]}/{name[:LONGEST]}".replace(INSIDE, " "))
        parent = int(row["parent"])
        if not 0 < parent < number:  # what is around a range was there before it
            break
        number = parent
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
