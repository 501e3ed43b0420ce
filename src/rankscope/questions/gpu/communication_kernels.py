"""Which kernels move data between ranks, by their names. Made by tools/generated.py; edit its source, not this."""

from __future__ import annotations

import re

WORDS = (
    "nccl",
    "rccl",
    "msccl",
    "oneccl",
    "nvshmem",
    "rocshmem",
    "deep_ep",
    "cross_device_reduce",
    "multimem_",
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "reducescatter",
    "all_to_all",
    "alltoall",
)
# at the beginning of a word: in a mangled name that is after the word's length
_ANY = re.compile("(?i)(?<![a-z])(?:" + "|".join(WORDS) + ")")
# the same in SQL, of a column `name`; copies and memsets have their names in brackets
SQL = "regexp_matches(name, '(?i)(^|[^a-z])(" + "|".join(WORDS) + ")') AND NOT starts_with(name, '[')"


def communicates(name: str) -> bool:
    """Whether a kernel of this name, mangled or not, moves data between ranks."""
    return _ANY.search(name) is not None
