"""What does one rank's import ask of a file server, for each kind of client cache?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.analyse.lookups import existing_paths, is_below, lookups
from rankscope.model import PathOperation, Tables

OF_OPENING = {"open": 1, "exec": 1, "list": 3}  # a folder is opened, read, and read again to find its end
PATH_CALLS = (
    "open", "openat", "openat2", "stat", "lstat", "newfstatat", "fstatat64", "statx", "access", "faccessat",
    "faccessat2", "readlink", "readlinkat", "execve", "execveat",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of one rank; None: not known."""

    calls: int | None = None  # all system calls
    path_operations: int | None = None  # those that name a path
    walked: int | None = None  # names on the way of them, each folder every time
    attributes: int | None = None  # of them the ones that went well and opened nothing: asked again without a cache
    opens: int | None = None  # opens of files, and three for each folder that was listed: no cache answers those
    missing: int | None = None  # of them the ones that found nothing
    existing_names: int | None = None  # different files and folders on the way that are there
    missing_names: int | None = None  # and that are not there

    def of_rank(self, cache: str) -> int | None:
        """Server operations of a rank that shares its cache with nobody."""
        if cache == "calls":
            return self.calls
        if cache == "walk":
            return summed(self.walked, self.attributes, self.opens)
        if cache == "none":
            return self.path_operations
        absences = self.missing if cache == "positive" else self.missing_names
        return summed(self.existing_names, absences, self.opens)

    def of_node(self, cache: str, ranks: int) -> int | None:
        """Server operations of a node; the ranks of one share what they know only with the cache `node`."""
        if cache != "node":
            return None if (alone := self.of_rank(cache)) is None else ranks * alone
        if self.opens is None:
            return None
        return summed(self.existing_names, self.missing_names, ranks * self.opens)


def summed(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def counts_of(operations: Sequence[PathOperation], folder: str = "/", calls: int | None = None) -> ImportCounts:
    """The counts of the operations below a folder."""
    below = [one for one in operations if is_below(one.path, folder)]
    good = [one for one in below if one.result in ("ok", "")]
    existing = len(existing_paths(below, folder))
    return ImportCounts(
        calls=calls,
        path_operations=sum(one.times for one in below),
        walked=lookups(below, folder, "none"),
        attributes=sum(one.times for one in good if one.operation not in OF_OPENING),
        opens=sum(one.times * OF_OPENING.get(one.operation, 0) for one in good),
        missing=sum(one.times for one in below if one.result == "ENOENT"),
        existing_names=existing,
        missing_names=lookups(below, folder, "negative") - existing,
    )


def recorded_counts(tables: Tables, process: int, folder: str = "/") -> ImportCounts:
    """The counts of one process of a run; without the table `paths` nothing is known of different names."""
    names = ", ".join(f"'{name}'" for name in PATH_CALLS)
    where = f"FROM system_calls WHERE process = {process}"
    (calls,) = tables.query(f"SELECT sum(calls) {where}")[0]
    (named, missing) = tables.query(f"SELECT sum(calls), sum(missing) {where} AND call IN ({names})")[0]
    paths = f"SELECT operation, path, result, times, bytes FROM paths WHERE process = {process}"
    if rows := tables.query(paths) if has_table(tables, "paths") else []:
        return counts_of([PathOperation(*row) for row in rows], folder, calls=int(calls or 0))
    return ImportCounts(calls=int(calls or 0), path_operations=int(named or 0), missing=int(missing or 0))


def has_table(tables: Tables, name: str) -> bool:
    """Runs of older recorders do not have every table."""
    return bool(tables.query("SELECT 1 FROM information_schema.tables WHERE table_name = ?", (name,)))
