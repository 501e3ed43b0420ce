"""Rank files that are still on the nodes of a job (`rankscope run --local`), as workers of Dask see them there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rankscope.record.gather import Left, left_here, local_folder_of
from rankscope.store.batches import Elsewhere
from rankscope.store.dask_cluster import cluster
from rankscope.store.executors import Killed
from rankscope.store.folder import NoRun


def asks_nodes(run: Path, dask: str | None) -> bool:
    """Whether there may be files that only workers see: then no answer of before will do."""
    return dask is not None and _local_folder(run) is not None


def files_elsewhere(run: Path, dask: str) -> list[Elsewhere]:
    """What each node has and the run has not; a folder that several nodes see is read by one of them."""
    source, folder = _local_folder(run), run.absolute()
    if source is None:
        return []
    try:
        told = cluster(dask).on_each_host(partial(left_here, folder, source))
    except Killed as problem:
        raise NoRun(f"{run}: {problem}") from None
    found: dict[str, Elsewhere] = {}
    for host, left in sorted(told.items()):
        for one in left:
            if one[0] not in found or _is_of(host, one):
                found[one[0]] = Elsewhere(host, Path(one[0]), *one[1:])
    return list(found.values())


def _is_of(host: str, left: Left) -> bool:
    return Path(left[0]).parent.name == host


def _local_folder(run: Path) -> Path | None:
    try:
        return local_folder_of(run)
    except (OSError, ValueError, TypeError, AttributeError):  # what is wrong with run.json is told elsewhere
        return None
