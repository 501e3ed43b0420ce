"""Which rank files are read together, and where: a batch is of bounded size, and of one host if that host reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rankscope.model import Note, Severity
from rankscope.store.columns import records_table
from rankscope.store.executors import ANYWHERE, At
from rankscope.store.rank_files import Batch, Loaded

MOST_FILES = 512  # of a batch,
MOST_BYTES = 48 << 20  # and what they may take on disk: bounds the memory of a worker
OWN_BYTES = 4 << 20  # of a host, from which its files make batches of their own: fewer are soon read from anywhere

Sized = tuple[int, Path, int]  # process, file, bytes on disk


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A rank file that only its node sees."""

    host: str  # of the node, as it calls itself
    path: Path  # there
    below: str  # its path in the run's folder, which has no copy of it or an older one
    bytes: int
    copied: bool  # whether there is an older one


Nodes = Mapping[Path, Elsewhere]
NO_NODES: Nodes = MappingProxyType({})


def with_elsewhere(run: Path, files: Sequence[Path], nodes: Sequence[Elsewhere]) -> list[Path]:
    """All files in the order that they have once they are gathered; of two of one process the one on its node."""
    if not nodes:
        return list(files)
    known = {str(path): path for path in files} | {str(run / one.below): one.path for one in nodes}
    return [known[path] for path in sorted(known, key=lambda path: path.split(os.sep))]


def tell_nodes(loaded: Loaded, files: list[Path], nodes: Nodes) -> None:
    """Note which files were read on their nodes; some had come into the run before it was their turn."""
    told: dict[int, Note] = {}
    for process, facts in zip(loaded.processes, loaded.facts, strict=True):
        one = nodes.get(files[process])
        if one is not None and facts.source == str(one.path):
            what = "newer than the copy in the run" if one.copied else "not in the run"
            told[process] = Note(f"read on its node, {what}", Severity.NOTE, facts.source)
        elif one is not None:
            files[process] = Path(facts.source)
    loaded.tables.setdefault("notes", []).append(records_table("notes", list(told), list(told.values())))


def place_of(path: Path, nodes: Nodes) -> At:
    """Where a rank file is best read: its folder is called after its host."""
    return At(nodes[path].host, only=True) if path in nodes else At(path.parent.name)


def batches_of(files: Sequence[tuple[int, Path]], nodes: Nodes, hosts: frozenset[str]) -> list[tuple[Batch, At]]:
    """Batches for workers on these hosts, each host's in turn: then all of them have something to do at once."""
    of_place: dict[At, list[Sized]] = {}
    for process, path in files:
        at = place_of(path, nodes) if hosts or nodes else ANYWHERE
        chosen = at if at.only or at.host in hosts else ANYWHERE
        of_place.setdefault(chosen, []).append((process, path, _size(path, nodes)))
    for at in [at for at, of_host in of_place.items() if at != ANYWHERE and not at.only and _is_small(of_host)]:
        of_place.setdefault(ANYWHERE, []).extend(of_place.pop(at))
    of_place.setdefault(ANYWHERE, []).sort(key=lambda one: one[0])
    turns = [(turn, batch, at) for at, of_host in of_place.items() for turn, batch in enumerate(_cut(of_host))]
    return [(batch, at) for _, batch, at in sorted(turns, key=lambda one: (one[0], one[1][0][0]))]


def _is_small(files: Sequence[Sized]) -> bool:
    return sum(size for _, _, size in files) < OWN_BYTES


def _size(path: Path, nodes: Nodes) -> int:
    if nodes and path in nodes:
        return nodes[path].bytes
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0


def _cut(files: Sequence[Sized]) -> Iterator[Batch]:
    batch: list[tuple[int, Path]] = []
    taken = 0
    for process, path, size in files:
        if batch and (len(batch) == MOST_FILES or taken + size > MOST_BYTES):
            yield batch
            batch, taken = [], 0
        batch.append((process, path))
        taken += size
    if batch:
        yield batch
